"""Scripted players in the rollout loop: charged like a policy, faults stay with their rollout, also in a chat model's form."""

from __future__ import annotations

import pytest

import envs
from rlcr_core.rollout import RolloutSpec
from rlcr_core.scripted import ScriptedEngine, scripted_rollouts
from rlcr_core.types import Call, Environment, RolloutKey, SampleRequest, Scene, StopReason, Task, Terms
from tests.rlcr_core.chat_models import HERMES, chat_tokenizer
from tests.rlcr_core.toy import TASK, TOKENIZER, Toy, toy_params
from tests.support import tiny_params
from tests.tiny_chat import chat_params


class Digger:
    """Digs for 3 s at every turn; an agent that was told something digs for 2 s."""

    def __init__(self, environment: Environment, terms: Terms) -> None:
        self.ends: list[tuple[int, float]] = []

    def act(self, scene: Scene) -> str:
        return "dig 2 ." if scene.view.new_messages else "dig 3 ."

    def began(self, agent: int, call: Call, end_s: float) -> None:
        self.ends.append((agent, end_s))


class Mumbler(Digger):
    def act(self, scene: Scene) -> str:
        return ""


def specs(n: int) -> list[RolloutSpec]:
    return [RolloutSpec(RolloutKey("toy", 0, 0, i), TASK, 20.0) for i in range(n)]


def test_an_action_is_charged_by_its_tokens() -> None:
    """1 s of overhead, 0 new words, 3 tokens at 1 a second and 3 s of digging: turns end at 7, 14; the third is cut at 20."""
    players: list[Digger] = []

    def make_player(environment: Environment, terms: Terms) -> Digger:
        assert terms.overhead_s == 1.0 and terms.token_s == 1.0
        players.append(Digger(environment, terms))
        return players[-1]

    (rollout,) = scripted_rollouts(specs(1), Toy, make_player, TOKENIZER, toy_params())
    assert [turn.end_s for turn in rollout.turns()] == [7.0, 14.0, 20.0]
    assert [turn.cut for turn in rollout.turns()] == [False, False, True]
    assert rollout.return_ == pytest.approx(0.2)
    assert players[0].ends == [(0, 7.0), (0, 14.0), (0, 21.0)]  # the third call began at 18 s
    assert all(set(turn.logprobs) == {0.0} for turn in rollout.turns())


def test_a_player_without_an_action_fails_its_own_rollout_alone() -> None:
    kinds = iter([Mumbler, Digger])
    mute, sound = scripted_rollouts(specs(2), Toy, lambda e, t: next(kinds)(e, t), TOKENIZER, toy_params())
    assert mute.stop_reason is StopReason.FAILED and "expected an action" in mute.error
    assert sound.stop_reason is StopReason.DEADLINE


def test_an_environment_that_cannot_be_made_shifts_no_player() -> None:
    count = iter(range(2))

    def make(task: Task) -> Toy:
        if next(count) == 0:
            raise ValueError("no such project")
        return Toy(task)

    bad, good = scripted_rollouts(specs(2), make, Digger, TOKENIZER, toy_params())
    assert "no such project" in bad.error and good.return_ == pytest.approx(0.2)
    with pytest.raises(Exception, match="has no player"):
        engine = ScriptedEngine(make, Digger, TOKENIZER, toy_params())
        engine._played.append(None)
        engine.sample([SampleRequest((0, 0), [1], True, 0, 1)])


@pytest.mark.parametrize("template", [None, HERMES])
def test_a_player_speaks_in_a_chat_models_form(template: str | None) -> None:
    tokenizer = chat_tokenizer(template) if template else chat_tokenizer()
    params = chat_params(tiny_params(), "model")  # type: ignore[arg-type]
    params = params.model_copy(update={"harness": params.harness.model_copy(update={"max_turn_tokens": 120})})
    params = params.model_copy(update={"context": params.context.model_copy(update={"max_tokens": 2400})})
    params = params.model_copy(update={"latency": params.latency.model_copy(update={"decode_tps": 200.0})})
    (task,) = envs.generate(
        "workshop@1", families={"star": 1.0}, split="chat", count=1, seed=0, packages=2, modules=3, parallel_share=1.0,
        coupling=1.0,
    )  # fmt: skip
    players = envs.players("workshop@1")
    spec = RolloutSpec(RolloutKey("chat", 0, 0, 0), task, 60.0)
    (rollout,) = scripted_rollouts([spec], envs.make, players["greedy_posting"], tokenizer, params)
    assert rollout.stop_reason is StopReason.SOLVED, rollout.error
    codes = {turn.code for turn in rollout.turns() if not turn.cut}
    assert codes <= {"done", "hired", "posted", "waited"} and "done" in codes
