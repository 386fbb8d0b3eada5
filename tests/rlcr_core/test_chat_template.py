"""A transcript that grows piece by piece has the ids of the whole conversation rendered at once, or it is said where not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.chat.borders import differences
from rlcr_core.chat.forms import hermes
from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.chat.tools import schemas
from rlcr_core.errors import ConfigError
from rlcr_core.types import ToolSpec, TurnKind
from tests.rlcr_core.chat_models import BOS, CHATML, HERMES, TEMPLATES, chat_tokenizer, fast

TOKENIZERS = {name: chat_tokenizer(template) for name, template in TEMPLATES.items()}
TOOLS = schemas(
    [ToolSpec("dm", TurnKind.TALK, 1, 0.0, "tell one agent", ("to", "text")), ToolSpec("wait", TurnKind.WAIT, 1, 0.0)]
)
WORDS = st.lists(st.sampled_from(["p07", "k03", "/work", "a013:", "43 s left", "it's", "naïve", "(x)", "日本"]), min_size=1).map(
    " ".join
)


@pytest.mark.parametrize("name", TEMPLATES)
@settings(deadline=None, max_examples=50)
@given(system=WORDS, first=WORDS, turns=st.lists(st.tuples(WORDS, WORDS, st.booleans()), max_size=4))
def test_growing_equals_rendering_at_once(name, system, first, turns):
    tokenizer = TOKENIZERS[name]
    template = tokenizer.template()
    ids = template.open(tokenizer.encode(system), tokenizer.encode(first))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": first}]
    for said, answer, stopped in turns:  # a turn that was cut before its stop token is closed by the next prompt
        ids += tokenizer.encode_action(said) if stopped else tokenizer.encode(said)
        ids += template.proceed([], tokenizer.encode(answer), stopped)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": answer}]
    assert ids == tokenizer.encode_markup(tokenizer.render(messages, ask=True))


@settings(deadline=None, max_examples=50)
@given(turns=st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3), WORDS), min_size=1, max_size=3))
def test_growing_with_calls_and_results_equals_rendering_at_once(turns):
    tokenizer = TOKENIZERS["hermes"]
    template = tokenizer.template(TOOLS)
    assert template.is_native
    ids = template.open(tokenizer.encode("Rules."), tokenizer.encode("begin"))
    messages = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "begin"}]
    for thought, results, answer in turns:
        arguments = {"to": "a013", "text": "p07 k03"}
        calls = "\n".join([thought, *[hermes("dm", arguments)] * len(results)])
        ids += tokenizer.encode_action(calls)
        ids += template.proceed([tokenizer.encode(result) for result in results], tokenizer.encode(answer), True)
        call = {"type": "function", "function": {"name": "dm", "arguments": arguments}}
        messages += [{"role": "assistant", "content": thought, "tool_calls": [call] * len(results)}]
        messages += [{"role": "tool", "content": result} for result in results]
        messages += [{"role": "user", "content": answer}]
    assert ids == tokenizer.encode_markup(tokenizer.render(messages, TOOLS, ask=True))


def test_it_is_said_where_a_template_shows_history_differently():
    # ChatML writes contents as they are; HERMES leaves earlier reasoning out; BOS trims contents.
    assert differences(TOKENIZERS["chatml"]) == {}
    hermes_differs = differences(TOKENIZERS["hermes"], TOOLS)
    assert set(hermes_differs) == {"reasoning"}
    assert "transcript has" in hermes_differs["reasoning"] and "first p07" in hermes_differs["reasoning"]
    assert set(differences(TOKENIZERS["bos"])) == {"white space around a turn"}


def test_the_first_token_of_the_text_appears_once():
    tokenizer = TOKENIZERS["bos"]
    template = tokenizer.template()
    begin = tokenizer.encode_markup("<s>")
    ids = template.open([], []) + template.proceed([], [], False)
    assert ids[:1] == begin and ids.count(begin[0]) == 1


def test_templates_without_readable_tools_are_not_native():
    assert not TOKENIZERS["chatml"].template(TOOLS).is_native
    other_form = HERMES.replace('\\n<tool_call>\\n{"name": "\' + call', '\\n[CALL]{"name": "\' + call')
    assert other_form != HERMES and not chat_tokenizer(other_form).template(TOOLS).is_native
    assert not TOKENIZERS["hermes"].template().is_native


def test_without_a_system_role_the_user_s_first_message_begins_with_the_system_text():
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
    tokenizer = chat_tokenizer(template)
    ids = tokenizer.template().open(tokenizer.encode("Rules."), tokenizer.encode("begin"))
    assert tokenizer.decode(ids) == "<|im_start|>user\nRules.\n\nbegin<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_opens_reasoning_says_so():
    tokenizer = chat_tokenizer(CHATML.replace("assistant\n'", "assistant\n<think>\n'"))
    assert tokenizer.template().opens_reasoning
    assert tokenizer.decode(tokenizer.template().ask_ids).endswith("assistant\n<think>\n")
    assert not TOKENIZERS["chatml"].template().opens_reasoning
    assert set(differences(tokenizer)) >= {"plain text"}  # history is rendered without the opening tag


def test_empty_reasoning_in_history_is_a_difference_and_no_refusal():
    history = CHATML.replace(
        "'\n' + message['content']", "'\n' + ('<think></think>' if message['role'] == 'assistant' else '') + message['content']"
    )
    assert history != CHATML
    for template in (history, history.replace("assistant\n'", "assistant\n<think>\n'")):
        assert "rendered at once" in differences(chat_tokenizer(template))["plain text"]


def test_a_date_in_the_template_is_the_same_every_day():
    template = (
        "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}" + CHATML
    )
    assert chat_tokenizer(template).render([{"role": "user", "content": "x"}]).startswith("1 Jan 2025<|im_start|>")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            CHATML.replace("message['role'] +", "message['role'] + ' ' + loop.index|string + '/' + messages|length|string +"),
            "pieces",
        ),
        (
            CHATML.replace("message['content'] +", "(message['content'] if loop.index > 1 else '') +"),
            "leaves out the system text",
        ),
        (CHATML.replace("message['content'] +", "message['content'] + message['content'] +"), "more than once"),
        (CHATML.replace("'<|im_end|>' + '\n'", "'\n'"), "no special token to stop at"),
        ("{{ raise_exception('never') }}", "cannot render"),
        # The system text moves to the last user's message.
        (
            "{% for m in messages[1:] %}<|im_start|>{{ messages[0].content if loop.last }}{{ m.content }}<|im_end|>{% endfor %}",
            "out of order",
        ),
    ],
)
def test_templates_that_cannot_be_appended_to_are_refused(template, reason):
    with pytest.raises(ConfigError, match=f"(?s){reason}.*change policy.model or its chat template"):
        ChatTokenizer(fast(template), "tiny")


def test_bos_is_no_part_of_what_is_appended():
    tokenizer = TOKENIZERS["bos"]
    text = tokenizer.decode(tokenizer.template().proceed([], tokenizer.encode("43 s left"), False))
    assert text == "<|end|><|head|>user<|/head|>\n\n43 s left<|end|><|head|>assistant<|/head|>\n\n"
    assert BOS.startswith("{{ '<s>' }}")
