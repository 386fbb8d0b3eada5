"""The table of claims: what the RLCR material says, what was measured here over seeds and bases, and whether it holds.

Intervals are Student's over seeds; those of returns also take the tasks as drawn (rlcr_core/across_seeds.py). A verdict is
`holds` or `does not hold` only where the whole interval says so, otherwise `cannot tell`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rlcr_core.across_seeds import crossed_interval
from rlcr_core.statistics import Interval
from rlcr_core.types import Float64Array
from tasks.claims_controls import causes, controls
from tasks.claims_data import StudyResults, first_tenth, last_tenth, rows_of
from tasks.claims_rows import Claim, Studies, main_studies, of_each, over_seeds, words
from tasks.figures import Run, relative_work
from tasks.verdicts import Verdict, above, around, below, indifferent, judge, span

LARGE = "5_8"


def _large_team_work(run: Run, part: Callable[[Float64Array], float]) -> float:
    values = relative_work(run).get(LARGE)
    return float("nan") if values is None else part(values)


def useful_work(studies: Studies) -> list[Claim]:
    """Rollouts with 5–8 hires: useful work per second over the run's average, first and last tenth of training."""
    mains = main_studies(studies)
    start = of_each(mains, lambda s: over_seeds(s.by_seed("collective", lambda r: _large_team_work(r, first_tenth))))
    end = of_each(mains, lambda s: over_seeds(s.by_seed("collective", lambda r: _large_team_work(r, last_tenth))))
    design = "the reference is the run's average, which rises with the whole run; a longer limit gives hires more time to work"
    return [
        Claim(
            "work-start",
            "useful work of 5–8 hires is below the run's average at the start of training",
            words(start, "{} times the average"),
            judge(list(start.values()), *below(1.0)),
            design,
        ),
        Claim("work-end", "and above it at the end", words(end, "{} times"), judge(list(end.values()), *above(1.0)), design),
        Claim(
            "work-twice",
            "about twice the average at the end",
            words(end, "{} times"),
            judge(list(end.values()), *around(2.0)),
            "how far large teams stand out depends on how soon all rollouts have large teams",
        ),
    ]


def talk(studies: Studies) -> list[Claim]:
    """Communication intensity and the share of true messages over training."""
    mains = main_studies(studies)
    tps = of_each(mains, lambda s: over_seeds(s.change("collective", "talk/intensity_tps")))
    true = of_each(mains, lambda s: over_seeds(s.change("collective", "talk/true_share")))
    return [
        Claim(
            "talk",
            "communication intensity rises with training",
            words(tps, "{} tokens/s more", "+.3f"),
            judge(list(tps.values()), *above(0.0)),
            "more agents alone say more per second; the share of true messages is beside",
        ),
        Claim(
            "true",
            "and what is said becomes true more often",
            words(true, "share of true messages {}", "+.2f"),
            judge(list(true.values()), *above(0.0)),
            "a fact can be copied from the context or invented",
        ),
    ]


def time_ratio(studies: Studies) -> list[Claim]:
    """The single agent's time over the collective's, at equal score and at equal tokens."""
    found: dict[str, dict[str, Interval]] = {"score": {}, "tokens": {}, "return": {}}
    for study in main_studies(studies):
        rows = rows_of(study, "matched", single="solo_long", family="test", limit_s=study.limit_s)
        for what, key in (
            ("score", "time_ratio_at_score_mean"),
            ("tokens", "time_ratio_at_tokens_mean"),
            ("return", "behind_mean"),
        ):
            values = [row[key] for row in rows]
            if len(values) > 1 and None not in values:
                interval = over_seeds(np.asarray(values))
                if interval is not None:
                    found[what][study.name] = interval
    design = "set by the task: p, the work a package holds, and what a hire costs; another task has another ratio"
    return [
        Claim(
            "four-times",
            "a single agent needs four times the time for the collective's score",
            words(found["score"], "{} times as long"),
            judge(list(found["score"].values()), *around(4.0)),
            design,
        ),
        Claim(
            "tokens",
            "given the collective's tokens, the single agent earns less",
            (
                *words(found["return"], "collective minus single {}", "+.3f"),
                *words(found["tokens"], "it then took {} times as long"),
            ),
            judge(list(found["return"].values()), *above(0.0)),
            "one agent wastes nothing on talk and hires: it is the cheaper way wherever time is free",
        ),
    ]


