"""A chat model's tokenizer behind the two methods that the rollout loop needs, `encode` and `decode`.

Text is encoded without any added token: `<|im_end|>` in an agent's message is ordinary characters to its receiver.
Only the template's own text (`encode_markup`) becomes special tokens. On loading, a tokenizer is refused that changes
texts, or whose pieces do not join to the same text: a transcript that is appended to piece by piece needs both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rlcr_core.chat.template import ChatTemplate, cut_template
from rlcr_core.errors import ConfigError, StoreError

_PROBES: Final = (
    "/work p07 k03 i05\n/dm a013 the key of p07 is k03",
    "a013: p21 k09\n43 s left",
    "  two  spaces \n\n\n and\ttabs ",
    "It's UPPER. =-+*/\\|`~@#$%^&*()[]{};'",
    '{"name": "post", "arguments": {"text": "a \\"b\\" <c> ñ"}}',
    "naïve Ünïcode: 日本語, Ελλάδα, 🙂👍🏽",
)
_DATE: Final = "1 Jan 2025"  # templates that write today's date would otherwise change every prompt from day to day


class ChatTokenizer:
    """Wraps a fast tokenizer of transformers. `stop_ids`: the ids that end an assistant's turn, the template's own first.

    Raises ConfigError for a model without a chat template, for a template that cannot be appended to, and for a tokenizer
    that does not give texts back.
    """

    def __init__(self, tokenizer: Any, name: str = "the model") -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._markup: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._markup is None:
            raise ConfigError(
                f"{name} has no fast tokenizer (got {type(tokenizer).__name__}, expected a tokenizer.json); change policy.model."
            )
        if not tokenizer.chat_template:
            raise ConfigError(
                f"{name} has no chat template, expected one in tokenizer_config.json or chat_template.jinja; change policy.model "
                "to an instruct model, or harness.kind to words."
            )
        self._plain = _with_added_tokens(self._markup, tags=False)
        self._tagged = _with_added_tokens(self._markup, tags=True)
        self.special_ids = frozenset(tokenizer.added_tokens_decoder)
        self._templates: dict[str, ChatTemplate] = {}
        self._check_round_trip()
        stop = self.template().stop_id
        eos = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = (stop,) if eos is None or eos == stop else (stop, eos)

    @classmethod
    def load(cls, directory: str | Path) -> ChatTokenizer:
        """The tokenizer of a Hugging Face folder, or of a hub model by name. Raises ConfigError."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=Path(directory).is_dir())
        except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for broken folders
            raise ConfigError(f"the tokenizer of {directory} cannot be loaded ({error}); change policy.model.") from error
        return cls(tokenizer, str(directory))

    def save(self, directory: str | Path) -> None:
        """Write tokenizer and chat template in the Hugging Face layout. Raises StoreError."""
        try:
            self._tokenizer.save_pretrained(str(directory))
        except OSError as error:
            raise StoreError(f"cannot write the tokenizer to {directory}: {error}; free some disk space.") from error

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        """Ids of a text that somebody wrote; no special token is added, none is recognised."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encode_markup(self, text: str) -> list[int]:
        """Ids of the template's own text, in which special tokens are what they say."""
        return list(self._markup.encode(text, add_special_tokens=False).ids)

    def encode_action(self, text: str) -> list[int]:
        """What a model samples to say `text` and end its turn: tags such as `<tool_call>` are one token where it has them."""
        return [*self._tagged.encode(text, add_special_tokens=False).ids, self.stop_ids[0]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens written out."""
        return str(self._markup.decode(list(ids), skip_special_tokens=False))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), ask: bool = False) -> str:
        """The whole conversation as the model's template writes it; `ask` opens the assistant's next turn."""
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=ask, tokenize=False, date_string=_DATE,
            )
        )  # fmt: skip

    def template(self, tools: Sequence[Mapping[str, Any]] = ()) -> ChatTemplate:
        """The template's pieces with these tools (JSON schemas) in the system prompt. Raises ConfigError."""
        key = json.dumps(list(tools))
        if key not in self._templates:
            self._templates[key] = cut_template(self, tools)
        return self._templates[key]

    def _check_round_trip(self) -> None:
        for text in _PROBES:
            ids = self.encode(text)
            half = len(text) // 2
            pieces = [*self.encode(text[:half]), *self.encode(text[half:])]
            for what, got in (("whole", self.decode(ids)), ("in two pieces", self.decode(pieces))):
                if got != text:
                    raise ConfigError(
                        f"the tokenizer of {self.name} does not give texts back: {text!r}, encoded {what}, comes back as "
                        f"{got!r}; change policy.model to a model with a byte-level tokenizer."
                    )
            if self.encode(self.decode(ids)) != ids:
                raise ConfigError(
                    f"the tokenizer of {self.name} encodes {text!r} to other ids the second time; change policy.model."
                )
        specials = [self.decode([i]) for i in sorted(self.special_ids)]
        for text in [s + t for s in specials for t in ("", " x", "\n")]:
            if self.special_ids.intersection(self.encode(text)):
                raise ConfigError(
                    f"the tokenizer of {self.name} makes a special token of {text!r} also in ordinary text, so that an agent "
                    "could forge the turns of another; change policy.model."
                )


def _with_added_tokens(backend: Any, tags: bool) -> Any:
    """A copy that knows the model's ordinary vocabulary only; with `tags` also the added tokens that are not special."""
    from tokenizers import Tokenizer

    document = json.loads(backend.to_str())
    added = [token for token in document["added_tokens"] if tags and not token["special"]]
    document |= {"added_tokens": added, "truncation": None, "padding": None, "post_processor": None}
    return Tokenizer.from_str(json.dumps(document))
