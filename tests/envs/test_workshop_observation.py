"""What an agent of workshop@1 sees: always 34 words, every one of them from the closed vocabulary."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.workshop import language as lang
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.types import AgentView, CallResult, Task

EMPTY_NOTES = "notes none none none none none none"
EMPTY_MSGS = "msgs none none none none none none none none"


def words_after(text, marker, n):
    words = text.split(" ")
    start = words.index(marker) + 1
    return words[start : start + n]


def test_the_first_observation_word_by_word(workshop, look):
    # Alone at 0 s of 84 s: bucket time5 (84 >= 64), nobody of 8 hired: size0. Open are the two roots, in random order.
    observation = workshop.observe(look())
    start = f"ceo time5 size0 none none none {EMPTY_NOTES} {EMPTY_MSGS} team nobody nobody board "
    padding = " none none none none"
    assert observation.text in (f"{start}p07 i00 p21 i00{padding}", f"{start}p21 i00 p07 i00{padding}")
    assert observation.n_new == 0


@pytest.mark.parametrize(
    ("left_s", "word"),
    [(84.0, "time5"), (64.0, "time5"), (63.9, "time4"), (32.0, "time4"), (16.0, "time3"), (8.0, "time2"),
     (4.0, "time1"), (3.9, "time0"), (0.0, "time0")],
)  # fmt: skip
def test_seconds_left_fall_into_six_buckets(workshop, look, left_s, word):
    assert workshop.observe(look(time_s=100.0 - left_s, limit_s=100.0)).text.split()[1] == word


@pytest.mark.parametrize(
    ("n_hired", "max_hires", "word"),
    # 5 * 3 / 8 = 1.875 -> 2; 5 * 1 / 8 = 0.625 -> 1; 5 * 4 / 8 = 2.5 -> 2 (to even)
    [(0, 8, "size0"), (1, 8, "size1"), (3, 8, "size2"), (4, 8, "size2"), (8, 8, "size5"), (0, 0, "size5"),
     (100, 127, "size4")],
)  # fmt: skip
def test_team_size_is_a_fraction_of_the_cap(workshop, look, n_hired, max_hires, word):
    assert workshop.observe(look(n_hired=n_hired, max_hires=max_hires)).text.split()[2] == word


def test_notes_hold_the_last_three_own_facts_newest_first():
    packages = [
        {"name": f"p{i:02d}", "key": f"k{i:02d}", "modules": [{"units": 1, "deps": [], "needs_key": False}]}
        for i in range(5)
    ]
    workshop = WorkshopEnvironment(Task("t", "workshop@1", "test", 0, {"packages": packages}))
    # Learned in order: p00 p01 p02 p03, then p02 again, which moves to the front; p00 has been forgotten.
    for name in ("p00", "p01", "p02", "p03", "p02"):
        call = workshop.parse(0, f"study {name}")
        workshop.begin(0, call, 0.0)
        workshop.finish(0, call, 0.0)
    view = AgentView(0, "a", True, 0.0, 84.0, (), 0, 8, (), None, 1)
    text = workshop.observe(view).text
    assert words_after(text, "notes", 6) == ["p02", "k02", "p03", "k03", "p01", "k01"]


def test_messages_hold_the_last_four_distinct_facts_newest_first(workshop, look):
    texts = ["p01 k01", "p02 k02", "p03 k03", "p01 k01", "p04 k04"]
    observation = workshop.observe(look(new_messages=tuple(("a005", text) for text in texts)))
    # p01 k01 came again after p03 k03, so it is newer than it.
    assert words_after(observation.text, "msgs", 8) == ["p04", "k04", "p01", "k01", "p03", "k03", "p02", "k02"]
    assert observation.n_new == 10  # 5 messages of 2 words; a repeated one is charged too
    later = workshop.observe(look(new_messages=(("a006", "p01 k09"),)))
    # Another key for the same package is another fact; p02 k02 falls out.
    assert words_after(later.text, "msgs", 8) == ["p01", "k09", "p04", "k04", "p01", "k01", "p03", "k03"]
    assert later.n_new == 2
    assert workshop.observe(look()).n_new == 0


def test_messages_that_state_no_fact_are_charged_but_not_remembered(workshop, look):
    observation = workshop.observe(look(new_messages=(("a005", "p01 nokey"), ("a005", "let us begin"), ("a005", ""))))
    assert EMPTY_MSGS in observation.text
    assert observation.n_new == 5  # 2 + 3 + 0 words


def test_each_agent_has_its_own_memory(workshop, look, play):
    play(0, "study p07")
    workshop.observe(look(agent=1, new_messages=(("a005", "p21 k09"),)))
    assert words_after(workshop.observe(look(agent=0)).text, "notes", 2) == ["p07", "k03"]
    other = workshop.observe(look(agent=1, is_ceo=False)).text
    assert other.startswith("staff ")
    assert EMPTY_NOTES in other
    assert words_after(other, "msgs", 2) == ["p21", "k09"]


@pytest.mark.parametrize(
    ("result", "shown"),
    [(CallResult(True, "done", ("p07", "k03")), "done p07 k03"),
     (CallResult(False, "locked", ("p07", "i01")), "locked p07 i01"),
     (CallResult(True, "hired", ("a017",)), "hired a017 none"),
     (CallResult(False, "full"), "full none none"),
     (CallResult(True, "posted", ("general",)), "posted none none"),
     (CallResult(True, "found", ("p07 k03", "p07 k04", "p07 k05")), "none none none")],
)  # fmt: skip
def test_the_last_result_is_a_code_and_two_arguments(workshop, look, result, shown):
    assert " ".join(workshop.observe(look(last=result)).text.split()[3:6]) == shown


def test_team_shows_two_random_others(workshop, look):
    assert words_after(workshop.observe(look(team=("a001",))).text, "team", 2) == ["a001", "nobody"]
    names = ("a001", "a002", "a003")
    pairs = Counter(
        tuple(words_after(workshop.observe(look(team=names, seed=seed)).text, "team", 2)) for seed in range(6000)
    )
    # 3 * 2 = 6 ordered pairs, 1000 each; the standard deviation is sqrt(6000 * 1/6 * 5/6) = 29, 5 of them are 145.
    assert len(pairs) == 6
    assert all(abs(n - 1000) < 145 for n in pairs.values())


def test_board_is_a_random_page_of_open_modules(workshop, look, play):
    # Without the roots' work: p07 i00 and p21 i00. After p07 i00: p07 i01, p07 i02, p21 i00, all three on one page.
    play(0, "work p07 nokey i00")
    orders = Counter(tuple(words_after(workshop.observe(look(seed=seed)).text, "board", 6)) for seed in range(6000))
    assert {tuple(sorted(zip(order[::2], order[1::2], strict=True))) for order in orders} == {
        (("p07", "i01"), ("p07", "i02"), ("p21", "i00"))
    }
    assert len(orders) == 6  # every order of the three, 1000 each, within 5 standard deviations (see above)
    assert all(abs(n - 1000) < 145 for n in orders.values())


def test_a_finished_project_has_an_empty_board(workshop, look, play):
    for text in ("p07 nokey i00", "p07 k03 i01", "p07 nokey i02", "p21 nokey i00", "p21 k09 i01"):
        play(0, f"work {text}")
    assert words_after(workshop.observe(look()).text, "board", 8) == ["none"] * 8


def test_a_large_board_is_paged_without_bias_or_repetition(look):
    packages = [
        {"name": f"p{i:02d}", "key": "k00", "modules": [{"units": 1, "deps": [], "needs_key": False}] * 16}
        for i in range(2)
    ]
    workshop = WorkshopEnvironment(Task("t", "workshop@1", "test", 0, {"packages": packages}))
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(8000):
        words = words_after(workshop.observe(look(seed=seed)).text, "board", 8)
        slots = list(zip(words[::2], words[1::2], strict=True))
        assert len(set(slots)) == 4
        counts.update(slots)
    # 32 modules share 4 * 8000 slots: 1000 each, standard deviation sqrt(8000 * 1/8 * 7/8) = 30, 5 of them are 148.
    assert len(counts) == 32
    assert all(abs(n - 1000) < 148 for n in counts.values())


views = st.builds(
    AgentView,
    agent=st.integers(0, 127),
    name=st.just("a000"),
    is_ceo=st.booleans(),
    time_s=st.floats(0, 100),
    limit_s=st.floats(0, 100),
    team=st.lists(st.sampled_from(lang.AGENTS), unique=True, max_size=127).map(tuple),
    n_hired=st.integers(0, 127),
    max_hires=st.integers(0, 127),
    new_messages=st.lists(st.tuples(st.just("a001"), st.text() | st.sampled_from(sorted(lang.FACTS)))).map(tuple),
    last=st.none() | st.builds(CallResult, st.booleans(), st.text(), st.lists(st.text(), max_size=4).map(tuple)),
    seed=st.integers(0, 2**63 - 1),
)


@given(st.lists(views, min_size=1, max_size=5))
def test_any_view_gives_34_words_of_the_vocabulary_and_the_same_bytes_again(tiny_task, seen):
    first, second = WorkshopEnvironment(tiny_task), WorkshopEnvironment(tiny_task)
    vocabulary = set(first.vocabulary())
    for view in seen:
        observation = first.observe(view)
        words = observation.text.split(" ")
        assert len(words) == lang.OBSERVATION_WORDS == 34
        assert set(words) <= vocabulary
        assert [words[6], words[13], words[22], words[25]] == ["notes", "msgs", "team", "board"]
        assert observation.n_new == sum(len(text.split()) for _, text in view.new_messages)
        assert second.observe(view) == observation
