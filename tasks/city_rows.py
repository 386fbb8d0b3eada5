"""What one rollout of the city comes to: a row of plain numbers, and how often its agents saw which kind of situation.

`seen_facts` is the facts in an observation's windows over those that there are (a key for each package), `seen_modules` the
modules on its page over the unfinished ones, `seen_keys` the share of the page's keyed modules whose package's fact is in
view; means over the rollout's observations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envs.workshop.states import state_of
from rlcr_core.config import LatencyConfig
from rlcr_core.facts import work_result
from rlcr_core.signs import Signs
from rlcr_core.types import EventType, Rollout, Turn, TurnKind

CODES = ("done", "dup", "bad", "locked", "needkey", "already", "unknown")  # of WORK events, each a column


class Survey(NamedTuple):
    """How to read a rollout: its project's modules and packages, the word of each token id, the clock."""

    n_modules: int
    n_facts: int
    words: Sequence[str]
    latency: LatencyConfig


def row_of(rollout: Rollout, survey: Survey) -> tuple[dict[str, Any], Counter[Hashable]]:
    """The rollout's columns, and the counts of its observations' states.

    Shares of the agents' seconds are `time_…` (what they are of: rlcr_core/signs.py), tokens are sampled ones.
    """
    turns = rollout.turns()
    tokens: Counter[TurnKind] = Counter()
    for turn in turns:
        tokens[turn.kind] += turn.n_tokens
    codes = Counter(work_result(e.text)[0] for e in rollout.events if e.type is EventType.WORK)
    truths = [e.value for e in rollout.events if e.type is EventType.MESSAGE]
    row: dict[str, Any] = {
        "task_id": rollout.task_id,
        "return": rollout.return_,
        "end_s": rollout.end_s,
        "stop_reason": rollout.stop_reason.value,
        "modules": codes["done"],
        "modules_in_project": survey.n_modules,
        "employed": len(rollout.agents),
        "fires": sum(agent.fired_s is not None for agent in rollout.agents),
        "turns": len(turns),
        "messages": len(truths),
        "messages_true": sum(truth > 0 for truth in truths),
        **{f"tokens_{kind.value}": tokens[kind] for kind in TurnKind},
        **{f"work_{code}": codes[code] for code in CODES},
        **_times(rollout, turns, survey.latency),
    }
    seen, states = _observations(rollout, turns, survey)
    return row | seen, states


def _times(rollout: Rollout, turns: Sequence[Turn], latency: LatencyConfig) -> dict[str, float]:
    """Shares of the agents' seconds: effective work, all work turns, waiting or nothing, reading messages (within turns)."""
    signs = Signs()
    signs.add(rollout)
    reading_s = sum(turn.prompt_tokens for turn in turns) / latency.prefill_tps
    seconds = signs.employed_s or 1.0
    return {
        "time_effective": signs.effective_s / seconds,
        "time_work": signs.working_s / seconds,
        "time_idle": max(0.0, signs.employed_s - signs.acting_s) / seconds,
        "time_reading": reading_s / seconds,
    }


def _observations(rollout: Rollout, turns: Sequence[Turn], survey: Survey) -> tuple[dict[str, float], Counter[Hashable]]:
    """The `seen_…` columns and the counts of states."""
    done_s = np.sort([e.time_s for e in rollout.events if e.type is EventType.REWARD])
    states: Counter[Hashable] = Counter()
    facts = open_share = keyed = visible = 0.0
    for turn in turns:
        state = state_of([survey.words[i] for i in turn.observation_ids])
        states[tuple(state)] += 1
        facts += state.facts / survey.n_facts
        unfinished = survey.n_modules - int(np.searchsorted(done_s, turn.start_s, side="right"))
        open_share += state.open / unfinished if unfinished else 1.0
        keyed += state.keyed
        visible += state.visible
    n = len(turns) or 1
    return {
        "seen_facts": facts / n,
        "seen_modules": open_share / n,
        "seen_keys": visible / keyed if keyed else 0.0,
    }, states
