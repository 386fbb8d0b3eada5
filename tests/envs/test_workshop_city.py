"""Cities: nicknames lose and add nothing, names reach 1,000 agents, and nothing of a turn copies what grows with the team."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs.checks import check_environment
from envs.workshop import language as lang
from envs.workshop.city import PACKAGES, CityEnvironment, NamesEnvironment, generate
from envs.workshop.memory import Memory
from envs.workshop.names import CITY, VILLAGE
from envs.workshop.nicknames import NO_AGENT, NO_PACKAGES, Nicknames
from envs.workshop.states import state_of
from rlcr_core.errors import EnvironmentFault, TaskError
from rlcr_core.types import AgentView, CallResult, Task

STAR = {"families": {"star": 1.0}, "split": "test", "seed": 0, "modules": 12, "parallel_share": 1.0, "coupling": 1.0}


def test_a_city_has_the_old_names_first_and_enough_for_a_thousand_agents():
    assert CITY.vocabulary[: len(VILLAGE.vocabulary)] == lang.VOCABULARY == VILLAGE.vocabulary
    # 1,000 agents of a project with 4 packages for 9 have 4,000 / 9 = 444.4, so 445 packages.
    assert len(CITY.agents) - 1 >= 1000 and len(PACKAGES) >= 445
    assert len(CITY.vocabulary) == len(set(CITY.vocabulary)) == 252 + 896 + 448
    assert not set(PACKAGES) & set(NO_PACKAGES) and len(NO_PACKAGES) == len(lang.PACKAGES)


@pytest.mark.parametrize("environment_id", ["workshop-city@1", "workshop-names@1"])
def test_cities_conform(environment_id):
    (task,) = envs.generate(environment_id, count=1, packages=60, **STAR)
    check_environment(envs.make, task, seed=1)


def view(seed=1, **changes):
    values = {"agent": 0, "name": "a000", "is_ceo": True, "time_s": 0.0, "limit_s": 84.0, "team": ("a500", "a501"), "n_hired": 2,
              "max_hires": 2, "new_messages": (), "last": None, "seed": seed}  # fmt: skip
    return AgentView(**(values | changes))


def test_an_observation_with_nicknames_shows_the_same_in_the_words_of_the_village():
    (task,) = generate(count=1, packages=100, **STAR)
    city, full = CityEnvironment(task), NamesEnvironment(task)
    told = (("a500", f"{task.spec['packages'][3]['name']} k07"),)
    seen = view(new_messages=told, last=CallResult(True, "hired", ("a501",)))
    short, long = (environment.observe(seen).text.split(" ") for environment in (city, full))
    assert set(short) <= set(lang.VOCABULARY) and len(short) == lang.OBSERVATION_WORDS
    assert state_of(short) == state_of(long)
    # The same words in the same places but for names, and equal names where the full ones are equal.
    names = CITY.agent_set | CITY.package_set
    assert [a for a, b in zip(short, long, strict=True) if b not in names] == [b for b in long if b not in names]
    pairs = {(a, b) for a, b in zip(short, long, strict=True) if b in names}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    # The last result names an agent of the team by the word that the team has for it, if the team shows it.
    assert dict((b, a) for a, b in pairs)["a501"] == short[4]


def test_an_action_is_read_by_the_table_of_its_turn_and_other_names_mean_nothing():
    (task,) = generate(count=1, packages=100, **STAR)
    city, full = CityEnvironment(task), NamesEnvironment(task)
    first, long = (environment.observe(view()).text.split(" ") for environment in (city, full))
    at = lang.BOARD_AT
    assert city.parse(0, f"work {first[at]} nokey {first[at + 1]}") == full.parse(0, f"work {long[at]} nokey {long[at + 1]}")
    assert city.parse(0, f"tell {first[lang.TEAM_AT]} {first[at]} k03").args == (long[lang.TEAM_AT], f"{long[at]} k03")
    absent = next(name for name in lang.PACKAGES if name not in first)
    call = city.parse(0, f"work {absent} k00 i00")
    assert call.args[0] == NO_PACKAGES[lang.PACKAGES.index(absent)]
    assert city.begin(0, call, 0.0) == 1.0 and city.finish(0, call, 1.0).code == "unknown"
    nobody = next(name for name in lang.AGENTS if name not in first)
    assert city.parse(0, f"fire {nobody}").args == (NO_AGENT,)
    # The next turn has other nicknames: what the word stood for is forgotten.
    second = city.observe(view(seed=2)).text.split(" ")
    forgotten = first[at] if first[at] not in second else next(n for n in first[at::2] if n not in second)
    assert city.parse(0, f"study {forgotten}").args[0] in NO_PACKAGES


@given(st.lists(st.sampled_from((*CITY.agents[:300], *PACKAGES, *lang.KEYS, "work", "none")), max_size=34), st.integers(0, 2**63))
def test_whatever_is_shown_can_be_said_back(words, seed):
    table = Nicknames()
    assert table.read(table.write(words, seed)) == words


def test_names_end_where_the_city_ends():
    (task,) = generate(count=1, packages=4, **STAR)
    city = CityEnvironment(task)
    names = [city.agent_name(agent) for agent in range(len(CITY.agents) - 1)]
    assert len(set(names)) == len(names) and NO_AGENT not in names
    assert names == [NamesEnvironment(task).agent_name(agent) for agent in range(len(names))]
    with pytest.raises(EnvironmentFault, match="has names for 1023 agents"):
        city.agent_name(len(names))
    with pytest.raises(TaskError, match="takes 1 to 448 packages, got 449"):
        generate(count=1, packages=449, **STAR)
    spec = {"packages": [{**task.spec["packages"][0], "name": NO_PACKAGES[0]}]}
    with pytest.raises(TaskError, match=f"{NO_PACKAGES[0]} are names of no package"):
        CityEnvironment(Task("t", "workshop-city@1", "test", 0, spec))


@given(st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=6))
def test_memory_keeps_what_taking_every_message_one_by_one_would_keep(batches):
    """The four last distinct facts, a repeated one in front: written here as the plain loop over every message."""
    facts = sorted(lang.FACTS)[:7]
    memory, window = Memory(), []
    for batch in batches:
        memory.receive([("a001", facts[i]) for i in batch])
        for i in batch:
            window = ([facts[i]] + [fact for fact in window if fact != facts[i]])[: lang.N_MSGS]
    assert memory.msgs_text == " ".join(window + ["none none"] * (lang.N_MSGS - len(window)))


def test_the_board_s_page_is_the_one_that_a_shuffled_copy_would_give():
    """Fisher and Yates's shuffle of a whole copy, stopped after four: the same draws give the same page."""
    (task,) = generate(count=1, packages=40, **STAR)
    environment = NamesEnvironment(task)
    rng = random.Random(0)
    for _ in range(60):
        labels = [environment._labels[module] for module in environment._open]
        bits = rng.getrandbits(64)
        page, rest, pool = [], bits, list(labels)
        for n in range(len(pool), max(len(pool) - lang.N_BOARD, 0), -1):
            rest, j = divmod(rest, n)
            page.append(pool[j])
            pool[j] = pool[n - 1]
        assert environment._board(bits)[0].split(" ") == " ".join(page).split(" ")
        module = rng.choice(environment._open)
        package, index = environment._labels[module].split(" ")
        key = environment._key_of[package] if environment.plan.needs_key[module] else lang.NO_KEY
        call = environment.parse(0, f"work {package} {key} {index}")
        environment.begin(0, call, 0.0)
        assert environment.finish(0, call, 1.0).code == "done"
        assert module not in environment._open
        assert environment._open == sorted(environment._open, key=environment._opening.__getitem__)
