"""params.yaml as frozen models. Unknown keys, impossible values and impossible combinations are refused on load.

    model       what every section is made of
    world       task_set, schedule, latency, collective, context, harness, engine
    learning    policy, base, rollouts, update, train, validation
    evaluation  evaluation, claims, city, tracking

A new knob goes into its section with a bound; a combination that cannot be goes into `Params`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError, model_validator

from rlcr_core.config.evaluation import CityConfig, ClaimsConfig, EvaluationConfig, TrackingConfig
from rlcr_core.config.learning import (
    BaseConfig,
    LoraConfig,
    Mode,
    PolicyConfig,
    RolloutsConfig,
    TrainConfig,
    UpdateConfig,
    ValidationConfig,
)
from rlcr_core.config.model import Model
from rlcr_core.config.world import (
    CollectiveConfig,
    ContextConfig,
    EngineConfig,
    HarnessConfig,
    LatencyConfig,
    ScheduleConfig,
    TaskSetConfig,
    TaskVariant,
)
from rlcr_core.errors import ConfigError

__all__ = [
    "BaseConfig",
    "CityConfig",
    "ClaimsConfig",
    "CollectiveConfig",
    "ContextConfig",
    "EngineConfig",
    "EvaluationConfig",
    "HarnessConfig",
    "LatencyConfig",
    "LoraConfig",
    "Mode",
    "Params",
    "PolicyConfig",
    "RolloutsConfig",
    "ScheduleConfig",
    "TaskSetConfig",
    "TaskVariant",
    "TrackingConfig",
    "TrainConfig",
    "UpdateConfig",
    "ValidationConfig",
    "load_params",
    "parse_params",
]


class Params(Model):
    """Everything in params.yaml."""

    task_set: TaskSetConfig
    schedule: ScheduleConfig
    latency: LatencyConfig
    collective: CollectiveConfig
    context: ContextConfig
    harness: HarnessConfig = HarnessConfig()
    engine: EngineConfig = EngineConfig()
    policy: PolicyConfig
    base: BaseConfig
    rollouts: RolloutsConfig
    update: UpdateConfig
    train: TrainConfig
    validation: ValidationConfig
    evaluation: EvaluationConfig
    claims: ClaimsConfig = ClaimsConfig()
    city: CityConfig = CityConfig()
    tracking: TrackingConfig

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.rollouts.tasks_per_iteration > self.task_set.train:
            raise ValueError(
                f"an iteration draws {self.rollouts.tasks_per_iteration} different tasks, got only {self.task_set.train}; "
                "lower rollouts.tasks_per_iteration or raise task_set.train"
            )
        if self.harness.kind == "chat" and self.context.mode != "transcript":
            raise ValueError(
                f"a chat model reads a growing transcript, got context.mode {self.context.mode}; change it to transcript"
            )
        if (self.harness.kind == "chat") != bool(self.policy.model):
            raise ValueError(
                f"harness.kind {self.harness.kind} and policy.model {self.policy.model!r} do not go together: chat needs a "
                "model's name, words the small policy; change harness.kind or policy.model"
            )
        if self.context.max_tokens > self.policy.max_positions:
            raise ValueError(
                f"a context of {self.context.max_tokens} tokens needs as many positions, got {self.policy.max_positions}; "
                "lower context.max_tokens or raise policy.max_positions"
            )
        gpus, parallel = self.rollouts.gpus_per_worker, self.engine.tensor_parallel
        if self.engine.kind == "vllm" and gpus and gpus < parallel:
            raise ValueError(
                f"one engine spreads over {parallel} GPUs, got {gpus:g} for its worker; "
                "lower engine.tensor_parallel or raise rollouts.gpus_per_worker"
            )
        return self

    def for_mode(self, mode: Mode) -> Params:
        """The same parameters: hiring disabled for `solo`, messages that reach nobody for `silent`."""
        changes: dict[Mode, dict[str, Any]] = {
            "collective": {}, "solo": {"max_hires": 0, "staff": 0}, "silent": {"messages": "mute"},
        }  # fmt: skip
        return self.model_copy(update={"collective": self.collective.model_copy(update=changes[mode])})


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "params.yaml"
    if error["type"] == "extra_forbidden":
        return f"unknown key {where} (got {error['input']!r}); remove it or correct its spelling"
    if error["type"] == "missing":
        return f"missing key {where}; add it (the checked-in params.yaml has an example)"
    message = error["msg"].removeprefix("Value error, ")
    if any(f"; {advice} " in message for advice in ("change", "lower", "empty")):
        return f"{where}: {message}"
    return f"{where}: {message}, got {error['input']!r}; change {where}"


def parse_params(data: Any, source: str = "params.yaml") -> Params:
    """Validate a mapping. Raises ConfigError naming every offending key, what was expected and what to change."""
    try:
        return Params.model_validate(data)
    except ValidationError as error:
        reasons = "; and ".join(_sentence(e) for e in error.errors())
        raise ConfigError(f"{source} cannot be used: {reasons}.") from None


def load_params(path: str | Path = "params.yaml") -> Params:
    """Read and validate a parameter file. Raises ConfigError."""
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; run the command in the project's folder or name a file.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}.") from None
    return parse_params(data, str(path))
