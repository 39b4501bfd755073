"""Fills of several threads on one network: each gets what it would get alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tenon_engine import config
from tenon_engine.batching import BatchedNetwork
from tenon_engine.canvas import Canvas
from tenon_engine.denoise import Track, denoise
from tenon_engine.diffusion import CROWD, DiffusionModel, Limits
from tenon_engine.edges import Edges
from tenon_engine.engine import Engine
from tenon_engine.errors import ModelFailedError
from tenon_engine.evaluation.bench import DOCUMENT_PATH, holes
from tenon_engine.models import registry
from tenon_engine.models.toy import END, SPECIAL, ByteTokenizer, ToyContext, ToyNetwork
from tenon_engine.plan import ConfirmPlan, Row, SparingPlan
from tenon_engine.samplers import plan_named
from tenon_engine.view import START, View
from tenon_engine.wire import FillRequest, FillResult

R = TypeVar("R")

PATIENCE_S = 60

REQUESTS = st.builds(
    FillRequest.single,
    st.text("ab(\n ", max_size=300),
    st.text("b)\n", max_size=9),
    max_tokens=st.integers(1, 8),
    candidates=st.integers(1, 2),
    temperature=st.sampled_from([0.0, 1.0]),
    session=st.sampled_from(["", "s", "t"]),
)


class WatchedNetwork(ToyNetwork):
    """A toy that fails when two threads use it at once, and for contexts that hold a poisonous id."""

    POISON = ord("!")

    def __init__(self) -> None:
        super().__init__(sharpness=2.0)
        self.rows: list[int] = []
        self._using = threading.Lock()

    def extend(self, context: ToyContext, ids: Sequence[int]) -> None:
        assert self._using.acquire(blocking=False), "two threads at once"
        super().extend(context, ids)
        self._using.release()

    def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
        assert self._using.acquire(blocking=False), "two threads at once"
        self.rows.append(len(passes))
        try:
            if any(self.POISON in context.ids for context, _ in passes):
                raise RuntimeError("poison")
            return super().forward(passes)
        finally:
            self._using.release()


class HeldNetwork(WatchedNetwork):
    """One whose first forward lasts until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held, self.go_on = threading.Event(), threading.Event()

    def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
        self.is_held.set()
        assert self.go_on.wait(PATIENCE_S)
        return super().forward(passes)


def toy_model(network: ToyNetwork, sampler: str = "confirm") -> DiffusionModel[ToyContext]:
    return DiffusionModel(
        name="toy",
        network=network,
        tokenizer=ByteTokenizer(),
        special=SPECIAL,
        plan=plan_named(sampler),
        limits=Limits(prefix_tokens=400, suffix_tokens=16, path_header=False),
    )


def at_once(calls: Sequence[Callable[[], R]]) -> list[R]:
    """What the calls return, each made in a thread of its own, all begun together."""
    gate = threading.Barrier(len(calls))

    def begin(call: Callable[[], R]) -> R:
        gate.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(begin, calls))


def view(token: int) -> View:
    return View(
        reads=(START,),
        places=(0,),
        sees=np.ones((1, 1), dtype=np.bool_),
        kept=0,
        keepable=0,
        scored=(0,),
        constraints=(None,),
    )


@pytest.mark.parametrize("sampler", ["confirm", "frontier:1"])
@settings(max_examples=25, deadline=None)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=6))
def test_fills_made_at_once_are_the_fills_made_alone(sampler: str, requests: list[FillRequest]) -> None:
    alone = Engine(toy_model(ToyNetwork(sharpness=2.0), sampler))
    together = Engine(toy_model(WatchedNetwork(), sampler))
    results = at_once([partial(together.fill, request) for request in requests])
    assert [result.holes for result in results] == [alone.fill(request).holes for request in requests]


def test_fills_made_at_once_share_their_forwards() -> None:
    network = WatchedNetwork()
    engine = Engine(toy_model(network))
    requests = [FillRequest.single(f"f({number}", ")\n", max_tokens=30) for number in range(4)]
    results = at_once([partial(engine.fill, request) for request in requests])
    assert sum(network.rows) == sum(result.cost.forwards for result in results)
    assert max(network.rows) > 1
    assert len(network.rows) < sum(network.rows)


def test_a_fill_that_is_alone_is_made_in_its_own_thread() -> None:
    threads = set()

    class Noted(ToyNetwork):
        def forward(self, passes: Sequence[tuple[ToyContext, View]]) -> list[Tensor]:
            threads.add(threading.current_thread())
            return super().forward(passes)

    before = threading.active_count()
    Engine(toy_model(Noted())).fill(FillRequest.single("a", "b", max_tokens=4))
    assert threads == {threading.current_thread()}
    assert threading.active_count() == before


