"""The collective of one rollout: roster, direct messages, channels, archive.

Delivery: a message is stamped when the sender's turn ends and shown exactly once, at the receiver's first turn that
starts at or after that moment, in order of sending (so first in first out per pair). Posts to a channel reach every
agent employed at that time, except their sender; an agent keeps one cursor into the common log, so a post costs the
same however many read it. The archive is the complete log. An unknown or fired recipient is an error shown to the
sender. `messages` other than `normal`, `delay_s` and `archive: false` are the causal controls of evaluations; the sender
is never told. The `staff` are employed from the start, as if hired at 0 s and ready at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from rlcr_core.clock import COLLECTIVE_TOOLS, tool_seconds
from rlcr_core.config import CollectiveConfig
from rlcr_core.roster import Others
from rlcr_core.seeds import turn_seed
from rlcr_core.types import CEO, AgentRecord, Call, CallResult, Environment, Event, EventType, Message

SHOWN = 4  # messages that `read` and `search` return, the latest first


class Collective:
    """Roster and mail of one rollout. Times must not fall from call to call."""

    def __init__(
        self, config: CollectiveConfig, environment: Environment, seed: int, withheld: frozenset[int] = frozenset()
    ) -> None:
        """`withheld` messages (their ids, which count them in order of sending) reach nobody; their senders are not told."""
        self.config = config
        self.withheld = withheld
        self.environment = environment
        self.seed = seed
        self.events: list[Event] = []
        self.archive: list[Message] = []
        self.agents: list[AgentRecord] = []
        self.employed: dict[int, str] = {}  # agent -> name, in order of employment
        self._by_name: dict[str, int] = {}
        self._roster: tuple[tuple[int, ...], tuple[str, ...]] | None = None  # numbers and names of the employed
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
        for _ in range(config.staff):
            record = self._employ(0.0, 0.0)
            self.events += [Event(0.0, EventType.HIRE, CEO, record.id), Event(0.0, EventType.START, record.id)]

    # -- roster ------------------------------------------------------------------------------------------------------

    @property
    def n_hired(self) -> int:
        """Hired agents employed now, the CEO not counted."""
        return len(self.employed) - 1

    def others(self, agent: int) -> Sequence[str]:
        """Names of the other employed agents, by agent number; costs the same at any team size unless the roster changed."""
        if self._roster is None:
            self._roster = tuple(self.employed), tuple(self.employed.values())
        numbers, names = self._roster
        return Others(names, bisect_left(numbers, agent))

    def number(self, name: str) -> int:
        """The number of the agent that has, or had, this name."""
        return self._by_name[name]

    def _employ(self, hired_s: float, started_s: float) -> AgentRecord:
        agent = len(self.agents)
        record = AgentRecord(agent, self.environment.agent_name(agent), hired_s, started_s)
        self.agents.append(record)
        self.employed[agent] = record.name
        self._by_name[record.name] = agent
        self._roster = None
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
        self._roster = None
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
        return CallResult(True, "read", self._latest(agent, time_s, lambda m, text: m.channel == call.args[0]))

    def _search(self, agent: int, call: Call, time_s: float) -> CallResult:
        words = set(call.args[0].split())
        return CallResult(True, "found", self._latest(agent, time_s, lambda m, text: words <= set(text.split())))

    def _latest(self, agent: int, time_s: float, fits: Callable[[Message, str], bool]) -> tuple[str, ...]:
        """The latest messages of the archive that fit, the last first, as this agent may know them."""
        found: list[str] = []
        for message in reversed(self.archive if self.config.archive else ()):
            text = self._kept(agent, message, time_s)
            if text is not None and fits(message, text):
                found.append(text)
                if len(found) == SHOWN:
                    break
        return tuple(found)

    def _kept(self, agent: int, message: Message, time_s: float) -> str | None:
        """The text of a message in the archive, to this agent: its own as it wrote it, so that it is not told of a control;
        of others what the control leaves of them.
        """
        if message.sender == agent:
            return message.text
        is_lost = self.config.messages == "mute" or message.id in self.withheld
        return None if is_lost or message.time_s > time_s - self.config.delay_s else self._altered(message)

    def _altered(self, message: Message) -> str:
        """The text as it reaches others."""
        if self.config.messages != "scrambled":
            return message.text
        return self.environment.corrupt(message.text, turn_seed(self.seed, -2, message.id))

    # -- mail --------------------------------------------------------------------------------------------------------

    def _send(self, sender: int, to: int | None, channel: str | None, text: str, time_s: float) -> None:
        message = Message(len(self.archive), time_s, sender, to, channel, text)
        self.archive.append(message)
        truth = self.environment.judge(sender, text).get("true", -1.0)
        receiver = -1 if to is None else to
        self.events.append(Event(time_s, EventType.MESSAGE, sender, receiver, truth, text))
        if self.config.messages == "mute" or message.id in self.withheld:
            return
        if to is None:
            self._posts.append(message)
        else:
            self._direct[to].append(message)

    def has_mail(self, agent: int) -> bool:
        """Whether something waits to be shown to this agent."""
        posts = self._posts
        return bool(self._direct[agent]) or any(posts[i].sender != agent for i in range(self._cursor[agent], len(posts)))

    def collect(self, agent: int, time_s: float) -> tuple[tuple[str, str], ...]:
        """Take the messages that this agent's turn at `time_s` shows: (sender's name, text), each exactly once."""
        direct, cursor, end = self._direct[agent], self._cursor[agent], len(self._posts)
        if not direct and cursor == end:
            return ()
        sent_by_s = time_s - self.config.delay_s
        while end > cursor and self._posts[end - 1].time_s > sent_by_s:
            end -= 1
        messages = [post for post in self._posts[cursor:end] if post.sender != agent]
        self._cursor[agent] = end
        if direct:
            while direct and direct[0].time_s <= sent_by_s:
                messages.append(direct.popleft())
            messages.sort(key=lambda message: message.id)
        shown = []
        for message in messages:
            text = self._deliverable(agent, message)
            if text is not None:
                shown.append((self.agents[message.sender].name, text))
                if self.config.log_deliveries:
                    self.events.append(Event(time_s, EventType.DELIVERY, agent, message.sender, message.time_s, text))
        return tuple(shown)

    def _deliverable(self, agent: int, message: Message) -> str | None:
        """The text as this agent receives it under the `messages` control; None when it is withheld."""
        if self.config.messages != "first_copies":
            return self._altered(message)
        if message.text in self._seen[agent]:
            return None
        self._seen[agent].add(message.text)
        return message.text


__all__ = ["COLLECTIVE_TOOLS", "SHOWN", "Collective"]
