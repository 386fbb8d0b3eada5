"""A small open-ended environment and scripted agents for tests of the clock, the collective and the loop.

An action is a few words and ends with `.`: `dig n` works n seconds for a reward of 0.1, the rest are the collective's
tools. An observation is `now` and the words of the new messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlcr_core.config import Params, load_params
from rlcr_core.players import PlayerEngine
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import (
    ActionFormat,
    AgentView,
    Call,
    CallResult,
    Observation,
    Rollout,
    RolloutKey,
    Task,
    ToolSpec,
    TurnKind,
)  # fmt: skip

NAMES = ("chief", "ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ida")
NUMBERS = tuple(str(n) for n in range(30))
WORDS = (".", "now", "dig", "dm", "post", "read", "search", "wait", "hire", "fire", "break", "all", "key", "red", "blue",
         "brief", *NAMES, *NUMBERS)  # fmt: skip
KINDS = {"dig": TurnKind.WORK, "dm": TurnKind.TALK, "post": TurnKind.TALK, "read": TurnKind.TALK, "search": TurnKind.TALK,
         "wait": TurnKind.WAIT, "hire": TurnKind.ROSTER, "fire": TurnKind.ROSTER, "break": TurnKind.WORK}  # fmt: skip
TASK = Task("toy/0", "toy@1", "test", 0, {})


class Toy:
    id = "toy@1"
    concurrent = False

    def __init__(self, task: Task, goal: int = 10**9) -> None:
        self.goal, self.dug = goal, 0
        self.views: list[AgentView] = []

    def vocabulary(self) -> tuple[str, ...]:
        return WORDS

    def action_format(self) -> ActionFormat:
        return ActionFormat(None, 8, (".",), KINDS)

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        return tuple(ToolSpec(verb, kind, 2, 0.0) for verb, kind in KINDS.items())

    def agent_name(self, agent: int) -> str:
        return NAMES[agent]

    def observe(self, view: AgentView) -> Observation:
        self.views.append(view)
        words = " ".join(text for _, text in view.new_messages)
        return Observation(f"now {words}".strip(), len(words.split()))

    def parse(self, agent: int, text: str) -> Call:
        words = text.split()
        if len(words) < 2 or words[0] not in KINDS or words[-1] != ".":
            return Call("unreadable", (), TurnKind.INVALID)
        verb, rest = words[0], words[1:-1]
        if verb in ("dm", "post"):
            return Call(verb, (rest[0], " ".join(rest[1:])), TurnKind.TALK)
        return Call(verb, (" ".join(rest),), KINDS[verb])

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        if call.tool == "break":
            raise RuntimeError("the machine broke")
        return float(call.args[0])

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        self.dug += 1
        return CallResult(True, "dug", reward=0.1)

    def earned(self) -> float:
        return self.dug * 0.1

    def done(self) -> bool:
        return self.dug >= self.goal

    def judge(self, sender: int, text: str) -> Mapping[str, float]:
        return {"true": float(text == "key red")}

    def corrupt(self, text: str, seed: int) -> str:
        return text.replace("red", "blue")


TOKENIZER = WordTokenizer(WORDS)


def toy_params(**sections: dict[str, object]) -> Params:
    """The checked-in parameters with plain numbers: 1 s a turn, 10 prompt and 1 sampled tokens a second, free tools."""
    data = load_params().model_dump()
    data["latency"] |= {"turn_overhead_s": 1.0, "prefill_tps": 10.0, "decode_tps": 1.0}
    data["collective"] |= {"hire_s": 1.0, "onboarding_s": 2.0, "wait_s": 1.0, "message_s": 0.0, "error_s": 1.0}
    for name, values in sections.items():
        data[name] |= values
    return Params.model_validate(data)


def play(
    scripts: Mapping[str, list[str]], limit_s: float, params: Params | None = None, goal: int = 10**9
) -> tuple[Rollout, Toy]:
    """Run one rollout of scripted agents, by name; an agent without lines left waits."""
    environment = Toy(TASK, goal)
    lines = {NAMES.index(name): iter(script) for name, script in scripts.items()}

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        return next(lines.get(key[1], iter(())), "wait .")

    spec = RolloutSpec(RolloutKey("toy", 0, 0, 0), TASK, limit_s)
    engine = PlayerEngine(speak, TOKENIZER)
    (rollout,) = run_rollouts([spec], lambda task: environment, engine, TOKENIZER, params or toy_params())
    return rollout, environment
