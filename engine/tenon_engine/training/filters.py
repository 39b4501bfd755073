"""Which files are worth training on: one small pure function per reason to leave a file out, named after it.

The functions that look at the path are asked before a file is read. What each of them leaves out is counted under
its name in the corpus's manifest. Knows no archives and no packages.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy

from tenon_engine import line_ends, source_file
from tenon_engine.training import lists

CHARACTERS_AT_LEAST = 200
BYTES_AT_MOST = 400_000
DATA_BYTES_AT_MOST = 10_000  # of a file in a language that is mostly data
_HEAD_CHARACTERS = 3_000  # where a file says what it is
_LONG_LINE = 300
_LONG_SHARE_AT_MOST = 0.25  # of a text, in long lines
_MEAN_LINE_AT_MOST = 110
_DENSE_CHARACTERS_AT_LEAST = 1_000
_DENSE_ENTROPY_BITS = 5.4  # a character of a long line: code and prose have 4 to 5, base64 has 6
_DATA_LINES_AT_LEAST = 30
_DATA_SHARE_AT_MOST = 0.5
_DIGIT_SHARE_AT_MOST = 0.25

_PROSE = frozenset({"markdown"})
_DATA = frozenset({"json", "yaml", "toml"})
_UNWANTED_LANGUAGES = frozenset({"plaintext"})  # licences, word lists, recorded output
_MORE_SUFFIXES = {".cjs": "javascript", ".cts": "typescript", ".mts": "typescript"}

_VENDORED = frozenset(
    {
        *(
            "node_modules",
            "bower_components",
            "vendor",
            "vendored",
            "_vendor",
            "_vendored",
            "_vendored_packages",
        ),
        *("third_party", "third-party", "thirdparty", "3rdparty", "extern", "externals", "site-packages"),
    }
)
_METADATA_FOLDER = re.compile(r"\.(?:dist-info|egg-info|data)$")
_LOCK_NAME = re.compile(
    r"(?:.*\.lock|(?:package-lock|npm-shrinkwrap)\.json|pnpm-lock\.ya?ml|.*[-_.]lock\.(?:json|ya?ml|toml)|go\.sum)"
)
_GENERATED_NAME = re.compile(
    r".*(?:_pb2(?:_grpc)?\.pyi?|\.pb\.(?:go|cc|h)|_pb\.(?:js|d\.ts)|[.-]min\.\w+|\.bundle\.\w+|\.umd(?:\.\w+)?\.js"
    r"|[._]generated\.\w+|[-_]stubs?\.pyi|_version\.py)"
)
_BOILERPLATE = frozenset(
    {
        *(
            "authors",
            "changelog",
            "changes",
            "code_of_conduct",
            "contributors",
            "copying",
            "history",
            "licence",
        ),
        *("license", "licenses", "maintainers", "news", "notice", "release-notes", "releases", "security"),
        *("third-party-notices", "thirdpartynotices", "upgrading"),
    }
)
_TEST_DATA = frozenset({"__snapshots__", "cassettes", "fixtures", "snapshots", "test_data", "testdata"})
_BUILT = frozenset({"_cjs", "bundles", "cjs", "esm5", "iife", "umd"})
_BUILT_NAME = re.compile(
    r".*\.cjs|.*[-.](?=[^.]*\d)(?=[^.]*[A-Z])[\w-]{8}\.(?:css|m?js)"
)  # a hash in the name
_SECRET_NAME = re.compile(
    r"\.env.*|.*\.env|secrets?\..*|credentials\..*|client_secret.*\.json|service[-_]account.*\.json"
    r"|application_default_credentials\.json|local\.settings\.json|.*\.tfvars(?:\.json)?|.*\.tfstate(?:\..*)?"
)
_SECRET_FOLDERS = frozenset({".aws", ".azure", ".docker", ".gnupg", ".kube", ".password-store", ".ssh"})

_GENERATED_MARK = re.compile(
    r"@generated\b|\bauto-?\s?generated\b|\bautomatically\s+generated\b|\bgenerated\s+(?:by|from|with|using)\b"
    r"|\bdo\s+not\s+(?:manually\s+)?(?:edit|modify|change)\b|\bmachine[- ]generated\b",
    re.IGNORECASE,
)
_COMMENT_LINE = re.compile(r"^[ \t]*(?:#|//|/\*|\*|<!--|--|;|\"\"\"|''').*$", re.MULTILINE)
_TRANSPILED_MARKS = (
    *('"__esModule"', "'__esModule'", "//# sourceMappingURL=", "__webpack_require__"),
    *("_interopRequire", "__awaiter(", "__defProp = Object.defineProperty"),
)
_COPYLEFT_MARK = re.compile(
    r"\b(?:GNU (?:Affero |Lesser |Library )?General Public|Mozilla Public) License"
    r"|SPDX-License-Identifier:[^\n]*\b(?:A?L?GPL|MPL)",
    re.IGNORECASE,
)
_DATA_BEGINS = frozenset("\"'0123456789")
_DATA_OPENERS = frozenset("([{+-.")
_DATA_ENDS = frozenset(",;])}")
_EVALUATION_MARKS = ("humaneval", "human-eval", "human_eval", "human eval")


def language_of(path: PurePosixPath) -> str | None:
    """The language of a file we may train on; None for others."""
    language = _MORE_SUFFIXES.get(path.suffix.lower()) or source_file.language_of(Path(path))
    return None if language in _UNWANTED_LANGUAGES else language


def reason_by_path(path: PurePosixPath) -> str | None:
    """The name of the first filter that leaves a file out for where it is or how it is called."""
    return next((keep_out.__name__ for keep_out in PATH_FILTERS if keep_out(path)), None)


def reason_by_size(size_bytes: int, language: str) -> str | None:
    """The same for its size."""
    return "too_long" if size_bytes > (DATA_BYTES_AT_MOST if language in _DATA else BYTES_AT_MOST) else None


def reason_by_text(text: str, language: str, *, is_own: bool = False) -> str | None:
    """The same for what it says; in the user's own code the licence of a file is no reason."""
    asked = (keep_out for keep_out in TEXT_FILTERS if not (is_own and keep_out is copyleft))
    return next((keep_out.__name__ for keep_out in asked if keep_out(text, language)), None)


