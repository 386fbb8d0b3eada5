"""The update on a tiny Llama: what must not move does not, what must moves the right way, the same bytes each time."""

import copy

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlcr_core import update
from rlcr_core.config import load_params
from rlcr_core.errors import ConfigError, DataError, WeightError
from rlcr_core.packing import Context, pack
from rlcr_core.policy import action_logprobs
from rlcr_core.update import Updater, subsample

SETTINGS = {
    "minibatches": 1, "min_minibatch_turns": 1, "micro_batch_tokens": 64, "device": "cpu", "lr": 0.01, "lr_end": 0.01,
    "max_turns": 0,
}  # fmt: skip
CONFIG = load_params().update.model_copy(update=SETTINGS | {"entropy": 0.0})


def make_config(**changes):
    return CONFIG.model_copy(update=changes)


def make_model(seed=0):
    torch.manual_seed(seed)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=12, initializer_range=0.5, **shape)).eval()


def logprobs_of(model, ids, temperature=1.0):
    """Logprobs [T - 1] of each next token, by transformers alone."""
    with torch.no_grad():
        logits_TV = model(torch.tensor([ids])).logits[0, :-1] / temperature
    return logits_TV.log_softmax(-1).gather(-1, torch.tensor(ids)[1:, None])[:, 0]


