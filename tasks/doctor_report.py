"""What a check of the doctor says, and all of them as a table, as JSON, and as what this machine can run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warning", "problem"]

DEMO, LLM, VLLM = "make demo", "make demo-llm", "make demo-vllm"
NODE, CLUSTER = "docs/profiles/node-8gpu.yaml", "docs/profiles/ray-cluster.yaml"
TARGETS = (DEMO, LLM, VLLM, NODE, CLUSTER)
HERE = (DEMO, LLM, NODE, CLUSTER)  # what runs in this environment; vLLM's CPU build gets one of its own
BULLET = "→"


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was found, what to do about it, and which targets it stops. Whatever stops `make demo` is a problem."""

    name: str
    status: Status
    found: str
    todo: str = ""
    stops: tuple[str, ...] = ()


def ok(name: str, found: str, stops: Sequence[str] = (), todo: str = "") -> Check:
    """As it should be; `stops` what this machine simply is not made for."""
    return Check(name, "ok", found, todo, tuple(stops))


def warning(name: str, found: str, todo: str, stops: Sequence[str] = ()) -> Check:
    return Check(name, "warning", found, todo, tuple(stops))


def problem(name: str, found: str, todo: str, stops: Sequence[str]) -> Check:
    return Check(name, "problem", found, todo, tuple(stops))


def guarded(name: str, check: Callable[[], Check]) -> Check:
    """The check; one that itself fails is a finding and not the end of the others."""
    try:
        return check()
    except Exception as error:
        words = " ".join(str(error).split()) or repr(error)
        return warning(name, f"could not be checked: {type(error).__name__}: {words}", "`make setup` installs what is missing")


def stopped(checks: Sequence[Check]) -> dict[str, list[str]]:
    """Every target with the names of the checks that stop it; none: this machine can run it."""
    return {target: [check.name for check in checks if target in check.stops] for target in TARGETS}


def as_text(checks: Sequence[Check]) -> str:
    """The table, one line a check, and below it what this machine can run."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        todo = f"  {BULLET} {check.todo}" if check.todo else ""
        lines.append(f"{check.status:<8} {check.name:<{width}}  {check.found}{todo}")
    lines += ["", "This machine can run"]
    longest = max(map(len, TARGETS))
    for target, names in stopped(checks).items():
        because = f"  stopped by: {', '.join(names)}" if names else ""
        lines.append(f"{'no' if names else 'yes':<8} {target:<{longest if names else 0}}{because}")
    return "\n".join(lines)


def as_json(checks: Sequence[Check]) -> str:
    """The same for programs: {"checks": [...], "can_run": {target: {"able": …, "stopped_by": [...]}}}."""
    able = {target: {"able": not names, "stopped_by": names} for target, names in stopped(checks).items()}
    return json.dumps({"checks": [asdict(check) for check in checks], "can_run": able}, indent=1, ensure_ascii=False)
