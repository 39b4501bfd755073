"""Between the protocol's types and ours, in both directions; nothing else knows both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lsprotocol import types

from tenon_engine.wire import FillStep, SlotState
from tenon_lsp.actions import Offer
from tenon_lsp.documents import Cell, Change, Edition, Snapshot
from tenon_lsp.engines.client import EngineState
from tenon_lsp.hunks import Edit
from tenon_lsp.inline import Ask, Item, Popup
from tenon_lsp.place import Place
from tenon_lsp.positions import Position
from tenon_lsp.status import Activity, Level

ACCEPTED_COMMAND = "tenon.didAccept"
OPEN_SLOT = "·"

_MESSAGE_TYPES = {
    Level.ERROR: types.MessageType.Error,
    Level.WARNING: types.MessageType.Warning,
    Level.INFO: types.MessageType.Info,
}
_STATUS_KINDS = {EngineState.FAILED: "Error", EngineState.STOPPED: "Inactive"}
_BUSY = (EngineState.STARTING, EngineState.LOADING, EngineState.BUSY)


def position(place: types.Position) -> Position:
    """A client's position."""
    return Position(place.line, place.character)


def lsp_position(place: Position) -> types.Position:
    """A position for the client."""
    return types.Position(place.line, place.character)


def lsp_range(start: Position, end: Position) -> types.Range:
    """A range for the client."""
    return types.Range(lsp_position(start), lsp_position(end))


def changes(events: Iterable[types.TextDocumentContentChangeEvent]) -> list[Change]:
    """What a didChange did."""
    return [
        Change((position(event.range.start), position(event.range.end)), event.text)
        if isinstance(event, types.TextDocumentContentChangePartial)
        else Change(None, event.text)
        for event in events
    ]


def cells(found: Iterable[types.NotebookCell]) -> list[Cell]:
    """The cells of a notebook."""
    return [Cell(cell.document, cell.kind is types.NotebookCellKind.Code) for cell in found]


def ask(params: types.InlineCompletionParams, edition: Edition | None) -> Ask:
    """A question for ghost text."""
    info = params.context.selected_completion_info
    popup = Popup(position(info.range.start), position(info.range.end), info.text) if info else None
    is_invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
    return Ask(params.text_document.uri, position(params.position), is_invoked, edition, popup)


def inline_items(items: Iterable[Item]) -> types.InlineCompletionList:
    """Ghost text."""
    return types.InlineCompletionList(
        items=[
            types.InlineCompletionItem(
                insert_text=item.text,
                range=lsp_range(item.start, item.end),
                command=types.Command(title="Tenon: accepted", command=ACCEPTED_COMMAND),
            )
            for item in items
        ]
    )


def completion_items(
    items: Iterable[Item], snapshot: Snapshot, modes: Sequence[types.InsertTextMode]
) -> types.CompletionList:
    """The same text for a client without ghost text, such that it does not indent it a second time."""
    return types.CompletionList(
        is_incomplete=True, items=[_completion_item(item, snapshot, modes) for item in items]
    )


def _completion_item(
    item: Item, snapshot: Snapshot, modes: Sequence[types.InsertTextMode]
) -> types.CompletionItem:
    text, mode = item.text, None
    if types.InsertTextMode.AsIs in modes:
        mode = types.InsertTextMode.AsIs
    elif types.InsertTextMode.AdjustIndentation in modes:
        mode = types.InsertTextMode.AdjustIndentation
        text = _without_indent(text, snapshot.text.line(item.start.line))
    word = _word_before(snapshot, item)
    first, *more = f"{word}{item.text}".strip().splitlines() or [""]
    return types.CompletionItem(
        label=f"{first} …" if more else first,  # eglot puts it in place of the word, until the edit is made
        kind=types.CompletionItemKind.Text,  # Helix reads the text of a Snippet as one, with its $ and {}
        detail="Tenon",
        documentation=item.text,
        sort_text="\x00",
        insert_text=word + text,  # for Kate, which replaces the word and does not look at the edit's range
        filter_text=word + item.text,
        insert_text_mode=mode,
        text_edit=types.TextEdit(range=lsp_range(item.start, item.end), new_text=text),
    )


def _without_indent(text: str, line: str) -> str:
    """`text` for a client that indents every further line as far as `line` is indented."""
    indent = line[: len(line) - len(line.lstrip())]
    first, *more = text.split("\n")
    return "\n".join([first, *(each.removeprefix(indent) for each in more)])


def _word_before(snapshot: Snapshot, item: Item) -> str:
    """The word in front of an item, which clients compare with what it filters by, or replace."""
    offset = snapshot.offset(item.start)
    line = snapshot.text.source[:offset][-80:]
    word = len(line)
    while word and (line[word - 1].isalnum() or line[word - 1] == "_"):
        word -= 1
    return line[word:]


def workspace_edit(edits: Iterable[Edit], snapshot: Snapshot, *, is_versioned: bool) -> types.WorkspaceEdit:
    """One edit of one document; bound to the version it was made for, if the client can do that."""
    text_edits = [
        types.TextEdit(lsp_range(snapshot.position(edit.start), snapshot.position(edit.end)), edit.new)
        for edit in edits
    ]
    if not is_versioned:
        return types.WorkspaceEdit(changes={snapshot.uri: text_edits})
    document = types.OptionalVersionedTextDocumentIdentifier(uri=snapshot.uri, version=snapshot.version)
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(text_document=document, edits=text_edits)]
    )


def offer_data(offer: Offer, generation: int) -> dict[str, object]:
    """What a code action carries until it is chosen; `generation` is the document's."""
    return {
        "deed": offer.deed.value,
        "uri": offer.uri,
        "generation": generation,
        "version": offer.version,
        "start": offer.start,
        "end": offer.end,
    }


def status(activity: Activity) -> dict[str, object]:
    """What a client with a status bar is told: Copilot's form, and what it does not have where that is known."""
    info, latency_ms = activity.info, activity.latency_ms
    known: dict[str, object] = {
        "model": info.model if info else None,
        "device": info.device if info and info.device else None,
        "percent": activity.percent,
        "latencyMs": None if latency_ms is None else round(latency_ms),
    }
    return {
        "message": activity.state.value,
        "busy": activity.state in _BUSY,
        "kind": _STATUS_KINDS.get(activity.state, "Normal"),
        **{name: value for name, value in known.items() if value is not None},
    }


def preview(step: FillStep, place: Place) -> dict[str, object]:
    """How far the text for a place has come; what is still open is shown as a dot a slot."""
    snapshot = place.snapshot
    new = [slot for slot in step.slots if slot.state is not SlotState.FIXED]  # fixed is what stands before it
    text = "".join(OPEN_SLOT if slot.state is SlotState.OPEN else slot.text for slot in new)
    place_range = lsp_range(snapshot.position(place.start), snapshot.position(place.end))
    return {
        "uri": snapshot.uri,
        "version": snapshot.version,
        "range": place_range,
        "text": text.lstrip(" \t"),  # a token may spell the space before the place again; it begins with none
        "step": step.step,
    }


def message_type(level: Level) -> types.MessageType:
    """How loud a message is."""
    return _MESSAGE_TYPES[level]