def crossing_of_seed(study: StudyResults, seed: int) -> float:
    """First time from which on the seed's mean collective curve stays above solo's; NaN where it never does."""
    ours, theirs = (study.curves.get((name, seed)) for name in ("collective", "solo"))
    if ours is None or theirs is None:
        return float("nan")
    lead = ours.mean - np.interp(ours.time_s, theirs.time_s, theirs.mean)
    behind = np.nonzero(lead <= 0)[0]
    first = behind[-1] + 1 if len(behind) else 0
    return float(ours.time_s[first]) if first < len(lead) else float("nan")


def crossing(studies: Studies) -> list[Claim]:
    """From when on the collective is ahead, and that it is behind before."""
    mains = [study for study in main_studies(studies) if any(name == "solo" for name, _ in study.curves)]

    def seeds(study: StudyResults) -> list[int]:
        return sorted({seed for name, seed in study.curves if name == "collective"})

    times = of_each(mains, lambda s: over_seeds(np.asarray([crossing_of_seed(s, seed) for seed in seeds(s)])))
    leads = of_each(
        mains,
        lambda s: (
            crossed_interval(s.returns("collective", s.limit_s) - s.returns("solo", s.limit_s)) if len(seeds(s)) > 1 else None
        ),
    )
    verdict = judge(list(leads.values()), *above(0.0)) if times else "cannot tell"
    measured = (*words(times, "ahead from {} s on", ".1f"), *words(leads, "at the limit by {}", "+.3f"))
    return [
        Claim(
            "overtakes",
            "the collective overtakes the single agent after a start-up phase",
            measured,
            verdict,
            "hiring and onboarding take 4 s and more a hire, which sets the start-up phase",
        )
    ]


def pressure(studies: Studies) -> list[Claim]:
    """Hires rise under a deadline and not without one."""
    mains = of_each(main_studies(studies), lambda s: over_seeds(s.change("collective", "roster/hires")))
    free = of_each(
        [s for n, s in studies.items() if n == "no_pressure"], lambda s: over_seeds(s.change("collective", "roster/hires"))
    )
    risen = judge(list(mains.values()), *above(0.0))
    still = judge(list(free.values()), *indifferent(1.0))
    verdict: Verdict = "holds" if (risen, still) == ("holds", "holds") else "cannot tell"
    if "does not hold" in (risen, still):
        verdict = "does not hold"
    return [
        Claim(
            "deadline",
            "a deadline is pressure enough to learn hiring",
            (*words(mains, "hires {} over training", "+.2f"), *words(free, "without pressure {}", "+.2f")),
            verdict,
            "no reward but the return; without pressure all returns are equal and nothing is learnt",
        )
    ]


def growing(studies: Studies) -> list[Claim]:
    """Return at the limit after training under a growing and under a fixed limit, by seed."""
    fixed, main = studies.get("fixed_limit"), next(iter(main_studies(studies)), None)
    if fixed is None or main is None:
        return [Claim("growing", "growing limits help", (), "cannot tell")]
    n = len(fixed.returns("collective", fixed.limit_s))
    lead = main.returns("collective", main.limit_s)[:n] - fixed.returns("collective", fixed.limit_s)
    interval = crossed_interval(lead)
    return [
        Claim(
            "growing",
            "growing limits help",
            (f"growing minus fixed limit, same number of iterations: {span(interval, '+.3f')}",),
            judge([interval], *above(0.0)),
            "under the fixed limit every iteration has longer rollouts, so it also sees more turns",
        )
    ]


def larger_teams(city: Mapping[str, Any] | None) -> list[Claim]:
    """Return of the policy trained with at most 8 hires, with more agents on a larger project."""
    rows = [] if city is None else list(city.get("claims", []))
    measured = tuple(str(row["text"]) for row in rows)
    verdict: Verdict = rows[-1]["verdict"] if rows else "cannot tell"
    return [
        Claim(
            "larger",
            "larger teams than in training generalise",
            measured or ("not measured: python -m flows.city",),
            verdict,
            "facts on a project grow with it, what an agent sees does not",
        )
    ]


def all_claims(studies: Studies, city: Mapping[str, Any] | None) -> dict[str, list[Claim]]:
    """Every row, by section."""
    return {
        "claims": [
            *useful_work(studies),
            *talk(studies),
            *time_ratio(studies),
            *crossing(studies),
            *pressure(studies),
            *growing(studies),
            *larger_teams(city),
        ],
        "controls": controls(studies),
        "causes": causes(studies),
    }


def as_json(found: Mapping[str, Sequence[Claim]]) -> dict[str, Any]:
    return {section: [asdict(claim) for claim in claims] for section, claims in found.items()}
