"""One policy update: contexts in, optimiser steps out, the same bytes for the same inputs.

A call draws at most `max_turns` contexts (in a bounded window a context is a turn), passes `epochs` times over them in
`minibatches` steps of AdamW (fewer when a step would see less than `min_minibatch_turns`), each the sum of its
micro-batches, so that memory sets only the speed. On a CPU `threads` micro-batches are worked on at once, one thread
each: small products gain little from threads of their own, and threads that wait for each other stall when anything
else runs. A minibatch from which nothing can be learnt (all advantages exactly zero, no KL, no entropy bonus) takes no
step: momentum alone would move the weights. Weights and optimiser state are float32; `dtype: bfloat16` autocasts the
forward pass only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlcr_core.adamw_state import export_state, import_state
from rlcr_core.config import UpdateConfig
from rlcr_core.errors import ConfigError, DataError, WeightError
from rlcr_core.labels import N_LABELS, by_kind, label_sums, shares
from rlcr_core.losses import aggregation_weights, policy_loss
from rlcr_core.masters import master_of, settle, write_back
from rlcr_core.packing import Batch, Context, pack, padding_share
from rlcr_core.policy import action_logprobs, has_recurrent_layers
from rlcr_core.types import Float64Array

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class MicroResult(NamedTuple):
    """Of one micro-batch: `by_label` [3, N_LABELS] sums tokens, |dloss/dlogprob| and entropies over its tokens."""

    loss: float
    stats: dict[str, Tensor]
    gradients: Sequence[Tensor | None]  # of each parameter; none when nothing can be learnt
    by_label: Float64Array


@dataclass(slots=True)
class Minibatch:
    """The micro-batches of one optimiser step; `proximal` are the logprobs before the call's first step, if needed."""

    batches: list[Batch]
    weights: list[Tensor]
    n_contexts: int
    learns: bool
    epoch: int
    proximal: list[Tensor | None]

    @property
    def n_tokens(self) -> int:
        return sum(batch.n_tokens for batch in self.batches)


@dataclass(slots=True)
class Tally:
    """Statistics of one call: means over tokens, and per-step figures."""

    n: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    ratio_max: float = 0.0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    n_clipped: int = 0  # steps whose gradient was scaled down
    by_label: Float64Array = field(default_factory=lambda: np.zeros((3, N_LABELS)))

    def add(self, stats: dict[str, Tensor], n: int, by_label: Float64Array) -> None:
        self.n += n
        self.by_label += by_label
        self.ratio_max = max(self.ratio_max, float(stats.pop("ratio_max")))
        for key, value in stats.items():
            self.sums[key] = self.sums.get(key, torch.zeros((), device=value.device)) + value * n

    def metrics(self) -> dict[str, float]:
        means = {f"optim/{key}": float(value) / max(1, self.n) for key, value in self.sums.items()}
        # Around 1, where ratios are; the square of a mean near 1 would eat the digits.
        change, square = (means.pop(f"optim/ratio_{name}", 0.0) for name in ("change", "change_square"))
        steps = len(self.norms)
        return means | self._shares() | {
            "optim/ratio_std": math.sqrt(max(0.0, square - change**2)),
            "optim/loss": float(np.mean(self.losses)) if self.losses else 0.0,
            "optim/grad_norm": float(np.mean(self.norms)) if steps else 0.0,
            "optim/ratio_max": self.ratio_max,
            **({"optim/grad_clip_share": self.n_clipped / steps} if steps else {}),
            "optim/steps": float(steps),
        }

    def _shares(self) -> dict[str, float]:
        """`grad/share_…` of the tokens that are labelled, and their `optim/entropy_<kind>`."""
        tokens_L, slopes_L, entropies_L = self.by_label
        tokens, entropies = by_kind(tokens_L), by_kind(entropies_L)
        found = {f"optim/entropy_{kind}": entropies[kind] / n for kind, n in tokens.items() if n}
        return found | shares("grad/share", slopes_L)


