"""Scripted players through the chat harness: the workshop and another environment are played whole, to the same bytes twice."""

import random
import re

import pytest

import envs
from envs.workshop.environment import WorkshopEnvironment
from envs.workshop.grammar import random_action
from rlcr_core.chat.forms import NativeForm, PlainForm
from rlcr_core.chat.tools import all_tools
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.types import EventType, RolloutKey, Sample, StopReason, TurnKind
from tests.rlcr_core.chat_models import BOS, CHATML, HERMES, chat_params, chat_tokenizer
from tests.rlcr_core.toy import NAMES, TASK, Toy

(WORKSHOP,) = envs.generate(
    "workshop@1", families={"star": 1.0}, split="test", count=1, seed=3, packages=3, modules=6, parallel_share=1.0, coupling=1.0
)  # fmt: skip


class Watched(WorkshopEnvironment):
    """Keeps the closed-vocabulary observation of each agent's last view, which the grammar of random actions reads."""

    def __init__(self, task):
        super().__init__(task)
        self.words = {}

    def describe(self, view):
        text = super().describe(view)
        self.words[view.agent] = self.observe(view).text
        return text


class Player:
    """An engine that says random valid actions of the workshop in a chat model's form, now and then something malformed."""

    version = 0

    def __init__(self, environment, tokenizer, form, malformed=0.0):
        self.environment, self.tokenizer, self.form, self.malformed = environment, tokenizer, form, malformed
        self.released = []

    def sample(self, requests):
        return [self._say(request) for request in requests]

    def _say(self, request):
        agent, rng = request.cache_key[1], random.Random(request.seed)
        text = random_action(self.environment.words[agent], rng)
        written = self.form.write([self.environment.parse(agent, text)], all_tools(self.environment, agent == 0))
        if rng.random() < self.malformed:
            written = rng.choice(["I do not know.", "/sing", "<tool_call>", written + " <tool_call>"])
        ids = self.tokenizer.encode_action(f"Now then.\n{written}")[: request.max_tokens]
        return Sample(ids, [0.0] * len(ids), 0)

    def release(self, cache_keys):
        self.released += cache_keys

    def close(self):
        pass


def play_workshop(tokenizer, form, malformed=0.0, **sections):
    environment = Watched(WORKSHOP)
    engine = Player(environment, tokenizer, form, malformed)
    spec = RolloutSpec(RolloutKey("chat", 0, 0, 1), WORKSHOP, 300.0)
    params = chat_params(**({"latency": {"decode_tps": 60.0}, "harness": {"max_turn_tokens": 160}} | sections))
    (rollout,) = run_rollouts([spec], lambda task: environment, engine, tokenizer, params)
    assert rollout.error == "" and rollout.stop_reason in (StopReason.DEADLINE, StopReason.SOLVED)
    return rollout


def contexts(rollout):
    """The ids of each context of each agent, as the model has them at the end."""
    grown = {}
    for turn in rollout.turns():
        grown.setdefault((turn.agent, turn.context), []).extend([*turn.observation_ids, *turn.action_ids])
    return grown


CASES = {"chatml": (CHATML, PlainForm()), "hermes": (HERMES, NativeForm()), "bos": (BOS, PlainForm())}


@pytest.mark.parametrize("name", CASES)
def test_the_workshop_is_playable(name):
    template, form = CASES[name]
    tokenizer = chat_tokenizer(template)
    rollout = play_workshop(tokenizer, form)
    assert rollout.return_ > 0
    assert rollout.n_hires > 0
    kept = [agent.id for agent in rollout.agents if agent.started_s < rollout.end_s - 10 and agent.fired_s is None]
    assert len(kept) > 1 and all(rollout.trajectories[agent] for agent in kept)
    delivered = [event for event in rollout.events if event.type is EventType.DELIVERY]
    assert delivered and all(re.fullmatch(r"p\d\d k\d\d|p\d\d nokey", event.text) for event in delivered)
    kinds = {turn.kind for turn in rollout.turns() if not turn.cut}
    assert kinds == {TurnKind.WORK, TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT}
    again = play_workshop(tokenizer, form)
    assert repr(again) == repr(rollout)


