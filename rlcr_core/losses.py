"""The loss: a clipped policy gradient summed over action tokens, with optional KL, entropy and truncated importance.

    L = Σ_n w_n · [ -ρ_n · min(r_n A_n, clip(r_n, 1 - c, 1 + c) A_n) + kl · k3_n - entropy · H_n ]

r = exp(logprob - old logprob) (Schulman et al. 2017, arXiv:1707.06347). k3 = exp(d) - d - 1, d = reference - logprob
(Schulman 2020, "Approximating KL divergence": unbiased, never negative). ρ = min(exp(proximal - behaviour), cap),
without gradient, for tokens sampled by an older policy: the ratio is then taken to the proximal logprobs, those of the
trainer before its first step (decoupled objective: Hilton et al. 2022, arXiv:2110.00641; truncation: Espeholt et al.
2018, arXiv:1802.01561). The weights w carry the aggregation over the whole minibatch, so micro-batches just add up.
Degenerate case: an advantage of exactly zero gives a policy term and a gradient of exactly zero, whatever the ratio.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rlcr_core.errors import ConfigError

Aggregation = Literal["token_mean", "rollout_mean", "agent_mean", "constant"]
# Beyond e^20 a ratio says nothing about probabilities; unbounded, exp overflows and its gradient is 0 · inf.
MAX_LOG_RATIO = 20.0


def aggregation_weights(rollout_N: Tensor, agent_N: Tensor, aggregation: Aggregation, constant: float | None = None) -> Tensor:
    """Weight of each action token of a minibatch, float32 [N] on the device of `rollout_N`.

    `token_mean`: 1 / N. `rollout_mean`: the mean over rollouts of their token means. `agent_mean`: the mean over
    (rollout, agent) of their token means. These three sum to 1. `constant`: 1 / `constant`, a number of tokens that
    does not depend on what was sampled, so long rollouts weigh more (Dr. GRPO, arXiv:2503.20783). Raises ConfigError
    without such a number.
    """
    if aggregation == "constant":
        if constant is None or not constant > 0:
            raise ConfigError(
                f"Aggregation constant divides by a positive number of tokens, got {constant}; "
                "set update.constant_tokens or change update.aggregation."
            )
        weight_N = torch.full(rollout_N.shape, 1.0 / constant, dtype=torch.float64, device=rollout_N.device)
    elif aggregation == "token_mean":
        n = max(1, rollout_N.numel())
        weight_N = torch.full(rollout_N.shape, 1.0 / n, dtype=torch.float64, device=rollout_N.device)
    else:
        split_N = agent_N if aggregation == "agent_mean" else torch.zeros_like(agent_N)
        owner_N2 = torch.stack([rollout_N, split_N], dim=1)
        _, owner_N, count_O = torch.unique(owner_N2, dim=0, return_inverse=True, return_counts=True)
        weight_N = 1.0 / (count_O.to(torch.float64)[owner_N] * count_O.numel())
    return weight_N.to(torch.float32)


def policy_loss(
    logprobs_N: Tensor,
    behaviour_N: Tensor,
    advantage_N: Tensor,
    weight_N: Tensor,
    *,
    clip: float,
    kl: float = 0.0,
    reference_N: Tensor | None = None,
    entropy_N: Tensor | None = None,
    entropy: float = 0.0,
    importance_cap: float = 0.0,
    proximal_N: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss (a scalar that adds up over micro-batches) and its detached statistics (scalars over these tokens).

    All tensors are float [N]; gradients flow through `logprobs_N` and `entropy_N` only. Statistics: `ratio_mean`,
    `ratio_max`, `ratio_change` and `ratio_change_square` (means of r - 1 and of its square), `clip_share` (tokens whose
    gradient the clip cut), of it `clip_high_share` (A > 0, r above 1 + c) and `clip_low_share` (A < 0, r below 1 - c),
    `kl_behaviour` (k3 of behaviour to policy), `kl_behaviour_k1` (the mean difference of logprobs, which can be below 0) and
    `entropy`. Raises ConfigError when kl, entropy or importance_cap is on without the tensor that it needs.
    """
    old_N = behaviour_N
    if importance_cap > 0:
        old_N = _needed(proximal_N, "update.importance_cap", "the proximal logprobs").detach()
    log_ratio_N = (logprobs_N - old_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    term_N = _surrogate(log_ratio_N, advantage_N, clip)
    if importance_cap > 0:
        log_weight_N = (old_N - behaviour_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        term_N = term_N * log_weight_N.exp().clamp(max=importance_cap)
    if kl > 0:
        term_N = term_N + kl * k3(logprobs_N, _needed(reference_N, "update.kl", "a reference policy").detach())
    if entropy > 0:
        term_N = term_N - entropy * _needed(entropy_N, "update.entropy", "the entropies")
    stats = _statistics(logprobs_N, behaviour_N, log_ratio_N, advantage_N, clip)
    stats["entropy"] = _mean(entropy_N.detach()) if entropy_N is not None else torch.zeros(())
    return (weight_N * term_N).sum(), stats


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy, reference) at each token sampled from the policy; never negative, [N]."""
    difference_N = (reference_N - logprobs_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return difference_N.exp() - difference_N - 1.0


def _surrogate(log_ratio_N: Tensor, advantage_N: Tensor, clip: float) -> Tensor:
    # Twice `where`: the inner one keeps a token without advantage out of the backward pass too.
    active_N = advantage_N != 0
    ratio_N = torch.where(active_N, log_ratio_N, torch.zeros_like(log_ratio_N)).exp()
    gain_N = torch.minimum(ratio_N * advantage_N, ratio_N.clamp(1.0 - clip, 1.0 + clip) * advantage_N)
    return torch.where(active_N, -gain_N, torch.zeros_like(gain_N))


@torch.no_grad()
def _statistics(
    logprobs_N: Tensor, behaviour_N: Tensor, log_ratio_N: Tensor, advantage_N: Tensor, clip: float
) -> dict[str, Tensor]:
    ratio_N = log_ratio_N.detach().exp()
    change_N = ratio_N - 1.0
    high = _mean(((advantage_N > 0) & (ratio_N > 1.0 + clip)).to(ratio_N.dtype))
    low = _mean(((advantage_N < 0) & (ratio_N < 1.0 - clip)).to(ratio_N.dtype))
    return {
        "ratio_mean": _mean(ratio_N),
        "ratio_max": ratio_N.max() if ratio_N.numel() else torch.zeros(()),
        "ratio_change": _mean(change_N),
        "ratio_change_square": _mean(change_N.square()),
        "clip_share": high + low,
        "clip_high_share": high,
        "clip_low_share": low,
        # Tokens are samples of the behaviour policy, so its KL to the policy takes the policy as "reference".
        "kl_behaviour": _mean(k3(behaviour_N, logprobs_N.detach())),
        "kl_behaviour_k1": _mean(behaviour_N - logprobs_N.detach()),
    }


def _mean(value_N: Tensor) -> Tensor:
    return value_N.mean() if value_N.numel() else torch.zeros(())


def _needed(value: Tensor | None, knob: str, what: str) -> Tensor:
    if value is None:
        raise ConfigError(f"{knob} is above 0 and needs {what}, got none; set {knob} to 0 or pass it.")
    return value