def resolve_device(name: str) -> torch.device:
    """`auto` is cuda where there is one, else cpu; else any torch device of this machine. Raises ConfigError."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"update.device {name!r} is not usable ({error}); expected auto, cpu, cuda, …") from None
    return device


def check_contexts(contexts: Sequence[Context]) -> None:
    """Raises DataError when there is none, or names the first with an advantage or a logprob that is not finite."""
    if not contexts:
        raise DataError("There are no contexts to train on: every rollout was excluded; see the iteration's ledger.")
    for context in contexts:
        if not np.isfinite(context.advantage):
            raise DataError(
                f"The advantage of {context.name} is {context.advantage}, expected a finite one; exclude the rollout."
            )
        if not np.isfinite(context.behaviour_logprobs).all():
            t = int(np.argmin(np.isfinite(context.behaviour_logprobs)))
            raise DataError(
                f"The behaviour logprob at token {t} of {context.name} is {context.behaviour_logprobs[t]}, "
                "expected a finite number; exclude the rollout."
            )


def subsample(contexts: Sequence[Context], max_turns: int, rng: np.random.Generator) -> list[Context]:
    """`max_turns` contexts drawn uniformly without replacement, in their given order; all when it is 0 or no fewer."""
    if max_turns == 0 or len(contexts) <= max_turns:
        return list(contexts)
    return [contexts[i] for i in np.sort(rng.choice(len(contexts), max_turns, replace=False))]


class Updater:
    """Owns the optimiser of `model`, which it moves to the configured device in float32 and changes in place.

    `temperature` is the one sampled at. `reference` is the policy that `kl` pulls towards. Raises ConfigError when kl
    is above 0 without a reference, or for an unknown device.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: UpdateConfig,
        temperature: float = 1.0,
        reference: PreTrainedModel | None = None,
    ) -> None:
        if config.kl > 0 and reference is None:
            raise ConfigError(f"update.kl is {config.kl:g} and needs a reference policy, got none; set update.kl to 0.")
        self.config = config
        self.temperature = temperature
        self.device = resolve_device(config.device)
        self.model = model
        self.reference = reference if config.kl > 0 else None
        for network in (model, self.reference):
            if network is not None:
                settle(network, self.device, torch.bfloat16 if config.dtype == "bfloat16" else torch.float32)
        self.one_per_row = has_recurrent_layers(model)
        self.live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = {name: master_of(p) for name, p in self.live.items()}
        parallel = config.threads > 1 and self.device.type == "cpu"
        self._pool = ThreadPoolExecutor(config.threads, initializer=torch.set_num_threads, initargs=(1,)) if parallel else None
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )

    def step(self, contexts: Sequence[Context], seed: int, progress: float = 0.0) -> dict[str, float]:
        """Train on the contexts of one iteration; `seed` draws the subsample and the minibatches. Returns `optim/…` and
        `grad/share_…`, the shares of the sum of |dloss/dlogprob| over the labelled tokens trained.

        `progress`, 0 at the first iteration and 1 at the last, moves the learning rate linearly from lr to lr_end.

        `optim/turns_trained` and `optim/tokens_trained` count contexts and action tokens that took part in a step, once
        each; the means are over tokens and epochs. Raises DataError for input that is not finite, WeightError when the
        network's logprobs or the gradient are not finite: that optimiser step is then not taken.
        """
        check_contexts(contexts)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr + progress * (self.config.lr_end - self.config.lr)
        # Dropout would make the ratio differ from 1 before the first step.
        self.model.train(False)
        rng = np.random.default_rng(seed)
        plan = list(self._plan(subsample(contexts, self.config.max_turns, rng), rng))
        if self.config.importance_cap > 0:
            self._add_proximal(plan)
        tally = Tally()
        for minibatch in plan:
            self._train(minibatch, tally)
        trained = [m for m in plan if m.learns and m.epoch == 0]
        return tally.metrics() | {
            "optim/tokens_trained": float(sum(m.n_tokens for m in trained)),
            "optim/turns_trained": float(sum(m.n_contexts for m in trained)),
            "optim/padding_share": padding_share([batch for m in plan for batch in m.batches]),
        }

    def _plan(self, contexts: list[Context], rng: np.random.Generator) -> Iterator[Minibatch]:
        config = self.config
        n_rollouts = len({context.rollout for context in contexts})
        n_minibatches = max(1, min(config.minibatches, len(contexts) // config.min_minibatch_turns))
        constant = config.constant_tokens * n_rollouts / n_minibatches
        for epoch in range(config.epochs):
            for part in np.array_split(rng.permutation(len(contexts)), n_minibatches):
                members = [contexts[i] for i in part]
                batches = [b for b in pack(members, config.micro_batch_tokens, self.one_per_row) if b.n_tokens]
                if not batches:
                    continue
                rollout_N = torch.cat([batch.rollout_N for batch in batches])
                agent_N = torch.cat([batch.agent_N for batch in batches])
                weight_N = aggregation_weights(rollout_N, agent_N, config.aggregation, constant)
                weights = list(torch.split(weight_N, [batch.n_tokens for batch in batches]))
                learns = config.kl > 0 or config.entropy > 0 or any(context.advantage != 0 for context in members)
                yield Minibatch(batches, weights, len(members), learns, epoch, [None] * len(batches))

    @torch.no_grad()
    def _add_proximal(self, plan: list[Minibatch]) -> None:
        for minibatch in plan:
            minibatch.proximal = [self._forward(self.model, b.to(self.device))[0].cpu() for b in minibatch.batches]

    def _train(self, minibatch: Minibatch, tally: Tally) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for batch, (loss, stats, gradients, by_label) in zip(minibatch.batches, self._micro_batches(minibatch), strict=True):
            for parameter, gradient in zip(self.parameters.values(), gradients, strict=False):
                if gradient is not None:
                    gradient = gradient.to(parameter.dtype)
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            total += loss
            tally.add(stats, batch.n_tokens, by_label)
        tally.losses.append(total)
        if minibatch.learns:
            norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.max_grad_norm))
            if not np.isfinite(norm):
                self.optimizer.zero_grad(set_to_none=True)
                raise WeightError(
                    f"The gradient's norm is {norm}, expected a finite number; the step was not taken. "
                    "Go back to the last checkpoint and lower update.lr, or set update.dtype to float32."
                )
            self.optimizer.step()
            write_back(self.live.values())
            tally.norms.append(norm)
            tally.n_clipped += norm > self.config.max_grad_norm

    def _micro_batches(self, minibatch: Minibatch) -> Iterator[MicroResult]:
        """Each micro-batch's result, in their order, so that sums are the same however many are worked on at once."""
        parts = (minibatch.batches, minibatch.weights, minibatch.proximal, [minibatch.learns] * len(minibatch.batches))
        return (map if self._pool is None else self._pool.map)(self._micro_batch, *parts)

    def _micro_batch(self, batch: Batch, weight_N: Tensor, proximal_N: Tensor | None, learns: bool) -> MicroResult:
        with torch.set_grad_enabled(learns):
            moved = batch.to(self.device)
            logprobs_N, entropy_N = self._forward(self.model, moved)
            loss, stats = self._loss(moved, logprobs_N, entropy_N, weight_N, proximal_N)
        gradients: Sequence[Tensor | None] = ()
        slope_N = None
        if learns:  # the backward pass goes through the logprobs anyway, so their gradient costs nothing more
            inputs = [*self.live.values(), logprobs_N]
            *gradients, slope_N = torch.autograd.grad(loss, inputs, allow_unused=True)
        slopes = torch.zeros_like(entropy_N) if slope_N is None else slope_N.abs()
        values = [column.detach().cpu().numpy() for column in (torch.ones_like(entropy_N), slopes, entropy_N)]
        return MicroResult(float(loss.detach()), stats, gradients, label_sums(batch.label_N.numpy(), *values))

    def _loss(
        self, batch: Batch, logprobs_N: Tensor, entropy_N: Tensor, weight_N: Tensor, proximal_N: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        reference_N = None
        if self.reference is not None:
            with torch.no_grad():
                reference_N = self._forward(self.reference.train(False), batch)[0]
        return policy_loss(
            logprobs_N,
            batch.behaviour_N,
            batch.advantage_N,
            weight_N.to(self.device),
            clip=config.clip,
            kl=config.kl,
            reference_N=reference_N,
            entropy_N=entropy_N,
            entropy=config.entropy,
            importance_cap=config.importance_cap,
            proximal_N=None if proximal_N is None else proximal_N.to(self.device),
        )

    def _forward(self, model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor]:
        with self._autocast():
            logprobs_N, entropy_N = action_logprobs(model, batch, self.temperature)
        finite_N = torch.isfinite(logprobs_N)
        if not bool(finite_N.all()):
            n = int((~finite_N).nonzero()[0])
            raise WeightError(
                f"The policy gives rollout {int(batch.rollout_N[n])}, agent {int(batch.agent_N[n])} the logprob "
                f"{float(logprobs_N.detach()[n])} for a sampled token, expected a finite number; the step was not "
                "taken. Go back to the last checkpoint and lower update.lr."
            )
        return logprobs_N.float(), entropy_N.float()

    def _autocast(self) -> AbstractContextManager[None]:
        """Computes in bfloat16 where the weights are float32; adapted models hold bfloat16 weights already."""
        is_mixed = self.config.dtype == "bfloat16" and all(p.dtype == torch.float32 for p in self.live.values())
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_mixed)

    def state_dict(self) -> dict[str, Tensor]:
        """AdamW's state as CPU tensors (`rlcr_core.adamw_state`); empty before the first step."""
        return export_state(self.optimizer, self.parameters)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from `state_dict`'s value, bit for bit. Raises DataError for names or shapes of another policy."""
        import_state(self.optimizer, self.parameters, state)
