"""The server's code actions: offered at once, computed when one is chosen, applied as one versioned edit."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams

from tenon_engine.wire import FillStep, SlotState
from tenon_lsp import actions, convert, features_documents
from tenon_lsp.actions import Deed, Means, Offer, Refused
from tenon_lsp.documents import Snapshot
from tenon_lsp.engines.client import EngineError
from tenon_lsp.hunks import Edit
from tenon_lsp.place import Place
from tenon_lsp.progress import Bar
from tenon_lsp.scheduler import Superseded
from tenon_lsp.server import TenonServer
from tenon_lsp.status import Level

CARRY_OUT_COMMAND = "tenon.carryOut"
REWRITE_COMMAND = "tenon.rewrite"

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
        offer = _offer(action.data)
        action.edit = await _edit(server, offer, _snapshot(server, offer))
        return action

    @server.command(CARRY_OUT_COMMAND)
    async def carry_out(data: Any) -> None:
        await _apply(server, _offer(data))

    @server.command(REWRITE_COMMAND)
    async def rewrite(data: Any, instruction: str) -> None:
        await _apply(server, _offer(data), instruction)

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
    return [_action(server, offer) for offer in offers if _is_wanted(offer.kind, params.context.only)]


def _is_wanted(kind: str, only: Any) -> bool:
    """Whether a client that wants `only` these kinds (none named: all) wants this one; `a` has `a.b` in it."""
    return not only or any(f"{kind}.".startswith(f"{getattr(each, 'value', each)}.") for each in only)


def _action(server: TenonServer, offer: Offer) -> types.CodeAction:
    data = convert.offer_data(offer)
    action = types.CodeAction(title=offer.deed.title, kind=offer.kind, data=data)
    resolved = get_capability(
        server.client_capabilities, "text_document.code_action.resolve_support.properties"
    )
    if "edit" not in (resolved or ()):
        action.command = types.Command(title=offer.deed.title, command=CARRY_OUT_COMMAND, arguments=[data])
    return action


async def _apply(server: TenonServer, offer: Offer, instruction: str | None = None) -> None:
    """Carry out an offer for a client that cannot resolve one. Its reply to the edit is not waited for."""
    edit = await _edit(server, offer, _snapshot(server, offer), instruction)
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
    if server.session.documents.version(offer.uri) != offer.version:
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
        on_step=lambda step: bar.report(*_progress(step)),
    )
    job = functools.partial(actions.carry_out, offer, snapshot, means)
    try:
        return await session.scheduler.run(f"{offer.uri}{features_documents.ACTION}", 0, job)
    except Superseded as error:
        raise JsonRpcContentModified("the document has changed, or a newer action began") from error


def _progress(step: FillStep) -> tuple[str, int]:
    decided = sum(slot.state in (SlotState.DECIDED, SlotState.FIXED) for slot in step.slots)
    return f"hole {step.hole + 1}, step {step.step}", round(100 * decided / max(len(step.slots), 1))


def _snapshot(server: TenonServer, offer: Offer) -> Snapshot:
    """The document that an offer was made for, unless it has changed since."""
    snapshot = server.session.documents.snapshot(offer.uri)
    if snapshot is None or snapshot.version != offer.version:
        raise JsonRpcContentModified("the document has changed since")
    if server.session.excluded(snapshot):
        raise JsonRpcInvalidParams("the document is excluded")
    return snapshot


def _offer(data: Any) -> Offer:
    """The offer that a client sends back."""
    values = data if isinstance(data, dict) else getattr(data, "_asdict", dict)()
    try:
        deed = Deed(values["deed"])
        start, end, version = (int(values[name]) for name in ("start", "end", "version"))
        return Offer(deed, str(values["uri"]), version, start, end)
    except (KeyError, TypeError, ValueError) as error:
        raise JsonRpcInvalidParams("this is no offer of Tenon's") from error
