"""Which files are never read nor filled: secrets, what the user excludes, what git ignores.

The user's word comes first: the last of their patterns that matches a file, or a folder above it, decides. What they do
not name is excluded when its name is known to hold secrets, or by `.gitignore` files, with git's rules. A link is
excluded with the file it leads to. A line that is no pattern is left out. Knows no documents, editors or settings.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern


log = logging.getLogger(__name__)

# Matched against whole paths in lower case; a folder of such a name (a virtual environment `.env`) is not meant.
SECRETS = (
    *(".env*", "*.env", "secrets.*", ".vault-token", ".vault_pass*", "*.tfvars", "*.tfvars.json"),
    *("*.tfstate", "*.tfstate.*", "local.settings.json", "client_secret*.json"),
    *("service-account*.json", "service_account*.json", "application_default_credentials.json"),
    # Credentials of tools.
    *("credentials", "credentials.json", "credentials.toml", "credentials.yml", "credentials.yaml"),
    *(
        "credentials.ini",
        "credentials.csv",
        "credentials.xml",
        "credentials.properties",
        "credentials.yml.enc",
    ),
    *(".netrc", "_netrc", ".authinfo", ".git-credentials", ".npmrc", ".pypirc", ".dockercfg", ".htpasswd"),
    *(".pgpass", ".my.cnf", ".s3cfg", ".boto", ".msmtprc", ".fetchmailrc", "kubeconfig", "*.kubeconfig"),
    *("**/.git/config", "**/.docker/config.json", "**/.kube/config", "**/.m2/settings.xml"),
    *("**/.gradle/gradle.properties", "**/.config/gh/hosts.yml", "**/.config/gcloud/**"),
    *("**/.ssh/**", "**/.gnupg/**", "**/.aws/**", "**/.azure/**", "**/.password-store/**"),
    # Keys, certificates, password stores.
    *(
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "*.pem",
        "*.key",
        "*.ppk",
        "*.p8",
        "*.p12",
        "*.pfx",
        "*.p7b",
    ),
    *("*.pkcs12", "*.jks", "*.keystore", "*.crt", "*.cer", "*.der", "*.gpg", "*.pgp", "*.age"),
    *("*.kdb", "*.kdbx"),
    # What was typed into a shell.
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history"),
    *(".mysql_history", ".sqlite_history", ".rediscli_history"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pattern:
    """One line in the syntax of `.gitignore`; `folders_only` when it ends in a slash."""

    line: str
    spec: GitIgnoreSpecPattern
    folders_only: bool

    @property
    def excludes(self) -> bool:
        """Whether what it matches is excluded; False for lines that begin with '!'."""
        return bool(self.spec.include)

    def is_of(self, name: str, *, folder: bool) -> bool:
        """Whether it matches just this path, relative to the pattern's own folder."""
        found = None if self.folders_only and not folder else self.spec.match_file(name)
        # The library's expressions have a group, and it takes part when the match is a folder above.
        return found is not None and found.match.lastindex is None

    def covers(self, name: str) -> bool:
        """Whether it matches this file or a folder above it."""
        if self.spec.match_file(name) is None:  # nor does it match a folder above, then
            return False
        parents = [parent.as_posix() for parent in PurePath(name).parents[:-1]]
        return self.is_of(name, folder=False) or any(self.is_of(parent, folder=True) for parent in parents)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _IgnoreFile:
    """A `.gitignore` as it was read; an object of its own for each content, so that answers can be remembered."""

    folder: Path
    stamp: tuple[int, ...]  # changes when the file does
    patterns: tuple[_Pattern, ...]  # the one that counts most first


class Exclusions:
    """What is excluded in some workspace folders; `.gitignore` files are read again when they change."""

    def __init__(self, folders: Sequence[Path], patterns: Sequence[str]) -> None:
        self._folders = _with_their_targets(folders)
        self._patterns = _compiled(tuple(patterns))
        self._ignore_files: dict[Path, _IgnoreFile] = {}

    def reason(self, path: Path) -> str:
        """Why this file may neither be read nor filled; '' when it may."""
        given, target = Path(os.path.abspath(path)), Path(os.path.realpath(path))  # noqa: PTH100 - pathlib keeps '..'
        return self._reason(given) or ("" if target == given else self._reason(target))

    def reason_by_name(self, path: Path) -> str:
        """The same for what only has the name of a file, and lies elsewhere or nowhere: no disk is looked at."""
        return self._decision(path) or ""

    def _reason(self, path: Path) -> str:
        decision = self._decision(path)
        return _ignored(path, self._ignore_files_for(path)) if decision is None else decision

    def _decision(self, path: Path) -> str | None:
        """What the name alone decides: a reason, or '' where the user allows it; None leaves it to git."""
        decisive = _last_that_covers(self._patterns, _names(path, self._folders))
        if decisive is not None:
            return f"excluded by the setting ({decisive.line})" if decisive.excludes else ""
        return _secret(path.as_posix().lower()) or None

    def _ignore_files_for(self, path: Path) -> tuple[_IgnoreFile, ...]:
        """The `.gitignore` files that git would read, outermost first.

        They begin at the top of the path's repository; where there is none, at the outermost workspace folder.
        """
        parents = list(path.parents)
        repositories = (index for index, folder in enumerate(parents) if _stat(folder / ".git"))
        folders = (index for index in reversed(range(len(parents))) if parents[index] in self._folders)
        top = next(repositories, next(folders, None))
        if top is None:
            return ()
        return tuple(self._ignore_file(folder) for folder in reversed(parents[: top + 1]))

    def _ignore_file(self, folder: Path) -> _IgnoreFile:
        stamp = _stamp(folder / ".gitignore")
        known = self._ignore_files.get(folder)
        if known is None or known.stamp != stamp:
            lines = _lines(folder / ".gitignore") if stamp else ()
            known = self._ignore_files[folder] = _IgnoreFile(folder, stamp, _compiled(lines)[::-1])
        return known


