"""Organisations: ways to work on the same tasks with the same clock. Each differs from the trained collective in one thing.

Baselines change who works (a single agent, fewer hires, a staff that is given, independent attempts, scripted players);
controls change what becomes of messages. To add one, add a row here and its name to rlcr_core.config.evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rlcr_core.config import EvaluationConfig, Params
from rlcr_core.errors import ConfigError
from tasks.paths import Project

Messages = Literal["normal", "mute", "scrambled", "first_copies"]
SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class Organisation:
    """One way to work. `policy` is the training mode whose weights play, `base`, or `scripted` (then `player` plays).

    None leaves what params.yaml says. `is_long` plays under evaluation.long_factor times the limit, for what a single agent
    does with more time; `attempts` plays evaluation.attempts rollouts a task, which know nothing of each other.
    """

    name: str
    policy: str
    label: str
    max_hires: int | None = None
    is_staffed: bool = False
    messages: Messages | None = None
    is_delayed: bool = False
    archive: bool | None = None
    is_long: bool = False
    is_attempts: bool = False
    player: str = ""

    def limit_s(self, limit_s: float, config: EvaluationConfig) -> float:
        """The limit its agents are told, in seconds."""
        return limit_s * config.long_factor if self.is_long else limit_s

    def rollouts_per_task(self, config: EvaluationConfig) -> int:
        return config.attempts if self.is_attempts else config.rollouts_per_task


ORGANISATIONS = (
    Organisation("base", "base", "base collective"),
    Organisation("collective", "collective", "trained collective"),
    Organisation("alone", "collective", "collective's policy alone", max_hires=0),
    Organisation("solo", "solo", "trained solo agent", max_hires=0),
    Organisation("silent", "silent", "collective trained without messages", messages="mute"),
    Organisation("hires_1", "collective", "collective with at most 1 hire", max_hires=1),
    Organisation("hires_2", "collective", "collective with at most 2 hires", max_hires=2),
    Organisation("hires_4", "collective", "collective with at most 4 hires", max_hires=4),
    Organisation("hires_8", "collective", "collective with at most 8 hires", max_hires=8),
    Organisation("staffed", "collective", "collective with staff from the start", is_staffed=True),
    Organisation("mute", "collective", "collective with muted messages", messages="mute"),
    Organisation("scrambled", "collective", "collective with scrambled messages", messages="scrambled"),
    Organisation("first_copies", "collective", "collective with first copies only", messages="first_copies"),
    Organisation("delayed", "collective", "collective with delayed messages", is_delayed=True),
    Organisation("no_archive", "collective", "collective without an archive", archive=False),
    Organisation("alone_long", "collective", "collective's policy alone, long", max_hires=0, is_long=True),
    Organisation("solo_long", "solo", "trained solo agent, long", max_hires=0, is_long=True),
    Organisation("attempts", "solo", "best of independent solos", max_hires=0, is_attempts=True),
    Organisation("random", SCRIPTED, "random player", player="random_valid"),
    Organisation("greedy", SCRIPTED, "scripted player who knows all", player="greedy"),
)
BY_NAME = {organisation.name: organisation for organisation in ORGANISATIONS}


def organisations(modes: Sequence[str], wanted: Sequence[str], is_server: bool = False) -> list[Organisation]:
    """Of the `wanted` names those whose policy was trained; of a server elsewhere, whose policy is one, those that differ
    otherwise. Raises ConfigError when none is left.
    """
    there = ("base", SCRIPTED, *modes)
    if is_server:
        found = [replace(o, policy="base") for o in ORGANISATIONS if o.policy == "collective" and o.name in wanted]
    else:
        found = [o for o in ORGANISATIONS if o.policy in there and o.name in wanted]
    if not found:
        raise ConfigError(
            f"No policy of the organisations {', '.join(wanted)} is there to evaluate, got modes {', '.join(modes)}; change "
            "evaluation.organisations or train.modes."
        )
    return found


def arranged(params: Params, organisation: Organisation) -> Params:
    """The parameters with the organisation's hiring, staff and messages. A cap above the project's own is that one."""
    collective = params.collective
    max_hires = collective.max_hires if organisation.max_hires is None else min(organisation.max_hires, collective.max_hires)
    changes: dict[str, object] = {"max_hires": max_hires, "staff": min(collective.staff, max_hires)}
    if organisation.is_staffed:
        changes["staff"] = max_hires
    if organisation.messages is not None:
        changes["messages"] = organisation.messages
    if organisation.is_delayed:
        changes["delay_s"] = params.evaluation.delay_s
    if organisation.archive is not None:
        changes["archive"] = organisation.archive
    return params.model_copy(update={"collective": collective.model_copy(update=changes)})


def policy_folder(project: Project, organisation: Organisation, seed: int) -> Path | None:
    """The folder of its weights; None for scripted players."""
    if organisation.policy == SCRIPTED:
        return None
    return project.base if organisation.policy == "base" else project.trained(organisation.policy, seed) / "checkpoint"