def descriptions() -> dict[str, str]:
    """What each filter leaves out, by its name."""
    return {keep_out.__name__: keep_out.__doc__ or "" for keep_out in (*PATH_FILTERS, *TEXT_FILTERS)}


def decode(content: bytes) -> str | None:
    """The text of a UTF-8 file with LF line ends and without a byte order mark; None when it is no such text."""
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else line_ends.to_lf(text)


def odd_name(path: PurePosixPath) -> bool:
    """A path that cannot be shown: control characters, or bytes that are no text."""
    return not str(path).isprintable()


def vendored(path: PurePosixPath) -> bool:
    """Another package's code, copied in."""
    return not _VENDORED.isdisjoint(_folders(path))


def package_metadata(path: PurePosixPath) -> bool:
    """What an installer writes beside the code."""
    return any(_METADATA_FOLDER.search(folder) for folder in _folders(path))


def lock_file(path: PurePosixPath) -> bool:
    """Versions that a package manager has pinned."""
    return bool(_LOCK_NAME.fullmatch(path.name.lower()))


def generated_name(path: PurePosixPath) -> bool:
    """The name that a generator, a bundler or a minifier gives."""
    return bool(_GENERATED_NAME.fullmatch(path.name.lower()))


def built(path: PurePosixPath) -> bool:
    """A bundle, or the same code for another module system."""
    return bool(_BUILT_NAME.fullmatch(path.name)) or not _BUILT.isdisjoint(_folders(path))


def boilerplate(path: PurePosixPath) -> bool:
    """Licences, lists of changes, rules of conduct: much the same everywhere."""
    return path.stem.lower() in _BOILERPLATE


