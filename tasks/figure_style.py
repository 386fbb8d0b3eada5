"""One style for every figure of the report, its colours, and figures as bytes.

Figures are made without pyplot (no global state) and written without dates, so equal data give equal bytes. Every
colour is a name of `PALETTE`; an inline SVG refers to it by a CSS variable, so one drawing serves light and dark pages.
Colours: Okabe and Ito, Color Universal Design, 2008, which readers with any colour vision can tell apart.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rlcr_core.types import Float64Array
from tasks.organisations import BY_NAME

PALETTE: dict[str, tuple[str, str]] = {  # name: (on light paper, on dark paper)
    "paper": ("#fefefe", "#161b22"),
    "ink": ("#1c2430", "#e8edf3"),
    "muted": ("#5d6875", "#9aa7b4"),
    "grid": ("#e3e7ec", "#2b333d"),
    "lane": ("#f1f3f6", "#20272f"),
    "blue": ("#0072b2", "#56b4e9"),
    "vermillion": ("#d55e00", "#ff8b3d"),
    "green": ("#009e73", "#2fcb9b"),
    "orange": ("#e69f00", "#f2bd4b"),
    "purple": ("#b0508c", "#e39ac6"),
    "idle": ("#b9c0c9", "#59636f"),
}
LineStyle = Literal["-", "--", "-.", ":"]
C = {name: light for name, (light, _) in PALETTE.items()}

# Training mode or organisation: its colour and its line; what the reader calls it is in tasks/organisations.py.
LINES: dict[str, tuple[str, LineStyle]] = {
    "collective": ("blue", "-"),
    "solo": ("vermillion", "--"),
    "alone": ("green", "-."),
    "base": ("muted", ":"),
    "scrambled": ("purple", "-."),
    "mute": ("orange", "--"),
    "silent": ("orange", "-"),
    "hires_1": ("orange", ":"),
    "hires_2": ("orange", "-."),
    "hires_4": ("green", "--"),
    "hires_8": ("green", "-"),
    "staffed": ("blue", "--"),
    "first_copies": ("purple", "--"),
    "delayed": ("purple", ":"),
    "no_archive": ("muted", "-"),
    "alone_long": ("green", ":"),
    "solo_long": ("vermillion", "-"),
    "attempts": ("vermillion", ":"),
    "random": ("muted", "-."),
    "greedy": ("ink", "-"),
}
SPARE_COLOURS: tuple[str, ...] = ("purple", "orange", "green", "vermillion")


@contextmanager
def style() -> Iterator[None]:
    """The one style of every figure: thin axes, colours of `PALETTE`, SVG text kept as text, no random ids."""
    settings: Any = {  # the stubs want literal keys of one matplotlib version
        "font.family": "DejaVu Sans",
        "font.size": 9.0,
        "text.color": C["ink"],
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 9.0,
        "axes.titlecolor": C["ink"],
        "axes.labelcolor": C["muted"],
        "axes.edgecolor": C["muted"],
        "axes.facecolor": C["paper"],
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": C["grid"],
        "grid.linewidth": 0.8,
        "xtick.color": C["muted"],
        "ytick.color": C["muted"],
        "ytick.major.size": 0.0,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "figure.facecolor": C["paper"],
        "savefig.facecolor": C["paper"],
        "figure.constrained_layout.w_pad": 0.1,
        "figure.constrained_layout.h_pad": 0.08,
        "svg.fonttype": "none",
        "svg.hashsalt": "rlcr",
    }
    with matplotlib.rc_context(settings):
        yield


def to_png(figure: Figure, dpi: int = 160) -> bytes:
    """PNG bytes on light paper, without dates or version strings."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure, name: str, description: str) -> str:
    """An SVG element for a page that defines a CSS variable --<name> per palette colour.

    Ids are prefixed by `name` so that several drawings live in one page; `description` is read out instead of it.
    """
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for token, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{token})")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    opening, rest = svg.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{html.escape(description)}">{rest}'


def series(name: str) -> tuple[str, str, LineStyle]:
    """Label, palette colour and line style of a mode or organisation; unknown names keep their own words."""
    if name in LINES:
        return (BY_NAME[name].label, *LINES[name])
    return name.replace("_", " "), SPARE_COLOURS[sum(name.encode()) % len(SPARE_COLOURS)], "-."


def smooth(values: Float64Array, width: int) -> Float64Array:
    """Centred moving average over `width` (odd) points of [n]; at the ends and beside NaN over the points there are."""
    finite = np.isfinite(values)
    kernel = np.ones(width)
    middle = slice(width // 2, width // 2 + len(values))
    total = np.convolve(np.where(finite, values, 0.0), kernel, "full")[middle]
    count = np.convolve(finite.astype(np.float64), kernel, "full")[middle]
    result: Float64Array = np.where(finite, total / np.maximum(count, 1.0), np.nan)
    return result


def smoothing_width(n: int) -> int:
    """An odd number of iterations, about a twentieth of a run of `n`; 1 leaves the curve as it is."""
    return max(1, n // 20) | 1


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved apart until neighbours are at least `gap` apart; order and mean are kept."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = [float(p) for p in positions]
    for _ in range(200):
        for below, above in pairwise(order):
            lack = gap - (placed[above] - placed[below])
            if lack > 1e-9:
                placed[below] -= lack / 2
                placed[above] += lack / 2
    return placed
