"""The fit finds the constants that made the times, by hand and for any constants; the file makes the clock its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.calibration import (
    UNMEASURABLE_TPS,
    Timings,
    busy_agents,
    calibrate,
    derived_s,
    errors_of,
    fit,
    relative_errors,
    rollout_sums,
    timings,
    warnings_of,
)
from rlcr_core.clock import LatencyModel, calibrated
from rlcr_core.config import LatencyConfig
from rlcr_core.engines.asynchronous import PacedPlayers
from rlcr_core.errors import ConfigError, DataError
from rlcr_core.rollout import RolloutSpec
from rlcr_core.types import CEO, AgentRecord, Rollout, RolloutKey, StopReason, Turn, TurnKind
from rlcr_core.wall import run_wall_rollouts
from tests.rlcr_core.test_wall import VERBS, VIRTUAL, Wordy, wall_params
from tests.rlcr_core.toy import TASK, TOKENIZER

MODEL = LatencyConfig(turn_overhead_s=0.5, prefill_tps=50.0, decode_tps=2.0, shared_capacity=0)


def made_of(config: LatencyConfig, n: int = 200, noise: float = 0.0, n_busy: int = 8) -> Timings:
    """Turns of ten rollouts whose times are exactly the model's, with tools of 0 to 3 s."""
    rng = np.random.default_rng(0)
    prompt_N, tokens_N = rng.integers(0, 400, n).astype(float), rng.integers(1, 60, n).astype(float)
    busy_N, tool_s_N = rng.integers(1, n_busy + 1, n).astype(float), rng.integers(0, 4, n).astype(float)
    blank = Timings(np.arange(n) % 10.0, prompt_N, tokens_N, busy_N, np.zeros(n), tool_s_N, np.zeros(n))
    measured_s_N = derived_s(blank, config) * (1 + noise * rng.standard_normal(n)).astype(np.float64)
    return Timings(blank.rollout_N, prompt_N, tokens_N, busy_N, measured_s_N, tool_s_N, np.zeros(n))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 5), st.floats(20, 5000), st.floats(0.5, 500), st.sampled_from([0, 1, 2, 3, 5, 7]))
def test_the_fit_finds_the_constants_that_made_the_times(overhead: float, prefill: float, decode: float, capacity: int) -> None:
    config = LatencyConfig(turn_overhead_s=overhead, prefill_tps=prefill, decode_tps=decode, shared_capacity=capacity)
    found = fit(made_of(config))
    assert found.turn_overhead_s == pytest.approx(overhead, rel=1e-3, abs=1e-4)
    assert found.prefill_tps == pytest.approx(prefill, rel=1e-2)
    assert found.decode_tps == pytest.approx(decode, rel=1e-2)
    assert found.shared_capacity == capacity


def test_three_turns_by_hand() -> None:
    """Costs 1 + p / 10 + n / 2: (p, n) = (0, 2) -> 2, (10, 2) -> 3, (0, 6) -> 4; tools of 5 s are not part of the cost."""
    p, n = np.array([0.0, 10.0, 0.0]), np.array([2.0, 2.0, 6.0])
    tools = np.array([0.0, 5.0, 0.0])
    found = fit(Timings(np.zeros(3), p, n, np.ones(3), np.array([2.0, 3.0, 4.0]) + tools, tools, np.zeros(3)))
    assert (found.turn_overhead_s, found.prefill_tps, found.decode_tps) == pytest.approx((1.0, 10.0, 2.0))


def test_no_constant_is_negative_and_free_tokens_are_said_to_be() -> None:
    """Longer prompts that happen to be faster: the best that is not negative is that prompts cost nothing."""
    turns = made_of(LatencyConfig(turn_overhead_s=2.0, prefill_tps=1e9, decode_tps=4.0))
    faster = Timings(
        turns.rollout_N, turns.prompt_N, turns.tokens_N, turns.busy_N, turns.measured_s_N - turns.prompt_N / 1000, turns.tool_s_N,
        turns.tool_late_s_N,
    )  # fmt: skip
    assert fit(faster).prefill_tps == pytest.approx(UNMEASURABLE_TPS)
    assert any(warning.startswith("prefill_tps could not be told") for warning in calibrate(faster).warnings)


