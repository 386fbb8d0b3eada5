"""Facts in the text of an event: a code, then `key=number` words, such as `done units=2 received_key=1`."""

from __future__ import annotations

from collections.abc import Mapping

from rlcr_core.errors import DataError


def event_text(code: str, facts: Mapping[str, float]) -> str:
    """The text that `work_result` reads: ("done", {"units": 2}) -> `done units=2`. Six digits of each number are kept."""
    return code + "".join([f" {key}={value:g}" for key, value in facts.items()])


def work_result(text: str) -> tuple[str, dict[str, float]]:
    """Code and facts of an event's text: `bad received_key=1` -> ("bad", {"received_key": 1.0}).

    Raises DataError when a word `key=value` has no number.
    """
    words = text.split()
    facts: dict[str, float] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if equals:
            try:
                facts[key] = float(value)
            except ValueError:
                raise DataError(
                    f"The work event {text!r} gives {key} the value {value!r}, expected a number; "
                    "correct the info of the environment's CallResult."
                ) from None
    return (words[0] if words else ""), facts
