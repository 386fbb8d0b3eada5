"""Make graphs.json: who imports whom in Python packages that this project's environment installs.

    python -m envs.workshop.graphs.extract

Only facts are stored: a package's name and version, its number of modules, and pairs [importer, imported] of module
numbers (alphabetical order of the dotted names, which are not stored). Sources are parsed, never imported. Counted are
the imports that run when a module is imported: those inside functions or under `if TYPE_CHECKING` are not. Of each
package the largest part connected by imports is kept. Cycles are cut as Python cuts them: modules are visited depth
first in alphabetical order, and an import of a module that is still being visited is dropped.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rlcr_core.errors import TaskError

MIN_MODULES: Final = 12
MAX_MODULES: Final = 250
SKIPPED: Final = frozenset({"tests", "test", "testing", "_vendor", "vendor"})
OUTPUT: Final = Path(__file__).with_name("graphs.json")

# Dotted package -> distribution that holds it.
PACKAGES: Final[dict[str, str]] = {
    "aiohttp": "aiohttp",
    "alembic": "alembic",
    "anyio": "anyio",
    "click": "click",
    "dvc": "dvc",
    "dvc.repo": "dvc",
    "fastapi": "fastapi",
    "flask": "flask",
    "fsspec": "fsspec",
    "great_expectations.core": "great-expectations",
    "great_expectations.datasource": "great-expectations",
    "httpx": "httpx",
    "huggingface_hub": "huggingface-hub",
    "hypothesis": "hypothesis",
    "jinja2": "jinja2",
    "mako": "mako",
    "marshmallow": "marshmallow",
    "matplotlib.backends": "matplotlib",
    "mlflow.entities": "mlflow",
    "mlflow.store": "mlflow",
    "mlflow.tracking": "mlflow",
    "networkx.algorithms": "networkx",
    "omegaconf": "omegaconf",
    "pandas.core": "pandas",
    "pandas.io": "pandas",
    "prefect.cli": "prefect",
    "prefect.client": "prefect",
    "prefect.server": "prefect",
    "prompt_toolkit": "prompt-toolkit",
    "pydantic": "pydantic",
    "requests": "requests",
    "rich": "rich",
    "sqlalchemy.orm": "sqlalchemy",
    "sqlalchemy.sql": "sqlalchemy",
    "starlette": "starlette",
    "tqdm": "tqdm",
    "urllib3": "urllib3",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
    "werkzeug": "werkzeug",
}


def modules_of(package: str) -> dict[str, Path]:
    """Dotted name -> source file of every module of an installed package, `__init__` files under the package's name."""
    try:
        found = find_spec(package.partition(".")[0])
    except ImportError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise TaskError(f"package {package} is not installed; install the project's requirements, then run this again.")
    root = Path(next(iter(found.submodule_search_locations))).joinpath(*package.split(".")[1:])
    modules: dict[str, Path] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if not SKIPPED.intersection(parts):
            name = ".".join([package, *parts]).removesuffix(".__init__")
            modules[name] = path
    return modules


def _is_type_checking(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.unparse(node.test)


def import_statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _is_type_checking(node):
            for child in node.orelse:
                yield from import_statements(ast.Module([child], []))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from import_statements(node)


def imported_names(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """(dotted module, name taken from it or "") for each name of a statement; relative imports are resolved."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ""
        return
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package] if node.level else []
    target = ".".join([*base, *(node.module.split(".") if node.module else [])])
    for alias in node.names:
        yield target, alias.name


def import_graph(modules: dict[str, Path]) -> list[set[int]]:
    """Per module, in alphabetical order of the names, the numbers of the modules of this package that it imports."""
    number = {name: i for i, name in enumerate(sorted(modules))}
    graph: list[set[int]] = []
    for name in sorted(modules):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about escapes in other people's strings
            tree = ast.parse(modules[name].read_text(encoding="utf-8"))
        found: set[int] = set()
        for node in import_statements(tree):
            for target, taken in imported_names(node, name, modules[name].name == "__init__.py"):
                imported = number.get(f"{target}.{taken}", number.get(target))
                if imported is not None and imported != number[name]:
                    found.add(imported)
        graph.append(found)
    return graph


def cut_cycles(graph: list[set[int]]) -> list[set[int]]:
    """The graph without the imports that lead to a module still being visited (see the module's docstring)."""
    kept: list[set[int]] = [set() for _ in graph]
    open_, closed = set[int](), set[int]()
    for start in range(len(graph)):
        if start in closed:
            continue
        open_.add(start)
        stack = [(start, iter(sorted(graph[start])))]
        while stack:
            module, rest = stack[-1]
            imported = next(rest, None)
            if imported is None:
                stack.pop()
                open_.discard(module)
                closed.add(module)
            elif imported not in open_:
                kept[module].add(imported)
                if imported not in closed:
                    open_.add(imported)
                    stack.append((imported, iter(sorted(graph[imported]))))
    return kept


def largest_component(graph: list[set[int]]) -> list[set[int]]:
    """The largest weakly connected part, renumbered in the same order; the one with the lowest number among equals."""
    label = list(range(len(graph)))

    def find(module: int) -> int:
        while label[module] != module:
            module = label[module]
        return module

    for importer, found in enumerate(graph):
        for imported in found:
            low, high = sorted((find(importer), find(imported)))
            label[high] = low
    members: dict[int, list[int]] = {}
    for module in range(len(graph)):
        members.setdefault(find(module), []).append(module)
    kept = max(members.values(), key=lambda m: (len(m), -m[0]))
    number = {module: i for i, module in enumerate(kept)}
    return [{number[other] for other in graph[module]} for module in kept]


def extract(package: str, distribution: str) -> dict[str, Any]:
    """Name, version, number of modules and edges of one package. Raises TaskError when its size does not fit."""
    graph = largest_component(cut_cycles(import_graph(modules_of(package))))
    if not MIN_MODULES <= len(graph) <= MAX_MODULES:
        raise TaskError(
            f"{package} has {len(graph)} connected modules, expected {MIN_MODULES} to {MAX_MODULES}; change PACKAGES."
        )
    edges = [[importer, imported] for importer, found in enumerate(graph) for imported in sorted(found)]
    return {"name": package, "version": version(distribution), "modules": len(graph), "edges": edges}


def main() -> None:
    graphs = [extract(package, distribution) for package, distribution in sorted(PACKAGES.items())]
    rows = ",\n".join(json.dumps(graph, separators=(",", ":")) for graph in graphs)
    OUTPUT.write_text(f'{{"graphs":[\n{rows}\n]}}\n', encoding="utf-8")
    total = sum(graph["modules"] for graph in graphs)
    sys.stdout.write(f"{len(graphs)} graphs, {total} modules -> {OUTPUT.name} ({OUTPUT.stat().st_size} bytes)\n")


if __name__ == "__main__":
    main()
