"""params.yaml is read into models that refuse what cannot be, and say what, got, expected and which knob to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import pytest

from rlcr_core.config import Params, load_params, parse_params
from rlcr_core.errors import ConfigError
from tests.support import ROOT

CHAT: dict[str, dict[str, Any]] = {"harness": {"kind": "chat"}, "context": {"mode": "transcript"}, "policy": {"model": "m"}}


@pytest.fixture
def data() -> dict[str, Any]:
    found: dict[str, Any] = load_params(ROOT / "params.yaml").model_dump(mode="json")
    return found


def refusal(data: dict[str, Any], *changes: dict[str, dict[str, Any]]) -> str:
    """What is said about the parameters with these sections changed."""
    for change in changes:
        for section, values in change.items():
            data[section] |= values
    with pytest.raises(ConfigError) as caught:
        parse_params(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("update", "lr", 0, "update.lr: Input should be greater than 0, got 0; change update.lr"),
        ("update", "lr", float("nan"), "update.lr: Input should be a finite number, got nan; change update.lr"),
        ("update", "clip", 1.5, "update.clip: Input should be less than 1, got 1.5; change update.clip"),
        ("update", "aggregation", "mean", "update.aggregation: Input should be 'token_mean', 'rollout_mean'"),
        ("rollouts", "group_size", 1, "rollouts.group_size: Input should be greater than or equal to 2, got 1"),
        ("rollouts", "gpus_per_worker", 1.5, "a share below 1 or a whole number, got 1.5; change rollouts.gpus_per_worker"),
        ("task_set", "families", {"star": 0.5}, "task_set: shares must add up to 1, got 0.5; change task_set.families"),
        ("schedule", "points", [], "piecewise needs points with strictly rising iterations, the first 0, got []"),
        ("schedule", "points", [[1, 16.0]], "the first 0, got [(1, 16.0)]; change schedule.points"),
        ("schedule", "kind", "linear", "points are for kind piecewise only, got kind linear; empty schedule.points"),
        ("train", "seeds", [], "train.seeds: Tuple should have at least 1 item"),
        ("engine", "kind", "openai", "openai needs a url and a model, got '' and ''; change engine.url or engine.model"),
    ],
)  # fmt: skip
def test_an_impossible_value_is_named_with_its_knob(data: dict[str, Any], section: str, key: str, value: Any, said: str) -> None:
    text = refusal(data, {section: {key: value}})
    assert text.startswith("params.yaml cannot be used: ") and said in text and text.endswith(".")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [{"schedule": {"kind": "constant", "points": [], "start_s": 16.0, "end_s": 84.0}}],
            "constant needs start_s == end_s, got 16 and 84; change schedule.start_s or end_s",
        ),
        ([{"task_set": {"train": 3}}], "an iteration draws 16 different tasks, got only 3; lower rollouts.tasks_per_iteration"),
        ([{"harness": {"kind": "chat"}}], "a chat model reads a growing transcript, got context.mode window"),
        ([{"policy": {"model": "m"}}], "harness.kind words and policy.model 'm' do not go together"),
        ([{"context": {"max_tokens": 100_000}}], "a context of 100000 tokens needs as many positions, got "),
        (
            [CHAT, {"engine": {"kind": "vllm", "tensor_parallel": 4}, "rollouts": {"gpus_per_worker": 2.0}}],
            "one engine spreads over 4 GPUs, got 2 for its worker; lower engine.tensor_parallel or raise rollouts.gpus_per",
        ),
    ],
)
def test_an_impossible_combination_says_what_to_change(data: dict[str, Any], changes: list[Any], said: str) -> None:
    assert said in refusal(data, *changes)


def test_unknown_and_missing_keys_are_all_named_at_once(data: dict[str, Any]) -> None:
    data["update"]["learning_rate"] = data["update"].pop("lr")
    text = refusal(data)
    assert "missing key update.lr; add it" in text and "unknown key update.learning_rate (got 0.0005); remove it" in text


def test_a_file_that_is_missing_or_no_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"params\.yaml does not exist; run the command in the project's folder"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "cut.yaml").write_text("train: {seeds: [0")
    with pytest.raises(ConfigError, match=r"cut\.yaml is not valid YAML"):
        load_params(tmp_path / "cut.yaml")


def test_the_models_are_frozen_and_solo_differs_in_hiring_alone(params: Params) -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        params.update.lr = 1.0  # type: ignore[misc]
    solo = params.for_mode("solo")
    assert solo.collective.max_hires == 0 and params.collective.max_hires == 8
    assert solo.model_copy(update={"collective": params.collective}) == params == params.for_mode("collective")
    silent = params.for_mode("silent")
    assert silent.collective == params.collective.model_copy(update={"messages": "mute"})


def test_staff_beyond_the_hires_and_delays_that_wake_nobody_are_refused(data: dict[str, Any]) -> None:
    data["collective"] |= {"staff": 9}
    with pytest.raises(ConfigError, match=r"got 9 and room for 8; lower collective\.staff or raise collective\.max_hires"):
        parse_params(data)
    data["collective"] |= {"staff": 0, "delay_s": 2.0, "wait_s": None}
    with pytest.raises(ConfigError, match=r"change collective\.wait_s to seconds or collective\.delay_s to 0"):
        parse_params(data)
