#!/usr/bin/env bash
# emacs.sh DIR    Emacs 30 with eglot and lsp-mode 10 (Debian) into DIR; prints the path of a command that starts it.
# 20 s, then 0.1 s.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"
[ $# = 1 ] || fail "usage: emacs.sh DIR"
DIR=$(folder "$1")

unpack "$DIR" "emacs-nox elpa-lsp-mode" emacs-nox

# An Emacs that was unpacked and not installed finds none of its parts by itself, nor those of Debian's packages, which
# are copied into place when they are installed.
SHARE=$(echo "$DIR"/root/usr/share/emacs/[0-9]*)
LIBEXEC=$(echo "$DIR"/root/usr/libexec/emacs/[0-9]*/*)
cat > "$DIR/emacs" <<START
#!/bin/sh
export EMACSLOADPATH="$SHARE/lisp" EMACSDATA="$SHARE/etc" EMACSDOC="$SHARE/etc" EMACSPATH="$LIBEXEC"
exec "$DIR/root/usr/bin/emacs-nox" --dump-file="$(echo "$LIBEXEC"/*.pdmp)" -Q --load "$DIR/packages.el" "\$@"
START
chmod +x "$DIR/emacs"
cat > "$DIR/packages.el" <<LISP
(setq native-comp-jit-compilation nil native-comp-enable-subr-trampolines nil)
(dolist (folder (directory-files "$DIR/root/usr/share/emacs/site-lisp/elpa-src" t "^[^.]"))
  (add-to-list 'load-path folder))
LISP

"$DIR/emacs" --version | head -1 >&2
echo "$DIR/emacs"
