"""The loss on numbers worked out by hand: r = exp(logprob - old), so probabilities are written as logarithms."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import ConfigError
from rlcr_core.losses import aggregation_weights, k3, policy_loss

AGGREGATIONS = ["token_mean", "rollout_mean", "agent_mean", "constant"]


def row(*values):
    return torch.tensor(values, dtype=torch.float32)


def loss_and_gradient(logprob, behaviour, advantage, **options):
    logprobs_N = row(logprob).requires_grad_()
    options = {"clip": 0.2} | options
    loss, stats = policy_loss(logprobs_N, row(behaviour), row(advantage), row(1.0), **options)
    (gradient_N,) = torch.autograd.grad(loss, logprobs_N)
    return loss.item(), gradient_N.item(), stats


@pytest.mark.parametrize(
    ("probability", "advantage", "loss", "gradient"),
    [
        (0.25, 3.0, -3.0, -3.0),  # r = 1: loss -A, and d(-rA)/dlogprob = -rA
        (0.5, 1.0, -1.2, 0.0),  # r = 2 above 1.2: clipped, no gradient
        (0.5, -1.0, 2.0, 2.0),  # r = 2, A < 0: min(-2, -1.2) = -2, not clipped
        (0.125, -1.0, 0.8, 0.0),  # r = 1/2 below 0.8, A < 0: clipped at 0.8
        (0.125, 1.0, -0.5, -0.5),  # r = 1/2, A > 0: min(0.5, 0.8), not clipped
    ],
)
def test_the_clip_is_pessimistic(probability, advantage, loss, gradient):
    got = loss_and_gradient(log(probability), log(0.25), advantage)
    assert got[:2] == pytest.approx((loss, gradient), rel=1e-6)


@pytest.mark.parametrize(("logprob", "behaviour"), [(0.0, -1e30), (-1e30, 0.0), (-1.0, -1.0)])
def test_no_advantage_means_exactly_no_loss_and_no_gradient_at_any_ratio(logprob, behaviour):
    assert loss_and_gradient(logprob, behaviour, 0.0)[:2] == (0.0, 0.0)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("logprob", [0.0, -1e30])
def test_an_absurd_ratio_stays_finite(advantage, logprob):
    loss, gradient, stats = loss_and_gradient(logprob, -500.0, advantage, kl=1.0, reference_N=row(-900.0))
    values = torch.tensor([loss, gradient, *stats.values()])
    assert torch.isfinite(values).all()


WEIGHTS = {
    # Rollout 0: agent 0 has 2 tokens, agent 1 has 1; rollout 1: agent 0 has 1.
    "token_mean": [1 / 4, 1 / 4, 1 / 4, 1 / 4],
    "rollout_mean": [1 / 6, 1 / 6, 1 / 6, 1 / 2],  # half a rollout each, by 3 and by 1 tokens
    "agent_mean": [1 / 6, 1 / 6, 1 / 3, 1 / 3],  # a third an (rollout, agent), by 2, 1 and 1 tokens
    "constant": [1 / 8, 1 / 8, 1 / 8, 1 / 8],
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights(aggregation):
    weight_N = aggregation_weights(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 0]), aggregation, 8.0)
    assert weight_N.tolist() == pytest.approx(WEIGHTS[aggregation], rel=1e-6)


def test_weights_of_a_constant_need_one():
    with pytest.raises(ConfigError, match="constant_tokens"):
        aggregation_weights(torch.zeros(2), torch.zeros(2), "constant", None)


@given(
    owners=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20),
    aggregation=st.sampled_from(AGGREGATIONS),
    relabel=st.permutations(range(4)),
)
def test_permuting_agents_changes_no_weight(owners, aggregation, relabel):
    rollout_N = torch.tensor([r for r, _ in owners])
    agent_N = torch.tensor([a for _, a in owners])
    permuted_N = torch.tensor([relabel[a] for _, a in owners])
    weight_N = aggregation_weights(rollout_N, agent_N, aggregation, 10.0)
    assert torch.equal(weight_N, aggregation_weights(rollout_N, permuted_N, aggregation, 10.0))
    assert weight_N.sum().item() == pytest.approx(len(owners) / 10.0 if aggregation == "constant" else 1.0, rel=1e-5)


@given(
    tokens=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(-5.0, 0.0), st.floats(-2.0, 2.0)),
        min_size=2,
        max_size=20,
    ),
    cut=st.integers(1, 19),
    aggregation=st.sampled_from(AGGREGATIONS),
)
def test_splitting_rows_into_micro_batches_changes_no_loss(tokens, cut, aggregation):
    rollouts, agents, logprobs, advantages = zip(*tokens, strict=True)
    weight_N = aggregation_weights(torch.tensor(rollouts), torch.tensor(agents), aggregation, 7.0)
    columns = (row(*logprobs), torch.full((len(tokens),), -1.0), row(*advantages), weight_N)
    whole = policy_loss(*columns, clip=0.2)[0].item()
    parts = [policy_loss(*(c[s] for c in columns), clip=0.2)[0].item() for s in (slice(cut), slice(cut, None))]
    assert sum(parts) == pytest.approx(whole, rel=1e-4, abs=1e-4)


def test_k3_and_its_gradient():
    # d = log(1/4) - log(1/2) = -log 2: k3 = 1/2 + log 2 - 1, and dk3/dlogprob = 1 - exp(d) = 1/2.
    assert k3(row(log(0.5)), row(log(0.25))).item() == pytest.approx(log(2) - 0.5, rel=1e-6)
    loss, gradient, _ = loss_and_gradient(log(0.5), log(0.5), 0.0, kl=2.0, reference_N=row(log(0.25)))
    assert (loss, gradient) == pytest.approx((2 * log(2) - 1, 1.0), rel=1e-6)


def test_the_entropy_bonus_is_subtracted():
    entropy_N = row(0.5).requires_grad_()
    loss, stats = policy_loss(row(-1.0), row(-1.0), row(0.0), row(0.25), clip=0.2, entropy_N=entropy_N, entropy=0.1)
    loss.backward()
    # -0.1 * 0.25 * 0.5, and its derivative -0.1 * 0.25.
    assert loss.item() == pytest.approx(-0.0125)
    assert entropy_N.grad.item() == pytest.approx(-0.025)
    assert stats["entropy"].item() == pytest.approx(0.5)


@pytest.mark.parametrize(("cap", "weight"), [(2.0, 2.0), (8.0, 4.0)])
def test_stale_tokens_are_reweighted_up_to_the_cap(cap, weight):
    # proximal / behaviour = 0.4 / 0.1 = 4; the ratio is to the proximal policy: 0.4 / 0.4 = 1, so nothing is clipped.
    loss, gradient, _ = loss_and_gradient(log(0.4), log(0.1), 1.0, importance_cap=cap, proximal_N=row(log(0.4)))
    assert (loss, gradient) == pytest.approx((-weight, -weight), rel=1e-6)


def test_without_a_cap_the_ratio_is_to_the_behaviour():
    # 0.4 / 0.1 = 4 is clipped at 1.2, whatever the proximal policy says.
    assert loss_and_gradient(log(0.4), log(0.1), 1.0, proximal_N=row(log(0.4)))[:2] == pytest.approx((-1.2, 0.0))


def test_statistics():
    # Ratios 2, 1/2, 1, 2 with advantages 1, -1, 1, -1: the first two are cut, the last is not.
    logprobs_N = row(log(0.5), log(0.125), log(0.25), log(0.5))
    _, stats = policy_loss(logprobs_N, torch.full((4,), log(0.25)), row(1, -1, 1, -1), torch.full((4,), 0.25), clip=0.2)
    assert stats["ratio_mean"].item() == pytest.approx((2 + 0.5 + 1 + 2) / 4)
    assert stats["ratio_max"].item() == pytest.approx(2.0)
    # Cut because the ratio rose: the first; because it fell: the second.
    shares = [stats[f"clip_{name}share"].item() for name in ("", "high_", "low_")]
    assert shares == [0.5, 0.25, 0.25]
    # Changes 1, -1/2, 0, 1; k1 is the mean of -log r: -log 2, log 2, 0, -log 2.
    assert stats["ratio_change"].item() == pytest.approx(0.375)
    assert stats["ratio_change_square"].item() == pytest.approx(2.25 / 4)
    assert stats["kl_behaviour_k1"].item() == pytest.approx(-log(2) / 4, rel=1e-5)
    # r - 1 - log r: 1 - log 2 twice, log 2 - 1/2, 0.
    assert stats["kl_behaviour"].item() == pytest.approx((2 * (1 - log(2)) + log(2) - 0.5) / 4, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "knob"),
    [({"kl": 0.1}, "update.kl"), ({"entropy": 0.1}, "update.entropy"), ({"importance_cap": 2.0}, "importance_cap")],
)
def test_an_option_without_its_tensor_is_refused(options, knob):
    with pytest.raises(ConfigError, match=knob):
        policy_loss(row(-1.0), row(-1.0), row(1.0), row(1.0), clip=0.2, **options)
