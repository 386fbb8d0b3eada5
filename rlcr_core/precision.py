"""How many tasks an evaluation needs, planned from a pilot's paired differences, and intervals that are wide enough for few.

Half width of a mean over K tasks: t s / sqrt(K), with s the pilot's standard deviation (divided by K - 1) and t Student's
quantile for K - 1 degrees of freedom. Assumption: the tasks to come are drawn as the pilot's were, and their mean is about
normal. A pilot's own s is uncertain: `assurance` 0.8 replaces it by the value that it lies below with probability 0.8
(chi-squared; Browne, Statistics in Medicine, 1995), so that the plan holds in 80 % of pilots instead of about half.
Suffix: _K tasks of the pilot.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike
from scipy import special

from rlcr_core.errors import DataError
from rlcr_core.statistics import checked

TASKS_MAX = 10_000_000


def t_quantile(confidence: float, degrees: float) -> float:
    """How many standard errors an interval of this confidence reaches to each side, with so many degrees of freedom."""
    if not 0 < confidence < 1 or not degrees > 0:
        raise DataError(f"Expected a confidence in (0, 1) and degrees of freedom above 0, got {confidence} and {degrees}.")
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


def _spread(differences: ArrayLike, assurance: float | None) -> float:
    values_K = checked(differences, "differences", 1)
    spread = float(values_K.std(ddof=1))
    if assurance is None:
        return spread
    if not 0 < assurance < 1:
        raise DataError(f"assurance is a probability in (0, 1) or None, got {assurance}.")
    degrees = len(values_K) - 1
    return spread * math.sqrt(degrees / float(special.chdtri(degrees, assurance)))


def half_width(differences: ArrayLike, tasks: int, *, confidence: float = 0.95, assurance: float | None = None) -> float:
    """The half width that an interval of the mean will have on so many tasks, from a pilot's [K] differences, in their unit.

    Raises DataError for a pilot of under 2 tasks, non-finite values, or fewer than 2 tasks planned.
    """
    if tasks < 2:
        raise DataError(f"An interval needs 2 or more tasks, got {tasks}.")
    return t_quantile(confidence, tasks - 1) * _spread(differences, assurance) / math.sqrt(tasks)


def tasks_needed(differences: ArrayLike, wanted: float, *, confidence: float = 0.95, assurance: float | None = None) -> int:
    """The fewest tasks whose interval has at most the wanted half width; see `half_width`, whose inverse this is.

    Raises DataError for a pilot without spread, which plans nothing, and for a half width that is not above 0 or needs
    more than ten million tasks.
    """
    spread = _spread(differences, assurance)
    if not wanted > 0 or not spread > 0:
        raise DataError(
            f"Planning needs a wanted half width above 0 and a pilot with spread, got {wanted} and a standard deviation of "
            f"{spread}; take more, or more different, tasks into the pilot."
        )
    # Student's quantile is above the normal one: the normal answer is too small by a few tasks.
    normal = float(special.ndtri((1 + confidence) / 2)) * spread / wanted
    if normal**2 > TASKS_MAX:
        raise DataError(f"A half width of {wanted:g} needs over {TASKS_MAX} tasks, the pilot spreads by {spread:g}; want less.")
    tasks = max(2, math.floor(normal**2))
    while t_quantile(confidence, tasks - 1) * spread / math.sqrt(tasks) > wanted:
        tasks += 1
    return tasks


def expanded_confidence(confidence: float, tasks: int) -> float:
    """The nominal confidence at which a percentile bootstrap over few tasks covers about as often as `confidence` says.

    Percentile intervals of a mean are narrow by sqrt((K - 1) / K) and by the normal quantile for Student's; asking for
    percentiles further out undoes both (Hesterberg, The American Statistician, 2015, section 3.3): 0.972 for 0.95 at 16
    tasks. Pass the result as `confidence` to any bootstrap here. Raises DataError for under 2 tasks.
    """
    if tasks < 2:
        raise DataError(f"An interval needs 2 or more tasks, got {tasks}.")
    reach = math.sqrt(tasks / (tasks - 1)) * t_quantile(confidence, tasks - 1)
    return float(1 - 2 * special.ndtr(-reach))
