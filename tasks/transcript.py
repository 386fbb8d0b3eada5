"""A rollout to be read: every agent's turns in order of time, with what it read and what it said, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from rlcr_core.manifests import atomic_write
from rlcr_core.store import read_rollouts
from rlcr_core.tokens import Tokenizer, load_tokenizer
from rlcr_core.types import Rollout
from tasks.figure_style import PALETTE
from tasks.paths import Project
from tasks.viewer import viewer_page

TEMPLATE = "transcript_template.html"
LONG = 600  # characters that are folded away: system prompts, mostly


def turn_rows(rollout: Rollout, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """A row per turn, by (end, agent): times in seconds, kind, result codes, and the texts of its tokens."""
    names = {agent.id: agent.name for agent in rollout.agents}
    rows = []
    for turn in sorted(rollout.turns(), key=lambda turn: (turn.end_s, turn.agent)):
        read = tokenizer.decode(list(turn.observation_ids)).strip()
        rows.append({
            "name": f"{names[turn.agent]}{' (CEO)' if turn.agent == 0 else ''}", "start_s": turn.start_s, "end_s": turn.end_s,
            "kind": turn.kind.value, "code": turn.code, "cut": turn.cut, "n_read": len(turn.observation_ids), "read": read,
            "is_long": len(read) > LONG, "said": tokenizer.decode(list(turn.action_ids)).strip(),
        })  # fmt: skip
    return rows


def transcript_page(rollout: Rollout, tokenizer: Tokenizer, title: str) -> str:
    """The page; it works offline, and texts of agents are escaped."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.get_template(TEMPLATE)
    return template.render(title=title, rollout=rollout, turns=turn_rows(rollout, tokenizer), palette=PALETTE)


def write_transcripts(project: Project) -> tuple[str, ...]:
    """Write rollout_<when>.html and viewer_<when>.html beside the report, before and after training, of what the evaluation kept.

    Returns the moments that were written; none without a base policy's tokenizer. Raises DataError, StoreError.
    """
    if not (project.base / "tokenizer.json").is_file():
        return ()
    tokenizer = load_tokenizer(project.base)
    written = []
    for when in ("before", "after"):
        folder = project.evaluation / f"timeline_{when}"
        rollouts = read_rollouts(folder) if folder.is_dir() else []
        if rollouts:
            page = transcript_page(rollouts[0], tokenizer, f"One rollout {when} training")
            atomic_write(project.report / f"rollout_{when}.html", page.encode())
            atomic_write(project.report / f"viewer_{when}.html", viewer_page(rollouts[0], tokenizer).encode())
            written.append(when)
    return tuple(written)
