"""The timeline of one rollout: a lane per agent, what each did when, and who told whom.

`timeline_of` reduces a rollout to plain rows, `timeline_figure` draws them; the rows are also the figure's CSV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlcr_core.types import CEO, EventType, Rollout, TurnKind
from tasks.figure_style import C, style

KINDS: dict[TurnKind, str] = {
    TurnKind.WORK: "blue",
    TurnKind.TALK: "orange",
    TurnKind.ROSTER: "green",
    TurnKind.WAIT: "idle",
    TurnKind.INVALID: "vermillion",
}
MAX_LANES = 40  # more lanes than this are unreadable; the figure says how many it leaves out
BAR = 0.46  # height of a turn in its lane


@dataclass(frozen=True)
class Lane:
    """An agent's row: employed from `hired_s` to `left_s`, able to act from `started_s`."""

    agent: int
    label: str
    hired_s: float
    started_s: float
    left_s: float


@dataclass(frozen=True)
class Bar:
    """One turn."""

    agent: int
    kind: TurnKind
    start_s: float
    end_s: float
    tool: str
    code: str


@dataclass(frozen=True)
class Arrow:
    """A message shown: from the sender when it was sent to the receiver when it was shown; truth 1, 0, -1 unjudged."""

    sender: int
    receiver: int
    sent_s: float
    shown_s: float
    truth: float


@dataclass(frozen=True)
class Timeline:
    """Everything that the figure draws, in order of time; `rewards` are (time_s, reward)."""

    task_id: str
    limit_s: float
    return_: float
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    rewards: tuple[tuple[float, float], ...]
    hires: tuple[tuple[float, int], ...]
    sent: int

    def rows(self) -> list[dict[str, object]]:
        """The drawing as table rows: record, agent, other, start_s, end_s, kind, value."""
        columns = ("record", "agent", "other", "start_s", "end_s", "kind", "value")
        rows: list[tuple[object, ...]] = [("lane", n.agent, "", n.hired_s, n.left_s, n.label, "") for n in self.lanes]
        rows += [
            ("turn", b.agent, "", b.start_s, b.end_s, b.kind.value, f"{b.tool} {b.code}".strip()) for b in self.bars
        ]
        rows += [("message", a.sender, a.receiver, a.sent_s, a.shown_s, "", a.truth) for a in self.arrows]
        rows += [("hire", CEO, agent, time_s, time_s, "", "") for time_s, agent in self.hires]
        rows += [("reward", "", "", time_s, time_s, "", value) for time_s, value in self.rewards]
        return [dict(zip(columns, row, strict=True)) for row in rows]


def timeline_of(rollout: Rollout) -> Timeline:
    """What happened by the rollout's limit.

    A message's truth is found by sender and sending time: an agent sends at most one message at a time.
    """
    limit_s, until_s = rollout.limit_s, min(rollout.limit_s, rollout.end_s)
    events = sorted((e for e in rollout.events if e.time_s <= limit_s), key=lambda e: e.time_s)
    truth = {(e.agent, e.time_s): e.value for e in events if e.type is EventType.MESSAGE}
    lanes = tuple(
        Lane(
            a.id, "CEO" if a.id == CEO else a.name, a.hired_s, a.started_s, until_s if a.fired_s is None else a.fired_s
        )
        for a in sorted(rollout.agents, key=lambda a: a.id)
    )
    bars = [Bar(t.agent, t.kind, t.start_s, min(t.end_s, limit_s), t.tool, t.code) for t in rollout.turns()]
    arrows = [
        Arrow(e.other, e.agent, e.value, e.time_s, truth.get((e.other, e.value), -1.0))
        for e in events
        if e.type is EventType.DELIVERY
    ]
    return Timeline(
        task_id=rollout.task_id,
        limit_s=limit_s,
        return_=rollout.return_,
        lanes=lanes,
        bars=tuple(sorted(bars, key=lambda b: (b.start_s, b.agent))),
        arrows=tuple(arrows),
        rewards=tuple((e.time_s, e.value) for e in events if e.type is EventType.REWARD),
        hires=tuple((e.time_s, e.other) for e in events if e.type is EventType.HIRE),
        sent=len(truth),
    )


