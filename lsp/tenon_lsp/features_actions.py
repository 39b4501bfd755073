"""The server's code actions: offered at once, computed when one is chosen, applied as one versioned edit."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams

from tenon_engine.wire import FillStep, SlotState
from tenon_lsp import actions, convert, tracing
from tenon_lsp.actions import Deed, Means, Offer, Refused, StepListener
from tenon_lsp.documents import Edition, Snapshot
from tenon_lsp.engines.client import EngineError
from tenon_lsp.hunks import Edit
from tenon_lsp.place import Place
from tenon_lsp.positions import Position
from tenon_lsp.progress import Bar
from tenon_lsp.scheduler import Superseded
from tenon_lsp.server import TenonServer
from tenon_lsp.session import ACTION
from tenon_lsp.status import Level

CARRY_OUT_COMMAND = "tenon.carryOut"
REWRITE_COMMAND = "tenon.rewrite"
TRACE_COMMAND = "tenon.trace"
PREVIEW = "tenon/preview"

T = TypeVar("T")

_log = logging.getLogger(__name__)


def add(server: TenonServer) -> None:
    """Register the code actions and the commands."""

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[actions.KIND], resolve_provider=True),
    )
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        return _offered(server, params)

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        offer, snapshot = _offer(server, action.data)
        action.edit = await _edit(server, offer, snapshot)
        return action

    @server.command(CARRY_OUT_COMMAND)
    async def carry_out(data: Any = None) -> None:
        await _apply(server, data)

    @server.command(REWRITE_COMMAND)
    async def rewrite(data: Any = None, instruction: str = "") -> None:
        await _apply(server, data, instruction)

    @server.command(TRACE_COMMAND)
    async def trace(uri: Any = None, position: Any = None) -> str | None:
        return await _trace(server, uri, position)

    @server.command(convert.ACCEPTED_COMMAND)
    def did_accept() -> None:
        _log.info("a suggestion was accepted")


def _offered(server: TenonServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    snapshot = server.session.documents.snapshot(params.text_document.uri)
    if snapshot is None or server.session.excluded(snapshot):
        return []
    start, end = (snapshot.offset(convert.position(edge)) for edge in (params.range.start, params.range.end))
    place = Place.at(snapshot, min(start, end), max(start, end))
    offers = actions.offers(place, server.session.settings)
    generation = snapshot.edition.generation
    return [
        _action(server, offer, generation) for offer in offers if _is_wanted(offer.kind, params.context.only)
    ]


def _is_wanted(kind: str, only: Any) -> bool:
    """Whether a client that wants `only` these kinds (none named: all) wants this one; `a` has `a.b` in it."""
    return not only or any(f"{kind}.".startswith(f"{getattr(each, 'value', each)}.") for each in only)


def _action(server: TenonServer, offer: Offer, generation: int) -> types.CodeAction:
    data = convert.offer_data(offer, generation)
    action = types.CodeAction(title=offer.deed.title, kind=offer.kind, data=data)
    resolved = get_capability(
        server.client_capabilities, "text_document.code_action.resolve_support.properties"
    )
    if "edit" not in (resolved or ()):
        action.command = types.Command(title=offer.deed.title, command=CARRY_OUT_COMMAND, arguments=[data])
    return action


async def _apply(server: TenonServer, data: Any, instruction: str | None = None) -> None:
    """Carry out an offer for a client that cannot resolve one. Its reply to the edit is not waited for."""
    offer, snapshot = _offer(server, data)
    edit = await _edit(server, offer, snapshot, instruction)
    if edit is not None:
        server.workspace_apply_edit(types.ApplyWorkspaceEditParams(edit=edit, label=offer.deed.title))


async def _edit(
    server: TenonServer, offer: Offer, snapshot: Snapshot, instruction: str | None = None
) -> types.WorkspaceEdit | None:
    """What carrying out an offer changes; None, and a message, when there is nothing to change."""
    work = asyncio.current_task()
    bar = Bar(server, offer.deed.title, on_cancel=work.cancel if work else None)
    bar.report("asking the model")
    try:
        edits = await _carried_out(server, offer, snapshot, bar, instruction)
    except (Refused, EngineError) as error:
        server.session.status.say(str(error), Level.INFO if isinstance(error, Refused) else Level.ERROR)
        return None
    finally:
        bar.end()
    if server.session.documents.edition(offer.uri) != snapshot.edition:
        raise JsonRpcContentModified("the document has changed since")
    if not edits:
        server.session.status.say("nothing to change", Level.INFO)
        return None
    is_versioned = get_capability(server.client_capabilities, "workspace.workspace_edit.document_changes")
    return convert.workspace_edit(edits, snapshot, is_versioned=bool(is_versioned))


async def _carried_out(
    server: TenonServer, offer: Offer, snapshot: Snapshot, bar: Bar, instruction: str | None
) -> list[Edit]:
    session = server.session
    means = Means(
        session.engine,
        session.settings,
        session.budget(),
        session.folders,
        instruction,
        on_step=_steps_shown(server, actions.replaced(offer, snapshot), bar),
    )
    return await _run(server, offer.uri, functools.partial(actions.carry_out, offer, snapshot, means))


async def _trace(server: TenonServer, uri: Any, position: Any) -> str | None:
    """The page of the hole at a position; None, and a message, when there is none."""
    snapshot = server.session.documents.snapshot(str(uri))
    if snapshot is None:
        raise JsonRpcInvalidParams("the document is not open")
    place = Place.at(snapshot, snapshot.offset(_position(position)))
    work = asyncio.current_task()
    bar = Bar(server, "Tenon: trace", on_cancel=work.cancel if work else None)
    bar.report("asking the model")
    job = functools.partial(tracing.trace, place, server.session, _steps_shown(server, None, bar))
    try:
        return await _run(server, snapshot.uri, job)
    except (Refused, EngineError) as error:
        server.session.status.say(str(error), Level.INFO if isinstance(error, Refused) else Level.ERROR)
        return None
    finally:
        bar.end()


async def _run(server: TenonServer, uri: str, job: Callable[[], Awaitable[T]]) -> T:
    """Do a document's work in place of what it was doing; a change of the document ends it."""
    try:
        return await server.session.scheduler.run(uri + ACTION, 0, job)
    except Superseded as error:
        raise JsonRpcContentModified("the document has changed, or a newer action began") from error


