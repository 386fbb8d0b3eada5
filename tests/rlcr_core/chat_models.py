"""A tiny byte-level tokenizer and chat templates of the usual kinds, for tests of chat agents."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import Params, load_params

SPECIAL = ("<|end|>", "<|im_start|>", "<|im_end|>", "<s>", "<|head|>", "<|/head|>")
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")  # added tokens that are not special, as in Qwen's
LINES = [
    "/work p07 k03 i05", "/dm a013 the key of p07 is k03", "work: done p07 k03", "43 s left, team 2/8: a013 a044",
    "open: p07 i01 p12 i00", "You are the CEO of a team. Earn as much reward as you can before time runs out.",
    '{"name": "post", "arguments": {"channel": "general", "text": "p07 k03"}}', "system user assistant tool tools",
] * 4  # fmt: skip

# SmolLM2's (ChatML), without its default system text.
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As Qwen's: tools and calls in Hermes style, results inside of a user's message, reasoning of earlier turns left out.
HERMES = r"""{%- if tools %}
    {{- '<|im_start|>system\n' + messages[0].content + '\n\n# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools>\nCall with <tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- else %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages[1:] %}
    {%- if message.role == 'user' %}{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if loop.index < ns.last and '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
# As Llama 3's: a token at the beginning of the text, contents trimmed.
BOS = (
    "{{ '<s>' }}{% for message in messages %}"
    "{{ '<|head|>' + message.role + '<|/head|>\n\n' + message.content | trim + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "hermes": HERMES, "bos": BOS}


def backend(normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return tokenizer


def fast(template: str | None, eos: str = "<|im_end|>", normalizer: Any = None) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend(normalizer), eos_token=eos, chat_template=template)


def chat_tokenizer(template: str = CHATML) -> ChatTokenizer:
    return ChatTokenizer(fast(template, "<|end|>" if template is BOS else "<|im_end|>"), "tiny")


def chat_params(**sections: dict[str, object]) -> Params:
    """The checked-in parameters for a chat model that reads 1,000 and samples 20 tokens a second."""
    data = load_params().model_dump()
    data["harness"] |= {"kind": "chat"}
    data["policy"]["model"] = "tiny"
    data["context"] = {"mode": "transcript", "max_tokens": 4096}
    data["latency"] |= {"turn_overhead_s": 0.1, "prefill_tps": 1000.0, "decode_tps": 20.0}
    for name, values in sections.items():
        data[name] |= values
    return Params.model_validate(data)
