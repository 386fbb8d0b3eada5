"""The family `real`: extraction on a package written here, the checked-in graphs, and slices of them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.workshop.graphs import extract
from envs.workshop.real import draw_slices, grow_slice, imports_of, load_graphs, slice_deps
from envs.workshop.spec import parse_spec, topological_order
from envs.workshop.tasks import generate
from rlcr_core.errors import TaskError

# In alphabetical order: 0 shop, 1 shop.cart, 2 shop.db, 3 shop.db.rows, 4 shop.lone, 5 shop.price
SOURCES = {
    "__init__.py": "from shop import cart\n",  # 0 -> 1
    "cart.py": "import os\nfrom .price import total\nfrom . import db\n",  # 1 -> 5, 1 -> 2
    "db/__init__.py": "from .rows import *\nif TYPE_CHECKING:\n    import shop.lone\n",  # 2 -> 3
    "db/rows.py": "import shop.price as p\ndef late():\n    import shop.lone\n",  # 3 -> 5
    "lone.py": "",
    "price.py": "try:\n    from .. import nothing\nexcept ImportError:\n    from .cart import cheap\n",  # 5 -> 1
    "tests/test_price.py": "import shop.price\n",  # tests are left out
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    for name, text in SOURCES.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return extract.modules_of("shop")


def test_extraction_by_hand(shop):
    assert sorted(shop) == ["shop", "shop.cart", "shop.db", "shop.db.rows", "shop.lone", "shop.price"]
    graph = extract.import_graph(shop)
    assert graph == [{1}, {2, 5}, {3}, {5}, set(), {1}]
    # Depth first from 0: 0 -> 1 -> 2 -> 3 -> 5, and 5 -> 1 leads back to an open module: dropped.
    acyclic = extract.cut_cycles(graph)
    assert acyclic == [{1}, {2, 5}, {3}, {5}, set(), set()]
    # shop.lone is connected to nothing; shop.price is number 4 without it.
    assert extract.largest_component(acyclic) == [{1}, {2, 4}, {3}, {4}, set()]


def test_extraction_refuses_what_it_cannot_use(shop):
    with pytest.raises(TaskError, match="shop has 5 connected modules, expected 12 to 250; change PACKAGES"):
        extract.extract("shop", "shop")
    with pytest.raises(TaskError, match="package no_such_package is not installed"):
        extract.modules_of("no_such_package")


def test_checked_in_graphs_are_acyclic_connected_and_large_enough():
    graphs = load_graphs()
    assert [graph["name"] for graph in graphs] == sorted(extract.PACKAGES)
    assert len(graphs) >= 24
    for graph in graphs:
        imports = imports_of(graph)
        assert len(imports) == graph["modules"] >= extract.MIN_MODULES
        assert sum(map(len, imports)) == len(graph["edges"])
        assert len(topological_order([sorted(found) for found in imports])) == len(imports)
        assert extract.largest_component(imports) == imports
    assert extract.OUTPUT.stat().st_size < 300_000


def test_a_slice_by_hand():
    # 0 -> 1 -> 2, 3 -> 1, 4 alone. All but 4 are connected; 1 is imported most (by 0 and 3), so it becomes the root and
    # its own import of 2 is dropped; the import of it by 0 and 3 stays.
    imports = [{1}, {2}, set(), {1}, set()]
    rng = random.Random(0)
    starts = {tuple(grow_slice(imports, 9, rng)) for _ in range(50)}
    assert starts == {(0, 1, 2, 3), (4,)}
    deps = slice_deps(imports, [0, 1, 2, 3], rng)
    assert deps[0] == []
    assert sorted(deps[1:]) == [[], [0], [0]]


@given(st.integers(0, 2**40), st.integers(1, 16), st.integers(1, 48))
def test_slices_are_packages_with_a_free_root(seed, modules, packages):
    slices = draw_slices(random.Random(seed), packages, modules)
    assert len(slices) == packages
    for deps in slices:
        assert 1 <= len(deps) <= modules
        assert deps[0] == []
        assert len(topological_order(deps)) == len(deps)
        importers = [sum(m in needed for needed in deps) for m in range(len(deps))]
        # Dropping the root's imports can only lower the counts of the others.
        assert importers[0] == max(importers)
    assert draw_slices(random.Random(seed), packages, modules) == slices


def test_slices_of_different_packages_fill_up_to_the_size_asked_for():
    # Every graph is connected and has at least 12 modules, so a slice of 12 is full.
    assert {len(deps) for deps in draw_slices(random.Random(1), 40, 12)} == {12}


def test_real_tasks_are_valid_and_keep_real_dependencies():
    sizes = {"packages": 4, "modules": 12, "parallel_share": 1.0, "coupling": 1.0}
    tasks = generate(families={"real": 1.0}, split="train", count=20, seed=0, **sizes)
    depths = set()
    for task in tasks:
        plan = parse_spec(task.spec)
        assert plan.n_modules == 48
        depth = [0] * 48
        for module in topological_order(plan.deps):
            depth[module] = 1 + max((depth[other] for other in plan.deps[module]), default=0)
        depths.add(max(depth))
    assert max(depths) > 2  # unlike stars, real imports are deep


def test_unreadable_graphs_say_what_to_do(monkeypatch):
    monkeypatch.setattr("envs.workshop.real.GRAPHS_FILE", "graphs/nowhere.json")
    with pytest.raises(TaskError, match=r"nowhere.json cannot be read .*python -m envs.workshop.graphs.extract"):
        load_graphs.__wrapped__()
