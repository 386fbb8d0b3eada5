"""Rollouts of scripted players, in this process: they need no weights, only the tokenizer that says what a word costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import envs
from rlcr_core.config import Params
from rlcr_core.errors import GateError
from rlcr_core.rollout import RolloutSpec
from rlcr_core.scripted import scripted_rollouts
from rlcr_core.store import Tables, to_tables
from rlcr_core.tokens import load_tokenizer
from rlcr_core.types import StopReason


def scripted(specs: Sequence[RolloutSpec], player: str, params: Params, tokenizer: Path) -> Tables:
    """The rollouts of the environment's player of that name. Raises TaskError for one it does not have, GateError when a
    rollout fails.
    """
    make_player = envs.player(specs[0].task.environment, player)
    rollouts = scripted_rollouts(specs, envs.make, make_player, load_tokenizer(tokenizer), params)
    failed = [rollout for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise GateError(f"{len(failed)} of {len(rollouts)} rollouts of the player {player} failed, the first: {failed[0].error}.")
    return to_tables(rollouts)
