#!/usr/bin/env bash
# vscode.sh DIR: VS Code in a browser (code-server), Chromium and playwright-core, for tests/editors/test_vscode.py.
# Prints the path of code-server's entry for Node. Run again, it does only what is missing.
# Root is needed only where Chromium, ripgrep, a font or a C++ compiler are not installed yet.
set -euo pipefail
[ $# = 1 ] || { echo "usage: vscode.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
version=4.100.3 # the last one for Node 20; VS Code 1.100.3
server=$dir/node_modules/code-server
modules=$server/lib/vscode/node_modules
entry=$server/out/node/entry.js
# Install scripts would download from elsewhere; what they build is built below, one compiler at a time.
npm_quiet=(npm --no-audit --no-fund --no-update-notifier --loglevel=error --ignore-scripts)
export JOBS=1

fail() {
  echo "vscode.sh: $1" >&2
  exit 1
}

# What a command says is shown only when it fails.
quietly() {
  "$@" >"$dir/last.log" 2>&1 || { tail -n 30 "$dir/last.log" >&2; fail "failed: $*"; }
}

system_packages() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium)
  command -v rg >/dev/null || missing+=(ripgrep)
  command -v g++ >/dev/null || missing+=(g++)
  command -v make >/dev/null || missing+=(make)
  [ -n "$(fc-list 2>/dev/null)" ] || missing+=(fontconfig fonts-dejavu-core)
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "please install: ${missing[*]}"
  apt-get update -qq >&2 || true # the lists that are there may do
  DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

node_headers() {
  command -v npm >/dev/null || fail "Node and npm are missing"
  case $(node --version) in v2[0-2].*) ;; *) fail "code-server $version wants Node 20 to 22" ;; esac
  prefix=$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")
  [ -f "$prefix/include/node/node.h" ] || fail "there are no headers of Node in $prefix/include/node"
  export npm_config_nodedir=$prefix
}

packages() {
  cd "$dir"
  if [ "$(node -p "require('$server/package.json').version" 2>/dev/null)" != "$version" ] || [ ! -d node_modules/playwright-core ]; then
    echo '{ "name": "vscode-under-test", "version": "0.0.0", "private": true }' >package.json
    quietly "${npm_quiet[@]}" install --save-exact "code-server@$version" playwright-core@1
  fi
  if [ ! -e "$modules/.complete" ]; then
    (cd "$server/lib/vscode" && quietly "${npm_quiet[@]}" install --omit=dev --legacy-peer-deps)
    ln -sfn node_modules "$modules.asar"
    touch "$modules/.complete"
  fi
  mkdir -p "$modules/@vscode/ripgrep/bin"
  ln -sfn "$(command -v rg)" "$modules/@vscode/ripgrep/bin/rg"
}

# native FOLDER FILE: FILE, built in FOLDER.
native() {
  [ ! -e "$1/build/Release/$2" ] || return 0
  local gyp
  gyp=$(dirname "$(readlink -f "$(command -v npm)")")/../node_modules/node-gyp/bin/node-gyp.js
  (cd "$1" && quietly node "$gyp" rebuild --nodedir="$prefix")
}

argon2() {
  local folder=$dir/node_modules/argon2
  [ ! -e "$folder/lib/binding/napi-v3/argon2.node" ] || return 0
  (cd "$folder" && PATH=$dir/node_modules/.bin:$PATH quietly node-pre-gyp rebuild --build-from-source --nodedir="$prefix")
}

system_packages
node_headers
packages
native "$modules/@vscode/spdlog" spdlog.node
native "$modules/native-watchdog" watchdog.node
native "$modules/node-pty" pty.node
argon2
echo "$entry"
