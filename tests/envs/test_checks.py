"""check_environment passes workshop@1 and names the rule that a broken environment breaks (before it is played)."""

import dataclasses
import random

import pytest

import envs
from envs.checks import check_environment
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import ActionFormat, Call, Observation, ToolSpec, TurnKind


@pytest.mark.parametrize("family", ["star", "real"])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_workshop_conforms(family, p):
    (task,) = envs.generate(
        "workshop@1", families={family: 1.0}, split="test", count=1, seed=3, packages=3, modules=5, parallel_share=p,
        coupling=0.5,
    )  # fmt: skip
    check_environment(envs.make, task, seed=1)


class NoAnytime:
    """Lacks most of the protocol."""

    id = "workshop@1"
    concurrent = False

    def __init__(self, task):
        pass


class OtherId(WorkshopEnvironment):
    def __init__(self, task):
        super().__init__(task)
        self.id = "workshop@2"


class Undecided(WorkshopEnvironment):
    def __init__(self, task):
        super().__init__(task)
        self.concurrent = None


class TwiceAWord(WorkshopEnvironment):
    def vocabulary(self):
        return (*super().vocabulary(), "none")


class TwoWords(WorkshopEnvironment):
    def vocabulary(self):
        return (*super().vocabulary(), "two words")


class UnknownWord(WorkshopEnvironment):
    def observe(self, view):
        seen = super().observe(view)
        return Observation(seen.text.replace("team", "crew"), seen.n_new)


class NegativePrompt(WorkshopEnvironment):
    def observe(self, view):
        return Observation(super().observe(view).text, -1)


class UnknownCode(WorkshopEnvironment):
    def finish(self, agent, call, time_s):
        return dataclasses.replace(super().finish(agent, call, time_s), code="splendid")


class LongVerb(WorkshopEnvironment):
    def action_format(self):
        return ActionFormat(arity={"work": 9}, max_tokens=4)


class NoOwnTool(WorkshopEnvironment):
    def tools(self, is_ceo):
        return tuple(tool for tool in super().tools(is_ceo) if tool.name not in ("work", "study"))


class EndlessTool(WorkshopEnvironment):
    def tools(self, is_ceo):
        return (*super().tools(is_ceo), ToolSpec("rest", TurnKind.WORK, 1, float("inf")))


class FreeTool(WorkshopEnvironment):
    def tools(self, is_ceo):
        return (*super().tools(is_ceo), ToolSpec("rest", TurnKind.WORK, 0, 1.0))


class SameNames(WorkshopEnvironment):
    def agent_name(self, agent):
        return "a000"


class FreshNames(WorkshopEnvironment):
    n = 0

    def agent_name(self, agent):
        self.n += 1
        return f"a{self.n:03d}"


class Timeless(WorkshopEnvironment):
    def observe(self, view):
        return super().observe(dataclasses.replace(view, time_s=0.0, limit_s=84.0))


class RaisingParser(WorkshopEnvironment):
    def parse(self, agent, text):
        if not text.isascii():
            raise ValueError("ascii only")
        return super().parse(agent, text)


class LenientParser(WorkshopEnvironment):
    def parse(self, agent, text):
        return Call("dance", (), TurnKind.WORK) if text.startswith("wait") else super().parse(agent, text)


class WrongKind(WorkshopEnvironment):
    def parse(self, agent, text):
        call = super().parse(agent, text)
        return dataclasses.replace(call, kind=TurnKind.TALK) if call.tool == "wait" else call


class ShorterThanSaid(WorkshopEnvironment):
    def parse(self, agent, text):
        return Call("study", ("p00",), TurnKind.WORK) if text == "wait" else super().parse(agent, text)


class NaNJudge(WorkshopEnvironment):
    def judge(self, sender, text):
        return {"true": float("nan")}


class LongScramble(WorkshopEnvironment):
    def corrupt(self, text, seed):
        return text + " k00"


class LuckyScramble(WorkshopEnvironment):
    def corrupt(self, text, seed):
        return " ".join(random.choice(("k00", "k01")) for _ in text.split())


@pytest.mark.parametrize(
    ("broken", "message"),
    [(NoAnytime, "^protocol: NoAnytime lacks .*'earned'"),
     (OtherId, "^protocol: id is 'workshop@2', expected 'workshop@1'"),
     (Undecided, "^protocol: concurrent is None"),
     (TwiceAWord, "^vocabulary: a word is listed twice"),
     (TwoWords, "^vocabulary: .'two words'. are not single words"),
     (UnknownWord, "^vocabulary: an observation has the words .'crew'."),
     (NegativePrompt, "^vocabulary: an observation has n_new -1"),
     (UnknownCode, "^vocabulary: the result of .* has the words .'splendid'."),
     (LongVerb, "^action_format: work takes 9 words, expected 1 to 4"),
     (NoOwnTool, "^tools: the environment has no tool of its own"),
     (EndlessTool, "^tools: rest has min_tool_s inf"),
     (FreeTool, "^tools: rest has min_tokens 0"),
     (SameNames, "^names: agents are called .*expected distinct names"),
     (FreshNames, "^names: agents are called .*, then"),
     (Timeless, "^time_left: "),
     (RaisingParser, "^parse: .* raised ValueError"),
     (LenientParser, "^parse: .* gave the tool 'dance', which no agent has"),
     (WrongKind, "^parse: 'wait' has the kind talk, its tool wait"),
     (ShorterThanSaid, "^parse: 'wait' is shorter than study's min_tokens 2"),
     (NaNJudge, "^messages: judge says true = nan"),
     (LongScramble, "^messages: corrupt made .*expected as many words"),
     (LuckyScramble, "^messages: corrupt gave two texts")],
)  # fmt: skip
def test_each_broken_rule_is_named(tiny_task, broken, message):
    with pytest.raises(EnvironmentFault, match=message):
        check_environment(broken, tiny_task)