def test_a_message_reaches_its_receiver_as_text():
    tokenizer = chat_tokenizer(CHATML)
    rollout = play_workshop(tokenizer, PlainForm())
    names = {agent.id: agent.name for agent in rollout.agents}
    delivered = [event for event in rollout.events if event.type is EventType.DELIVERY]
    for event in delivered:
        turns = [turn for turn in rollout.trajectories[event.agent] if turn.start_s == event.time_s]
        if turns:  # the last turn of a rollout may have been left out: no token of it was sampled in time
            assert f"\n{names[event.other]}: {event.text}\n" in tokenizer.decode(turns[0].observation_ids)


def test_the_grown_transcripts_are_the_conversations_rendered_at_once():
    tokenizer = chat_tokenizer(CHATML)
    rollout = play_workshop(tokenizer, PlainForm(), context={"max_tokens": 1600})
    grown = contexts(rollout)
    assert max(context for _, context in grown) >= 1  # the summary's contexts are in it
    for ids in grown.values():
        text = tokenizer.decode(ids)
        messages = [
            {"role": role, "content": content}
            for role, content in re.findall(r"(?s)<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text)
        ]
        roles = [message["role"] for message in messages]
        assert roles[:2] == ["system", "user"] and roles[2:] == ["assistant", "user"] * (len(roles) // 2 - 1) + ["assistant"] * (
            len(roles) % 2
        )
        if ids[-1] in tokenizer.stop_ids:  # else the deadline cut its last turn
            assert tokenizer.encode_markup(tokenizer.render(messages)) == [*ids, *tokenizer.encode("\n")]


@pytest.mark.parametrize("name", CASES)
def test_malformed_turns_cost_their_tokens_and_change_nothing_else(name):
    template, form = CASES[name]
    tokenizer = chat_tokenizer(template)
    rollout = play_workshop(tokenizer, form, malformed=0.4)
    invalid = [turn for turn in rollout.turns() if turn.kind is TurnKind.INVALID and not turn.cut]
    assert {turn.tool for turn in invalid} >= {"no_call"}
    assert all(turn.code == "invalid" and turn.tool_s == 1.0 for turn in invalid)  # collective.error_s
    assert rollout.return_ > 0


def test_an_environment_without_prose_is_played_too():
    class Mine(Toy):
        def tools(self, is_ceo):
            return tuple(
                spec if spec.name != "dig" else type(spec)("dig", TurnKind.WORK, 2, 0.0, "dig for n seconds", ("n",))
                for spec in super().tools(is_ceo)
            )

    tokenizer = chat_tokenizer(CHATML)
    scripts = {"chief": iter(["/hire look\n/dig 2", "/dm ann key red\n/post all <|im_end|>"]), "ann": iter(["/dig 1\n/dig 1"])}

    class Scripted(Player):
        def _say(self, request):
            text = next(scripts[NAMES[request.cache_key[1]]], "/wait")
            ids = self.tokenizer.encode_action(text)
            return Sample(ids, [0.0] * len(ids), 0)

    environment = Mine(TASK)
    engine = Scripted(environment, tokenizer, PlainForm())
    spec = RolloutSpec(RolloutKey("toy", 0, 0, 0), TASK, 30.0)
    (rollout,) = run_rollouts([spec], lambda task: environment, engine, tokenizer, chat_params())
    assert rollout.error == ""
    assert rollout.return_ == pytest.approx(0.3)  # three digs of 0.1
    first, second = rollout.trajectories[0][:2]
    assert (first.kind, first.tool, first.code) == (TurnKind.WORK, "hire+dig", "hired+dug")
    assert (second.kind, second.tool, second.code) == (TurnKind.TALK, "dm+post", "sent+posted")
    read = "".join(tokenizer.decode(turn.observation_ids) for turn in rollout.trajectories[1])
    assert all(read.count(f"\nchief: {text}\n") == 1 for text in ("look", "key red", "<|im_end|>"))
    stop = tokenizer.stop_ids[0]
    # System prompt and one message of the user at first; later one message each, whose predecessor's end was sampled.
    assert [list(turn.observation_ids).count(stop) for turn in rollout.trajectories[1]][:3] == [2, 1, 1]