def make_contexts(model, advantages, temperature=1.0, shift=0.0):
    """One context per advantage, of rollout i // 2 and agent i % 2; the last 2 to 4 tokens are actions."""
    generator = np.random.default_rng(1)
    contexts = []
    for i, advantage in enumerate(advantages):
        ids = generator.integers(1, 12, 5 + i % 3)
        is_action = np.arange(len(ids)) >= 3
        logprobs_T = np.concatenate([[0], logprobs_of(model, ids.tolist(), temperature).numpy() + shift])
        behaviour = np.where(is_action, logprobs_T, 0).astype(np.float32)
        versions = np.zeros(len(ids), np.int32)
        contexts.append(Context(ids.astype(np.int32), is_action, behaviour, advantage, i // 2, i % 2, versions, i))
    return contexts


def weights_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_the_ratio_is_one_before_the_first_step(temperature):
    model = make_model()
    metrics = Updater(model, CONFIG, temperature).step(make_contexts(model, [1.0, -1.0, 0.5], temperature), 0)
    assert metrics["optim/ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["optim/ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["optim/clip_share"] == 0.0
    assert metrics["optim/kl_behaviour"] == pytest.approx(0.0, abs=1e-6)


def test_the_spread_of_ratios_is_that_of_all_tokens():
    # Two micro-batches of 3 tokens and 1: ratios 1.1, 1.1, 0.8 and 1.4. Mean 1.1, squares of 0, 0, 0.3, 0.3: sqrt(0.18 / 4).
    tally = update.Tally()
    for ratios in ([1.1, 1.1, 0.8], [1.4]):
        change = torch.tensor(ratios) - 1.0
        means = {"ratio_change": change.mean(), "ratio_change_square": change.square().mean(), "ratio_max": torch.tensor(1.0)}
        tally.add(means, len(ratios), np.zeros((3, update.N_LABELS)))
    assert tally.metrics()["optim/ratio_std"] == pytest.approx(0.045**0.5, rel=1e-5)


def test_scaled_gradients_are_counted_and_unlabelled_tokens_have_no_shares():
    model = make_model()
    for norm, share in ((1e-6, 1.0), (1e6, 0.0)):
        metrics = Updater(model, make_config(max_grad_norm=norm)).step(make_contexts(model, [1.0, -1.0]), 0)
        assert metrics["optim/grad_clip_share"] == share
    assert not [key for key in metrics if key.startswith(("grad/", "optim/entropy_"))]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_moves_the_sampled_tokens_the_way_of_the_advantage(sign):
    model = make_model()
    (context,) = make_contexts(model, [sign])
    before = logprobs_of(model, context.ids.tolist())[2:].sum()
    metrics = Updater(model, CONFIG).step([context], 0)
    after = logprobs_of(model, context.ids.tolist())[2:].sum()
    assert sign * (after - before) > 1e-3
    # r = 1 everywhere, so the loss is -A.
    assert metrics["optim/loss"] == pytest.approx(-sign, rel=1e-4)
    assert (metrics["optim/steps"], metrics["optim/turns_trained"], metrics["optim/tokens_trained"]) == (1, 1, 2)


@pytest.mark.parametrize("entropy", [0.0, 0.01])
def test_equal_returns_move_nothing_but_the_entropy_bonus(entropy):
    model = make_model()
    updater = Updater(model, make_config(entropy=entropy))
    updater.step(make_contexts(model, [1.0, -1.0]), 0)  # gives the optimiser momentum
    before, state = weights_of(model), updater.state_dict()
    metrics = updater.step(make_contexts(model, [0.0, 0.0, 0.0]), 0)
    still = entropy == 0.0
    assert same(before, weights_of(model)) is still
    assert same(state, updater.state_dict()) is still
    assert (metrics["optim/steps"], metrics["optim/turns_trained"]) == ((0, 0) if still else (1, 3))
    assert metrics["optim/entropy"] > 0.1
    assert all(np.isfinite(value) for value in metrics.values())


def test_equal_returns_have_exactly_no_gradient():
    model = make_model()
    (batch,) = pack(make_contexts(model, [0.0, 0.0], shift=-30.0), 100, one_per_row=True)
    logprobs_N, _ = action_logprobs(model, batch, 1.0)
    loss, _ = update.policy_loss(logprobs_N, batch.behaviour_N, batch.advantage_N, torch.full_like(logprobs_N, 0.1), clip=0.2)
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("slope", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_never_steps(monkeypatch, slope):
    model = make_model()
    updater = Updater(model, CONFIG)
    updater.step(make_contexts(model, [1.0, -1.0]), 0)
    before, state = weights_of(model), updater.state_dict()

    def finite_with_bad_gradient(model, batch, temperature):
        logprobs_N, entropy_N = action_logprobs(model, batch, temperature)
        logprobs_N.register_hook(lambda gradient_N: gradient_N * slope)
        return logprobs_N, entropy_N

    monkeypatch.setattr(update, "action_logprobs", finite_with_bad_gradient)
    with pytest.raises(WeightError, match="step was not taken"):
        updater.step(make_contexts(model, [1.0, -1.0]), 1)
    assert same(before, weights_of(model))
    assert same(state, updater.state_dict())


def test_weights_that_are_not_finite_name_a_rollout():
    model = make_model()
    contexts = make_contexts(model, [1.0])
    updater = Updater(model, CONFIG)
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(WeightError, match="rollout 0, agent 0 the logprob nan"):
        updater.step(contexts, 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_input_that_is_not_finite_is_named_before_anything_moves(bad):
    model = make_model()
    updater = Updater(model, CONFIG)
    before = weights_of(model)
    with pytest.raises(DataError, match="rollout 1, agent 1, context 3"):
        updater.step(make_contexts(model, [1.0, 0.0, 1.0, bad]), 0)
    contexts = make_contexts(model, [1.0, 0.0])  # 0 · inf
    contexts[1].behaviour_logprobs[3] = bad
    with pytest.raises(DataError, match="token 3 of rollout 0, agent 1"):
        updater.step(contexts, 0)
    with pytest.raises(DataError, match="no contexts"):
        updater.step([], 0)
    assert same(before, weights_of(model))


MIXED = [1.0, -0.5, 0.25, -1.0, 0.0, 0.75, 0.5]


def run(config, seeds, stop_after=None):
    """Weights after a step per seed, over a copy made from saved state after `stop_after` steps."""
    model = make_model()
    contexts = make_contexts(model, MIXED)
    updater = Updater(model, config)
    for i, seed in enumerate(seeds):
        if i == stop_after:
            state = updater.state_dict()
            model = copy.deepcopy(model)
            updater = Updater(model, config)
            updater.load_state_dict(state)
        updater.step(contexts, seed)
    return weights_of(model) | updater.state_dict()


def test_same_input_same_bytes_and_resume_changes_none():
    config = make_config(minibatches=3, epochs=2, entropy=0.003, max_turns=5)
    whole = run(config, [1, 2, 3])
    assert same(whole, run(config, [1, 2, 3]))
    assert same(whole, run(config, [1, 2, 3], stop_after=2))
    assert not same(whole, run(config, [1, 2, 4]))


@pytest.mark.parametrize("aggregation", ["token_mean", "rollout_mean", "agent_mean", "constant"])
def test_micro_batches_and_rows_change_no_loss_and_no_gradient(monkeypatch, aggregation):
    figures = []
    for tokens, one_per_row in ((1, True), (16, True), (1000, True), (1000, False)):
        model = make_model()
        monkeypatch.setattr(update, "has_recurrent_layers", lambda _, value=one_per_row: value)
        updater = Updater(model, make_config(aggregation=aggregation, micro_batch_tokens=tokens))
        metrics = updater.step(make_contexts(model, MIXED), 0)
        figures.append([metrics["optim/loss"], metrics["optim/grad_norm"], metrics["optim/entropy"]])
    assert figures[0][1] > 1e-3
    for other in figures[1:]:
        assert other == pytest.approx(figures[0], rel=1e-3)


def test_the_subsample_is_uniform_and_keeps_order():
    model = make_model()
    contexts = make_contexts(model, [1.0] * 7)
    rng = np.random.default_rng(0)
    assert subsample(contexts, 0, rng) == contexts == subsample(contexts, 7, rng)
    counts = np.zeros(7)
    for _ in range(700):
        drawn = [c.context for c in subsample(contexts, 3, rng)]
        assert len(set(drawn)) == 3 and drawn == sorted(drawn)
        counts[drawn] += 1
    # 300 expected each, binomial sd sqrt(700 * 3/7 * 4/7) = 13.1: five of them.
    assert (abs(counts - 300) < 66).all()
    metrics = Updater(model, make_config(max_turns=3, minibatches=2)).step(contexts, 0)
    assert (metrics["optim/turns_trained"], metrics["optim/steps"]) == (3, 2)


def test_stale_tokens_are_truncated_at_the_cap():
    model = make_model()
    # Behaviour is a quarter of today's probability: weight min(4, cap), ratio to the proximal policy 1, loss -cap · A.
    contexts = make_contexts(model, [1.0, 1.0], shift=-np.log(4.0))
    metrics = Updater(model, make_config(importance_cap=2.0)).step(contexts, 0)
    assert metrics["optim/loss"] == pytest.approx(-2.0, rel=1e-4)


def test_kl_pulls_towards_the_reference():
    model, reference = make_model(0), make_model(1)
    contexts = make_contexts(model, [0.0, 0.0])
    updater = Updater(model, make_config(kl=1.0), reference=reference)
    before = weights_of(reference)
    losses = [updater.step(contexts, seed)["optim/loss"] for seed in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    assert same(before, weights_of(reference))
    own = Updater(make_model(0), make_config(kl=1.0), reference=make_model(0)).step(contexts, 0)
    assert own["optim/loss"] == pytest.approx(0.0, abs=1e-6)


def test_bfloat16_keeps_float32_weights_and_state():
    model = make_model()
    updater = Updater(model, make_config(dtype="bfloat16"))
    before = weights_of(model)
    metrics = updater.step(make_contexts(model, [1.0, -1.0]), 0)
    tensors = weights_of(model) | updater.state_dict()
    assert {t.dtype for t in tensors.values()} == {torch.float32}
    assert not same(before, weights_of(model))
    assert metrics["optim/ratio_mean"] == pytest.approx(1.0, abs=0.05)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match=r"update\.kl"):
        Updater(make_model(), make_config(kl=0.1))
    for device in ("abacus", "cuda:99"):
        with pytest.raises(ConfigError, match=rf"update\.device '{device}' is not usable"):
            Updater(make_model(), make_config(device=device))


def test_the_learning_rate_moves_linearly_to_its_end():
    """lr .01, lr_end .002: at the start .01, at a quarter .01 - .25 * .008 = .008, at the end .002."""
    model = make_model()
    updater = Updater(model, make_config(lr_end=0.002))
    rates = []
    for progress in (0.0, 0.25, 1.0):
        updater.step(make_contexts(model, [1.0]), 0, progress)
        rates.append(updater.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.01, 0.008, 0.002])


def test_the_number_of_micro_batches_at_once_changes_no_bit():
    results = []
    for threads in (1, 3):
        model = make_model()
        updater = Updater(model, make_config(threads=threads, minibatches=2, micro_batch_tokens=16))
        updater.step(make_contexts(model, [1.0, -1.0, 0.5, 0.0, 2.0, -2.0]), 0)
        results.append(weights_of(model))
    assert same(*results)


@pytest.mark.parametrize(("least", "steps"), [(1, 3), (2, 3), (3, 2), (4, 1), (9, 1)])
def test_small_batches_take_fewer_steps(least, steps):
    """Six contexts, three minibatches wanted: 6 // least of them, at least one and at most three."""
    model = make_model()
    config = make_config(minibatches=3, min_minibatch_turns=least)
    assert Updater(model, config).step(make_contexts(model, [1.0, -1.0, 0.5, 0.0, 2.0, -2.0]), 0)["optim/steps"] == steps
