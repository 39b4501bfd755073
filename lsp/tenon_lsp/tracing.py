"""How the hole at a cursor is denoised, as a page that plays it: asked for by hand, with every step kept.

Nothing of it is inserted. Knows no protocol; what the page looks like is the engine's business.
"""

from __future__ import annotations

from tenon_engine.trace import trace_page
from tenon_engine.wire import FillStep
from tenon_lsp import gate
from tenon_lsp.actions import Refused, StepListener
from tenon_lsp.inline import INVOKED_DEADLINE_MS, request_at
from tenon_lsp.place import Place
from tenon_lsp.session import Session


async def trace(place: Place, session: Session, on_step: StepListener) -> str:
    """The page, as HTML; Refused where no hole may be, or the engine's EngineError."""
    verdict = gate.judge(
        place,
        session.settings,
        is_invoked=True,
        has_popup=False,
        excluded=session.excluded(place.snapshot),
        is_disabled=False,
    )
    if verdict.refusal is not None:
        raise Refused(f"nothing is filled here ({verdict.refusal.value})")
    request = request_at(
        place,
        session,
        max_tokens=verdict.max_tokens,
        candidates=session.settings.alternatives,
        deadline_ms=INVOKED_DEADLINE_MS,
    )
    steps: list[FillStep] = []

    def keep(step: FillStep) -> None:
        steps.append(step)
        on_step(step)

    result = await session.engine.fill(request, keep)
    if not steps:
        raise Refused("this engine shows no steps")
    return trace_page(request, steps, result)