def _steps_shown(server: TenonServer, place: Place | None, bar: Bar) -> StepListener:
    """What shows each step: the bar, and to a client that wants it how the text of the place would look."""

    def show(step: FillStep) -> None:
        bar.report(*_progress(step))
        if place is not None and server.wants_previews:
            server.protocol.notify(PREVIEW, convert.preview(step, place))

    return show


def _progress(step: FillStep) -> tuple[str, int]:
    decided = sum(slot.state in (SlotState.DECIDED, SlotState.FIXED) for slot in step.slots)
    return f"hole {step.hole + 1}, step {step.step}", round(100 * decided / max(len(step.slots), 1))


def _offer(server: TenonServer, data: Any) -> tuple[Offer, Snapshot]:
    """The offer that a client sends back, and its document, unless that has changed since."""
    offer, edition = _read(data)
    snapshot = server.session.documents.snapshot(offer.uri)
    if snapshot is None or snapshot.edition != edition:
        raise JsonRpcContentModified("the document has changed since")
    if server.session.excluded(snapshot):
        raise JsonRpcInvalidParams("the document is excluded")
    if not 0 <= offer.start <= offer.end <= len(snapshot.text.source):
        raise JsonRpcInvalidParams("the offer is for a place that the document does not have")
    return offer, snapshot


def _position(data: Any) -> Position:
    values = _values(data)
    try:
        return Position(int(values["line"]), int(values["character"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise JsonRpcInvalidParams("this is no position") from error


def _values(data: Any) -> dict[str, Any]:
    """An object of a command's arguments, whatever the protocol's library has made of it."""
    return data if isinstance(data, dict) else getattr(data, "_asdict", dict)()


def _read(data: Any) -> tuple[Offer, Edition]:
    """What an offer's data say; whatever a client may have made of them."""
    values = _values(data)
    try:
        deed = Deed(values["deed"])
        start, end, version, generation = (
            int(values[name]) for name in ("start", "end", "version", "generation")
        )
        return Offer(deed, str(values["uri"]), version, start, end), Edition(generation, version)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise JsonRpcInvalidParams("this is no offer of Tenon's") from error