def test_errors_are_of_rollouts_as_sums_and_of_turns() -> None:
    """Two rollouts: 1 + 3 = 4 s measured, 1.5 + 2.5 = 4 derived: error 0; 2 s measured, 3 derived: error 1/2.

    Turns: 1/2, 1/6, 1/2. Without tools (1 s in the last turn): 4 against 4, 2 against 1: error 1.
    """
    turns = Timings(
        np.array([0.0, 0.0, 1.0]), np.zeros(3), np.ones(3), np.ones(3), np.array([1.0, 3.0, 2.0]), np.array([0.0, 0.0, 1.0]),
        np.zeros(3),
    )  # fmt: skip
    model = np.array([1.5, 2.5, 3.0])
    assert rollout_sums(turns, model).tolist() == [4.0, 3.0]
    assert relative_errors(model, turns.measured_s_N).tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 2])
    errors = errors_of(turns, model)
    assert errors["rollout_median"] == pytest.approx(0.25)  # of 0 and 1/2
    assert errors["turn_median"] == pytest.approx(0.5)
    assert errors["rollout_without_tools_median"] == pytest.approx(0.5)  # of 0 and 1


def test_the_errors_told_are_of_rollouts_that_were_not_fitted() -> None:
    """Even rollouts as the model says, odd ones twice as slow: the fit sees only the former, the errors only the latter."""
    turns = made_of(MODEL)
    slow_N = np.where(turns.rollout_N % 2 == 1, 2.0, 1.0)
    turns = Timings(
        turns.rollout_N, turns.prompt_N, turns.tokens_N, turns.busy_N, turns.measured_s_N * slow_N, turns.tool_s_N,
        turns.tool_late_s_N,
    )  # fmt: skip
    found = calibrate(turns)
    assert found.constants.decode_tps == pytest.approx(2.0)
    assert found.errors["rollout_median"] == pytest.approx(0.5, abs=1e-6)  # half of the measured time
    assert found.warnings and "5 of 5 rollouts are off by more than 20 %" in found.warnings


def test_a_warning_names_the_kind_of_turn_that_the_model_misses() -> None:
    """From five busy agents on a turn takes twice as long, and the model has no shared capacity."""
    turns = made_of(MODEL, noise=0.01)
    slow_N = np.where(turns.busy_N >= 5, 2.0, 1.0)
    slow = Timings(
        turns.rollout_N, turns.prompt_N, turns.tokens_N, turns.busy_N, turns.measured_s_N * slow_N, turns.tool_s_N,
        turns.tool_late_s_N,
    )  # fmt: skip
    assert warnings_of(turns, derived_s(turns, MODEL)) == []
    busy = [w for w in warnings_of(slow, derived_s(slow, MODEL)) if "busy agents" in w]
    assert busy and all("-50 %" in w or "-49 %" in w for w in busy if w.startswith(("turns with 5", "turns with 7")))
    assert not any(w.startswith(("turns with 1", "turns with 3 ")) for w in busy)


def test_busy_is_what_the_rollout_loop_counts() -> None:
    """ann is hired at 4 (busy though she starts at 6), fired at 20; from 10 to 15 she is asleep in a wait."""
    rollout = Rollout(RolloutKey("r", 0, 0, 0), "t", 30.0, 0)
    rollout.agents = [AgentRecord(0, "chief", 0.0, 0.0), AgentRecord(1, "ann", 4.0, 6.0, 20.0)]
    wait = Turn(1, 0, 0, [1], [2], [0.0], 6.0, 15.0, TurnKind.WAIT, 0, "wait", tool_s=5.0)
    rollout.trajectories = {0: [], 1: [wait]}
    assert [busy_agents(rollout, t) for t in (3.9, 4.0, 9.9, 10.0, 14.9, 15.0, 20.0)] == [1, 2, 2, 1, 1, 2, 1]


