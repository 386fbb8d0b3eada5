"""Environments: worlds in which a collective earns rewards before its clock runs out.

    envs/__init__.py   the registry of versioned ids: make, generate, grammar (nothing is imported before it is used)
    envs/checks.py     check_environment, the conformance check that every environment must pass
    envs/driving.py    the small event loop that the check plays an environment with
    envs/workshop/     workshop@1, a software project with dependencies and hidden interface keys, and workshop-city@1,
                       the same for 1,000 agents

To add an environment: write a module with a class that takes a Task and fulfils `rlcr_core.types.Environment`, a
function `generate` with the keywords of `generate` below, and a module with the functions of `workshop/grammar.py`
(what a warm start clones: random valid actions); call `register` below with their addresses; run `check_environment`
on its tasks. Rules or texts that change what an agent sees or earns need a new version: `workshop@2`, beside the old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, cast

from rlcr_core.errors import TaskError
from rlcr_core.types import Environment, Player, Task, Terms

__all__ = ["bounds", "generate", "grammar", "make", "player", "players", "register", "registered"]

Factory = Callable[[Task], Environment]
Generator = Callable[..., list[Task]]
MakePlayer = Callable[[Environment, Terms], Player]
MakeBounds = Callable[[Environment, Terms], Any]


class _Entry(NamedTuple):
    factory: Factory | str
    generator: Generator | str | None
    grammar: ModuleType | str | None
    players: Mapping[str, MakePlayer] | str
    bounds: MakeBounds | str | None


_ENTRIES: dict[str, _Entry] = {}


def register(
    environment_id: str,
    factory: Factory | str,
    *,
    generator: Generator | str | None = None,
    grammar: ModuleType | str | None = None,
    players: Mapping[str, MakePlayer] | str = MappingProxyType({}),
    bounds: MakeBounds | str | None = None,
) -> None:
    """Make an environment known as `name@version`.

    `factory` (Task -> Environment), `generator` and `bounds` are callables or addresses `module:attribute`, `players` a
    mapping or the address of one, `grammar` is a module or its name; addresses are imported on first use. Raises TaskError
    for a malformed or an already registered id.
    """
    name, at, version = environment_id.partition("@")
    if not (name and at and version.isdigit()):
        raise TaskError(f"an environment id is name@version, such as workshop@1, got {environment_id!r}.")
    if environment_id in _ENTRIES:
        raise TaskError(f"{environment_id} is already registered; give changed rules a new version.")
    _ENTRIES[environment_id] = _Entry(factory, generator, grammar, players, bounds)


def registered() -> tuple[str, ...]:
    """The known ids, in alphabetical order."""
    return tuple(sorted(_ENTRIES))


def make(task: Task) -> Environment:
    """A fresh attempt at a task. Raises TaskError for an unknown environment id or an unusable spec."""
    factory = _entry(task.environment, f"task {task.id}").factory
    return cast(Factory, _resolve(factory))(task)


def generate(
    environment_id: str,
    *,
    families: Mapping[str, float],
    split: str,
    count: int,
    seed: int,
    packages: int,
    modules: int,
    parallel_share: float,
    coupling: float,
) -> list[Task]:
    """Tasks of one split (the keywords are those of `task_set` in params.yaml). Raises TaskError."""
    generator = _entry(environment_id, "task_set.environment").generator
    if generator is None:
        raise TaskError(f"{environment_id} cannot generate tasks; bring a task file or register it with a generator.")
    return cast(Generator, _resolve(generator))(
        environment_id,
        families=families,
        split=split,
        count=count,
        seed=seed,
        packages=packages,
        modules=modules,
        parallel_share=parallel_share,
        coupling=coupling,
    )


def grammar(environment_id: str) -> ModuleType:
    """The module of random valid actions that a warm start clones: next_word, random_action, shuffle_facts,
    VERB_FREQUENCIES (see envs/workshop/grammar.py). Raises TaskError."""
    module = _entry(environment_id, "task_set.environment").grammar
    if module is None:
        raise TaskError(f"{environment_id} declares no grammar to warm-start from; register it with one.")
    return import_module(module) if isinstance(module, str) else module


def players(environment_id: str) -> Mapping[str, MakePlayer]:
    """The environment's scripted players by name (rlcr_core.scripted runs them); none unless it registered some."""
    found: Mapping[str, MakePlayer] = _resolve(_entry(environment_id, "a scripted player").players)
    return found


def player(environment_id: str, name: str) -> MakePlayer:
    """The environment's scripted player of that name. Raises TaskError naming those it has."""
    found = players(environment_id)
    if name not in found:
        raise TaskError(
            f"{environment_id} has no scripted player {name!r}, it has {', '.join(found) or 'none'}; choose one of those."
        )
    return found[name]


def bounds(environment: Environment, terms: Terms) -> Any:
    """What no player can exceed on this task: see envs/workshop/bounds.py for the fields. Raises TaskError without any."""
    declared = _entry(environment.id, "a bound").bounds
    if declared is None:
        raise TaskError(f"{environment.id} declares no bounds; register it with a function that gives them.")
    return cast(MakeBounds, _resolve(declared))(environment, terms)


def _entry(environment_id: str, where: str) -> _Entry:
    if environment_id not in _ENTRIES:
        raise TaskError(
            f"{where} names the environment {environment_id!r}, known are {', '.join(registered())}; "
            "correct it, or register the environment first."
        )
    return _ENTRIES[environment_id]


def _resolve(target: Any) -> Any:
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


register(
    "workshop@1",
    "envs.workshop.environment:WorkshopEnvironment",
    generator="envs.workshop.tasks:generate",
    grammar="envs.workshop.grammar",
    players="envs.workshop.players:PLAYERS",
    bounds="envs.workshop.bounds:workshop_bounds",
)
register(
    "workshop-names@1",
    "envs.workshop.city:NamesEnvironment",
    generator="envs.workshop.city:generate",
    grammar="envs.workshop.grammar",
    players="envs.workshop.players:PLAYERS",
    bounds="envs.workshop.bounds:workshop_bounds",
)
register(
    "workshop-city@1",
    "envs.workshop.city:CityEnvironment",
    generator="envs.workshop.city:generate",
    grammar="envs.workshop.grammar",
    bounds="envs.workshop.bounds:workshop_bounds",
)
