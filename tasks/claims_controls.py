"""Controls that could have refuted the claims, and what talk, hires and the archive are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlcr_core.across_seeds import crossed_interval
from rlcr_core.statistics import Interval
from tasks.claims_data import StudyResults
from tasks.claims_rows import Claim, Studies, main_studies, of_each, over_seeds, words
from tasks.verdicts import Tests, above, below, indifferent, judge, no_gain

LEAST_GAIN = 0.02  # of return: what lies below would be of no use to anybody
LEAST_HIRES = 1.0


def change_of(study: StudyResults, key: str) -> Interval | None:
    """A metric of the collective's training, last tenth minus first, over seeds."""
    return over_seeds(study.change("collective", key))


def lead_over(study: StudyResults, other: str) -> Interval:
    """Return of the trained collective minus another organisation's at the limit, over seeds and tasks."""
    return crossed_interval(study.returns("collective", study.limit_s) - study.returns(other, study.limit_s))


@dataclass(frozen=True, slots=True)
class Control:
    """A study that must come out negative: its figure, the words around it, and what the figure must look like."""

    study: str
    claim: str
    figure: Callable[[StudyResults], Interval | None]
    measured: str
    form: str
    tests: Tests
    design: str = ""


CONTROLS = (
    Control(
        "no_parallel", "without a parallel share (p = 0) the collective does not win", lambda s: lead_over(s, "solo"),
        "collective minus solo {}", "+.3f", no_gain(LEAST_GAIN),
        "a call may be spoken while its dependency is still being built: docs/baselines.md has what perfect players gain",
    ),
    Control(
        "no_coupling", "without coupling (c = 0) talk dies out in training", lambda s: change_of(s, "tokens/share_talk"),
        "share of tokens that are talk {}", "+.3f", below(0.0),
    ),
    Control(
        "no_pressure", "without deadline pressure hiring is indifferent", lambda s: change_of(s, "roster/hires"),
        "hires {}", "+.2f", indifferent(LEAST_HIRES),
    ),
    Control(
        "short_limit", "under a limit below the crossing time hiring dies", lambda s: change_of(s, "roster/hires"),
        "hires {}", "+.2f", below(0.0),
    ),
    Control(
        "permuted", "with advantages permuted among rollouts nothing is learnt", lambda s: lead_over(s, "base"),
        "trained minus base {}", "+.3f", no_gain(LEAST_GAIN),
    ),
)  # fmt: skip


def controls(studies: Studies) -> list[Claim]:
    """The controls whose studies were run."""
    found = []
    for control in CONTROLS:
        chosen = [study for name, study in studies.items() if name == control.study]
        figures = of_each(chosen, control.figure)
        if chosen:
            verdict = judge(list(figures.values()), *control.tests)
            measured = words(figures, control.measured, control.form)
            found.append(Claim(control.study.replace("_", "-"), control.claim, measured, verdict, control.design))
    return found


CAUSES = (
    ("silent", "talk is worth what the talking policy has over one trained without messages"),
    ("mute", "muting costs a policy that relies on talk"),
    ("scrambled", "scrambling what messages say costs return"),
    ("first_copies", "repeats of a message are worth something"),
    ("delayed", "late messages cost return"),
    ("no_archive", "the archive is worth something"),
    ("hires_4", "eight hires are worth more than four"),
    ("alone", "the policy needs its colleagues"),
)


def causes(studies: Studies) -> list[Claim]:
    """Trained collective minus each organisation at the limit, for every base that has it."""
    found = []
    for name, claim in CAUSES:
        leads = {
            study.name: lead_over(study, name) for study in main_studies(studies) if name in study.table["organisation"]
        }
        if leads:
            found.append(Claim(name, claim, words(leads, "{}", "+.3f"), judge(list(leads.values()), *above(0.0))))
    return found