def test_a_forward_that_fails_fails_only_who_is_at_fault() -> None:
    network = WatchedNetwork()
    engine = Engine(toy_model(network))
    requests = [FillRequest.single(f"f({sign}", ")", max_tokens=20) for sign in "a!b!"]

    def outcome(request: FillRequest) -> str:
        try:
            return engine.fill(request).model
        except ModelFailedError as error:
            return str(error)

    for _ in range(5):
        results = at_once([partial(outcome, request) for request in requests])
        assert results == ["toy", "the model toy failed (RuntimeError: poison)"] * 2


def test_a_fill_that_pauses_keeps_nobody_waiting() -> None:
    engine = Engine(toy_model(ToyNetwork()))
    paused = engine.stream(FillRequest.single("a", "b", max_tokens=9, session="paused"))
    next(paused)
    assert engine.fill(FillRequest.single("c", "d", max_tokens=9)).model == "toy"


def test_a_fill_that_is_stopped_while_it_waits_gets_no_forward() -> None:
    network = HeldNetwork()
    model = toy_model(network)
    engine, stopped = Engine(model), threading.Event()
    results: list[FillResult] = []

    def fill(text: str, is_stopped: Callable[[], bool]) -> None:
        results.append(
            engine.fill(FillRequest.single(text, ")", max_tokens=3, session=text), cancelled=is_stopped)
        )

    first = threading.Thread(target=fill, args=("a", lambda: False))
    second = threading.Thread(target=fill, args=("b", stopped.is_set))
    first.start()
    assert network.is_held.wait(PATIENCE_S)
    second.start()
    while model.network.fill_count < 2:
        time.sleep(0.001)
    stopped.set()
    network.go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert sorted(result.stopped.value for result in results) == ["cancelled", "done"]
    assert max(network.rows) == 1


def test_contexts_are_encoded_and_canvases_looked_at_one_at_a_time_to_the_end() -> None:
    network = WatchedNetwork()
    batched = BatchedNetwork(network)
    order: list[str] = []

    def encode() -> None:
        context = batched.new_context()
        for _ in range(20):
            batched.extend(context, [1] * 9)
            order.append("encode")

    def step() -> None:
        context = batched.new_context()
        for token in range(20):
            (logits,) = batched.forward([(context, view(token))])
            assert logits.shape == (1, END + 1)
            order.append("step")

    at_once([encode, encode, step])
    assert sorted(order) == ["encode"] * 40 + ["step"] * 20


@given(
    ids=st.lists(st.integers(0, 2), max_size=10),
    size=st.integers(1, 14),
    fan=st.integers(0, 4),
    crowded=st.lists(st.booleans(), min_size=1, max_size=14),
)
def test_looking_without_fans_for_some_steps_changes_their_number_alone(
    ids: list[int], size: int, fan: int, crowded: list[bool]
) -> None:
    def track() -> Track[ToyContext, Row]:
        context = ToyContext()
        context.ids = ids
        edges = Edges(ByteTokenizer(), left=b"", right=b"", end_id=7)
        return Track(Row(Canvas(size, end_id=7), edges, history=ids), context)

    def run(plan: ConfirmPlan | SparingPlan, one: Track[ToyContext, Row]) -> Canvas:
        list(denoise(ToyNetwork(8, sharpness=2.0), plan, [one]))
        return one.row.canvas

    turns = iter(crowded * size)
    plan = ConfirmPlan(fan, 1, 6)
    sparing, plain = run(SparingPlan(plan, lambda: next(turns)), track()), run(plan, track())
    assert (sparing.ids, sparing.confidences) == (plain.ids, plain.confidences)


@pytest.mark.weights
def test_the_embedded_model_writes_the_same_in_company() -> None:
    configured, _ = config.load(os.environ, {})
    engine = registry.load_engine(configured)
    document = DOCUMENT_PATH.read_text(encoding="utf-8")
    requests = [
        FillRequest.single(prefix, suffix, max_tokens=12, session=str(number))
        for number, (prefix, _, suffix) in enumerate(holes(document))
    ][-CROWD - 1 :]
    together = at_once([partial(engine.fill, request) for request in requests])
    for request, result in zip(requests, together, strict=True):
        assert [hole.text for hole in result.holes] == [hole.text for hole in engine.fill(request).holes]
