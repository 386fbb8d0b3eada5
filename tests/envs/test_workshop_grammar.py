"""The warm start's random valid actions: declared verb frequencies, no preference among modules, names or keys."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.workshop import grammar
from envs.workshop import language as lang
from envs.workshop.actions import parse_action
from rlcr_core.errors import DataError
from rlcr_core.types import TurnKind

NOTHING = "none none"


def observation(role="ceo", notes=(), msgs=(), team=(), board=()):
    def pad(items, size, filler):
        return " ".join([*items, *[filler] * (size - len(items))])

    return (
        f"{role} time5 size0 none none none notes {pad(notes, 3, NOTHING)} msgs {pad(msgs, 4, NOTHING)} "
        f"team {pad(team, 2, 'nobody')} board {pad(board, 4, NOTHING)}"
    ).split(" ")


FULL = observation(
    notes=["p07 k03"], msgs=["p07 k05", "p21 k09"], team=["a010", "a020"],
    board=["p07 i01", "p07 i02", "p07 i03", "p30 i00"],
)  # fmt: skip


def test_verbs_have_the_declared_frequencies():
    assert grammar.next_word(FULL, []) == pytest.approx(
        {"work": 0.35, "hire": 0.25, "wait": 0.12, "post": 0.10, "study": 0.08, "tell": 0.07, "fire": 0.03}
    )
    staff = ["staff", *FULL[1:]]
    declared = {"work": 0.45, "wait": 0.18, "post": 0.15, "study": 0.12, "tell": 0.10}
    assert grammar.next_word(staff, []) == pytest.approx(declared)
    assert grammar.VERB_FREQUENCIES["staff"] == declared


@pytest.mark.parametrize(
    ("shown", "left_out"),
    [({}, {"work", "study", "post", "tell", "fire"}),
     ({"team": ["a010"]}, {"work", "study", "post", "tell"}),
     ({"board": ["p07 i01"]}, {"post", "tell", "fire"}),
     ({"msgs": ["p07 k03"]}, {"work", "study", "tell", "fire"}),
     ({"msgs": ["p07 k03"], "team": ["a010"]}, {"work", "study"})],
)  # fmt: skip
@pytest.mark.parametrize("role", ["ceo", "staff"])
def test_impossible_verbs_are_left_out_and_the_rest_scaled_up(role, shown, left_out):
    declared = {v: f for v, f in grammar.VERB_FREQUENCIES[role].items() if v not in left_out}
    total = sum(declared.values())
    expected = {verb: share / total for verb, share in declared.items()}
    assert grammar.next_word(observation(role, **shown), []) == pytest.approx(expected)


def test_work_copies_every_slot_of_the_board_equally():
    packages = grammar.next_word(FULL, ["work"])
    assert packages == pytest.approx({"p07": 3 / 4, "p30": 1 / 4})  # p07 fills three of the four slots
    assert grammar.next_word(FULL, ["study"]) == packages
    assert grammar.next_word(FULL, ["work", "p07", "k03"]) == pytest.approx({"i01": 1 / 3, "i02": 1 / 3, "i03": 1 / 3})
    assert grammar.next_word(FULL, ["work", "p30", "nokey"]) == {"i00": 1.0}
    assert grammar.next_word(FULL, ["work", "p07", "k03", "i01"]) == {}


def test_keys_of_a_package_by_what_is_visible_about_it():
    # p07 has two visible keys: nokey .30, k03 and k05 .60 / 2 + .10 / 16 each, the other 14 keys .10 / 16 each.
    keys = grammar.next_word(FULL, ["work", "p07"])
    other = {f"k{i:02d}": 0.00625 for i in range(16)}
    assert keys == pytest.approx(other | {"nokey": 0.30, "k03": 0.30625, "k05": 0.30625})
    assert sum(keys.values()) == pytest.approx(1.0)
    # p21: one key, .60 + .10 / 16. p30: nothing is known.
    assert grammar.next_word(FULL, ["post", "p21"])["k09"] == pytest.approx(0.60625)
    assert grammar.next_word(FULL, ["work", "p30"]) == {"nokey": 1.0}
    # The same fact in notes and messages counts once.
    twice = observation(notes=["p07 k03"], msgs=["p07 k03", "p07 k05"])
    assert grammar.next_word(twice, ["post", "p07"]) == pytest.approx(keys)


def test_messages_state_visible_facts_to_shown_names():
    # Distinct packages of the facts, p07 once although two slots name it.
    assert grammar.next_word(FULL, ["post"]) == pytest.approx({"p07": 1 / 2, "p21": 1 / 2})
    assert grammar.next_word(FULL, ["tell"]) == pytest.approx({"a010": 1 / 2, "a020": 1 / 2})
    assert grammar.next_word(FULL, ["fire"]) == grammar.next_word(FULL, ["tell"])
    assert grammar.next_word(FULL, ["tell", "a010"]) == grammar.next_word(FULL, ["post"])
    assert grammar.next_word(FULL, ["tell", "a010", "p21"]) == grammar.next_word(FULL, ["post", "p21"])
    unknowing = observation(board=["p07 i01", "p07 i02", "p30 i00"])
    with pytest.raises(DataError, match="never writes 'post'"):
        grammar.next_word(unknowing, ["post"])


@pytest.mark.parametrize("text", ["hire", "wait", "study p00", "fire a010", "post p07 k03", "p07"])
def test_whole_actions_and_unknown_verbs_end(text):
    assert grammar.next_word(FULL, text.split()) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [("work p00 nokey", FULL), ("work", observation()), ("tell", observation()), ("post", observation())],
)
def test_a_prefix_that_nothing_can_follow_is_refused(text, words):
    with pytest.raises(DataError, match=f"the grammar never writes '{text}' after '"):
        grammar.next_word(words, text.split())


def test_observations_of_another_shape_are_refused():
    with pytest.raises(DataError, match="has 34 words and begins with ceo or staff, got 33 words"):
        grammar.next_word(FULL[:-1], [])


facts = st.tuples(st.sampled_from(lang.PACKAGES[:4]), st.sampled_from(lang.KEYS)).map(" ".join)
slots = st.tuples(st.sampled_from(lang.PACKAGES[:4]), st.sampled_from(lang.INDICES)).map(" ".join)
observations = st.builds(
    observation, st.sampled_from(["ceo", "staff"]), st.lists(facts, max_size=3), st.lists(facts, max_size=4),
    st.lists(st.sampled_from(lang.AGENTS), unique=True, max_size=2), st.lists(slots, unique=True, max_size=4),
)  # fmt: skip


@given(observations)
def test_every_action_of_the_grammar_is_valid_and_probabilities_sum_to_one(words):
    total = 0.0
    stack = [((), 1.0)]
    while stack:
        prefix, share = stack.pop()
        following = grammar.next_word(words, prefix)
        if not following:
            total += share
            assert parse_action(" ".join(prefix)).kind is not TurnKind.INVALID
        assert all(p > 0 for p in following.values())
        stack.extend(((*prefix, word), share * p) for word, p in following.items())
    assert total == pytest.approx(1.0)


def _rename(word, mapping):
    return mapping.get(word, word)


@given(observations, st.randoms(use_true_random=False))
def test_no_preference_among_modules_names_or_keys(words, rng):
    """Renaming packages, keys, indices and agents renames the distribution and changes nothing else, at any depth."""
    mapping: dict[str, str] = {}
    for group in (lang.PACKAGES, lang.KEYS, lang.INDICES, lang.AGENTS):
        mapping |= zip(group, rng.sample(group, len(group)), strict=True)
    renamed = [_rename(word, mapping) for word in words]
    prefix: list[str] = []
    while following := grammar.next_word(words, prefix):
        other = grammar.next_word(renamed, [_rename(word, mapping) for word in prefix])
        assert other == pytest.approx({_rename(word, mapping): p for word, p in following.items()})
        prefix.append(rng.choice(sorted(following)))


def test_random_actions_follow_the_exact_distribution():
    rng = random.Random(0)
    n = 20000
    actions = Counter(grammar.random_action(" ".join(FULL), rng) for _ in range(n))
    # 5 standard deviations of a share q of 20000 draws are 5 * sqrt(q (1 - q) / 20000): .35 -> .017, .06 -> .0084.
    verbs = Counter()
    for action, count in actions.items():
        verbs[action.split()[0]] += count
    for verb, share in grammar.VERB_FREQUENCIES["ceo"].items():
        assert abs(verbs[verb] / n - share) < 5 * (share * (1 - share) / n) ** 0.5
    # work p30 nokey i00: .35 * 1/4 * 1 * 1 = .0875; work p07 k03 i02: .35 * 3/4 * .30625 * 1/3 = .0268
    for action, share in (("work p30 nokey i00", 0.0875), ("work p07 k03 i02", 0.35 * 0.75 * 0.30625 / 3)):
        assert abs(actions[action] / n - share) < 5 * (share * (1 - share) / n) ** 0.5


def test_shuffled_facts_are_varied_uniform_in_keys_and_leave_the_rest_alone():
    rng = random.Random(0)
    n = 8000
    keys, filled, boards, near, conflicts = Counter(), Counter(), Counter(), 0, 0
    for _ in range(n):
        words = grammar.shuffle_facts(FULL, rng)
        assert words[:7] == FULL[:7] and words[22:26] == FULL[22:26] and words[13] == "msgs" and len(words) == 34
        shown = grammar.read_observation(words)
        facts_shown = shown.facts
        assert shown.board == grammar.read_observation(FULL).board[: len(shown.board)]
        boards[len(shown.board)] += 1
        filled[len(facts_shown)] += 1
        near += bool({x for x, _ in facts_shown} & {"p07", "p30"})
        conflicts += len(set(facts_shown)) > len({x for x, _ in facts_shown})
        keys.update(k for k in {x: k for x, k in facts_shown}.values())
    # 0..3 notes and 0..4 messages, each uniform: 1 of 20 is empty, 1 of 20 full (standard deviation .0024).
    assert set(filled) == set(range(8))
    assert abs(filled[0] / n - 0.05) < 0.013 and abs(filled[7] / n - 0.05) < 0.013
    # Cut boards keep 0 to 3 slots, equally often: a quarter of the share each (.02, standard deviation .0016).
    short = grammar.SHORT_BOARD_SHARE
    assert set(boards) == set(range(5)) and abs(boards[4] / n - (1 - short)) < 5 * (short * (1 - short) / n) ** 0.5
    assert all(abs(boards[m] / n - short / 4) < 5 * (short / 4 / n) ** 0.5 for m in range(4))
    total = sum(keys.values())
    assert all(abs(keys[k] / total - 1 / 16) < 5 * (1 / 16 * 15 / 16 / total) ** 0.5 for k in lang.KEYS)
    assert near / n > 0.8  # the packages of the board are preferred
    assert 0.01 < conflicts / n < 0.25  # a package with two keys in sight is the exception
    assert grammar.shuffle_facts(FULL, random.Random(3)) == grammar.shuffle_facts(FULL, random.Random(3))
