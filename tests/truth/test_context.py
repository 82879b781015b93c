"""Contexts: which lines they contain, and that their tokens equal those of the text joined by separators."""

import random

import numpy as np
import pytest
from conftest import WORDS

from nmt.data.learn import SubwordSettings, learn_subwords
from nmt.symbols import SEPARATOR
from nmt.text.context import DocumentLines, context_text, encode_with_contexts
from nmt.text.pipeline import Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

CHANCE = random.Random(4)
LINES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(1, 7))) for _ in range(60)]


def contexts(lines, size):
    return map(DocumentLines(size).context_of, lines)


def test_the_context_of_a_line_is_the_preceding_lines_of_its_document():
    lines = ["a", "b", "c", " \u200b", "d", "e"]
    expected = [(), ("a",), ("a", "b"), (), (), ("d",)]
    assert list(contexts(lines, 2)) == expected
    assert list(contexts(lines, 1))[2] == ("b",)


def side(kind: str, size: int) -> Side:
    settings = SideSettings("en", "nfkc", False, False, "none", kind, user_symbols=(SEPARATOR,), context=size)
    if kind == "none":
        return Side(settings, WordVocabulary([SEPARATOR, *WORDS[:-2]]))
    return Side(
        settings,
        learn_subwords(iter(LINES), SubwordSettings(kind, 45 if kind != "char" else 30, 1.0, False, (SEPARATOR,))),
    )


@pytest.mark.parametrize("kind", ["none", "bpe", "unigram", "char"])
def test_the_tokens_of_a_line_with_context_equal_those_of_the_joined_text(kind):
    part, size = side(kind, 2), 2
    [separator] = part.encode(SEPARATOR)
    assert part.piece(separator).removeprefix("\u2581") == SEPARATOR
    before = list(contexts(LINES, size))
    encoded, num_context = part.encode_in_context(LINES, before, 1000)
    for line, lines, ids, count in zip(LINES, before, encoded.lists(), num_context.tolist(), strict=True):
        assert ids == part.encode(f" {SEPARATOR} ".join([*lines, line]))
        assert ids[count:] == part.encode(line) and ids[:count].count(separator) == len(lines)
    whole = part.encode_batch([f" {SEPARATOR} ".join([*rows, line]) for rows, line in zip(before, LINES, strict=True)])
    for name in ("ids", "lengths", "words", "unknown"):
        assert np.array_equal(getattr(encoded, name), getattr(whole, name)), name


def test_only_as_many_sentences_are_read_as_the_model_uses():
    [ids] = side("none", 1).encode_in_context(["ban"], [("kit", "des")], 1000)[0].lists()
    assert ids == side("none", 1).encode(f"des {SEPARATOR} ban")


def test_blank_lines_and_lines_too_long_with_their_context_are_translated_alone():
    part = side("none", 2)
    lines, before = ["ban ban", "ban ban", ""], [("kit des",), ("kit des kit",), ("kit",)]
    encoded, num_context = part.encode_in_context(lines, before, 5)
    assert encoded.lists() == [part.encode(f"kit des {SEPARATOR} ban ban"), part.encode("ban ban"), []]
    assert num_context.tolist() == [3, 0, 0] and encoded.words.tolist() == [5, 2, 0]
    texts = list(map(context_text, before))
    assert encode_with_contexts(part.encode_batch, texts, lines, 6)[1].tolist() == [3, 4, 0]


def test_a_line_s_own_text_is_recovered_without_its_context():
    part = side("bpe", 2)
    encoded, _ = part.encode_in_context(LINES, list(contexts(LINES, 2)), 1000)
    assert list(map(part.decode_line, encoded.lists())) == LINES
    assert part.decode_line([]) == "" and part.decode_line(part.encode(f"ban {SEPARATOR}")) == ""
