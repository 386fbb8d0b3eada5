"""Labels of turns: one small number says whose turn it was, of what kind, and whether it was waste.

Sums over tokens by label (their number, their gradient, their entropy) are made in one go and become shares by role, by
kind and by waste class here, under the same names for all of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlcr_core.outcomes import WASTES, EventCounts, read_events, turn_outcomes
from rlcr_core.types import CEO, Float64Array, Rollout, TurnKind

KINDS: Final = tuple(TurnKind)
KIND_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
SEATS: Final = ((1, 2), (3, 4), (5, 8))  # staff by their numbers, in order of employment; then all later ones
SEAT_NAMES: Final = ("ceo", *(f"agents_{low}_{high}" for low, high in SEATS), "agents_9_up")
SHAPE: Final = (len(SEAT_NAMES), len(KINDS), 1 + len(WASTES))  # seats, kinds, waste classes (0: none)
UNLABELLED: Final = 0
N_LABELS: Final = 1 + SHAPE[0] * SHAPE[1] * SHAPE[2]


def first_label(agent: int) -> int:
    """The label of this agent's turns of kind number 0 without waste."""
    seat = 0 if agent == CEO else next((s for s, (_, high) in enumerate(SEATS, 1) if agent <= high), len(SEATS) + 1)
    return 1 + seat * SHAPE[1] * SHAPE[2]


def label(agent: int, kind: TurnKind, waste: int) -> int:
    """The label of a turn, 1 to N_LABELS - 1; `waste` is the number of its class, 0 for none."""
    return first_label(agent) + KIND_NUMBER[kind] * SHAPE[2] + waste


def labels_of(rollout: Rollout) -> dict[int, list[int]]:
    """The label of every turn of every agent, in the order of its trajectory. Raises DataError for damaged facts."""
    outcomes = read_events(rollout, EventCounts())
    found = {}
    for agent, turns in rollout.trajectories.items():
        first, pairs = first_label(agent), zip(turns, turn_outcomes(turns, outcomes.get(agent, [])), strict=True)
        found[agent] = [first + KIND_NUMBER[turn.kind] * SHAPE[2] + waste for turn, (waste, _) in pairs]
    return found


def label_sums(label_N: NDArray[np.int64], *columns: ArrayLike) -> Float64Array:
    """Sums of each column [N] over the tokens of each label, in the order of the tokens: [columns, N_LABELS]."""
    return np.stack([np.bincount(label_N, column, N_LABELS).astype(np.float64) for column in columns])


def shares(prefix: str, sums_L: ArrayLike) -> dict[str, float]:
    """Shares of the sum over all labels [N_LABELS], the unlabelled left out; {} when that sum is 0.

    `prefix_ceo`, `_staff`, `_agents_1_2`, …; `_<kind>`; `_ceo_<kind>`, `_staff_<kind>`; `_<waste>` and `_waste`, all
    classes together.
    """
    sums_SKW = np.asarray(sums_L, dtype=np.float64)[1:].reshape(SHAPE)
    total = float(sums_SKW.sum())
    if not total:
        return {}
    found = _named(SEAT_NAMES, sums_SKW.sum(axis=(1, 2)))
    found["staff"] = float(sums_SKW[1:].sum())
    found |= _named(KINDS, sums_SKW.sum(axis=(0, 2)))
    found |= _named([f"ceo_{kind}" for kind in KINDS], sums_SKW[0].sum(axis=1))
    found |= _named([f"staff_{kind}" for kind in KINDS], sums_SKW[1:].sum(axis=(0, 2)))
    found |= _named(WASTES, sums_SKW[:, :, 1:].sum(axis=(0, 1)))
    found["waste"] = float(sums_SKW[:, :, 1:].sum())
    return {f"{prefix}_{name}": value / total for name, value in found.items()}


def by_kind(sums_L: ArrayLike) -> dict[TurnKind, float]:
    """The sums of each turn kind, the unlabelled left out. [N_LABELS] -> a number a kind."""
    sums_K = np.asarray(sums_L, dtype=np.float64)[1:].reshape(SHAPE).sum(axis=(0, 2))
    return dict(zip(KINDS, sums_K.tolist(), strict=True))


def _named(names: tuple[str, ...] | list[str], values: Float64Array) -> dict[str, float]:
    return {str(name): float(value) for name, value in zip(names, values, strict=True)}