def disabled_by(globs: Sequence[str], path: Path, folders: Sequence[Path]) -> str:
    """The glob that switches automatic suggestions off in this file; '' when none does. A later '!' glob wins."""
    names = _names(Path(os.path.abspath(path)), _with_their_targets(folders))  # noqa: PTH100 - pathlib keeps '..'
    decisive = _last_that_covers(_compiled(tuple(globs)), names)
    return decisive.line if decisive is not None and decisive.excludes else ""


def not_patterns(lines: Iterable[str]) -> list[str]:
    """Those of the user's lines that are left out because they mean nothing, neither blank nor a comment."""
    return [line for line in lines if line.strip() and not line.startswith("#") and _pattern(line) is None]


def _with_their_targets(folders: Iterable[Path]) -> frozenset[Path]:
    """The folders, and what they are where links lead to them."""
    places = {place for folder in folders for place in (os.path.abspath(folder), os.path.realpath(folder))}  # noqa: PTH100
    return frozenset(map(Path, places))


def _names(path: Path, folders: frozenset[Path]) -> list[str]:
    """The path as each workspace folder that holds it names it; the whole path when none does."""
    names = [path.relative_to(folder).as_posix() for folder in path.parents if folder in folders]
    return names or [path.as_posix().lstrip("/")]


def _last_that_covers(patterns: Sequence[_Pattern], names: Sequence[str]) -> _Pattern | None:
    covering = (pattern for pattern in reversed(patterns) if any(map(pattern.covers, names)))
    return next(covering, None)


@functools.lru_cache(maxsize=4096)
def _secret(path: str) -> str:
    name = path.lstrip("/")
    found = (pattern.line for pattern in _compiled(SECRETS) if pattern.is_of(name, folder=False))
    return next((f"a file of secrets ({line})" for line in found), "")


@functools.lru_cache(maxsize=4096)
def _ignored(path: Path, files: tuple[_IgnoreFile, ...]) -> str:
    """Which pattern makes git ignore this file; '' when none does. Below an ignored folder everything is ignored."""
    if not files:
        return ""
    steps = path.relative_to(files[0].folder).parts
    for depth in range(1, len(steps) + 1):
        place = files[0].folder.joinpath(*steps[:depth])
        decisive = _decisive(place, files[:depth], folder=depth < len(steps))
        if decisive is not None and decisive[1].excludes:
            return f"ignored by {decisive[0].folder / '.gitignore'} ({decisive[1].line})"
    return ""


def _decisive(
    place: Path, files: Sequence[_IgnoreFile], *, folder: bool
) -> tuple[_IgnoreFile, _Pattern] | None:
    """The pattern that decides on one file or folder: the last one that matches, of the innermost file that has one."""
    for file in reversed(files):
        name = place.relative_to(file.folder).as_posix()
        for pattern in file.patterns:
            if pattern.is_of(name, folder=folder):
                return file, pattern
    return None


@functools.lru_cache(maxsize=256)
def _compiled(lines: tuple[str, ...]) -> tuple[_Pattern, ...]:
    return tuple(pattern for line in lines if (pattern := _pattern(line)) is not None)


def _pattern(line: str) -> _Pattern | None:
    """None for blank lines, comments, and lines that git does not understand either."""
    from pathspec.patterns.gitignore import GitIgnorePatternError  # here: a server begins to listen before
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    kept = line if line.endswith("\\ ") else line.rstrip()
    try:
        # Without its last slash a pattern matches the folder's own name; that it is a folder is known apart.
        spec = GitIgnoreSpecPattern(kept.removesuffix("/"))
    except (GitIgnorePatternError, re.error):  # the library lets those of the expression it makes pass
        log.warning("not a pattern: %r", line)
        return None
    return None if spec.include is None else _Pattern(kept, spec, kept.endswith("/"))


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file's content does; () when there is no such file."""
    found = _stat(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        log.warning("cannot read %s: %s", path, error)
        return ()
    return tuple(text.split("\n"))