def play(latency: dict[str, Any], wait_s: float | None, real: dict[str, Any]) -> tuple[list[Rollout], LatencyConfig]:
    """Wall-clock rollouts on virtual time with players of other constants than the parameters'."""
    params = wall_params(latency=latency, collective={"wait_s": wait_s})
    speed = LatencyModel(LatencyConfig.model_validate(real))

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        verb = VERBS[seed % 10]
        return "dig 1 ." if verb == "wait ." and key[1] == CEO else verb  # where waiting is sleep, somebody stays awake

    engine = PacedPlayers(speak, TOKENIZER, speed)
    specs = [RolloutSpec(RolloutKey("calibrate", 0, 0, i), TASK, 60.0) for i in range(8)]
    return run_wall_rollouts(specs, Wordy, engine, TOKENIZER, params, machinery=VIRTUAL), params.latency


@pytest.mark.parametrize("wait_s", [1.0, None])
def test_a_calibration_of_wall_clock_rollouts_finds_the_engine_s_own_constants(wait_s: float | None) -> None:
    real = {"turn_overhead_s": 0.7, "prefill_tps": 3.0, "decode_tps": 1.7}
    rollouts, latency = play({"turn_overhead_s": 2.0, "prefill_tps": 9.0, "decode_tps": 0.9}, wait_s, real)
    turns = timings(rollouts, latency, waits_sleep=wait_s is None)
    assert turns.tool_late_s_N == pytest.approx(0.0, abs=1e-6)  # on virtual time no tool is late
    found = calibrate(turns)
    constants = found.constants
    got = (constants.turn_overhead_s, constants.prefill_tps, constants.decode_tps, constants.shared_capacity)
    assert got == pytest.approx((0.7, 3.0, 1.7, 0), rel=1e-4)
    assert found.errors["rollout_p90"] < 1e-6 and found.warnings == []


def test_failed_rollouts_and_cut_turns_are_left_out_and_too_few_turns_refused() -> None:
    rollouts, latency = play({}, 1.0, {"turn_overhead_s": 1.0, "prefill_tps": 10.0, "decode_tps": 1.0})
    complete = sum(not turn.cut for rollout in rollouts for turn in rollout.turns())
    assert len(timings(rollouts, latency)) == complete
    for rollout in rollouts[1:]:
        rollout.stop_reason = StopReason.FAILED
    with pytest.raises(DataError, match="too few"):
        timings(rollouts, latency)


# -- the file -----------------------------------------------------------------------------------------------------------


def test_the_constants_of_a_calibration_file_replace_those_of_the_parameters(tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    constants = {"turn_overhead_s": 0.25, "prefill_tps": 100.0, "decode_tps": 4.0, "shared_capacity": 2}
    path.write_text(yaml.safe_dump({"constants": constants}))
    model = LatencyModel(MODEL.model_copy(update={"calibration": str(path)}))
    # 0.25 + 50 / 100 + 8 / (4 * 2 / 4) = 4.75 with four busy agents on a capacity of two
    assert model.spoken_s(0.0, 50, 8, busy=4) == 4.75
    assert LatencyModel(MODEL).spoken_s(0.0, 50, 8, busy=4) == 5.5  # 0.5 + 1 + 4


IMPOSSIBLE = "constants: {turn_overhead_s: 1, prefill_tps: 0, decode_tps: 1, shared_capacity: 0}"


@pytest.mark.parametrize("text", [None, "", "constants: {}", IMPOSSIBLE, "[", "3"])
def test_a_calibration_that_cannot_be_used_says_what_to_do(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "calibration.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"python -m flows.calibrate.*latency\.calibration"):
        calibrated(MODEL.model_copy(update={"calibration": str(path)}))
