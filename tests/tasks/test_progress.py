"""Progress: plain lines where nobody watches, timings whose parts add up."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tasks import timings
from tasks.progress import Reporter, describe
from tasks.timings import Timings


def test_plain_lines_name_first_and_last_step() -> None:
    out = io.StringIO()
    with Reporter("train solo-0", 5, done=2, console=Console(file=out, width=200)) as bar:
        for step in (3, 4, 5):
            bar.step(f"step {step}")
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("train solo-0 3/5 step 3 after 0 s, about")
    assert lines[-1].startswith("train solo-0 5/5 step 5 after")
    assert len(lines) == 2  # the one between came sooner than a line is due


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    with Reporter("base", 2, console=Console(file=out, width=200, force_terminal=True)) as bar:
        bar.step("loss 0.5", 2)
    assert "2/2" in out.getvalue() and "loss 0.5" in out.getvalue()


def test_words_hold_limit_return_hires_and_rate() -> None:
    # 600 tokens in 2 s are 300 tokens/s.
    metrics = {"reward/return_mean": 0.25, "roster/hires": 6.04, "tokens/total": 600.0}
    assert describe(metrics, 16.0, 2.0) == "limit  16.0 s  return 0.250  hires 6.0  300 tokens/s"
    assert "0 tokens/s" in describe(metrics, 16.0, 0.0)


def test_overhead_is_what_is_neither_sampling_nor_gradient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = iter([0.0, 1.0, 3.0, 3.0, 7.0, 10.0])
    monkeypatch.setattr(timings.time, "monotonic", lambda: next(clock))
    measured = Timings()  # at 0
    with measured("rollouts"):  # 1 to 3
        pass
    with measured("update"):  # 3 to 7
        pass
    measured.sampling_s, measured.gradient_s = 1.5, 3.5
    written = measured.write(tmp_path / "timings.json")  # at 10: work 5 of 10
    assert written["time/rollouts_s"] == 2.0
    assert written["time/update_s"] == 4.0
    assert written["time/iteration_s"] == 10.0
    assert written["time/overhead_share"] == 0.5
    assert json.loads((tmp_path / "timings.json").read_text()) == written
