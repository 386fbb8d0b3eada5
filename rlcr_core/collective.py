"""The collective of one rollout: roster, direct messages, channels, archive.

Delivery: a message is stamped when the sender's turn ends and shown exactly once, at the receiver's first turn that
starts at or after that moment, in order of sending (so first in first out per pair). Posts to a channel reach every
agent employed at that time, except their sender; an agent keeps one cursor into the common log, so a post costs the
same however many read it. The archive is the complete log. An unknown or fired recipient is an error shown to the
sender. `messages` other than `normal` are the causal controls of evaluations; the sender is never told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rlcr_core.clock import COLLECTIVE_TOOLS, tool_seconds
from rlcr_core.config import CollectiveConfig
from rlcr_core.seeds import turn_seed
from rlcr_core.types import CEO, AgentRecord, Call, CallResult, Environment, Event, EventType, Message

SHOWN = 4  # messages that `read` and `search` return, the latest first


class Collective:
    """Roster and mail of one rollout. Times must not fall from call to call."""

    def __init__(self, config: CollectiveConfig, environment: Environment, seed: int) -> None:
        self.config = config
        self.environment = environment
        self.seed = seed
        self.events: list[Event] = []
        self.archive: list[Message] = []
        self.agents: list[AgentRecord] = []
        self.employed: dict[int, str] = {}  # agent -> name, in order of employment
        self._by_name: dict[str, int] = {}
        self._posts: list[Message] = []
        self._direct: list[deque[Message]] = []
        self._cursor: list[int] = []
        self._seen: list[set[str]] = []
        self._seconds = tool_seconds(config)
        self._tools: dict[str, Callable[[int, Call, float], CallResult]] = {
            "dm": self._dm, "post": self._post, "read": self._read, "search": self._search,
            "wait": lambda agent, call, time_s: CallResult(True, "waited"), "hire": self._hire, "fire": self._fire,
        }  # fmt: skip
        self._employ(0.0, 0.0)

    # -- roster ------------------------------------------------------------------------------------------------------

    @property
    def n_hired(self) -> int:
        """Hired agents employed now, the CEO not counted."""
        return len(self.employed) - 1

    def _employ(self, hired_s: float, started_s: float) -> AgentRecord:
        agent = len(self.agents)
        record = AgentRecord(agent, self.environment.agent_name(agent), hired_s, started_s)
        self.agents.append(record)
        self.employed[agent] = record.name
        self._by_name[record.name] = agent
        self._direct.append(deque())
        self._cursor.append(len(self._posts))
        self._seen.append(set())
        return record

    def _hire(self, agent: int, call: Call, time_s: float) -> CallResult:
        refusal = self._refusal(agent, call)
        if refusal:
            return CallResult(False, refusal)
        started_s = time_s + self.config.onboarding_s
        record = self._employ(time_s, started_s)
        self.events.append(Event(time_s, EventType.HIRE, agent, record.id))
        self.events.append(Event(started_s, EventType.START, record.id))
        brief = call.args[0] if call.args else ""
        if brief:
            self._send(agent, record.id, None, brief, time_s)
        return CallResult(True, "hired", (record.name,))

    def _fire(self, agent: int, call: Call, time_s: float) -> CallResult:
        refusal = self._refusal(agent, call)
        if refusal:
            return CallResult(False, refusal)
        fired = self._by_name[call.args[0]]
        del self.employed[fired]
        self.agents[fired].fired_s = time_s
        self.events.append(Event(time_s, EventType.FIRE, agent, fired))
        return CallResult(True, "fired", (call.args[0],))

    # -- calls -------------------------------------------------------------------------------------------------------

    def _refusal(self, agent: int, call: Call) -> str:
        """Why this call cannot succeed now, as a result code; empty when it can."""
        if call.tool in ("hire", "fire") and agent != CEO:
            return "denied"
        if call.tool == "hire" and self.n_hired >= self.config.max_hires:
            return "full"
        if call.tool in ("dm", "fire") and self._recipient(call.args[0]) in (None, agent):
            return "unknown"
        if call.tool in ("dm", "post") and len(call.args[1].split()) > self.config.max_message_tokens:
            return "long"
        if call.tool == "hire" and call.args and len(call.args[0].split()) > self.config.max_message_tokens:
            return "long"
        return ""

    def _recipient(self, name: str) -> int | None:
        agent = self._by_name.get(name)
        return agent if agent in self.employed else None

    def begin(self, agent: int, call: Call) -> float:
        """Tool time of one of the collective's calls in seconds; a call that cannot succeed takes `error_s`."""
        return self.config.error_s if self._refusal(agent, call) else self._seconds[call.tool]

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        """Apply a call of COLLECTIVE_TOOLS at its end."""
        return self._tools[call.tool](agent, call, time_s)

    def _dm(self, agent: int, call: Call, time_s: float) -> CallResult:
        refusal = self._refusal(agent, call)
        if refusal:
            return CallResult(False, refusal)
        self._send(agent, self._by_name[call.args[0]], None, call.args[1], time_s)
        return CallResult(True, "sent", (call.args[0],))

    def _post(self, agent: int, call: Call, time_s: float) -> CallResult:
        refusal = self._refusal(agent, call)
        if refusal:
            return CallResult(False, refusal)
        self._send(agent, None, call.args[0], call.args[1], time_s)
        return CallResult(True, "posted", (call.args[0],))

    def _read(self, agent: int, call: Call, time_s: float) -> CallResult:
        found = [m.text for m in self._posts if m.channel == call.args[0]]
        return CallResult(True, "read", tuple(found[: -SHOWN - 1 : -1]))

    def _search(self, agent: int, call: Call, time_s: float) -> CallResult:
        words = set(call.args[0].split())
        found = [m.text for m in self.archive if words <= set(m.text.split())]
        return CallResult(True, "found", tuple(found[: -SHOWN - 1 : -1]))

    # -- mail --------------------------------------------------------------------------------------------------------

    def _send(self, sender: int, to: int | None, channel: str | None, text: str, time_s: float) -> None:
        message = Message(len(self.archive), time_s, sender, to, channel, text)
        self.archive.append(message)
        truth = self.environment.judge(sender, text).get("true", -1.0)
        receiver = -1 if to is None else to
        self.events.append(Event(time_s, EventType.MESSAGE, sender, receiver, truth, text))
        if self.config.messages == "mute":
            return
        if to is None:
            self._posts.append(message)
        else:
            self._direct[to].append(message)

    def has_mail(self, agent: int) -> bool:
        """Whether something waits to be shown to this agent."""
        posts, cursor = self._posts, self._cursor[agent]
        return bool(self._direct[agent]) or any(post.sender != agent for post in posts[cursor:])

    def collect(self, agent: int, time_s: float) -> tuple[tuple[str, str], ...]:
        """Take the messages that this agent's turn at `time_s` shows: (sender's name, text), each exactly once."""
        direct, cursor = self._direct[agent], self._cursor[agent]
        if not direct and cursor == len(self._posts):
            return ()
        messages = [post for post in self._posts[cursor:] if post.sender != agent]
        self._cursor[agent] = len(self._posts)
        if direct:
            messages = sorted([*messages, *direct], key=lambda message: message.id)
            direct.clear()
        shown = []
        for message in messages:
            text = self._deliverable(agent, message)
            if text is not None:
                shown.append((self.agents[message.sender].name, text))
                self.events.append(Event(time_s, EventType.DELIVERY, agent, message.sender, message.time_s, text))
        return tuple(shown)

    def _deliverable(self, agent: int, message: Message) -> str | None:
        """The text as this agent receives it under the `messages` control; None when it is withheld."""
        control = self.config.messages
        if control == "normal":
            return message.text
        if control == "scrambled":
            return self.environment.corrupt(message.text, turn_seed(self.seed, -2, message.id))
        if message.text in self._seen[agent]:
            return None
        self._seen[agent].add(message.text)
        return message.text


__all__ = ["COLLECTIVE_TOOLS", "SHOWN", "Collective"]
