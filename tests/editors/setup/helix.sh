#!/usr/bin/env bash
# helix.sh DIR    Helix 25 (Debian) into DIR; prints the path of a command that starts it. 15 s, then 0.1 s.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"
[ $# = 1 ] || fail "usage: helix.sh DIR"
DIR=$(folder "$1")

unpack "$DIR" hx hx

# Its queries for tree-sitter are where Debian installs them.
cat > "$DIR/hx" <<START
#!/bin/sh
export HELIX_RUNTIME="$(dirname "$(find "$DIR/root" -path '*/runtime/queries' | head -1)")"
exec "$DIR/root/usr/bin/hx" "\$@"
START
chmod +x "$DIR/hx"

"$DIR/hx" --version >&2
echo "$DIR/hx"
