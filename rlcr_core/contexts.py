"""Contexts: the token sequences that the policy saw in one rollout, with what their training needs.

Ids are copied as sampled, never re-tokenised; data that does not fit together is refused by name, never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from rlcr_core.errors import DataError
from rlcr_core.types import Float32Array, Int32Array, Rollout, Turn

MAX_LOGPROB = 1e-6  # a float32 log-softmax may exceed 0 by rounding, not by more
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """One token sequence with what its training needs; arrays [T], `behaviour_logprobs` is 0 where no action is.

    `advantage` holds for every action token; `rollout` indexes the rollouts of the iteration; `context` is the number
    that the agent's turns carry; `labels` say what turn a token belongs to (rlcr_core.labels), None when nobody asks.
    """

    ids: Int32Array
    is_action: NDArray[np.bool_]
    behaviour_logprobs: Float32Array
    advantage: float
    rollout: int
    agent: int
    versions: Int32Array
    context: int = 0
    labels: Int32Array | None = None

    @property
    def name(self) -> str:
        return f"rollout {self.rollout}, agent {self.agent}, context {self.context}"


def contexts_of(
    rollout: Rollout, advantage: float, rollout_index: int, labels: Mapping[int, Sequence[int]] | None = None
) -> list[Context]:
    """Contexts of a rollout by (agent, context): an agent's turns of equal `context` joined in order, ids as sampled.

    A turn without action tokens contributes its observation only; a context without any action token trains nothing and
    is left out. `labels` has a number for each turn of each agent, which its tokens carry. Raises DataError naming rollout,
    agent and turn for logprobs that do not match the ids, are not finite or exceed 0, for turns out of order and for an
    action that nothing precedes; also for an advantage not finite.
    """
    if not np.isfinite(advantage):
        raise DataError(
            f"Rollout {rollout.key} has the advantage {advantage}, expected a finite number; check its reward events."
        )
    contexts = []
    for agent in sorted(rollout.trajectories):
        turns = rollout.trajectories[agent]
        _check_order(rollout, agent, turns)
        first = 0
        for number, group in groupby(turns, key=lambda turn: turn.context):
            members = list(group)
            marks = None if labels is None else labels[agent][first : first + len(members)]
            first += len(members)
            if any(turn.n_tokens for turn in members):
                contexts.append(_context(rollout, members, advantage, rollout_index, agent, number, marks))
    return contexts


def _context(
    rollout: Rollout,
    turns: list[Turn],
    advantage: float,
    rollout_index: int,
    agent: int,
    number: int,
    marks: Sequence[int] | None,
) -> Context:
    ids: list[int] = []
    logprobs: list[float] = []
    spans = []
    for turn in turns:
        if len(turn.logprobs) != len(turn.action_ids):
            _reject(rollout, turn, f"{len(turn.logprobs)} logprobs for {len(turn.action_ids)} sampled tokens")
        ids.extend(turn.observation_ids)
        if not ids and turn.n_tokens:
            _reject(rollout, turn, "an action at the very start of its context, where nothing predicts it")
        spans.append((len(ids), len(ids) + turn.n_tokens))
        ids.extend(turn.action_ids)
        logprobs.extend(turn.logprobs)
    is_action = np.zeros(len(ids), np.bool_)
    versions = np.empty(len(ids), np.int32)
    start = 0
    for turn, (first, end) in zip(turns, spans, strict=True):
        is_action[first:end] = True
        versions[start:end] = turn.policy_version
        start = end
    behaviour = np.zeros(len(ids), np.float32)
    with np.errstate(over="ignore"):  # a value beyond float32 becomes -inf and is refused
        behaviour[is_action] = logprobs
    if not (np.isfinite(behaviour) & (behaviour <= MAX_LOGPROB)).all():
        _reject_logprobs(rollout, turns)
    ids_T = np.asarray(ids, np.int32)
    labels = None
    if marks is not None and len(marks) == 1:
        labels = _uniform(marks[0], len(ids))
    elif marks is not None:
        labels = np.repeat(np.array(marks, np.int32), [turn.n_tokens + len(turn.observation_ids) for turn in turns])
    return Context(ids_T, is_action, behaviour, float(advantage), rollout_index, agent, versions, number, labels)


@lru_cache(maxsize=1024)  # in a bounded window every context is one turn, and most are of one length
def _uniform(mark: int, n: int) -> Int32Array:
    marks = np.full(n, mark, np.int32)
    marks.flags.writeable = False
    return marks


def _check_order(rollout: Rollout, agent: int, turns: list[Turn]) -> None:
    for before, turn in pairwise(turns):
        if turn.index <= before.index or turn.context < before.context:
            _reject(rollout, turn, f"index {turn.index}, context {turn.context} after {before.index}, {before.context}")
    for turn in turns:
        if turn.agent != agent:
            _reject(rollout, turn, f"agent {turn.agent} in the trajectory of agent {agent}")


def _reject(rollout: Rollout, turn: Turn, got: str) -> NoReturn:
    raise DataError(
        f"Rollout {rollout.key}, agent {turn.agent}, turn {turn.index}: got {got}; expected the sampled ids "
        "with one logprob each, finite and at most 0, in the order sampled; exclude the rollout."
    )


def _reject_logprobs(rollout: Rollout, turns: list[Turn]) -> None:
    for turn in turns:
        for value in turn.logprobs:
            if not (abs(value) <= FLOAT32_MAX and value <= MAX_LOGPROB):
                _reject(rollout, turn, f"the logprob {value}")
