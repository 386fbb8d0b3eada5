"""The spec of a `workshop@1` task: plain JSON, checked once and flattened for the simulator.

    {"packages": [{"name": "p07", "key": "k03",
                   "modules": [{"units": 2, "deps": [[0, 0], ...], "needs_key": true}, ...]}, ...]}

Module 0 of a package is its root, whose key the package's keyed modules need. `deps` are [package, module] positions.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.workshop.language import INDICES, KEY_SET
from envs.workshop.names import VILLAGE, Names
from rlcr_core.errors import TaskError

MAX_UNITS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked spec. Modules are numbered 0..M-1, package by package; all tuples but names and keys have length M."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    package: tuple[int, ...]
    index: tuple[int, ...]
    units: tuple[int, ...]
    needs_key: tuple[bool, ...]
    deps: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]

    @property
    def n_modules(self) -> int:
        return len(self.units)


def _wrong(where: str, got: object, expected: str) -> TaskError:
    return TaskError(f"{where}: got {got!r}, expected {expected}; correct the task file or generate it again.")


def _require(condition: bool, where: str, got: object, expected: str) -> None:
    if not condition:
        raise _wrong(where, got, expected)


def _integer(value: object, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _wrong(where, value, f"an integer from {low} to {high}")
    return value


def _fields(value: object, names: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "an object")
    _require(set(value) == names, where, sorted(map(str, value)), f"exactly the keys {sorted(names)}")
    return value


def _items(value: object, where: str, low: int, high: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not low <= len(value) <= high:
        raise _wrong(where, value, f"a list of {low} to {high} items")
    return value


def topological_order(deps: Sequence[Sequence[int]]) -> list[int]:
    """Modules, each after its dependencies, the lowest number first; fewer than M when there is a cycle."""
    missing = [len(d) for d in deps]
    dependents = reverse(deps)
    ready = [m for m, n in enumerate(missing) if n == 0]  # in rising order, which is a heap
    order: list[int] = []
    while ready:
        module = heapq.heappop(ready)
        order.append(module)
        for other in dependents[module]:
            missing[other] -= 1
            if missing[other] == 0:
                heapq.heappush(ready, other)
    return order


def critical_units(plan: Plan) -> int:
    """Units of the longest chain of modules that have to be built one after another."""
    through = list(plan.units)  # the most units of a chain that ends with this module
    for module in topological_order(plan.deps):
        through[module] += max((through[other] for other in plan.deps[module]), default=0)
    return max(through)


def reverse(deps: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """For each module those that depend on it, in rising order."""
    dependents: list[list[int]] = [[] for _ in deps]
    for module, needed in enumerate(deps):
        for other in needed:
            dependents[other].append(module)
    return tuple(tuple(d) for d in dependents)


def _check_packages(spec: object, names: Names) -> list[Mapping[str, Any]]:
    packages = _items(_fields(spec, {"packages"}, "spec")["packages"], "spec.packages", 1, len(names.packages))
    known, last = names.package_set, names.packages[-1]
    checked: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    for p, value in enumerate(packages):
        where = f"spec.packages[{p}]"
        package = _fields(value, {"name", "key", "modules"}, where)
        name, key = package["name"], package["key"]
        _require(isinstance(name, str) and name in known, f"{where}.name", name, f"one of p00 .. {last}")
        _require(isinstance(key, str) and key in KEY_SET, f"{where}.key", key, "one of k00 .. k15")
        _require(name not in seen, f"{where}.name", name, "a name no other package has")
        seen.add(name)
        _items(package["modules"], f"{where}.modules", 1, len(INDICES))
        checked.append(package)
    return checked


def _check_deps(value: object, first: Sequence[int], sizes: Sequence[int], where: str) -> tuple[int, ...]:
    """Flat numbers of a module's dependencies, in rising order."""
    needed: set[int] = set()
    for pair in _items(value, where, 0, sum(sizes)):
        package, module = _items(pair, where, 2, 2)
        package = _integer(package, f"{where} (package)", 0, len(sizes) - 1)
        module = _integer(module, f"{where} (module)", 0, sizes[package] - 1)
        _require(first[package] + module not in needed, where, pair, "each dependency once")
        needed.add(first[package] + module)
    return tuple(sorted(needed))


def parse_spec(spec: object, names: Names = VILLAGE) -> Plan:
    """Check and flatten a spec. Raises TaskError naming the place, what was found and what was expected."""
    packages = _check_packages(spec, names)
    sizes = [len(p["modules"]) for p in packages]
    first = [sum(sizes[:p]) for p in range(len(sizes))]
    units: list[int] = []
    needs_key: list[bool] = []
    deps: list[tuple[int, ...]] = []
    for p, package in enumerate(packages):
        for i, value in enumerate(package["modules"]):
            where = f"spec.packages[{p}].modules[{i}]"
            module = _fields(value, {"units", "deps", "needs_key"}, where)
            units.append(_integer(module["units"], f"{where}.units", 1, MAX_UNITS))
            keyed = module["needs_key"]
            _require(isinstance(keyed, bool), f"{where}.needs_key", keyed, "true or false")
            _require(i > 0 or not keyed, f"{where}.needs_key", keyed, "false (module 0, the root, gives the key)")
            needs_key.append(keyed)
            deps.append(_check_deps(module["deps"], first, sizes, f"{where}.deps"))
    order = topological_order(deps)
    blocked = sorted(set(range(len(deps))) - set(order))
    _require(not blocked, "spec.packages", f"a cycle through or before modules {blocked}", "no cycle of dependencies")
    return Plan(
        names=tuple(p["name"] for p in packages),
        keys=tuple(p["key"] for p in packages),
        package=tuple(p for p, size in enumerate(sizes) for _ in range(size)),
        index=tuple(i for size in sizes for i in range(size)),
        units=tuple(units),
        needs_key=tuple(needs_key),
        deps=tuple(deps),
        dependents=reverse(deps),
    )
