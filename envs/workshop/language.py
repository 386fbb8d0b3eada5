"""The closed vocabulary of `workshop@1` and the shape of its observations.

An observation is always the same 34 words, so that every word has a fixed place:

    role time size  code arg arg  notes (x k)*3  msgs (x k)*4  team A A  board (x i)*4

An action is one verb and its arguments; the verb fixes the number of words. The same words could be read by a chat
model: `work p07 k03 i05` means "build module 5 of package 7 with interface key 3".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rlcr_core.types import ActionFormat, TurnKind

AGENTS: Final = tuple(f"a{i:03d}" for i in range(128))
PACKAGES: Final = tuple(f"p{i:02d}" for i in range(48))
KEYS: Final = tuple(f"k{i:02d}" for i in range(16))
INDICES: Final = tuple(f"i{i:02d}" for i in range(16))
NO_KEY: Final = "nokey"
NONE: Final = "none"
NOBODY: Final = "nobody"
CEO_ROLE: Final = "ceo"
STAFF_ROLE: Final = "staff"
TIMES: Final = tuple(f"time{i}" for i in range(6))
SIZES: Final = tuple(f"size{i}" for i in range(6))
TIME_EDGES_S: Final = (4.0, 8.0, 16.0, 32.0, 64.0)

# Words of an action, verb included. `study` is the key's slow source; `read` is the collective's channel tool.
ARITY: Final[Mapping[str, int]] = MappingProxyType(
    {"work": 4, "study": 2, "post": 3, "tell": 4, "hire": 1, "fire": 2, "wait": 1}
)
VERBS: Final = tuple(ARITY)
KINDS: Final[Mapping[str, TurnKind]] = MappingProxyType(
    {
        "work": TurnKind.WORK,
        "study": TurnKind.WORK,
        "post": TurnKind.TALK,
        "tell": TurnKind.TALK,
        "hire": TurnKind.ROSTER,
        "fire": TurnKind.ROSTER,
        "wait": TurnKind.WAIT,
    }
)
ACTION_FORMAT: Final = ActionFormat(arity=ARITY, max_tokens=max(ARITY.values()), kinds=KINDS)

# The environment's own result codes, then the collective's. A code outside this list is shown as `none`.
WORK_CODES: Final = ("done", "learned", "bad", "dup", "locked", "needkey", "already", "unknown")
COLLECTIVE_CODES: Final = ("posted", "sent", "hired", "fired", "full", "denied", "waited", "invalid")
RESULT_CODES: Final = WORK_CODES + COLLECTIVE_CODES

N_NOTES: Final = 3
N_MSGS: Final = 4
N_TEAM: Final = 2
N_BOARD: Final = 4

# Offsets of the first word after each marker.
ROLE_AT: Final = 0
NOTES_AT: Final = 7
MSGS_AT: Final = NOTES_AT + 2 * N_NOTES + 1
TEAM_AT: Final = MSGS_AT + 2 * N_MSGS + 1
BOARD_AT: Final = TEAM_AT + N_TEAM + 1
OBSERVATION_WORDS: Final = BOARD_AT + 2 * N_BOARD

VOCABULARY: Final[tuple[str, ...]] = (
    *VERBS,
    *PACKAGES,
    *KEYS,
    NO_KEY,
    *INDICES,
    *AGENTS,
    CEO_ROLE,
    STAFF_ROLE,
    *TIMES,
    *SIZES,
    "notes",
    "msgs",
    "team",
    "board",
    NONE,
    NOBODY,
    *RESULT_CODES,
)

AGENT_SET: Final = frozenset(AGENTS)
PACKAGE_SET: Final = frozenset(PACKAGES)
INDEX_SET: Final = frozenset(INDICES)
KEY_SET: Final = frozenset(KEYS)
KEY_WORD_SET: Final = frozenset((*KEYS, NO_KEY))
CODE_SET: Final = frozenset(RESULT_CODES)
ARGUMENT_SET: Final = AGENT_SET | PACKAGE_SET | INDEX_SET | KEY_WORD_SET

# Every text that states a fact, `x k` with a real key. `x nokey` states none.
FACTS: Final = frozenset(f"{x} {k}" for x in PACKAGES for k in KEYS)


def time_word(time_left_s: float) -> str:
    """Bucket of the seconds left: below 4, 8, 16, 32, 64 s, or more."""
    bucket = 0
    for edge in TIME_EDGES_S:
        if time_left_s < edge:
            break
        bucket += 1
    return TIMES[bucket]


def size_word(n_hired: int, max_hires: int) -> str:
    """Team size as a fraction of the cap, in fifths (Python's rounding: a half goes to the even fifth)."""
    if max_hires <= 0:
        return SIZES[5]
    return SIZES[min(5, round(5 * n_hired / max_hires))]
