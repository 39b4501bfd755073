"""The settings of the language server: one typed tree, its defaults, and what is wrong with a client's values.

`Settings` is the only list of settings; reading a client's JSON and the table for the documentation follow from it.
Knows neither how a client sends settings nor who acts on them.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Value = TypeVar("Value", covariant=True)
Choice = TypeVar("Choice", bound=enum.Enum)
Group = TypeVar("Group")

SECTION = "tenon"  # the name of the whole tree in a client's configuration

_UNSET = (None, "")
_SHOWN_CHARACTERS = 60  # of a wrong value, in a complaint


class Multiline(enum.Enum):
    """Whether a suggestion may have more than one line."""

    AUTO = "auto"  # where nothing follows the cursor on its line
    ALWAYS = "always"
    NEVER = "never"


class PopupPolicy(enum.Enum):
    """What to do while the editor's own completion list has an entry selected."""

    EXTEND = "extend"  # suggest text that continues the selected entry
    OFF = "off"


class EngineKind(enum.Enum):
    """What the engine at `engine.url` speaks."""

    TENON = "tenon"
    OPENAI = "openai"  # completions with a suffix
    CHAT = "chat"  # chat completions, with the hole described in a prompt
    LLAMACPP = "llamacpp"  # llama.cpp's /infill


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind(Generic[Value]):
    """A kind of value: how the documentation and complaints name it, and how it is read (None: it is not one)."""

    name: str
    read: Callable[[object], Value | None]


def _read_flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read_address(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    scheme, _, rest = value.strip().partition(":")
    is_address = (scheme in ("http", "https") and rest.strip("/") and rest.startswith("//")) or (
        scheme == "unix" and rest
    )
    return value.strip() if is_address else None


def _read_texts(value: object) -> tuple[str, ...] | None:
    """Blank entries are unset ones; an empty object is how some clients send an empty list."""
    if value == {}:
        return ()
    if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in value):
        return None
    return tuple(item for item in value if item is not None and item.strip())


