"""The family `real`: slices of the module-import graphs of real Python packages (see envs/workshop/graphs)."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib.resources import files
from typing import Any

from rlcr_core.errors import TaskError

GRAPHS_FILE = "graphs/graphs.json"


@cache
def load_graphs() -> tuple[dict[str, Any], ...]:
    """The checked-in graphs: name, version, modules, edges [importer, imported]. Raises TaskError."""
    try:
        data = json.loads(files("envs.workshop").joinpath(GRAPHS_FILE).read_text(encoding="utf-8"))
        return tuple(data["graphs"])
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(
            f"envs/workshop/{GRAPHS_FILE} cannot be read ({error!r}); restore it from the repository or make it again "
            "with `python -m envs.workshop.graphs.extract`."
        ) from None


def imports_of(graph: dict[str, Any]) -> list[set[int]]:
    """Per module of a graph the modules that it imports."""
    imports: list[set[int]] = [set() for _ in range(graph["modules"])]
    for importer, imported in graph["edges"]:
        imports[importer].add(imported)
    return imports


def grow_slice(imports: list[set[int]], size: int, rng: random.Random) -> list[int]:
    """At most `size` modules, connected by imports in either direction, grown from a random module; in rising order."""
    neighbours = [set(found) for found in imports]
    for importer, found in enumerate(imports):
        for imported in found:
            neighbours[imported].add(importer)
    start = rng.randrange(len(imports))
    kept = {start}
    frontier = sorted(neighbours[start])
    while frontier and len(kept) < size:
        module = frontier.pop(rng.randrange(len(frontier)))
        kept.add(module)
        frontier = sorted((set(frontier) | neighbours[module]) - kept)
    return sorted(kept)


def slice_deps(imports: list[set[int]], kept: list[int], rng: random.Random) -> list[list[int]]:
    """Dependencies of a slice renumbered from 0.

    Module 0 is the slice's most-imported module (the lowest number among equals): the interface, which is agreed on
    first, so its own imports are dropped. The others keep every import within the slice, in random order of numbers.
    """
    inside = set(kept)
    importers = {m: sum(m in imports[other] for other in kept) for m in kept}
    root = max(kept, key=lambda m: (importers[m], -m))
    rest = [m for m in kept if m != root]
    rng.shuffle(rest)
    number = {m: i for i, m in enumerate([root, *rest])}
    return [[]] + [sorted(number[other] for other in imports[m] & inside) for m in rest]


def draw_slices(rng: random.Random, packages: int, modules: int) -> list[list[list[int]]]:
    """One slice of at most `modules` modules from each of `packages` drawn graphs (again only when all were drawn)."""
    graphs = load_graphs()
    slices: list[list[list[int]]] = []
    while len(slices) < packages:
        for graph in rng.sample(graphs, min(len(graphs), packages - len(slices))):
            imports = imports_of(graph)
            slices.append(slice_deps(imports, grow_slice(imports, modules, rng), rng))
    return slices
