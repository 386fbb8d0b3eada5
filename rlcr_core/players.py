"""Scripted players behind the engine protocol: the fake policy that tests, checks and the warm start use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Sample, SampleRequest

Play = Callable[[str, tuple[int, int], int], str]  # (observation, (rollout, agent), seed) -> action


class PlayerEngine:
    """Answers every request with what `play` says of the tokens it adds; a scripted action has probability one."""

    def __init__(self, play: Play, tokenizer: Tokenizer, version: int = 0) -> None:
        self.play = play
        self.tokenizer = tokenizer
        self.version = version

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        samples = []
        for request in requests:
            text = self.play(self.tokenizer.decode(request.new_ids), request.cache_key, request.seed)
            ids = self.tokenizer.encode(text)[: request.max_tokens]
            samples.append(Sample(ids, [0.0] * len(ids), self.version))
        return samples

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        """Nothing is held."""
