"""Every sign of life of the two rollouts of written_out.py, computed on paper: the whole dictionary, nothing left out.

Tokens, by agent of A:  0: talk 3 + 3 + 3 = 9, roster 1 + 1 + 1 + 2 = 5, work 4 + 2 = 6: 20
                        1: wait 1, work 4 + 4 = 8, talk 3 + 2 = 5: 14
                        2: invalid 2, work 3 + 3 = 6, talk 4: 12           A: 46, with B's 10: 56
By kind: work 6 + 8 + 6 + 10 = 30, talk 9 + 5 + 4 = 18, roster 5, wait 1, invalid 2. The CEOs have 30, staff 26.
Waste: full hire 1; to nobody 3 (the CEO, before anybody was hired) + 3 (a dm to the fired agent 2) = 6; reposts 3 (the
CEO sent it before) + 4 (agent 2 was shown it) = 7; duplicate 3; failed 4: 21 tokens in 1, 2, 2, 1 and 1 turns.
Effective work: 4 (agent 0) + 4 (agent 1) of A's 20 work tokens, and B's 10. Cut turns came to no result.

Agent seconds employed: 20, 3 to 20 = 17, 5 to 15 = 10, B 5: 52.
At work: agent 0 5 + 5, agent 1 5 + 4, agent 2 4 + 2: 25, B 5: 30. Effective: 5 + 4 + 5 = 14.
Idle: agent 1 waits 3, is in no turn for 1 and for 2: 6.
Somebody works from 5 to 11 and from 12 to 20: 14 s, B 5: 19. Most at once: 3 (from 7 to 10), B 1.
Seconds of rollouts: 20 + 5 = 25.

Messages: 5, judged 0, 1, 1, 1 and not judged. Deliveries: 5, of them 2 new, of which agent 1 used one.
"""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlcr_core.config import load_params
from rlcr_core.contexts import contexts_of
from rlcr_core.labels import labels_of
from rlcr_core.metrics import iteration_metrics
from rlcr_core.types import TurnKind
from rlcr_core.update import Updater
from tests.rlcr_core.written_out import rollout_a, rollout_b

EXPECTED = {
    "reward/return_mean": 0.625,  # (0.75 + 0.5) / 2
    "reward/return_std": 0.125,
    "reward/return_min": 0.5,
    "reward/return_max": 0.75,
    "reward/group_std": 0.125,  # one group
    "reward/zero_variance_groups": 0.0,
    "roster/hires": 1.0,  # (2 + 0) / 2
    "roster/fires": 0.5,
    "roster/time_of_first_hire_s": 2.0,  # B never hires
    "work/useful_tokens": 15.0,  # 30 / 2
    "work/useful_tokens_per_s": 1.2,  # 30 / 25
    "work/useful_tps_hires_0": 2.0,  # B: 10 / 5
    "work/useful_tps_hires_1_2": 1.0,  # A: 20 / 20
    "work/useful_to_iteration_hires_0": 2.0 / 1.2,
    "work/useful_to_iteration_hires_1_2": 1.0 / 1.2,
    "work/effective_tokens": 9.0,  # (4 + 4 + 10) / 2
    "work/effective_tokens_per_s": 0.72,  # 18 / 25
    "work/effective_share": 0.6,  # 18 / 30
    "work/effective_tps_hires_0": 2.0,
    "work/effective_tps_hires_1_2": 0.4,  # 8 / 20
    "work/effective_to_iteration_hires_0": 2.0 / 0.72,
    "work/effective_to_iteration_hires_1_2": 0.4 / 0.72,
    "work/calls": 2.5,  # (4 + 1) / 2
    "work/duplicate_share": 0.2,  # 1 of 5
    "work/failed_share": 0.2,
    "work/received_key_share": 0.2,
    "work/received_key_mean": 0.5,
    "talk/messages": 2.5,  # 5 / 2
    "talk/true_share": 0.75,  # 3 of the 4 that were judged
    "talk/repost_share": 0.4,  # 2 of 5
    "talk/delivered": 2.5,
    "talk/new": 1.0,
    "talk/new_share": 0.4,  # 2 of 5
    "talk/used": 0.5,
    "talk/used_share": 0.2,  # 1 of 5
    "talk/intensity_tps": 0.72,  # 18 / 25
    "parallel/employed_s": 26.0,  # 52 / 2
    "parallel/idle_share": 6 / 52,
    "parallel/work_share": 30 / 52,
    "parallel/efficiency": 14 / 52,
    "parallel/at_work_mean": 1.2,  # 30 / 25
    "parallel/effective_mean": 0.56,  # 14 / 25
    "parallel/at_work_max": 2.0,  # (3 + 1) / 2
    "parallel/span_share": 0.76,  # 19 / 25
    "parallel/speedup": 30 / 19,
    "parallel/task_work_s": 40.0,  # A alone, as all that follow
    "parallel/critical_path_s": 12.0,
    "parallel/speedup_possible": 40 / 12,
    "parallel/speedup_bound": 3.0,  # 40 / max(12, 40 / 3 agents)
    "parallel/speedup_task": 1.0,  # (2 + 3) units of 4 s in 20 s; those of the failed and the duplicate do not count
    "waste/full_hire": 0.5,
    "waste/nobody": 1.0,
    "waste/repost": 1.0,
    "waste/duplicate": 0.5,
    "waste/failed": 0.5,
    "tokens/total": 56.0,
    "tokens/per_rollout": 28.0,
    "tokens/share_ceo": 30 / 56,
    "tokens/share_staff": 26 / 56,
    "tokens/share_agents_1_2": 26 / 56,
    "tokens/share_agents_3_4": 0.0,
    "tokens/share_agents_5_8": 0.0,
    "tokens/share_agents_9_up": 0.0,
    "tokens/share_work": 30 / 56,
    "tokens/share_talk": 18 / 56,
    "tokens/share_roster": 5 / 56,
    "tokens/share_wait": 1 / 56,
    "tokens/share_invalid": 2 / 56,
    "tokens/share_ceo_work": 16 / 56,  # 6 + 10
    "tokens/share_ceo_talk": 9 / 56,
    "tokens/share_ceo_roster": 5 / 56,
    "tokens/share_ceo_wait": 0.0,
    "tokens/share_ceo_invalid": 0.0,
    "tokens/share_staff_work": 14 / 56,  # 8 + 6
    "tokens/share_staff_talk": 9 / 56,  # 5 + 4
    "tokens/share_staff_roster": 0.0,
    "tokens/share_staff_wait": 1 / 56,
    "tokens/share_staff_invalid": 2 / 56,
    "tokens/share_full_hire": 1 / 56,
    "tokens/share_nobody": 6 / 56,
    "tokens/share_repost": 7 / 56,
    "tokens/share_duplicate": 3 / 56,
    "tokens/share_failed": 4 / 56,
    "tokens/share_waste": 21 / 56,
    "turns/total": 19.0,  # 9 + 5 + 4 + 1
    "turns/cut_share": 2 / 19,
    "time/limit_s": 20.0,
    "time/end_s": 12.5,
    "stop/deadline": 1.0,
    "stop/solved": 1.0,
    "stop/stalled": 0.0,
    "stop/failed": 0.0,
}