def _read_number(value: object, minimum: float, maximum: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if minimum <= value <= maximum else None


def _read_share(value: object) -> float | None:
    return _read_number(value, 0, 1)


def _whole(minimum: int, maximum: int) -> _Kind[int]:
    def read(value: object) -> int | None:
        number = _read_number(value, minimum, maximum)
        # Some clients have no whole numbers and send 32.0.
        return int(number) if number is not None and number == int(number) else None

    return _Kind(f"a whole number from {minimum} to {maximum}", read)


def _choice(options: type[Choice]) -> _Kind[Choice]:
    named = {option.value: option for option in options}
    names = ", ".join(f'"{name}"' for name in named)
    return _Kind(f"one of {names}", lambda value: named.get(value) if isinstance(value, str) else None)


_FLAG = _Kind("true or false", _read_flag)
_TEXT = _Kind("a string", _read_text)
_ADDRESS = _Kind("an address such as http://host:8080, https://host or unix:/path", _read_address)
_TEXTS = _Kind("a list of strings", _read_texts)
_SHARE = _Kind("a number from 0 to 1", _read_share)


def _setting(default: T, kind: _Kind[T], purpose: str) -> T:
    return dataclasses.field(default=default, metadata={"kind": kind, "purpose": purpose})


@dataclasses.dataclass(frozen=True, slots=True)
class SuggestIn:
    """Kinds of text with automatic suggestions; code always has them."""

    comments: bool = _setting(True, _FLAG, "Suggest in comments and docstrings while typing.")
    strings: bool = _setting(True, _FLAG, "Suggest in string literals while typing.")
    prose: bool = _setting(True, _FLAG, "Suggest in the prose of markdown and text files while typing.")


@dataclasses.dataclass(frozen=True, slots=True)
class Disabled:
    """Where nothing is suggested while typing; a suggestion asked for by hand still comes."""

    languages: tuple[str, ...] = _setting(
        (), _TEXTS, "Language ids without suggestions while typing; asked for by hand, they still come."
    )
    globs: tuple[str, ...] = _setting(
        (), _TEXTS, "The same for files, by patterns in the syntax of `.gitignore`."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class EngineSettings:
    """The engine: by default this user's own on this machine, shared by all windows."""

    model: str = _setting(
        "tenon-0.5b",
        _TEXT,
        "The model: `tenon-0.5b`, a hub id or a folder of a supported family, or `scripted:FILE` for tests; "
        "of an engine elsewhere, its name there.",
    )
    idle_minutes: int = _setting(
        30,
        _whole(0, 1440),
        "Free the memory of this machine's engine after this time without a request; 0 is never.",
    )
    url: str = _setting(
        "",
        _ADDRESS,
        "Use an engine elsewhere: the address of its server, or of what is to be asked there. Text around the cursor "
        "is sent to it; without an address, none leaves this machine.",
    )
    kind: EngineKind = _setting(  # noqa: RUF009 - it is a field
        EngineKind.TENON,
        _choice(EngineKind),
        "What is spoken there: Tenon's own protocol, OpenAI's completions with a suffix, OpenAI's chat, or llama.cpp's "
        "`/infill`.",
    )
    token_file: str = _setting("", _TEXT, "A file with the token or API key to send there.")
    ca_file: str = _setting(
        "", _TEXT, "A file with the certificate authority to trust there, instead of the usual ones."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings; `Settings()` is what holds when a client says nothing."""

    enabled: bool = _setting(
        True, _FLAG, "Suggest while typing. Suggestions asked for by hand come either way."
    )
    debounce_ms: int | None = _setting(
        None,
        _whole(0, 5000),
        "Pause in typing before a suggestion is computed; unset, it adapts to the measured speed.",
    )
    deadline_ms: int = _setting(
        4000, _whole(50, 60_000), "A suggestion while typing is given up after this time."
    )
    multiline: Multiline = _setting(  # noqa: RUF009 - it is a field
        Multiline.AUTO,
        _choice(Multiline),
        "Suggestions of several lines: where nothing follows on the line, everywhere, or nowhere.",
    )
    max_tokens: int = _setting(
        32, _whole(1, 256), "Longest suggestion for a line, in tokens; a block may take four times that."
    )
    min_confidence: float = _setting(0.1, _SHARE, "Suggestions the model is less sure of are not shown.")
    alternatives: int = _setting(
        3, _whole(1, 8), "How many different suggestions to compute when asked by hand."
    )
    when_popup_visible: PopupPolicy = _setting(  # noqa: RUF009 - it is a field
        PopupPolicy.EXTEND,
        _choice(PopupPolicy),
        "While the editor's completion list is open: continue its selected entry, or stay silent.",
    )
    suggest_in: SuggestIn = SuggestIn()
    disabled: Disabled = Disabled()
    exclude: tuple[str, ...] = _setting(
        (),
        _TEXTS,
        "Files never read nor filled, by patterns in the syntax of `.gitignore`, besides secrets and what git "
        "ignores; `!PATTERN` allows files again.",
    )
    related_files: bool = _setting(True, _FLAG, "Let the model read parts of other open files.")
    prefetch: bool = _setting(True, _FLAG, "Compute what may be needed next while a suggestion is shown.")
    hole_markers: tuple[str, ...] = _setting(
        ("___", "TODO_FILL"), _TEXTS, 'Texts that mark a hole for the action "fill holes".'
    )
    engine: EngineSettings = EngineSettings()

    @staticmethod
    def parse(data: object) -> tuple[Settings, list[str]]:
        """Settings from a client's JSON, and one sentence for each thing that is wrong with it.

        Objects may be nested or flat ("engine.model"), inside the section's name or not. null and "" are unset.
        A wrong value leaves the default in place.
        """
        kinds = {setting.key: setting.kind for setting in _settings(Settings())}
        values: dict[str, object] = {}
        complaints: list[str] = []
        for key, value in _flat(data, "", set(kinds)):
            if value in _UNSET:
                continue
            read = kinds[key].read(value) if key in kinds else None
            if read is None:
                complaints.append(_complaint(key, value, kinds))
            else:
                values[key] = read
        return _with(Settings(), "", values), complaints


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    """A leaf of the tree, as a client knows it."""

    key: str  # without the section's name
    kind: _Kind[Any]
    default: object
    purpose: str


def describe() -> str:
    """A markdown table of all settings: key, type, default, purpose."""
    rows = [
        (f"`{SECTION}.{setting.key}`", setting.kind.name, f"`{_json(setting.default)}`", setting.purpose)
        for setting in _settings(Settings())
    ]
    table = [("Setting", "Type", "Default", "What it does"), ("---",) * 4, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def _settings(group: Any, prefix: str = "") -> Iterator[_Setting]:
    """The leaves below `group`, whose keys begin with `prefix`."""
    for field in dataclasses.fields(group):
        key, default = prefix + _camel(field.name), getattr(group, field.name)
        if dataclasses.is_dataclass(default):
            yield from _settings(default, f"{key}.")
        else:
            yield _Setting(key, field.metadata["kind"], default, field.metadata["purpose"])


def _with(group: Group, prefix: str, values: dict[str, object]) -> Group:
    """`group`, whose keys begin with `prefix`, with the `values` that a client set."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(group):  # type: ignore[arg-type]
        key, default = prefix + _camel(field.name), getattr(group, field.name)
        is_group = dataclasses.is_dataclass(default)
        changes[field.name] = _with(default, f"{key}.", values) if is_group else values.get(key, default)
    return dataclasses.replace(group, **changes)  # type: ignore[type-var]


def _flat(data: object, prefix: str, leaves: set[str]) -> Iterator[tuple[str, object]]:
    """Keys and values of nested objects, the section's name taken off; an object for a leaf is its value."""
    key = prefix.removesuffix(".").removeprefix(f"{SECTION}.")
    if isinstance(data, dict) and key not in leaves:
        for name, value in data.items():
            yield from _flat(value, f"{prefix}{name}.", leaves)
    elif data != [] or key in leaves:  # an empty list is how some clients send an empty object
        yield key, data


def _complaint(key: str, value: object, kinds: dict[str, _Kind[Any]]) -> str:
    name = SECTION if key in ("", SECTION) else f"{SECTION}.{key}"
    if key in kinds:
        return f'"{name}" must be {kinds[key].name}, not {_shown(value)}; its default is used.'
    if name == SECTION or any(known.startswith(f"{key}.") for known in kinds):
        return f'"{name}" must be an object, not {_shown(value)}; its defaults are used.'
    close = difflib.get_close_matches(key, kinds, n=1)
    hint = f'; did you mean "{SECTION}.{close[0]}"?' if close else "."
    return f'There is no setting "{name}" (its value is {_shown(value)}){hint}'


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _shown(value: object) -> str:
    text = _json(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _json(value: object) -> str:
    return json.dumps(value.value if isinstance(value, enum.Enum) else value, ensure_ascii=False, default=str)
