"""What is excluded is set aside with its reason, the ledger adds up, and too much of it stops the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcr_core.errors import GateError
from rlcr_core.store import read_rollouts, to_tables
from rlcr_core.types import Rollout, StopReason
from tasks.rejection import validate_stage
from tasks.validation import validator
from tests.support import rollout


def ten() -> list[Rollout]:
    """Ten rollouts: 0/3 has a NaN logprob, 1/1 failed."""
    rollouts = [rollout(g, r) for g in (0, 1) for r in range(5)]
    rollouts[3].trajectories[0][1].logprobs = [-0.5, float("nan")]
    rollouts[6] = rollout(1, 1, stop_reason=StopReason.FAILED, error="EngineFault: gone")
    return rollouts


def run(folder: Path, rollouts: list[Rollout], share: float) -> tuple[list[Rollout], list[Rollout]]:
    return validate_stage(folder, {"weights": "w"}, to_tables(rollouts), validator(), 0, 10.0, share)


def names(rollouts: list[Rollout]) -> list[tuple[int, int]]:
    return [(r.key.group, r.key.rollout) for r in rollouts]


def test_excluded_rollouts_lie_on_disk_with_the_reason(tmp_path: Path) -> None:
    everything, trained = run(tmp_path, ten(), 0.2)
    assert len(everything) == 10
    assert set(names(everything)) - set(names(trained)) == {(0, 3), (1, 1)}
    assert names(read_rollouts(tmp_path / "rejected")) == [(0, 3), (1, 1)]
    reasons = json.loads((tmp_path / "rejected" / "reasons.json").read_text())
    assert [(e["group"], e["rollout"], e["reason"], e["error"]) for e in reasons["excluded"]] == [
        (0, 3, "logprobs are finite and at most 0", ""),
        (1, 1, "failed", "EngineFault: gone"),
    ]
    assert [(f["agent"], f["turn"]) for f in reasons["findings"]] == [(0, 1)]


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    run(tmp_path, ten(), 0.2)
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    assert (ledger["dispatched"], ledger["trained"]) == (10, 8)
    assert ledger["excluded"] == {"failed": 1, "logprobs are finite and at most 0": 1}
    assert sum(row["dispatched"] for row in ledger["deciles"]) == 10
    assert sum(row["excluded"] for row in ledger["deciles"]) == 2


def test_above_the_allowed_share_the_iteration_stops_with_the_evidence_on_disk(tmp_path: Path) -> None:
    # 2 of 10 are excluded: 0.2 is allowed above, 0.19 is not.
    with pytest.raises(GateError, match=r"2 of 10 .*max_excluded_share.*group 0, rollout 3, agent 0, turn 1"):
        run(tmp_path, ten(), 0.19)
    assert (tmp_path / "rejected" / "turns.parquet").is_file()
    assert (tmp_path / "ledger.json").is_file()
    assert not (tmp_path / "validation.json").exists()


def test_nothing_left_to_train_on_stops_whatever_is_allowed(tmp_path: Path) -> None:
    failed = [rollout(0, r, stop_reason=StopReason.FAILED) for r in (0, 1)]
    with pytest.raises(GateError, match="2 of 2 rollouts were excluded"):
        run(tmp_path, failed, 1.0)


def test_a_finished_validation_is_read_back_without_checking_again(tmp_path: Path) -> None:
    first = run(tmp_path, ten(), 0.2)

    class Refuses:
        def check(self, *_: object) -> None:
            raise AssertionError("checked again")

    again = validate_stage(tmp_path, {"weights": "w"}, to_tables(ten()), Refuses(), 0, 10.0, 0.2)  # type: ignore[arg-type]
    assert names(again[1]) == names(first[1])


def test_without_exclusions_nothing_is_set_aside(tmp_path: Path) -> None:
    everything, trained = run(tmp_path, [rollout(0, r) for r in range(3)], 0.0)
    assert names(everything) == names(trained) == [(0, 0), (0, 1), (0, 2)]
    assert not (tmp_path / "rejected").exists()


def test_duration_decides_no_exclusion(tmp_path: Path) -> None:
    slow = rollout(0, 0, end_s=10.0)
    quick = [rollout(0, r, end_s=4.0) for r in (1, 2, 3)]
    assert names(run(tmp_path, [slow, *quick], 0.0)[1]) == [(0, 0), (0, 1), (0, 2), (0, 3)]
