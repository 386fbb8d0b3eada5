"""Random valid actions of `workshop@1`: the declared distribution that the warm start clones. No strategy is in it.

Verbs have the fixed frequencies below; those that the observation makes impossible are left out and the rest scaled up.
Arguments are copied uniformly from what the observation shows: modules and packages from the board (a package weighs as
many slots as it fills), facts from notes and messages, names from the team. The key written for a package of which a
fact is visible is `nokey` (30 %), one written beside that package (60 %), or any of the 16 (10 %); otherwise `nokey`.
Who sees no fact has nothing to copy into a message and sends none.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from envs.workshop import language as lang
from rlcr_core.errors import DataError

VERB_FREQUENCIES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        lang.CEO_ROLE: MappingProxyType(
            {"work": 0.35, "hire": 0.25, "wait": 0.12, "post": 0.10, "study": 0.08, "tell": 0.07, "fire": 0.03}
        ),
        lang.STAFF_ROLE: MappingProxyType({"work": 0.45, "wait": 0.18, "post": 0.15, "study": 0.12, "tell": 0.10}),
    }
)
NO_KEY_SHARE: Final = 0.30
SHOWN_KEY_SHARE: Final = 0.60
RANDOM_KEY_SHARE: Final = 0.10
CONFLICT_SHARE: Final = 0.05
BOARD_SHARE: Final = 0.75
SHORT_BOARD_SHARE: Final = 0.08

Distribution = dict[str, float]


class Shown(NamedTuple):
    """What an observation shows: role, (package, key) facts, team names, (package, index) slots; padding left out."""

    role: str
    facts: list[tuple[str, str]]
    team: list[str]
    board: list[tuple[str, str]]


def read_observation(words: Sequence[str]) -> Shown:
    """The parts of an observation that actions copy. Raises DataError when it has not the 34 words."""
    if len(words) != lang.OBSERVATION_WORDS or words[lang.ROLE_AT] not in VERB_FREQUENCIES:
        raise DataError(
            f"an observation of workshop@1 has {lang.OBSERVATION_WORDS} words and begins with ceo or staff, got "
            f"{len(words)} words: {' '.join(words)!r}; pass observation.text.split()."
        )
    facts = _pairs(words, lang.NOTES_AT, lang.N_NOTES) + _pairs(words, lang.MSGS_AT, lang.N_MSGS)
    team = [name for name in words[lang.TEAM_AT : lang.TEAM_AT + lang.N_TEAM] if name != lang.NOBODY]
    return Shown(words[lang.ROLE_AT], facts, team, _pairs(words, lang.BOARD_AT, lang.N_BOARD))


def next_word(observation_words: Sequence[str], prefix: Sequence[str]) -> Distribution:
    """Exact distribution of the next word after `prefix`; empty when the action is complete.

    The prefix is taken as written; raises DataError where the grammar has nothing to follow it with, such as the index
    of a module of a package that the board does not show.
    """
    shown = read_observation(observation_words)
    if not prefix:
        return _verbs(shown)
    verb = prefix[0]
    if len(prefix) >= lang.ARITY.get(verb, 1):
        return {}
    slot = (verb, len(prefix))
    if slot == ("work", 3):
        words = _uniform(i for x, i in shown.board if x == prefix[1])
    elif slot in (("tell", 1), ("fire", 1)):
        words = _uniform(shown.team)
    elif slot in (("work", 1), ("study", 1)):
        words = _uniform(x for x, _ in shown.board)
    elif slot in (("post", 1), ("tell", 2)):
        words = _uniform(list({x: None for x, _ in shown.facts}))
    else:
        words = _key(shown, prefix[-1])
    if not words:
        raise DataError(f"the grammar never writes {' '.join(prefix)!r} after {' '.join(observation_words)!r}.")
    return words


def random_action(observation_text: str, rng: random.Random) -> str:
    """One action drawn from the grammar, word by word."""
    observation = observation_text.split(" ")
    action: list[str] = []
    while words := next_word(observation, action):
        action.append(rng.choices(list(words), list(words.values()))[0])
    return " ".join(action)


def shuffle_facts(words: Sequence[str], rng: random.Random) -> list[str]:
    """The same observation with randomly drawn facts: training material for reading keys from the context.

    0 to 3 notes and 0 to 4 messages, mostly about packages of the board, keys uniform, no fact twice in one window; a
    package keeps its key across slots but for 5 %, as when a false message went round. 8 % of the boards are cut
    to 0 to 3 modules, as at the end of a project: a policy that never saw them would be stuck there.
    """
    board = read_observation(words).board
    if rng.random() < SHORT_BOARD_SHARE:
        board = board[: rng.randrange(lang.N_BOARD)]
    on_board = sorted({x for x, _ in board})
    key_of: dict[str, str] = {}
    result = list(words)
    empty = [(lang.NONE, lang.NONE)] * (lang.N_BOARD - len(board))
    result[lang.BOARD_AT :] = [word for slot in [*board, *empty] for word in slot]
    for start, size in ((lang.NOTES_AT, lang.N_NOTES), (lang.MSGS_AT, lang.N_MSGS)):
        window: list[tuple[str, str]] = []
        n_facts = rng.randint(0, size)
        while len(window) < n_facts:
            near = on_board and rng.random() < BOARD_SHARE
            package = rng.choice(on_board if near else lang.PACKAGES)
            key = rng.choice(lang.KEYS)
            if package in key_of and rng.random() >= CONFLICT_SHARE:
                key = key_of[package]
            if (package, key) not in window:
                window.append((package, key))
                key_of[package] = key
        window += [(lang.NONE, lang.NONE)] * (size - n_facts)
        result[start : start + 2 * size] = [word for pair in window for word in pair]
    return result


def _pairs(words: Sequence[str], start: int, size: int) -> list[tuple[str, str]]:
    slots = [(words[at], words[at + 1]) for at in range(start, start + 2 * size, 2)]
    return [slot for slot in slots if slot[0] != lang.NONE]


def _uniform(words: Iterable[str]) -> Distribution:
    counts = Counter(words)
    total = sum(counts.values())
    return {word: n / total for word, n in counts.items()}


def _verbs(shown: Shown) -> Distribution:
    frequencies = VERB_FREQUENCIES[shown.role]
    possible = {"hire", "wait"}
    if shown.board:
        possible |= {"work", "study"}
    if shown.facts:
        possible |= {"post", "tell"} if shown.team else {"post"}
    if shown.team:
        possible.add("fire")
    total = sum(share for verb, share in frequencies.items() if verb in possible)
    return {verb: share / total for verb, share in frequencies.items() if verb in possible}


def _key(shown: Shown, package: str) -> Distribution:
    keys = {k: None for x, k in shown.facts if x == package}
    if not keys:
        return {lang.NO_KEY: 1.0}
    words = {k: RANDOM_KEY_SHARE / len(lang.KEYS) for k in lang.KEYS}
    for k in keys:
        words[k] += SHOWN_KEY_SHARE / len(keys)
    words[lang.NO_KEY] = NO_KEY_SHARE
    return words


KEYS: Final = lang.KEYS


def retrieval_probes(words: Sequence[str], place: str) -> list[tuple[list[str], str]]:
    """Prompts ending in `work x` with the key that is visible for x, in `place` ("notes" or "messages") only.

    A package with two visible keys, or with its fact in both places, gives no probe.
    """
    notes, messages = _pairs(words, lang.NOTES_AT, lang.N_NOTES), _pairs(words, lang.MSGS_AT, lang.N_MSGS)
    here, there = (notes, messages) if place == "notes" else (messages, notes)
    elsewhere = {x for x, _ in there}
    probes = []
    for x in sorted({x for x, _ in read_observation(words).board}):
        keys = {k for y, k in here if y == x}
        if len(keys) == 1 and x not in elsewhere:
            probes.append(([*words, "work", x], keys.pop()))
    return probes
