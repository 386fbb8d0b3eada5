"""Sections about what agents live in: tasks, limits, the clock, the collective, what is read and who samples."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlcr_core.config.model import Count, Model, NonNegative, Positive, Share


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
    # Further test sets, by the name in their file's: test-<name>.jsonl.
    variants: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")], TaskVariant] = Field(default_factory=dict)

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