def test_data(path: PurePosixPath) -> bool:
    """What tests read or have recorded."""
    return not _TEST_DATA.isdisjoint(_folders(path))


def secret(path: PurePosixPath) -> bool:
    """What may hold keys or passwords."""
    is_named_so = bool(_SECRET_NAME.fullmatch(path.name.lower()))
    return is_named_so or not _SECRET_FOLDERS.isdisjoint(_folders(path))


def too_short(text: str, language: str) -> bool:
    """Too little for a hole with something on both sides."""
    return len(text.strip()) < CHARACTERS_AT_LEAST


def generated(text: str, language: str) -> bool:
    """A comment near the top says that a program wrote it."""
    comments = _COMMENT_LINE.findall(text, 0, _HEAD_CHARACTERS)
    return language not in _PROSE and any(map(_GENERATED_MARK.search, comments))


def transpiled(text: str, language: str) -> bool:
    """What a compiler or bundler made of the source."""
    return any(mark in text for mark in _TRANSPILED_MARKS)


def copyleft(text: str, language: str) -> bool:
    """A file under another licence than its package."""
    return _COPYLEFT_MARK.search(text, 0, _HEAD_CHARACTERS) is not None


def evaluation_data(text: str, language: str) -> bool:
    """Anything that mentions HumanEval or one of its functions."""
    lower = text.lower()
    if any(mark in lower for mark in _EVALUATION_MARKS):
        return True
    return any(name in text and re.search(rf"\b{name}\b", text) for name in lists.evaluation_functions())


def minified(text: str, language: str) -> bool:
    """Lines that nobody wrote: too long, on average or too many of them."""
    lengths = [len(line) for line in text.split("\n")]
    long = sum(length for length in lengths if length > _LONG_LINE)
    too_long = long > _LONG_SHARE_AT_MOST * len(text) or len(text) > _MEAN_LINE_AT_MOST * len(lengths)
    return too_long and language not in _PROSE


def dense(text: str, language: str) -> bool:
    """Long lines of encoded data."""
    long = "".join(line for line in text.split("\n") if len(line) > _LONG_LINE)
    if len(long) < _DENSE_CHARACTERS_AT_LEAST or not long.isascii():
        return False
    counts = numpy.bincount(numpy.frombuffer(long.encode(), numpy.uint8))
    shares = counts[counts > 0] / len(long)
    return float(-(shares * numpy.log2(shares)).sum()) > _DENSE_ENTROPY_BITS


def data_like(text: str, language: str) -> bool:
    """Tables of numbers or strings rather than code."""
    if language in _PROSE:
        return False
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    data_count = sum(map(_is_data_line, lines))
    if data_count >= _DATA_LINES_AT_LEAST and data_count > _DATA_SHARE_AT_MOST * len(lines):
        return language not in _DATA
    digit_count = sum(map(text.count, "0123456789"))
    return digit_count > _DIGIT_SHARE_AT_MOST * sum(map(len, lines))


def _is_data_line(line: str) -> bool:
    """Whether a line, stripped, is an entry of a table: it begins as a literal does and ends as an entry does."""
    begins = line[0] in _DATA_BEGINS or (line[0] in _DATA_OPENERS and line[1:2] in _DATA_BEGINS)
    return begins and line[-1] in _DATA_ENDS


def _folders(path: PurePosixPath) -> list[str]:
    return [part.lower() for part in path.parts[:-1]]


PATH_FILTERS: tuple[Callable[[PurePosixPath], bool], ...] = (
    odd_name,
    vendored,
    package_metadata,
    lock_file,
    generated_name,
    built,
    boilerplate,
    test_data,
    secret,
)
TEXT_FILTERS: tuple[Callable[[str, str], bool], ...] = (
    too_short,
    generated,
    transpiled,
    copyleft,
    evaluation_data,
    minified,
    dense,
    data_like,
)
