"""Texts are cut to their size in tokens, and say how much is missing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.chat import texts
from tests.rlcr_core.chat_models import CHATML, chat_tokenizer

TOKENIZER = chat_tokenizer(CHATML)
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("pk0 \n日🙂"), max_size=80)


@settings(deadline=None)
@given(TEXT, st.integers(24, 80))
def test_a_cut_text_fits_and_says_what_is_missing(text, limit):
    shown = texts.cut(TOKENIZER, text, limit)
    ids = TOKENIZER.encode(text)
    assert len(TOKENIZER.encode(shown)) <= limit
    if len(ids) <= limit:
        assert shown == text
    else:
        kept, _, note = shown.rpartition(" ... cut, ")
        n_missing = int(note.removesuffix(" tokens more"))
        # A character of several tokens is not torn: what is left of it is dropped.
        assert TOKENIZER.decode(ids[: len(ids) - n_missing]).startswith(kept) and text.startswith(kept)


@settings(deadline=None)
@given(st.lists(TEXT.map(texts.one_line), max_size=6), st.integers(40, 120))
def test_the_newest_lines_are_kept_in_order(lines, limit):
    kept = texts.newest(TOKENIZER, lines, limit, "older")
    assert sum(len(TOKENIZER.encode(line)) + 1 for line in kept) <= limit
    if kept != lines:
        n_left_out = len(lines) - len(kept) + 1
        missing = sum(len(TOKENIZER.encode(line)) + 1 for line in lines[:n_left_out])
        assert kept == [f"... cut, {n_left_out} older of {missing} tokens more", *lines[n_left_out:]]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "\n", "\r", "\x0b", "\x85", "\u2028", " "]), max_size=8).map("".join))
def test_one_line_is_one_line(text):
    assert len(texts.one_line(text).splitlines()) <= 1


@settings(deadline=None, max_examples=60)
@given(st.lists(TEXT.map(texts.one_line), max_size=8), st.lists(TEXT.map(texts.one_line), max_size=8), st.integers(120, 200))
def test_a_summary_fits(results, messages, limit):
    assert len(TOKENIZER.encode(texts.summary_text(TOKENIZER, 12, results, messages, limit))) <= limit
