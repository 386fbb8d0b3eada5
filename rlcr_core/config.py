"""params.yaml as frozen models. Unknown keys, impossible values and impossible combinations are refused on load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlcr_core.errors import ConfigError

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Mode = Literal["collective", "solo", "silent"]
OrganisationName = Literal[
    "base", "collective", "alone", "solo", "silent", "hires_1", "hires_2", "hires_4", "hires_8", "staffed", "mute", "scrambled",
    "first_copies", "delayed", "no_archive", "alone_long", "solo_long", "attempts", "random", "greedy",
]  # fmt: skip


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal configurations have equal digests."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


class TaskVariant(Model):
    """What a further test set changes of the task set; null keeps it."""

    families: dict[str, Share] | None = None
    test: Count | None = None
    packages: Count | None = None
    modules: Annotated[int, Field(ge=1, le=16)] | None = None
    parallel_share: Share | None = None
    coupling: Share | None = None


class TaskSetConfig(Model):
    environment: str
    families: dict[str, Share]
    seed: int
    train: Count
    validation: Count
    test: Count
    packages: Count
    modules: Annotated[int, Field(ge=1, le=16)]
    parallel_share: Share
    coupling: Share
    variants: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")], TaskVariant] = {}  # more test sets: test-<name>.jsonl

    @model_validator(mode="after")
    def _shares(self) -> Self:
        total = sum(self.families.values())
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"shares must add up to 1, got {total:g}; change task_set.families")
        return self


class ScheduleConfig(Model):
    kind: Literal["constant", "linear", "exponential", "piecewise"]
    start_s: Positive
    end_s: Positive
    growth_iterations: Count
    points: tuple[tuple[Annotated[int, Field(ge=0)], Positive], ...] = ()

    @model_validator(mode="after")
    def _points(self) -> Self:
        if self.kind == "piecewise":
            iterations = [i for i, _ in self.points]
            if not iterations or iterations[0] != 0 or sorted(set(iterations)) != iterations:
                raise ValueError(
                    f"piecewise needs points with strictly rising iterations, the first 0, got {list(self.points)}; "
                    "change schedule.points"
                )
        elif self.points:
            raise ValueError(f"points are for kind piecewise only, got kind {self.kind}; empty schedule.points")
        if self.kind == "constant" and self.start_s != self.end_s:
            raise ValueError(
                f"constant needs start_s == end_s, got {self.start_s:g} and {self.end_s:g}; change schedule.start_s or end_s"
            )
        return self


class LatencyConfig(Model):
    turn_overhead_s: NonNegative
    prefill_tps: Positive
    decode_tps: Positive
    shared_capacity: Annotated[int, Field(ge=0)] = 0
    calibration: str = ""  # a file of `flows.calibrate` whose constants replace those above


class CollectiveConfig(Model):
    max_hires: Annotated[int, Field(ge=0)]
    hire_s: NonNegative
    onboarding_s: NonNegative
    wait_s: Positive | None
    message_s: NonNegative
    read_s: NonNegative
    search_s: NonNegative
    error_s: NonNegative
    max_message_tokens: Count
    messages: Literal["normal", "mute", "scrambled", "first_copies"] = "normal"
    delay_s: NonNegative = 0.0  # a message can be seen this long after it was sent; the sender is not told
    archive: bool = True  # false: `read` and `search` find nothing
    staff: Annotated[int, Field(ge=0)] = 0  # employed from the start beside the CEO, and counted as hires
    log_deliveries: bool = True  # false: rollouts keep no delivery events; a post to 1,000 agents has 999 of them

    @model_validator(mode="after")
    def _staff_and_delay(self) -> Self:
        if self.staff > self.max_hires:
            raise ValueError(
                f"the staff at the start count as hires, got {self.staff} and room for {self.max_hires}; "
                "lower collective.staff or raise collective.max_hires"
            )
        if self.delay_s > 0 and self.wait_s is None:
            raise ValueError(
                f"a message on its way wakes nobody, got delay_s {self.delay_s:g} and waits without end; "
                "change collective.wait_s to seconds or collective.delay_s to 0"
            )
        return self


class ContextConfig(Model):
    mode: Literal["window", "transcript"]
    max_tokens: Count


class HarnessConfig(Model):
    """How texts become tokens: `words` for a closed vocabulary, `chat` for a chat model's template and tool calls.

    The sizes are tokens and are for `chat` only.
    """

    kind: Literal["words", "chat"] = "words"
    form: Literal["auto", "plain"] = "auto"
    max_turn_tokens: Count = 64
    max_observation_tokens: Count = 384
    max_result_tokens: Count = 96
    max_summary_tokens: Count = 256
    max_calls: Count = 4


class EngineConfig(Model):
    """Who samples. `torch` is in the rollout worker's process, `vllm` an engine of its own, `openai` a server elsewhere."""

    kind: Literal["torch", "vllm", "openai"] = "torch"
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_running: Count = 256
    probe_tolerance: Positive = 1e-4
    tensor_parallel: Count = 1
    memory_share: Annotated[float, Field(gt=0, le=1)] = 0.85
    kv_cache_gib: Positive = 1.0
    url: str = ""
    model: str = ""
    api_key_variable: str = "OPENAI_API_KEY"
    request_timeout_s: Positive = 60.0

    @model_validator(mode="after")
    def _server(self) -> Self:
        if self.kind == "openai" and not (self.url and self.model):
            raise ValueError(
                f"openai needs a url and a model, got {self.url!r} and {self.model!r}; change engine.url or engine.model"
            )
        return self


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


