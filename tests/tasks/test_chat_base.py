"""A chat model's base: demonstrations are random valid calls without strategy; the stage measures, gates and saves."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from envs.workshop.grammar import VERB_FREQUENCIES
from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import Params
from rlcr_core.errors import GateError
from rlcr_core.policy import load_policy
from rlcr_core.types import Rollout, RolloutKey, Task, Turn, TurnKind
from tasks.chat_base import gate_valid, tool_distance, tool_shares, train_chat_base, valid_share
from tasks.demonstrations import demonstrate, demonstrated_contexts
from tasks.task_sets import generate_split
from tests.tiny_chat import chat_folder, chat_params

Chat = tuple[Params, list[Task], Path, ChatTokenizer]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory, params: Params) -> Chat:
    folder, tokenizer = chat_folder(tmp_path_factory.mktemp("model") / "tiny")
    own = chat_params(params, folder)
    return own, generate_split(own.task_set, "train"), folder, tokenizer


def turn(kind: TurnKind, tool: str, cut: bool = False) -> Turn:
    return Turn(0, 0, 0, [1], [2], [-0.1], 0.0, 1.0, kind, 0, tool, "", cut)


def of(*turns: Turn) -> Rollout:
    return Rollout(RolloutKey("r", 0, 0, 0), "t", 9.0, 0, trajectories={0: list(turns)})


def test_the_valid_share_leaves_out_what_the_deadline_cut() -> None:
    turns = [turn(TurnKind.WORK, "work"), turn(TurnKind.INVALID, "no_call"), turn(TurnKind.INVALID, "", cut=True)]
    assert valid_share([of(*turns)]) == 0.5  # one of the two finished turns
    assert valid_share([of()]) == 1.0


def test_the_distance_of_tools_is_the_total_variation() -> None:
    rollouts = [of(turn(TurnKind.WORK, "work"), turn(TurnKind.TALK, "post+wait"), turn(TurnKind.INVALID, "no_call"))]
    # Said: work, post, wait, a third each; demonstrated: work 1/2, hire 1/2. (1/6 + 1/3 + 1/3 + 1/2) / 2 = 2/3.
    assert tool_distance(rollouts, {"work": 0.5, "hire": 0.5}) == pytest.approx(2 / 3)


def test_demonstrations_are_valid_calls_and_the_same_every_time(chat: Chat) -> None:
    params, tasks, _, tokenizer = chat
    first = list(islice(demonstrate(tasks, tokenizer, params, "d"), 6))
    assert valid_share(first) == 1.0 and all(r.error == "" for r in first)
    assert first == list(islice(demonstrate(tasks, tokenizer, params, "d"), 6))
    assert first != list(islice(demonstrate(tasks, tokenizer, params, "e"), 6))


def test_demonstrations_prefer_no_tool_module_or_key(chat: Chat) -> None:
    params, tasks, _, tokenizer = chat
    contexts = demonstrated_contexts(tasks, tokenizer, params, "d", 1500)
    shares = tool_shares(contexts, tokenizer)
    # A verb is scaled up where others are impossible and never scaled down, so its share is at least the smaller of the
    # two roles' declared frequencies (hire and fire are the CEO's alone); 5 standard deviations of 1500 draws are .065.
    for verb in ("work", "wait", "study"):
        assert shares[verb] > min(declared[verb] for declared in VERB_FREQUENCIES.values()) - 0.065
    assert abs(sum(shares.values()) - 1.0) < 1e-9
    assert set(shares) <= {"work", "study", "dm", "post", "wait", "hire", "fire"}


def test_the_stage_measures_and_saves_a_loadable_model(chat: Chat, tmp_path: Path) -> None:
    params, tasks, folder, tokenizer = chat
    steps: list[int] = []
    metrics = train_chat_base(params, tasks, folder, tmp_path / "base", lambda step, loss: steps.append(step))
    assert steps == [1, 2]
    assert metrics["base/loss_nats"] < metrics["base/loss_before_nats"]
    assert 0.0 <= metrics["base/valid"] <= 1.0 and 0.0 <= metrics["base/tool_distance"] <= 1.0
    assert load_policy(tmp_path / "base").config.vocab_size == len(tokenizer)
    assert ChatTokenizer.load(tmp_path / "base").stop_ids == tokenizer.stop_ids


def test_a_base_that_makes_no_valid_calls_is_refused() -> None:
    gate_valid({"base/valid": 0.5}, 0.5)
    with pytest.raises(GateError, match=r"0\.499 of its turns are valid calls, expected at least 0\.50 \(base\.gate_valid\)"):
        gate_valid({"base/valid": 0.499}, 0.5)


