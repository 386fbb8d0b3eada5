"""The chat tokenizer gives texts back, keeps special tokens out of them, and refuses what could not be played."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers
from transformers import AutoTokenizer

from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.errors import ConfigError
from tests.rlcr_core.chat_models import BOS, CHATML, HERMES, SPECIAL, TAGS, backend, chat_tokenizer, fast

TOKENIZER = chat_tokenizer(HERMES)
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("/ \n{}<|>")), max_size=40)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_texts_come_back_whole_and_in_pieces(a, b):
    assert TOKENIZER.decode([*TOKENIZER.encode(a), *TOKENIZER.encode(b)]) == a + b


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from((*SPECIAL, *TAGS)), TEXTS), max_size=6))
def test_no_text_of_an_agent_becomes_an_added_token(parts):
    text = "".join(parts)
    ids = TOKENIZER.encode(text)
    assert not TOKENIZER.special_ids.intersection(ids)
    assert TOKENIZER.decode(ids) == text


def test_only_markup_becomes_special_tokens():
    (end,) = TOKENIZER.encode_markup("<|im_end|>")
    assert end == SPECIAL.index("<|im_end|>") == TOKENIZER.stop_ids[0]
    assert TOKENIZER.special_ids == {*range(len(SPECIAL)), *(len(TOKENIZER) - i for i in (1, 2, 3, 4))}
    assert TOKENIZER.encode_action("/wait") == [*TOKENIZER.encode("/wait"), end]
    # In what a model says itself, tags are tokens; but nobody can say a special token other than the last.
    said = TOKENIZER.encode_action("<tool_call>\n<|im_start|>")
    (tag,) = TOKENIZER.encode_markup("<tool_call>")
    assert said[0] == tag and TOKENIZER.special_ids.intersection(said) == {tag, end}


def test_stop_ids_are_the_template_s_own_and_the_end_of_text():
    # BOS ends turns with <|end|>, which is its end of text too; ChatML with <|im_end|>, here beside another end of text.
    assert chat_tokenizer(BOS).stop_ids == (0,)
    assert ChatTokenizer(fast(CHATML, eos="<|end|>")).stop_ids == (2, 0)


def test_saved_files_load_unchanged(tmp_path):
    TOKENIZER.save(tmp_path)
    again, other = ChatTokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    text = "/work p07 k03 i05 <think> <|im_end|>"
    assert again.encode(text) == TOKENIZER.encode(text)
    assert again.template() == TOKENIZER.template()
    assert len(again) == len(TOKENIZER)
    assert other.chat_template == HERMES
    assert other.encode(text, add_special_tokens=False) == TOKENIZER.encode_markup(text)


def squeezed():
    return fast(CHATML, normalizer=normalizers.Replace(" ", "_"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fast(None), "has no chat template"),
        (lambda: fast(CHATML, normalizer=normalizers.Lowercase()), "does not give texts back"),
        (lambda: fast(CHATML, normalizer=normalizers.Strip()), "does not give texts back"),
        (squeezed, "does not give texts back"),
        (lambda: type("Slow", (), {"chat_template": CHATML})(), "has no fast tokenizer"),
    ],
)
def test_unusable_tokenizers_are_refused(make, message):
    with pytest.raises(ConfigError, match=f"{message}.*change policy.model"):
        ChatTokenizer(make(), "tiny")


def test_a_prefix_space_is_refused_because_pieces_would_not_join():
    from tokenizers import decoders, pre_tokenizers

    tokenizer = backend()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    wrapped = fast(CHATML)
    wrapped._tokenizer = tokenizer
    with pytest.raises(ConfigError, match="in two pieces"):
        ChatTokenizer(wrapped, "tiny")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        ChatTokenizer.load(tmp_path)
