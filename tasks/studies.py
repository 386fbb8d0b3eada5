"""The trainings behind the table of claims: the main job over several seeds and bases, and controls that could refute it.

A study is params.yaml with a few keys changed, in a workspace of its own under runs/claims/. To add one, add it to `studies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlcr_core.config import Params, parse_params
from rlcr_core.manifests import atomic_write
from tasks.paths import Project

MAIN_MODES = ("collective", "solo", "silent")
CONTROL_ORGANISATIONS = ("base", "collective", "solo")


@dataclass(frozen=True, slots=True)
class Study:
    """One question: `changes` to params.yaml by section, the modes and seeds that are trained."""

    name: str
    question: str
    modes: tuple[str, ...]
    seeds: tuple[int, ...]
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def params(self, params: Params, root: Path) -> Params:
        """The parameters of the study's workspace. Raises ConfigError for changes that do not go together."""
        data = params.model_dump(mode="json")
        data["train"] |= {"modes": list(self.modes), "seeds": list(self.seeds), "iterations": params.claims.iterations}
        # One process has one core: the lanes of flows.claims are what runs side by side.
        data["rollouts"]["workers"] = 1
        data["update"]["threads"] = 1
        kept = Path(data["base"]["checkpoint"])
        data["base"]["checkpoint"] = str(kept if kept.is_absolute() else root / kept)
        for section, values in self.changes.items():
            data[section] |= values
        return parse_params(data, f"The study {self.name}")


def growth(params: Params) -> dict[str, Any]:
    """The growing limit of params.yaml, squeezed into the claims' number of iterations."""
    share = params.claims.iterations / params.train.iterations
    points = {round(i * share): limit_s for i, limit_s in params.schedule.points}  # of two at one iteration the later counts
    growth_iterations = max(1, round(params.schedule.growth_iterations * share))
    return {"points": [[i, limit_s] for i, limit_s in points.items()], "growth_iterations": growth_iterations}


def studies(params: Params) -> list[Study]:
    """Every study that the claims need, in the order of their importance."""
    config, control = params.claims, {"organisations": list(CONTROL_ORGANISATIONS), "swept": [], "limits_s": []}
    grown = {"schedule": growth(params)}
    constant = {"kind": "constant", "points": []}
    first, end_s = config.bases[0], params.schedule.end_s
    start_s = params.schedule.start_s
    found = [Study(f"base-{first}", "the main job", MAIN_MODES, config.seeds, grown | {"base": {"seed": first}})]
    found += [
        Study(
            f"base-{seed}", "the main job from another base", ("collective", "solo"), config.seeds,
            grown | {"base": {"seed": seed}, "evaluation": {"swept": []}},
        )
        for seed in config.bases[1:]
    ]  # fmt: skip
    seeds = config.control_seeds
    return [
        *found,
        Study("no_parallel", "no work can be shared (p = 0)", ("collective", "solo"), seeds,
              grown | {"task_set": {"parallel_share": 0.0, "variants": {}}, "evaluation": control}),
        Study("no_coupling", "nothing must be told (c = 0)", ("collective",), seeds,
              grown | {"task_set": {"coupling": 0.0, "variants": {}}, "evaluation": control}),
        Study("no_pressure", "everybody finishes in time", ("collective",), seeds, {
            "task_set": {"packages": 2, "modules": 6, "variants": {}},
            "schedule": constant | {"start_s": config.no_pressure_s, "end_s": config.no_pressure_s},
            "update": {"entropy": 0.0},  # with equal returns the bonus would be all there is to follow
            "evaluation": control | {"limit_s": config.no_pressure_s},
            "train": {"iterations": config.no_pressure_iterations},
        }),
        Study("short_limit", "the limit stays below the crossing time", ("collective",), seeds, {
            "schedule": constant | {"start_s": start_s, "end_s": start_s}, "evaluation": control | {"limit_s": start_s},
            "task_set": {"variants": {}},
        }),
        Study("permuted", "advantages are dealt to other rollouts", ("collective",), seeds,
              grown | {"update": {"control": "permuted"}, "evaluation": control, "task_set": {"variants": {}}}),
        Study("fixed_limit", "the limit does not grow", ("collective",), seeds, {
            "schedule": constant | {"start_s": end_s, "end_s": end_s}, "evaluation": control, "task_set": {"variants": {}},
        }),
    ]  # fmt: skip


def workspace(project: Project, study: Study) -> Path:
    return project.runs / "claims" / study.name


def write_profile(project: Project, study: Study, params: Params) -> Path:
    """Write the study's parameter file beside its workspace. Raises ConfigError, StoreError."""
    path = workspace(project, study).with_suffix(".yaml")
    own = study.params(params, project.root)
    atomic_write(path, yaml.safe_dump(own.model_dump(mode="json"), sort_keys=False).encode())
    return path
