"""Two written-out rollouts of one group for tests of the signs of life; their figures are worked out in test_signs_by_hand.

Rollout A, limit and end 20 s, three agents: the CEO 0, agent 1 (starts at 3 s), agent 2 (starts at 5 s, fired at 15 s).

| agent 0                  | agent 1                  | agent 2                       |
|--------------------------|--------------------------|-------------------------------|
|  0- 1 talk 3  to nobody  |                          |                               |
|  1- 2 roster 1 hires 1   |                          |                               |
|  2- 4 roster 1 hires 2   |  3- 6 wait 1             |                               |
|  4- 5 roster 1 full      |                          |  5- 7 invalid 2               |
|  5-10 work 4  done       |  6-11 work 4  failed     |  7-11 work 3  duplicate       |
| 10-11 talk 3  "p k1"     | 11-12 in no turn         | 11-13 talk 4  "p k1" again    |
| 11-12 talk 3  again      | 12-16 work 4  done, told | 13-15 work 3  cut by the fire |
| 12-15 roster 2 fires 2   | 16-17 talk 3  to nobody  |                               |
| 15-20 work 2  cut        | 17-18 talk 2  "hello"    |                               |
|                          | 18-20 in no turn         |                               |

Deliveries: to agent 2 at 11 s (the first post, new) and 13 s (the second); to agent 1 at 12 s (both posts, the first is
new) and 16 s (agent 2's message). Agent 1's success at 16 s relied on "p k1". Units done: 2 and 3, of 4 s each; the task
has 40 s of work, 12 s of it in a chain. Rewards 0.5 at 10 s, 0.25 at 16 s.

Rollout B: the CEO alone, one work turn of 10 tokens from 0 to 5 s, solved with reward 0.5; nothing is known of its task.
"""

from __future__ import annotations

from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind

W, K, R, A, X = TurnKind.WORK, TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT, TurnKind.INVALID
Described = tuple[float, float, TurnKind, int, str, str]  # start_s, end_s, kind, tokens, tool, code ("" when cut)


def trajectory(agent: int, *turns: Described) -> list[Turn]:
    """Each turn is its own context of two observation tokens."""
    return [
        Turn(agent, i, i, [1, 2], [3] * n, [-0.5] * n, start_s, end_s, kind, 0, tool, code, cut=not code)
        for i, (start_s, end_s, kind, n, tool, code) in enumerate(turns)
    ]


def rollout_a() -> Rollout:
    trajectories = {
        0: trajectory(
            0, (0, 1, K, 3, "post", "posted"), (1, 2, R, 1, "hire", "hired"), (2, 4, R, 1, "hire", "hired"),
            (4, 5, R, 1, "hire", "full"), (5, 10, W, 4, "work", "done"), (10, 11, K, 3, "post", "posted"),
            (11, 12, K, 3, "post", "posted"), (12, 15, R, 2, "fire", "fired"), (15, 20, W, 2, "work", ""),
        ),
        1: trajectory(
            1, (3, 6, A, 1, "wait", "waited"), (6, 11, W, 4, "work", "bad"), (12, 16, W, 4, "work", "done"),
            (16, 17, K, 3, "dm", "unknown"), (17, 18, K, 2, "dm", "sent"),
        ),
        2: trajectory(
            2, (5, 7, X, 2, "wrong_word", "invalid"), (7, 11, W, 3, "work", "dup"), (11, 13, K, 4, "dm", "sent"),
            (13, 15, W, 3, "work", ""),
        ),
    }  # fmt: skip
    agents = [AgentRecord(0, "ada", 0, 0), AgentRecord(1, "bob", 2, 3), AgentRecord(2, "cy", 4, 5, fired_s=15)]
    events = [
        Event(0, EventType.TASK, -1, text="task total_work_s=40 critical_path_s=12 unit_s=4"),
        Event(1, EventType.MESSAGE, 0, -1, 0.0, "p k9"),
        Event(2, EventType.HIRE, 0, 1),
        Event(3, EventType.START, 1),
        Event(4, EventType.HIRE, 0, 2),
        Event(5, EventType.START, 2),
        Event(10, EventType.WORK, 0, -1, 0.5, "done units=2 uses=0"),
        Event(10, EventType.REWARD, 0, -1, 0.5),
        Event(11, EventType.WORK, 1, -1, 0.0, "bad failed=1 units=1"),
        Event(11, EventType.WORK, 2, -1, 0.0, "dup duplicate=1 units=1"),
        Event(11, EventType.MESSAGE, 0, -1, 1.0, "p k1"),
        Event(11, EventType.DELIVERY, 2, 0, 11.0, "p k1"),
        Event(12, EventType.MESSAGE, 0, -1, 1.0, "p k1"),
        Event(12, EventType.DELIVERY, 1, 0, 11.0, "p k1"),
        Event(12, EventType.DELIVERY, 1, 0, 12.0, "p k1"),
        Event(13, EventType.MESSAGE, 2, 1, 1.0, "p k1"),
        Event(13, EventType.DELIVERY, 2, 0, 12.0, "p k1"),
        Event(15, EventType.FIRE, 0, 2),
        Event(16, EventType.WORK, 1, -1, 0.25, "done units=3 received_key=1 uses=1"),
        Event(16, EventType.USE, 1, text="p k1"),
        Event(16, EventType.REWARD, 1, -1, 0.25),
        Event(16, EventType.DELIVERY, 1, 2, 13.0, "p k1"),
        Event(18, EventType.MESSAGE, 1, 0, -1.0, "hello"),
    ]
    return Rollout(RolloutKey("run", 3, 0, 0), "t", 20.0, 1, agents, trajectories, events, StopReason.DEADLINE, end_s=20.0)


def rollout_b() -> Rollout:
    events = [Event(5, EventType.WORK, 0, -1, 0.5, "done units=1"), Event(5, EventType.REWARD, 0, -1, 0.5)]
    turns = {0: trajectory(0, (0, 5, W, 10, "work", "done"))}
    key = RolloutKey("run", 3, 0, 1)
    return Rollout(key, "t", 20.0, 2, [AgentRecord(0, "ada", 0, 0)], turns, events, StopReason.SOLVED, end_s=5.0)
