"""Every seed derives from a key (run, iteration, group, rollout, agent, turn), never from a worker or an arrival order."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from rlcr_core.types import Float64Array, RolloutKey

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def derive(*parts: int | str) -> int:
    """A 63-bit seed of a key; distinct keys give independent seeds (SHA-256 of the parts, type and length marked)."""
    text = "\x1f".join(f"{type(part).__name__[0]}{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def rollout_seed(key: RolloutKey) -> int:
    """The seed of one rollout; the same at every attempt."""
    return derive("rollout", key.run, key.iteration, key.group, key.rollout)


def mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection of 64-bit integers without visible structure."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def turn_seed(seed: int, agent: int, turn: int) -> int:
    """The seed of one agent's turn in the rollout with this seed."""
    return mix((mix((seed + (agent + 1) * _GOLDEN) & _MASK) + (turn + 1) * _GOLDEN) & _MASK)


def uniforms(seeds_B: NDArray[np.uint64], position: int) -> Float64Array:
    """One uniform number in [0, 1) for each seed at this token position; independent of batch and order. Shape [B]."""
    with np.errstate(over="ignore"):
        value = seeds_B + np.uint64((position + 1) * _GOLDEN & _MASK)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value = value ^ (value >> np.uint64(31))
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53
