"""Sections about what is measured and kept: evaluation, claims, city, tracking."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlcr_core.config.model import Count, Model, Positive

OrganisationName = Literal[
    "base", "collective", "alone", "solo", "silent", "hires_1", "hires_2", "hires_4", "hires_8", "staffed", "mute", "scrambled",
    "first_copies", "delayed", "no_archive", "alone_long", "solo_long", "attempts", "random", "greedy",
]  # fmt: skip


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
