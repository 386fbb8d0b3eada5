"""The word tokenizer of closed vocabularies: one id a word, so text and ids correspond one to one.

It is saved as an ordinary `tokenizer.json` (word-level model, split at white space), so transformers and vLLM load the
checkpoint's tokenizer unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from rlcr_core.errors import ConfigError, DataError

PAD, UNKNOWN = "<pad>", "<unk>"


class Tokenizer(Protocol):
    """What the rollout loop needs of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class PolicyTokenizer(Tokenizer, Protocol):
    """What else a policy's folder needs of it: its size, and files that transformers and vLLM read."""

    def __len__(self) -> int: ...

    def save(self, directory: str | Path) -> None: ...


def load_tokenizer(directory: str | Path) -> PolicyTokenizer:
    """The tokenizer of a policy's folder: this project's word-level one, or a chat model's. Raises DataError, ConfigError."""
    path = Path(directory, "tokenizer.json")
    try:
        kind = json.loads(path.read_text(encoding="utf-8"))["model"]["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not readable as a tokenizer ({error!r}); restore the folder or make it again.") from error
    if kind == "WordLevel":
        return WordTokenizer.load(directory)
    from rlcr_core.chat.tokenizer import ChatTokenizer

    return ChatTokenizer.load(directory)


class WordTokenizer:
    """Ids: 0 padding, 1 unknown, then the vocabulary in its order."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = (PAD, UNKNOWN, *words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words) or any(word.split() != [word] for word in self.words):
            raise ConfigError("a vocabulary needs distinct words without white space; change the environment's vocabulary.")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`; words outside the vocabulary become the unknown id 1."""
        get = self._ids.get
        return [get(word, 1) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        words = self.words
        return " ".join([words[i] for i in ids])

    def save(self, directory: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json of the Hugging Face layout."""
        model = {"type": "WordLevel", "vocab": self._ids, "unk_token": UNKNOWN}
        special = [
            {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
            for i, word in enumerate((PAD, UNKNOWN))
        ]  # fmt: skip
        document = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model,
        }  # fmt: skip
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "unk_token": UNKNOWN}
        Path(directory, "tokenizer.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        Path(directory, "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | Path) -> WordTokenizer:
        """Read a saved tokenizer. Raises DataError when it is missing or not a word-level one."""
        path = Path(directory, "tokenizer.json")
        try:
            vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
            words = sorted(vocabulary, key=vocabulary.__getitem__)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a word tokenizer of this project ({error}); publish the policy again.") from error
        if words[:2] != [PAD, UNKNOWN]:
            raise DataError(f"{path} must give ids 0 and 1 to {PAD} and {UNKNOWN}, got {words[:2]}; publish the policy again.")
        return cls(words[2:])
