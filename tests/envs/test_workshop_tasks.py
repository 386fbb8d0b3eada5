"""Task sets of workshop@1: what p and c mean, families, seeds, and refused specs."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.workshop.spec import parse_spec, topological_order
from envs.workshop.tasks import build_spec, generate, task_seed
from rlcr_core.errors import TaskError

SIZES = {"packages": 4, "modules": 12, "parallel_share": 1.0, "coupling": 1.0}


def make(families=("star",), split="train", count=1, seed=0, **changes):
    shares = {family: 1 / len(families) for family in families}
    return generate(families=shares, split=split, count=count, seed=seed, **(SIZES | changes))


def longest_chain(plan):
    """Number of modules on the longest path of dependencies."""
    length = {}
    for module in topological_order(plan.deps):
        length[module] = 1 + max((length[other] for other in plan.deps[module]), default=0)
    return max(length.values())


def test_default_task_is_four_stars_of_twelve():
    (task,) = make()
    plan = parse_spec(task.spec)
    assert plan.n_modules == 48
    assert longest_chain(plan) == 2  # a root, then its dependents, all at once
    assert sum(plan.needs_key) == 44  # c = 1: every module that is no root
    roots = [m for m in range(48) if plan.index[m] == 0]
    assert roots == [0, 12, 24, 36]
    assert all(plan.deps[m] == (() if m in roots else (roots[plan.package[m]],)) for m in range(48))
    assert (task.id, task.environment, task.split) == ("train-00000-star", "workshop@1", "train")
    assert json.loads(json.dumps(task.spec)) == task.spec


@given(
    family=st.sampled_from(["star", "real"]), packages=st.integers(1, 6), modules=st.integers(1, 16),
    seed=st.integers(0, 2**40),
)  # fmt: skip
def test_p_zero_is_one_chain_through_every_module(family, packages, modules, seed):
    (task,) = make([family], seed=seed, packages=packages, modules=modules, parallel_share=0.0)
    plan = parse_spec(task.spec)
    assert longest_chain(plan) == plan.n_modules


@given(
    family=st.sampled_from(["star", "real"]), p=st.floats(0, 1), c=st.floats(0, 1), packages=st.integers(1, 6),
    modules=st.integers(1, 16), seed=st.integers(0, 2**40),
)  # fmt: skip
def test_p_and_c_are_shares_and_the_rest_of_the_task_does_not_depend_on_them(family, p, c, packages, modules, seed):
    sizes = {"seed": seed, "packages": packages, "modules": modules}
    (task,) = make([family], parallel_share=p, coupling=c, **sizes)
    (free,) = make([family], parallel_share=1.0, coupling=0.0, **sizes)
    plan, plain = parse_spec(task.spec), parse_spec(free.spec)
    n_dependents = plan.n_modules - len(plan.names)
    assert sum(plan.needs_key) == round(c * n_dependents)
    assert longest_chain(plan) >= round((1 - p) * plan.n_modules)
    # The chain adds at most one dependency to each chained module but the first, and takes none away.
    added = [set(a) - set(b) for a, b in zip(plan.deps, plain.deps, strict=True)]
    assert all(set(b) <= set(a) and len(more) <= 1 for a, b, more in zip(plan.deps, plain.deps, added, strict=True))
    assert sum(map(len, added)) <= max(0, round((1 - p) * plan.n_modules) - 1)
    assert (plan.names, plan.keys, plan.units) == (plain.names, plain.keys, plain.units)


def test_half_serial_by_hand():
    # One star of 4, p = 0.5: two of the modules 0..3 are chained. Both cases are valid: with the root, the other
    # depends on it already, so nothing is added; without it, the later of the two waits for the earlier as well.
    seen = set()
    for seed in range(60):
        spec = build_spec([[[], [0], [0], [0]]], 0.5, 0.0, seed)
        deps = tuple(tuple(j for _, j in module["deps"]) for module in spec["packages"][0]["modules"])
        seen.add(deps)
    chained = {((), (0,), (0, 1), (0,)), ((), (0,), (0,), (0, 1)), ((), (0,), (0,), (0, 2))}
    assert seen == chained | {((), (0,), (0,), (0,))}


def test_units_names_and_keys_are_drawn_evenly():
    plans = [parse_spec(task.spec) for task in make(count=400)]
    units = [u for plan in plans for u in plan.units]
    # 19200 modules, 6400 of each size; standard deviation sqrt(19200 * 2/9) = 65, 5 of them are 327.
    assert all(abs(units.count(u) - 6400) < 327 for u in (1, 2, 3))
    names = [name for plan in plans for name in plan.names]
    # 1600 names over 48: 33.3 each, standard deviation 5.5 at most; keys over 16: 100 each, standard deviation 9.7.
    assert len(set(names)) == 48 and max(map(names.count, set(names))) < 61
    keys = [key for plan in plans for key in plan.keys]
    assert len(set(keys)) == 16 and all(51 < keys.count(key) < 149 for key in set(keys))


def test_a_task_depends_on_seed_split_and_number_only():
    four, two = make(count=4), make(count=2)
    assert four[:2] == two
    assert make(count=4) == four
    specs = [json.dumps(task.spec) for task in [*four, *make(count=4, split="test"), *make(count=4, seed=1)]]
    assert len(set(specs)) == 12
    # printf '0\x1ftrain\x1f1' | sha256sum begins with 40af883f5928d88d; half of that. A change would change every set.
    assert task_seed(0, "train", 1) == 0x40AF883F5928D88D >> 1


def test_families_are_shared_out_by_largest_remainder_and_mixed():
    tasks = generate(families={"star": 0.75, "real": 0.25}, split="train", count=10, seed=0, **SIZES)
    families = [task.id.split("-")[2] for task in tasks]
    # 7.5 and 2.5: both remainders are equal, the first in alphabetical order (real) takes the extra task.
    assert (families.count("star"), families.count("real")) == (7, 3)
    assert families != sorted(families) and families != sorted(families, reverse=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"packages": 49}, "takes 1 to 48 packages, got 49; change task_set.packages"),
     ({"packages": 0}, "takes 1 to 48 packages"),
     ({"modules": 17}, "takes 1 to 16 modules, got 17; change task_set.modules"),
     ({"count": -1}, "takes 0 to 10000000 count, got -1"),
     ({"parallel_share": 1.1}, "parallel_share is a share from 0 to 1, got 1.1; change task_set.parallel_share"),
     ({"coupling": float("nan")}, "coupling is a share from 0 to 1, got nan"),
     ({"families": ("moon",)}, r"unknown task families \['moon'\], workshop@1 has \['real', 'star'\]")],
)  # fmt: skip
def test_impossible_task_sets_are_refused(changes, message):
    with pytest.raises(TaskError, match=message):
        make(**changes)


def test_family_shares_must_add_up():
    with pytest.raises(TaskError, match=r"must add up to 1, got {'star': 0.5}; change task_set.families"):
        generate(families={"star": 0.5}, split="train", count=1, seed=0, **SIZES)


def _set(path, value):
    def change(spec):
        *parents, last = path
        for part in parents:
            spec = spec[part]
        spec[last] = value

    return change


MODULE = ("packages", 0, "modules", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [(_set(("packages",), []), "spec.packages: got .*, expected a list of 1 to 48 items"),
     (_set(("extra",), 1), r"spec: got .'extra', 'packages'., expected exactly the keys .'packages'."),
     (_set(("packages", 1), 3), r"spec.packages\[1\]: got 3, expected an object"),
     (_set(("packages", 0, "name"), "p99"), r"packages\[0\].name: got 'p99', expected one of p00 .. p47"),
     (_set(("packages", 1, "name"), "p07"), r"packages\[1\].name: got 'p07', expected a name no other package has"),
     (_set(("packages", 0, "key"), "nokey"), "key: got 'nokey', expected one of k00 .. k15"),
     (_set(("packages", 0, "key"), ["k00"]), "expected one of k00 .. k15"),
     (_set(("packages", 0, "modules"), []), "modules: got .*, expected a list of 1 to 16 items"),
     (_set((*MODULE, "units"), 4), r"modules\[1\].units: got 4, expected an integer from 1 to 3"),
     (_set((*MODULE, "units"), True), "units: got True, expected an integer"),
     (_set((*MODULE, "needs_key"), "yes"), "needs_key: got 'yes', expected true or false"),
     (_set(("packages", 0, "modules", 0, "needs_key"), True), r"modules\[0\].needs_key: got True, expected false"),
     (_set((*MODULE, "deps"), [[0, 3]]), r"deps \(module\): got 3, expected an integer from 0 to 2"),
     (_set((*MODULE, "deps"), [[2, 0]]), r"deps \(package\): got 2, expected an integer from 0 to 1"),
     (_set((*MODULE, "deps"), [[0]]), "deps: got .0., expected a list of 2 to 2 items"),
     (_set((*MODULE, "deps"), [[0, 0], [0, 0]]), "expected each dependency once"),
     # p07 i01 <- p21 i01 <- p07 i01: modules 1 and 4 in flat numbers.
     (_set((*MODULE, "deps"), [[1, 1]]), r"a cycle through or before modules \[1, 4\]', expected no cycle")],
)  # fmt: skip
def test_broken_specs_name_place_found_and_expected(tiny_task, change, message):
    spec = copy.deepcopy(tiny_task.spec)
    change(spec)
    with pytest.raises(TaskError, match=message):
        parse_spec(spec)


@pytest.mark.parametrize("spec", [None, [], "packages", {}])
def test_a_spec_that_is_no_project_is_refused(spec):
    with pytest.raises(TaskError, match=r"^spec"):
        parse_spec(spec)