def _draw_bars(axes: Axes, bars: Sequence[Bar], row: dict[int, int]) -> None:
    for kind, colour in KINDS.items():
        corners = [
            [(b.start_s, y - BAR / 2), (b.end_s, y - BAR / 2), (b.end_s, y + BAR / 2), (b.start_s, y + BAR / 2)]
            for b in bars
            if b.kind is kind and b.agent in row
            for y in (row[b.agent],)
        ]
        bars_of_kind = PolyCollection(corners, facecolors=C[colour], edgecolors=C["paper"], linewidths=0.5, zorder=2)
        axes.add_collection(bars_of_kind)


def _draw_arrows(axes: Axes, arrows: Sequence[Arrow], row: dict[int, int]) -> None:
    drawn = [a for a in arrows if a.sender in row and a.receiver in row]
    alpha = float(np.clip(80.0 / max(len(drawn), 1), 0.2, 0.8))
    for false, colour in ((False, "ink"), (True, "purple")):
        some = [a for a in drawn if (a.truth == 0.0) is false]
        if not some:
            continue
        x, y = np.array([a.sent_s for a in some]), np.array([float(row[a.sender]) for a in some])
        dx = np.array([a.shown_s for a in some]) - x
        dy = np.array([float(row[a.receiver]) for a in some]) - y
        axes.quiver(
            x, y, dx, dy, angles="xy", scale_units="xy", scale=1.0, units="inches", width=0.009, headwidth=6.0,
            headlength=8.0, headaxislength=7.0, color=C[colour], alpha=alpha, zorder=3,
        )  # fmt: skip


def _draw_roster(axes: Axes, timeline: Timeline, row: dict[int, int]) -> None:
    for lane in timeline.lanes[: len(row)]:
        width = max(lane.left_s - lane.hired_s, 0.0)
        axes.barh(row[lane.agent], width, 0.86, lane.hired_s, color=C["lane"], linewidth=0, zorder=0.5)
    for time_s, agent in timeline.hires:
        if agent in row:
            ends = [row[CEO] + BAR / 2, row[agent]]
            axes.plot([time_s, time_s], ends, color=C["green"], linewidth=1.1, zorder=1.5)
            axes.plot(time_s, row[agent], marker=">", color=C["green"], markersize=6.5, zorder=4)


def _legend(timeline: Timeline) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=C[colour], label=kind.value) for kind, colour in KINDS.items()]
    handles.append(Line2D([], [], color=C["green"], marker=">", linewidth=0, label="hired"))
    handles.append(Line2D([], [], color=C["ink"], linewidth=0.8, label="message"))
    if any(arrow.truth == 0.0 for arrow in timeline.arrows):
        handles.append(Line2D([], [], color=C["purple"], linewidth=0.8, label="untrue message"))
    handles.append(Line2D([], [], color=C["ink"], marker="|", markersize=9, linewidth=0, label="reward"))
    return handles


def timeline_figure(timeline: Timeline, title: str) -> Figure:
    """A lane per agent, the CEO on top; messages as arrows from send to showing; rewards as ticks on the time axis."""
    lanes = timeline.lanes[:MAX_LANES]
    row = {lane.agent: index for index, lane in enumerate(lanes)}
    left_out = len(timeline.lanes) - len(lanes)
    per_lane = 0.36 if len(lanes) <= 12 else 0.2
    with style():
        figure = Figure(figsize=(9.6, 1.35 + per_lane * max(len(lanes), 3)), layout="constrained")
        axes = figure.add_subplot()
        _draw_roster(axes, timeline, row)
        _draw_bars(axes, timeline.bars, row)
        _draw_arrows(axes, timeline.arrows, row)
        axes.axvline(timeline.limit_s, color=C["ink"], linewidth=1.6)
        axes.annotate(" deadline", (timeline.limit_s, -0.5), fontsize=8.5, va="top", annotation_clip=False)
        bottom = max(len(lanes), 3) + 0.1
        times = [time_s for time_s, _ in timeline.rewards]
        axes.vlines(times, bottom - 0.45, bottom, color=C["ink"], linewidth=1.1)
        axes.set(xlim=(0.0, timeline.limit_s * 1.005), ylim=(bottom, -0.6), xlabel="seconds")
        axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        note = f", first {len(lanes)} of {len(timeline.lanes)} agents" if left_out else ""
        axes.set_title(f"{title}{note}")
        figure.legend(
            handles=_legend(timeline), loc="outside lower left", ncols=9, columnspacing=1.2, handletextpad=0.5
        )
    return figure