def test_every_sign_of_life() -> None:
    assert iteration_metrics([rollout_a(), rollout_b()]) == pytest.approx(EXPECTED)


# With a ratio of 1 and the token mean, a token's |dloss/dlogprob| is |A| / N. A's 46 tokens have the advantage 0.5, B's 10
# have -0.25: the sum is (46 * 0.5 + 10 * 0.25) / N = 25.5 / N, of which a class has 0.5 a token of A, 0.25 a token of B.
GRADIENT = {
    "ceo": (20 * 0.5 + 10 * 0.25) / 25.5,
    "staff": 26 * 0.5 / 25.5,
    "agents_1_2": 26 * 0.5 / 25.5,
    "agents_9_up": 0.0,
    "work": (20 * 0.5 + 10 * 0.25) / 25.5,
    "talk": 18 * 0.5 / 25.5,
    "roster": 5 * 0.5 / 25.5,
    "wait": 0.5 / 25.5,
    "invalid": 2 * 0.5 / 25.5,
    "ceo_work": (6 * 0.5 + 10 * 0.25) / 25.5,
    "staff_talk": 9 * 0.5 / 25.5,
    "full_hire": 0.5 / 25.5,
    "nobody": 6 * 0.5 / 25.5,
    "repost": 7 * 0.5 / 25.5,
    "duplicate": 3 * 0.5 / 25.5,
    "failed": 4 * 0.5 / 25.5,
    "waste": 21 * 0.5 / 25.5,
}


def test_shares_of_the_gradient() -> None:
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=5, **shape)).eval()
    with torch.no_grad():
        logits_TV = model(torch.tensor([[1, 2] + [3] * 10])).logits[0]
    logprobs = logits_TV.log_softmax(-1)[1:-1, 3].tolist()  # of the n-th 3 after 1 2, in every turn
    entropies = torch.distributions.Categorical(logits=logits_TV).entropy()[1:-1].tolist()
    contexts = []
    for index, (rollout, advantage) in enumerate([(rollout_a(), 0.5), (rollout_b(), -0.25)]):
        for turn in rollout.turns():
            turn.logprobs = logprobs[: turn.n_tokens]
        contexts += contexts_of(rollout, advantage, index, labels_of(rollout))
    settings = {"device": "cpu", "max_turns": 0, "entropy": 0.0, "minibatches": 1, "micro_batch_tokens": 40}
    metrics = Updater(model, load_params().update.model_copy(update=settings)).step(contexts, 0)
    assert {name: metrics[f"grad/share_{name}"] for name in GRADIENT} == pytest.approx(GRADIENT, rel=1e-4)
    # Roster turns have 1, 1, 1 and 2 tokens: four first ones and a second one.
    roster = (4 * entropies[0] + entropies[1]) / 5
    assert metrics["optim/entropy_roster"] == pytest.approx(roster, rel=1e-4)
    assert {key for key in metrics if key.startswith("optim/entropy_")} == {f"optim/entropy_{kind}" for kind in TurnKind}
