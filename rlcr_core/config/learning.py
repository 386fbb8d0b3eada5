"""Sections about what is trained: policy, warm start, rollouts, update, iterations, validation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rlcr_core.config.model import Count, Model, NonNegative, Positive, Share

Mode = Literal["collective", "solo", "silent"]


class LoraConfig(Model):
    """Low-rank adapters are trained instead of all weights. `targets` are names of linear layers."""

    rank: Count
    alpha: Positive
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


class PolicyConfig(Model):
    """`model` names a Hugging Face folder or hub model; empty: the small policy of the sizes below."""

    model: str = ""
    lora: LoraConfig | None = None
    hidden_size: Count
    intermediate_size: Count
    layers: tuple[Literal["conv", "full_attention"], ...] = Field(min_length=1)
    heads: Count
    rope_theta: Positive
    max_positions: Count

    @model_validator(mode="after")
    def _heads(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size must be a multiple of twice the heads, got {self.hidden_size} and {self.heads}; "
                "change policy.hidden_size or policy.heads"
            )
        return self


class BaseConfig(Model):
    checkpoint: str
    seed: int
    steps: Count
    batch_size: Count
    lr: Positive
    observations: Count
    shuffled_share: Share
    gate_retrieval: Share
    gate_valid: Share = 0.5


def _whole_above_one(value: float) -> float:
    if value > 1 and value % 1:
        raise ValueError("expected a share below 1 or a whole number")
    return value


class RolloutsConfig(Model):
    tasks_per_iteration: Count
    group_size: Annotated[int, Field(ge=2)]
    workers: Count
    gpus_per_worker: Annotated[NonNegative, AfterValidator(_whole_above_one)]
    clock: Literal["derived", "wall"]
    temperature: Positive
    top_p: Annotated[float, Field(gt=0, le=1)]
    worker_timeout_s: Positive
    grace_s: Positive
    retries: Annotated[int, Field(ge=0, le=1)]


class UpdateConfig(Model):
    lr: Positive
    lr_end: Positive
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
    weight_decay: NonNegative
    clip: Annotated[float, Field(gt=0, lt=1)]
    epochs: Count
    minibatches: Count
    min_minibatch_turns: Count
    micro_batch_tokens: Count
    threads: Count
    max_turns: Annotated[int, Field(ge=0)]
    scale: Literal["none", "batch", "group"]
    scale_floor: Positive
    aggregation: Literal["token_mean", "rollout_mean", "agent_mean", "constant"]
    constant_tokens: Positive = 256.0  # aggregation constant divides by this many tokens per rollout
    entropy: NonNegative
    kl: NonNegative
    importance_cap: NonNegative
    max_grad_norm: Positive
    control: Literal["none", "permuted"] = "none"  # permuted: each rollout learns from the advantage of another, drawn at random
    device: str
    dtype: Literal["float32", "bfloat16"]


class TrainConfig(Model):
    iterations: Count
    modes: tuple[Mode, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    evaluate_every: Count
    checkpoint_every: Count


class ValidationConfig(Model):
    max_excluded_share: Share
