"""`workshop@1`: a software project whose modules have dependencies and hidden interface keys.

Building a module takes 4 s per unit, also when the key is wrong or somebody else finishes it first. A package's key is
shown to the agent that finishes its root, to who studies the package for 24 s, and to who is told. Each module is worth
1/M of the return. Time passes, work is lost, and nothing else rewards talk, speed or parallel work.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from envs.workshop import language as lang
from envs.workshop import prose
from envs.workshop.actions import CEO_TOOLS, FAILURE_S, STAFF_TOOLS, parse_action
from envs.workshop.memory import Memory
from envs.workshop.names import VILLAGE, Names
from envs.workshop.spec import Plan, critical_units, parse_spec
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import ActionFormat, AgentView, Call, CallResult, Observation, Task, ToolSpec

ENVIRONMENT_ID: Final = "workshop@1"
UNIT_S: Final = 4.0
STUDY_S: Final = 24.0
_NO_BOARD: Final = f"{lang.NONE} {lang.NONE}"
_STUDY: Final = -1  # a pending call that is no module
_MASK: Final = (1 << 64) - 1


def _mix(seed: int) -> int:
    """64 well-mixed bits of a seed (the finaliser of splitmix64, Steele et al. 2014): neighbours become independent."""
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class WorkshopEnvironment:
    """One attempt at one task. Raises TaskError for a spec it cannot use, EnvironmentFault for a broken protocol."""

    language: ClassVar[Names] = VILLAGE

    def __init__(self, task: Task) -> None:
        self.id = self.language.id
        self.concurrent = False
        self._plan = plan = parse_spec(task.spec, self.language)
        names = list(self.language.agents)
        random.Random(f"{self.id} agent names {task.seed}").shuffle(names)
        self._names = tuple(names)
        self._key_of = dict(zip(plan.names, plan.keys, strict=True))
        places = zip(plan.package, plan.index, strict=True)
        self._labels = tuple(f"{plan.names[p]} {lang.INDICES[i]}" for p, i in places)
        self._module_of = {label: module for module, label in enumerate(self._labels)}
        self._missing = [len(deps) for deps in plan.deps]
        self._finished = [False] * plan.n_modules
        self._n_finished = 0
        self._open = [m for m, n in enumerate(self._missing) if n == 0]  # in order of their opening
        self._opening = {module: number for number, module in enumerate(self._open)}
        self._memories: dict[int, Memory] = {}
        self._pending: dict[int, tuple[str, int]] = {}  # agent -> (code of a quick failure or "", module or _STUDY)

    @property
    def plan(self) -> Plan:
        """The task itself, for scripted players and bounds; agents are never shown it."""
        return self._plan

    def vocabulary(self) -> tuple[str, ...]:
        return self.language.vocabulary

    def action_format(self) -> ActionFormat:
        return lang.ACTION_FORMAT

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        return CEO_TOOLS if is_ceo else STAFF_TOOLS

    def agent_name(self, agent: int) -> str:
        """The agent's name in this task. Raises EnvironmentFault past its names (the 128 of the vocabulary in `workshop@1`)."""
        if not 0 <= agent < len(self._names):
            raise EnvironmentFault(
                f"{self.id} has names for {len(self._names)} agents of a rollout, the fired included, got agent "
                f"number {agent}; lower collective.max_hires."
            )
        return self._names[agent]

    def observe(self, view: AgentView) -> Observation:
        memory = self._memory(view.agent)
        n_new = memory.receive(view.new_messages) if view.new_messages else 0
        bits = _mix(view.seed)
        board, bits = self._board(bits)
        text = (
            f"{lang.CEO_ROLE if view.is_ceo else lang.STAFF_ROLE} {lang.time_word(view.limit_s - view.time_s)} "
            f"{lang.size_word(view.n_hired, view.max_hires)} {_last(view.last, self.language)} notes {memory.notes_text} "
            f"msgs {memory.msgs_text} team {_team(view.team, bits)} board {board}"
        )
        return Observation(text, n_new)

    def rules(self, is_ceo: bool) -> str:
        return prose.rules(is_ceo)

    def describe(self, view: AgentView) -> str:
        """The same board and facts as `observe` shows, in open text."""
        memory = self._memory(view.agent)
        memory.receive(view.new_messages)
        board, _ = self._board(_mix(view.seed))
        return prose.describe(board, memory.notes_text, memory.msgs_text)

    def parse(self, agent: int, text: str) -> Call:
        return parse_action(text, self.language)

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        if agent in self._pending:
            raise EnvironmentFault(f"begin was called twice for agent {agent} without a finish, then with {call}.")
        if call.tool == "study":
            known = call.args[0] in self._key_of
            self._pending[agent] = ("" if known else "unknown", _STUDY)
            return STUDY_S if known else FAILURE_S
        if call.tool != "work":
            raise EnvironmentFault(f"{self.id} runs the tools work and study, got {call.tool!r}.")
        x, k, i = call.args
        module = self._module_of.get(f"{x} {i}", _STUDY)
        code = self._refusal(module, k)
        self._pending[agent] = (code, module)
        return FAILURE_S if code else UNIT_S * self._plan.units[module]

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        if agent not in self._pending:
            raise EnvironmentFault(f"finish was called for agent {agent} without a begin, with {call}.")
        code, module = self._pending.pop(agent)
        if call.tool == "study":
            return self._finish_study(agent, call.args[0], code)
        x, k, i = call.args
        if code:
            return CallResult(False, code, (x, i), 0.0, {"failed": 1.0})
        units = float(self._plan.units[module])
        # A wrong key is reported first: the work was lost whoever finished the module.
        if self._plan.needs_key[module] and k != self._key_of[x]:
            return CallResult(False, "bad", (x, i), 0.0, {"failed": 1.0, "units": units})
        if self._finished[module]:
            return CallResult(False, "dup", (x, i), 0.0, {"duplicate": 1.0, "units": units})
        return self._finish_work(agent, module, x, i, units)

    def earned(self) -> float:
        return self._n_finished / self._plan.n_modules

    def done(self) -> bool:
        return self._n_finished == self._plan.n_modules

    def task_facts(self) -> Mapping[str, float]:
        """See `rlcr_core.types.Measured`; looking keys up is no work of the task, so studying is not counted."""
        total, longest = sum(self._plan.units), critical_units(self._plan)
        return {"total_work_s": UNIT_S * total, "critical_path_s": UNIT_S * longest, "unit_s": UNIT_S}

    def judge(self, sender: int, text: str) -> Mapping[str, float]:
        """`true` is 1 when the text states the real key of a package of this task; nothing for other texts."""
        words = text.split(" ")
        if len(words) != 2 or words[0] not in self.language.package_set or words[1] not in lang.KEY_WORD_SET:
            return {}
        return {"true": float(self._key_of.get(words[0]) == words[1])}

    def corrupt(self, text: str, seed: int) -> str:
        """The fact with one of the 15 other keys, uniformly; a text that states no fact stays as it is."""
        if text not in self.language.facts:
            return text
        package, key = text.split(" ")
        shift = 1 + _mix(seed) % (len(lang.KEYS) - 1)
        return f"{package} {lang.KEYS[(lang.KEYS.index(key) + shift) % len(lang.KEYS)]}"

    def _memory(self, agent: int) -> Memory:
        memory = self._memories.get(agent)
        if memory is None:
            memory = self._memories[agent] = Memory(self.language.facts)
        return memory

    def _board(self, bits: int) -> tuple[str, int]:
        """A page of open modules in random order without replacement, and the bits that are left.

        Fisher and Yates's shuffle of the open modules, stopped after a page; `moved` holds the places that it changed.
        """
        n_open = len(self._open)
        if not n_open:
            return " ".join([_NO_BOARD] * lang.N_BOARD), bits
        moved: dict[int, int] = {}
        page: list[str] = []
        for n in range(n_open, max(n_open - lang.N_BOARD, 0), -1):
            bits, j = divmod(bits, n)
            page.append(self._labels[self._open[moved.get(j, j)]])
            moved[j] = moved.get(n - 1, n - 1)
        page += [_NO_BOARD] * (lang.N_BOARD - len(page))
        return " ".join(page), _mix(bits)

    def _close(self, module: int) -> None:
        """Take a module off the board; the open ones lie in order of their opening, so bisection finds it."""
        del self._open[bisect_left(self._open, self._opening[module], key=self._opening.__getitem__)]

    def _refusal(self, module: int, key: str) -> str:
        """The code of a quick failure, or an empty text when the work can begin."""
        if module < 0:
            return "unknown"
        if self._finished[module]:
            return "already"
        if self._missing[module]:
            return "locked"
        return "needkey" if key == lang.NO_KEY and self._plan.needs_key[module] else ""

    def _finish_study(self, agent: int, package: str, code: str) -> CallResult:
        if code:
            return CallResult(False, code, (package,), 0.0, {"failed": 1.0})
        key = self._key_of[package]
        self._memory(agent).learn(f"{package} {key}")
        return CallResult(True, "learned", (package, key))

    def _finish_work(self, agent: int, module: int, package: str, index: str, units: float) -> CallResult:
        plan = self._plan
        self._finished[module] = True
        self._n_finished += 1
        self._close(module)
        for other in plan.dependents[module]:
            self._missing[other] -= 1
            if self._missing[other] == 0:
                self._opening[other] = len(self._opening)
                self._open.append(other)
        reward = 1.0 / plan.n_modules
        fact = f"{package} {self._key_of[package]}"
        info = {"units": units}
        uses: tuple[str, ...] = ()
        if plan.needs_key[module]:
            was_told = self._memory(agent).only_received(fact)
            info["received_key"], uses = float(was_told), (fact,) if was_told else ()
        if plan.index[module] > 0:
            return CallResult(True, "done", (package, index), reward, info, uses)
        self._memory(agent).learn(fact)
        return CallResult(True, "done", (package, self._key_of[package]), reward, info, uses)


def _last(result: CallResult | None, names: Names) -> str:
    """Code and two arguments; whatever is no word of the vocabulary is shown as `none`."""
    if result is None:
        return f"{lang.NONE} {lang.NONE} {lang.NONE}"
    words = [result.code if result.code in lang.CODE_SET else lang.NONE]
    words += [word if word in names.argument_set else lang.NONE for word in result.args[:2]]
    return " ".join(words + [lang.NONE] * (3 - len(words)))


def _team(team: Sequence[str], bits: int) -> str:
    """Two of the other employed agents, in random order."""
    n = len(team)
    if n == 0:
        return f"{lang.NOBODY} {lang.NOBODY}"
    bits, first = divmod(bits, n)
    if n == 1:
        return f"{team[0]} {lang.NOBODY}"
    second = bits % (n - 1)
    return f"{team[first]} {team[second + (second >= first)]}"
