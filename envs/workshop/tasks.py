"""Task sets of `workshop@1`: the families `star` (drawn) and `real` (graphs of Python packages), with p and c.

p (`parallel_share`) and c (`coupling`) act on both families. round((1 - p) * M) modules, drawn from the task's seed,
are chained across packages in a fixed topological order: at p = 1 a module waits for its own dependencies only, at
p = 0 one module is open at any time. round(c * dependents) of the modules that are no root need their package's key.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from envs.workshop.environment import ENVIRONMENT_ID
from envs.workshop.language import INDICES, KEYS, PACKAGES
from envs.workshop.real import draw_slices
from envs.workshop.spec import MAX_UNITS, topological_order
from rlcr_core.errors import TaskError
from rlcr_core.types import Task

Deps = list[list[int]]  # per module of one package the modules that it needs; module 0 is the root and needs none


def _star(rng: random.Random, packages: int, modules: int) -> list[Deps]:
    """Each package is a root and `modules` - 1 modules that need only the root."""
    return [[[]] + [[0] for _ in range(modules - 1)] for _ in range(packages)]


FAMILIES: Mapping[str, Callable[[random.Random, int, int], list[Deps]]] = {"star": _star, "real": draw_slices}


def task_seed(*parts: int | str) -> int:
    """63 bits of the SHA-256 of the parts."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _chain(deps: list[list[int]], parallel_share: float, rng: random.Random) -> None:
    """Let each of the drawn modules wait for the one drawn before it in topological order (in place)."""
    n_chained = round((1.0 - parallel_share) * len(deps))
    drawn = set(rng.sample(range(len(deps)), n_chained))
    chain = [module for module in topological_order(deps) if module in drawn]
    for before, module in pairwise(chain):
        if before not in deps[module]:
            deps[module].append(before)


def build_spec(
    graphs: Sequence[Deps], parallel_share: float, coupling: float, seed: int, pool: Sequence[str] = PACKAGES
) -> dict[str, Any]:
    """A spec with units, names of the pool, keys, chained modules and keyed modules drawn from the seed."""
    rng = random.Random(seed)
    names = rng.sample(pool, len(graphs))
    keys = [rng.choice(KEYS) for _ in graphs]
    place = [(p, i) for p, graph in enumerate(graphs) for i in range(len(graph))]
    number = {pair: module for module, pair in enumerate(place)}
    deps = [[number[p, j] for j in graphs[p][i]] for p, i in place]
    units = [rng.randint(1, MAX_UNITS) for _ in place]
    dependents = [module for module, (_, i) in enumerate(place) if i > 0]
    keyed = set(rng.sample(dependents, round(coupling * len(dependents))))
    _chain(deps, parallel_share, rng)
    packages: list[dict[str, Any]] = [{"name": n, "key": k, "modules": []} for n, k in zip(names, keys, strict=True)]
    for module, (p, _) in enumerate(place):
        needed = [list(place[other]) for other in sorted(deps[module])]
        packages[p]["modules"].append({"units": units[module], "deps": needed, "needs_key": module in keyed})
    return {"packages": packages}


def _check(
    families: Mapping[str, float],
    count: int,
    packages: int,
    modules: int,
    shares: Mapping[str, float],
    names: int,
    environment_id: str,
) -> None:
    unknown = sorted(set(families) - set(FAMILIES))
    if unknown or not families:
        raise TaskError(
            f"unknown task families {unknown}, {environment_id} has {sorted(FAMILIES)}; change task_set.families."
        )
    if min(families.values()) < 0 or abs(sum(families.values()) - 1.0) > 1e-9:
        raise TaskError(f"family shares must add up to 1, got {dict(families)}; change task_set.families.")
    for name, value, low, high in (
        ("count", count, 0, 10**7),
        ("packages", packages, 1, names),
        ("modules", modules, 1, len(INDICES)),
    ):
        if not low <= value <= high:
            raise TaskError(f"{environment_id} takes {low} to {high} {name}, got {value}; change task_set.{name}.")
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise TaskError(f"{name} is a share from 0 to 1, got {share}; change task_set.{name}.")


def _allot(families: Mapping[str, float], count: int, seed: int) -> list[str]:
    """A family per task: counts by largest remainder, mixed by the seed."""
    names = sorted(families)
    counts = {name: int(families[name] * count + 1e-9) for name in names}
    by_remainder = sorted(names, key=lambda name: (counts[name] - families[name] * count, name))
    for name in by_remainder[: count - sum(counts.values())]:
        counts[name] += 1
    allotted = [name for name in names for _ in range(counts[name])]
    random.Random(seed).shuffle(allotted)
    return allotted


def generate(
    environment_id: str = ENVIRONMENT_ID,
    *,
    families: Mapping[str, float],
    split: str,
    count: int,
    seed: int,
    packages: int,
    modules: int,
    parallel_share: float,
    coupling: float,
    pool: Sequence[str] = PACKAGES,
) -> list[Task]:
    """`count` tasks of a split; a task depends only on (seed, split, its number), the sizes and the `pool` of package names.

    Raises TaskError.
    """
    shares = {"parallel_share": parallel_share, "coupling": coupling}
    _check(families, count, packages, modules, shares, len(pool), environment_id)
    tasks: list[Task] = []
    for number, family in enumerate(_allot(families, count, task_seed(seed, split, "families"))):
        own = task_seed(seed, split, number)
        graphs = FAMILIES[family](random.Random(task_seed(own, "graphs")), packages, modules)
        spec = build_spec(graphs, parallel_share, coupling, task_seed(own, "spec"), pool)
        tasks.append(Task(f"{split}-{number:05d}-{family}", environment_id, split, own, spec))
    return tasks
