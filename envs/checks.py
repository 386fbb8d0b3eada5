"""Conformance check of environments: `check_environment` drives one with three agents and names the first broken rule.

Rules, in the order in which they are checked:

    protocol        every member is there; `id` is the task's environment; `concurrent` is a bool
    vocabulary      distinct single words; every word of observations, results, names and scrambled messages is in it
    action_format   arities and the longest action fit together
    tools           distinct names, a real kind, min_tokens >= 1, finite min_tool_s >= 0, one tool of its own at least
    names           agents have distinct, stable names
    time_left       the observation depends on the seconds left
    described       optional prose for chat models: both members or none; texts that asking again does not change
    measured        optional facts about the task: work and chain together, finite and above 0, the chain no longer
    parse           any text gives a Call and never an exception; a valid one names a tool, with its kind and length
    messages        judge gives finite numbers; corrupt keeps the number of words and depends on its seed alone
    begin           a finite tool time >= min_tool_s; earns nothing
    finish          refused without a begin (EnvironmentFault); a finite reward >= 0; a closed code
    earned          at any moment the sum of the rewards so far; asking changes nothing
    done            once true it stays true, and nothing more is earned
    determinism     the same task, seeds and actions give the same bytes, whatever else was drawn or asked in between
    errors          a legal call raises nothing
    coverage        the actions reached at least one call of the environment's own
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import envs
from envs.driving import (
    COLLECTIVE_TOOLS,
    LIMIT_S,
    N_AGENTS,
    Actions,
    Drive,
    parse_checked,
    require,
    require_closed,
    view_of,
)
from rlcr_core.errors import EnvironmentFault, RLCRError
from rlcr_core.types import Call, Described, Environment, Measured, Task, ToolSpec, TurnKind


def check_environment(
    make: Callable[[Task], Environment], task: Task, *, seed: int = 0, actions: Actions | None = None
) -> None:
    """Check every rule on one task. Raises EnvironmentFault that begins with the broken rule's name.

    `make` gives a fresh attempt. `actions` proposes actions; by default the registered grammar's random ones, mixed
    with random words.
    """
    try:
        _check_rules(make, task, seed, actions)
    except RLCRError:
        raise
    except Exception as error:
        raise EnvironmentFault(f"errors: a legal call raised {error!r}, expected no exception") from error


def _check_rules(make: Callable[[Task], Environment], task: Task, seed: int, actions: Actions | None) -> None:
    environment = make(task)
    _check_protocol(environment, task)
    words = _check_vocabulary(environment)
    tools = _check_tools(environment)
    _check_names(make(task), words)
    _check_time_left(make, task)
    _check_described(make, task)
    _check_measured(make, task)
    _check_texts(make(task), words, tools, seed)
    propose = _proposals(task, words, actions)
    first = Drive(make(task), tools, words, propose, seed, watch=True).run()
    require("coverage", first.n_own > 0, "no call of the environment's own came up; pass `actions` that make some")
    _check_finish_alone(make(task), first.own_call)
    second = Drive(make(task), tools, words, propose, seed, watch=False, max_moments=first.n_moments).run()
    pairs = zip(first.trace, second.trace, strict=False)
    different = next((f"{a!r} then {b!r}" for a, b in pairs if a != b), "one run is longer")
    require("determinism", first.trace == second.trace, f"two runs with equal seeds differ: {different}")


def _check_protocol(environment: Environment, task: Task) -> None:
    names = [*sorted(n for n in dir(Environment) if not n.startswith("_")), "concurrent", "id"]
    missing = [name for name in names if not hasattr(environment, name)]
    require("protocol", not missing, f"{type(environment).__name__} lacks {missing}")
    require("protocol", environment.id == task.environment, f"id is {environment.id!r}, expected {task.environment!r}")
    require("protocol", isinstance(environment.concurrent, bool), f"concurrent is {environment.concurrent!r}")


def _check_vocabulary(environment: Environment) -> frozenset[str] | None:
    words = environment.vocabulary()
    form = environment.action_format()
    require("action_format", form.max_tokens >= 1, f"max_tokens is {form.max_tokens}, expected at least 1")
    for verb, n in (form.arity or {}).items():
        require("action_format", 1 <= n <= form.max_tokens, f"{verb} takes {n} words, expected 1 to {form.max_tokens}")
        require("action_format", words is None or verb in words, f"the verb {verb} is not in the vocabulary")
    if words is None:
        return None
    bad = [word for word in words if word.split() != [word]]
    require("vocabulary", not bad, f"{bad} are not single words")
    require("vocabulary", len(set(words)) == len(words), "a word is listed twice")
    return frozenset(words)


def _check_tools(environment: Environment) -> dict[str, ToolSpec]:
    tools: dict[str, ToolSpec] = {}
    for is_ceo in (False, True):
        specs = environment.tools(is_ceo)
        require("tools", len({spec.name for spec in specs}) == len(specs), "two tools have the same name")
        own = [spec for spec in specs if spec.name not in COLLECTIVE_TOOLS]
        require("tools", bool(own), "the environment has no tool of its own")
        for spec in specs:
            require("tools", spec.kind is not TurnKind.INVALID, f"{spec.name} has the kind invalid")
            require("tools", spec.min_tokens >= 1, f"{spec.name} has min_tokens {spec.min_tokens}, expected at least 1")
            sane = math.isfinite(spec.min_tool_s) and spec.min_tool_s >= 0
            require("tools", sane, f"{spec.name} has min_tool_s {spec.min_tool_s}, expected finite seconds >= 0")
            tools[spec.name] = spec
    return tools


def _check_names(environment: Environment, words: frozenset[str] | None) -> None:
    names = [environment.agent_name(agent) for agent in range(N_AGENTS)]
    distinct = len(set(names)) == len(names) and all(names)
    require("names", distinct, f"agents are called {names}, expected distinct names")
    again = [environment.agent_name(agent) for agent in range(N_AGENTS)]
    require("names", names == again, f"agents are called {names}, then {again}")
    require_closed("vocabulary", " ".join(names), words, "an agent's name")


def _check_time_left(make: Callable[[Task], Environment], task: Task) -> None:
    texts = []
    for limit_s in (1.0, LIMIT_S):
        environment = make(task)
        texts.append(environment.observe(view_of(environment, 0, 0.0, limit_s, 0)).text)
    require("time_left", texts[0] != texts[1], f"the same observation 1 s and {LIMIT_S:g} s before the deadline")


def _check_described(make: Callable[[Task], Environment], task: Task) -> None:
    """The optional protocol `Described`: a chat model reads these texts instead of the observation's words."""
    environment = make(task)
    members = ("rules", "describe")
    there = [name for name in members if hasattr(environment, name)]
    require("described", len(there) in (0, 2), f"it has {there} only, expected both of {list(members)} or none")
    if not isinstance(environment, Described):
        return
    for is_ceo in (True, False):
        rules = environment.rules(is_ceo)
        require("described", isinstance(rules, str) and bool(rules.strip()), f"rules({is_ceo}) is {rules!r}, expected a text")
    for agent in range(N_AGENTS):
        view = view_of(environment, agent, 0.0, LIMIT_S, agent)
        text = environment.describe(view)
        require("described", isinstance(text, str), f"describe gave {text!r}, expected a text")
        again = environment.describe(view)
        require("described", text == again, f"describe gave {text!r}, then {again!r} for the same view")


