"""The viewer of one rollout: a single HTML file that works offline, with every turn, message and reward of it.

The page is assembled from the pieces in tasks/viewer_page: style, scripts in their order, and the rollout's columns as JSON.
Equal rollouts give equal bytes. The page's policy lets no script run but its own, whatever agents have written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from rlcr_core.errors import DataError
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import EventType, Rollout, StopReason
from tasks.figure_style import PALETTE
from tasks.viewer_data import Value, viewer_data

PAGE = Path(__file__).parent / "viewer_page"
SCRIPTS = (
    "model", "view", "paint", "lanes", "arrows", "frame", "plot", "overview", "details", "messages", "controls", "keyboard",
    "main",
)  # fmt: skip
Pick = Literal["best", "median", "worst"]


def script_text() -> str:
    """The page's own script: its parts in their order, in one scope."""
    parts = [(PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def json_for_html(data: Any) -> str:
    """Compact JSON that can stand inside a script element: no character of it can end the element or start a comment."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def viewer_page(
    rollout: Rollout, tokenizer: Tokenizer, group: Sequence[Rollout] = (), values: Mapping[int, Value] | None = None
) -> str:
    """The page of one rollout; see viewer_data for `group` and `values`. Raises DataError."""
    try:
        data = json_for_html(viewer_data(rollout, tokenizer, group, values))
    except ValueError as error:
        raise DataError(
            f"Group {rollout.key.group}, rollout {rollout.key.rollout} holds a number that is not finite ({error}); expected "
            "finite times, logprobs and rewards; choose another rollout."
        ) from error
    script = script_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    loader = jinja2.FileSystemLoader(PAGE)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.get_template("page.html").render(
        title=f"Rollout of {rollout.task_id}", palette=PALETTE, script=Markup(script), script_digest=digest,
        style=Markup((PAGE / "style.css").read_text(encoding="utf-8")), data=Markup(data),
    )  # fmt: skip


def choose(rollouts: Sequence[Rollout], pick: Pick | None, group: int | None, number: int | None) -> Rollout:
    """One rollout: by group and number, or the best, median or worst return of the group (of all, without a group).

    Without anything to go by, the best. The median of an even count is the lower of the middle two; equal returns are in the
    order of (group, rollout). Failed rollouts are only found by number. Raises DataError when there is none.
    """
    found = [r for r in rollouts if group in (None, r.key.group) and number in (None, r.key.rollout)]
    if number is None:
        found = [rollout for rollout in found if rollout.stop_reason is not StopReason.FAILED]
    elif len(found) > 1:
        raise DataError(f"{len(found)} groups have a rollout {number}; name one with --group, for example {found[0].key.group}.")
    if not found:
        have = ", ".join(f"{r.key.group}/{r.key.rollout}" for r in rollouts[:8]) + (" …" if len(rollouts) > 8 else "")
        raise DataError(
            f"No rollout {'any' if number is None else number} of group {'any' if group is None else group} to show; the folder "
            f"has {len(rollouts)} (group/rollout): {have}; change --group and --rollout (a failed one is shown by number only)."
        )
    ranked = sorted(found, key=lambda rollout: rollout.return_)
    if pick == "worst":
        return ranked[0]
    if pick == "median":
        return ranked[(len(ranked) - 1) // 2]
    return max(found, key=lambda rollout: rollout.return_)


def group_of(rollout: Rollout, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts of its group, itself included."""
    return [other for other in rollouts if other.key[:3] == rollout.key[:3]]


def read_values(path: Path, rollout: Rollout) -> dict[int, Value]:
    """What messages were worth: {"<number in the order of MESSAGE events>": {"mean": …, "low": …, "high": …}, …}.

    Raises DataError for a file that is not so, or that names a message that the rollout does not have.
    """
    count = sum(event.type is EventType.MESSAGE and event.time_s <= rollout.limit_s for event in rollout.events)
    try:
        entries = json.loads(path.read_text(encoding="utf-8")).items()
        values = {int(key): Value(*(float(entry[name]) for name in ("mean", "low", "high"))) for key, entry in entries}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is not readable as values of messages ({error!r}); expected "
            '{"0": {"mean": 0.1, "low": 0.0, "high": 0.2}, ...}.'
        ) from error
    for index, value in values.items():
        is_ordered = value.low <= value.mean <= value.high and math.isfinite(value.high - value.low)
        if not 0 <= index < count or not is_ordered:
            raise DataError(
                f"{path} gives message {index} the value {value}; expected a number from 0 to {count - 1} (this rollout's "
                "messages) and low <= mean <= high, finite; choose the rollout that the values were measured on."
            )
    return values


def tokenizer_folder(folder: Path, root: Path) -> Path:
    """Where the tokenizer of stored rollouts lies: in a checkpoint of their run, or in the project's base policy.

    Raises DataError when there is neither.
    """
    for parent in folder.resolve().parents:
        checkpoints = sorted(parent.glob("checkpoints/*/tokenizer.json"))
        if checkpoints:
            return checkpoints[0].parent
    for base in (root / "artifacts" / "base" / "checkpoint", root / "envs" / "workshop" / "base"):
        if (base / "tokenizer.json").is_file():
            return base
    raise DataError(f"No tokenizer was found beside {folder} or under artifacts/base; name a policy's folder with --tokenizer.")
