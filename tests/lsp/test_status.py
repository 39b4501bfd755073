"""What the user is told, and how often."""

from __future__ import annotations

from tenon_lsp.status import Status


def test_a_fault_is_said_once_by_its_code_and_by_its_sentence_until_all_is_well() -> None:
    said: list[str] = []
    status = Status(lambda _, sentence: said.append(sentence))
    status.fault("failed", "the engine is gone")
    status.fault("failed", "the engine is gone again")
    status.fault("invoked-failed", "the engine is gone")
    assert said == ["Tenon: the engine is gone"]
    status.fault("invoked-failed", "another fault")
    status.well()
    status.fault("invoked-failed", "the engine is gone")
    assert said[1:] == ["Tenon: another fault", "Tenon: the engine is gone"]
