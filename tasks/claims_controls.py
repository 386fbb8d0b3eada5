"""Controls that could have refuted the claims, and what talk, hires and the archive are worth."""

from __future__ import annotations

from rlcr_core.across_seeds import crossed_interval
from rlcr_core.statistics import Interval
from tasks.claims_data import StudyResults
from tasks.claims_rows import Claim, Studies, main_studies, of_each, over_seeds, words
from tasks.verdicts import above, below, indifferent, judge, no_gain, span

LEAST_GAIN = 0.02  # of return: what lies below would be of no use to anybody
LEAST_HIRES = 1.0


def controls(studies: Studies) -> list[Claim]:
    """Controls that must come out negative."""
    found = []
    serial = studies.get("no_parallel")
    if serial is not None:
        lead = crossed_interval(serial.returns("collective", serial.limit_s) - serial.returns("solo", serial.limit_s))
        found.append(
            Claim(
                "no-parallel",
                "without a parallel share (p = 0) the collective does not win",
                (f"collective minus solo {span(lead, '+.3f')}",),
                judge([lead], *no_gain(LEAST_GAIN)),
                "a call may be spoken while its dependency is still being built: docs/baselines.md has what perfect players gain",
            )
        )
    coupled = studies.get("no_coupling")
    if coupled is not None:
        change = of_each([coupled], lambda s: over_seeds(s.change("collective", "tokens/share_talk")))
        found.append(
            Claim(
                "no-coupling",
                "without coupling (c = 0) talk dies out in training",
                words(change, "share of tokens that are talk {}", "+.3f"),
                judge(list(change.values()), *below(0.0)),
            )
        )
    free = studies.get("no_pressure")
    if free is not None:
        change = of_each([free], lambda s: over_seeds(s.change("collective", "roster/hires")))
        found.append(
            Claim(
                "no-pressure",
                "without deadline pressure hiring is indifferent",
                words(change, "hires {}", "+.2f"),
                judge(list(change.values()), *indifferent(LEAST_HIRES)),
            )
        )
    short = studies.get("short_limit")
    if short is not None:
        change = of_each([short], lambda s: over_seeds(s.change("collective", "roster/hires")))
        found.append(
            Claim(
                "short-limit",
                "under a limit below the crossing time hiring dies",
                words(change, "hires {}", "+.2f"),
                judge(list(change.values()), *below(0.0)),
            )
        )
    dealt = studies.get("permuted")
    if dealt is not None:
        gain = crossed_interval(dealt.returns("collective", dealt.limit_s) - dealt.returns("base", dealt.limit_s))
        found.append(
            Claim(
                "permuted",
                "with advantages permuted among rollouts nothing is learnt",
                (f"trained minus base {span(gain, '+.3f')}",),
                judge([gain], *no_gain(LEAST_GAIN)),
            )
        )
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

        def lead(study: StudyResults, other: str = name) -> Interval | None:
            present = any(o == other for o in study.table["organisation"])
            return (
                crossed_interval(study.returns("collective", study.limit_s) - study.returns(other, study.limit_s))
                if present
                else None
            )

        leads = of_each(main_studies(studies), lead)
        if leads:
            found.append(Claim(name, claim, words(leads, "{}", "+.3f"), judge(list(leads.values()), *above(0.0))))
    return found
