"""The training flow's order: every stage of every iteration once, and the first failure ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows import train as flow
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, GateError
from tasks import training
from tests.support import changed

ORDER = ["plan", "sync", "sample", "validate", "learn", "evaluate", "finish", "track"]


class Run:
    """Two iterations that only write down what is asked of them."""

    identity = SimpleNamespace(name="collective-0")
    params = SimpleNamespace(train=SimpleNamespace(iterations=2))

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.done = 0

    def remaining(self) -> Iterator[SimpleNamespace]:
        for number in (0, 1):
            yield SimpleNamespace(run=self, number=number, timings=None)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The flow without Prefect, on stages that record their names."""
    run = Run()

    @contextmanager
    def opened(*_: Any) -> Iterator[Run]:
        yield run

    monkeypatch.setattr(training, "open_training", opened)
    monkeypatch.setattr(training, "words", lambda it: "")
    monkeypatch.setattr(training, "close", lambda it: None)
    monkeypatch.setattr(training, "export", lambda run: Path("exported"))
    monkeypatch.setattr(flow, "announce_training", lambda run: None)
    monkeypatch.setattr(flow, "guard_server", lambda: None)
    monkeypatch.setattr(flow, "load_params", lambda path: None)
    for name in ORDER:
        monkeypatch.setattr(flow, name, lambda it, *_, name=name: run.calls.append(f"{name} {it.number}"))
    return run


def test_every_stage_runs_once_an_iteration_in_order(recorded: Run) -> None:
    assert flow.train.fn("collective", 0) == "exported"
    assert recorded.calls == [f"{name} {number}" for number in (0, 1) for name in ORDER]


def test_the_first_failure_ends_the_flow(recorded: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gate(it: Any) -> None:
        raise GateError("too many excluded")

    monkeypatch.setattr(flow, "validate", gate)
    with pytest.raises(GateError, match="too many excluded"):
        flow.train.fn("collective", 0)
    assert recorded.calls == ["plan 0", "sync 0", "sample 0"]


def test_sampling_from_less_than_the_whole_vocabulary_is_refused(params: Params) -> None:
    with pytest.raises(ConfigError, match=r"rollouts\.top_p is 0\.9, expected 1"):
        training.check_supported(changed(params, {"rollouts": {"top_p": 0.9}}))