def _check_measured(make: Callable[[Task], Environment], task: Task) -> None:
    """The optional protocol `Measured`: bounds in metrics are made of these facts."""
    environment = make(task)
    if not isinstance(environment, Measured):
        return
    facts = environment.task_facts()
    for name in ("total_work_s", "critical_path_s", "unit_s"):
        value = facts.get(name, 0.0)
        sane = math.isfinite(value) and value > 0
        require("measured", sane, f"task_facts says {name} = {value}, expected finite seconds above 0")
    fits = facts["critical_path_s"] <= facts["total_work_s"]
    require("measured", fits, f"task_facts says {dict(facts)}, expected a chain no longer than all the work")


def _check_texts(environment: Environment, words: frozenset[str] | None, tools: dict[str, ToolSpec], seed: int) -> None:
    rng = random.Random(seed)
    verbs = sorted(environment.action_format().arity or ())
    lexicon = sorted(words or ()) + verbs * 8 + ["", " ", "\n", "WORK", "é", "0", "<unk>", "\x00"]
    for _ in range(500):
        text = " ".join(rng.choice(lexicon) for _ in range(rng.randrange(7)))
        parse_checked(environment, rng.randrange(N_AGENTS), text, tools)
        _check_message(environment, text, words, rng.getrandbits(32))


def _check_message(environment: Environment, text: str, words: frozenset[str] | None, seed: int) -> None:
    for name, value in environment.judge(0, text).items():
        require("messages", math.isfinite(value), f"judge says {name} = {value} of {text!r}, expected finite numbers")
    scrambled = environment.corrupt(text, seed)
    require("messages", scrambled == environment.corrupt(text, seed), f"corrupt gave two texts for {text!r}, one seed")
    same_length = len(scrambled.split()) == len(text.split())
    require("messages", same_length, f"corrupt made {scrambled!r} of {text!r}, expected as many words")
    if scrambled != text:
        require_closed("vocabulary", scrambled, words, "a scrambled message")


def _proposals(task: Task, words: frozenset[str] | None, actions: Actions | None) -> Actions:
    """Mostly the given or the registered actions, sometimes words at random."""
    lexicon = sorted(words or ("yes", "no"))
    known = actions
    if known is None and task.environment in envs.registered():
        known = envs.grammar(task.environment).random_action

    def propose(text: str, rng: random.Random) -> str:
        if known is None or rng.random() < 0.1:
            return " ".join(rng.choice(lexicon) for _ in range(rng.randint(1, 4)))
        return known(text, rng)

    return propose


def _check_finish_alone(environment: Environment, call: Call) -> None:
    try:
        environment.finish(0, call, 1.0)
    except EnvironmentFault:
        return
    except Exception as error:
        raise EnvironmentFault(f"finish: without a begin it raised {error!r}, expected EnvironmentFault") from error
    raise EnvironmentFault(f"finish: {call} was accepted without a begin, expected EnvironmentFault")