class EvaluationConfig(Model):
    """The grid: every organisation at `limit_s` on the test tasks, and those `swept` also at `limits_s` and on the variants."""

    organisations: tuple[OrganisationName, ...] = Field(min_length=1)
    swept: tuple[OrganisationName, ...] = ()
    limits_s: tuple[Positive, ...] = ()
    rollouts_per_task: Count
    limit_s: Positive
    long_factor: Annotated[float, Field(gt=1)] = 10.0  # the limit of alone_long and solo_long, in limits
    delay_s: Positive = 16.0  # of `delayed`
    attempts: Annotated[int, Field(ge=2)] = 9  # independent ones a task, of `attempts`
    bootstrap_resamples: Count
    confidence: Annotated[float, Field(gt=0, lt=1)]

    @model_validator(mode="after")
    def _grid(self) -> Self:
        more = [name for name in self.swept if name not in self.organisations]
        if more:
            raise ValueError(
                f"swept organisations are also evaluated at limit_s, got {', '.join(more)} in swept alone; "
                "change evaluation.organisations or evaluation.swept"
            )
        if self.limit_s in self.limits_s:
            raise ValueError(
                f"limit_s is evaluated anyway, got {self.limit_s:g} in limits_s too; change evaluation.limits_s"
            )
        return self


class ClaimsConfig(Model):
    """How much is trained for the table of claims (`python -m flows.claims`)."""

    seeds: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4), min_length=2)
    control_seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=2)
    bases: tuple[int, ...] = Field(default=(0, 1), min_length=1)  # seeds of the warm start
    iterations: Count = 40
    no_pressure_s: Positive = 1200.0  # by then every rollout of the small tasks has finished
    no_pressure_iterations: Count = 30
    processes: Count = 2  # trainings side by side, one core each


class CityConfig(Model):
    """The trained policy with more agents than it was trained with, in `workshop-city@1`."""

    sizes: tuple[Count, ...] = Field(default=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000), min_length=1)
    rollouts: Annotated[int, Field(ge=2)] = 20  # tasks of a cell, one rollout each
    control_sizes: tuple[Count, ...] = (9, 32, 64)  # where names in full and nicknames are compared
    control_rollouts: Annotated[int, Field(ge=2)] = 64
    agents_at_once: Count = 4000  # of the rollouts that run together; bounds memory
    timeout_s: Positive = 3600.0  # real seconds for the rollouts that run together

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        for name, sizes in (("sizes", self.sizes), ("control_sizes", self.control_sizes)):
            if list(sizes) != sorted(set(sizes)):
                raise ValueError(f"sizes must rise strictly, got {list(sizes)}; change city.{name}")
        return self


class TrackingConfig(Model):
    experiment: str = Field(min_length=1)
    uri: str = Field(min_length=1)


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
