"""Words split by merges as subword-nmt splits them (Sennrich et al., 2016), in `prepare` and in translation."""

import json
import random
from collections import Counter
from io import StringIO
from itertools import pairwise

import pytest
from refusals import assert_refused

from nmt.data.shards import PreparedData
from nmt.extensions.vocabularies.extension import extended
from nmt.extensions.vocabularies.segmentations import segmentations_of
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary, Merges

TEXT = ["the dog sees two men .", "a man sees the dog .", "two women eat .", "wandering men eat the food", "aaaa aa a"]


def learn_merges(words: list[str], count: int) -> list[tuple[str, str]]:
    """The most frequent pairs of symbols, one after another, by their definition."""
    cut = [[*word[:-1], f"{word[-1]}</w>"] for word in words]
    merges = []
    for _ in range(count):
        pairs = Counter((a, b) for symbols in cut for a, b in pairwise(symbols))
        if not pairs:
            break
        best = max(sorted(pairs), key=pairs.__getitem__)
        merges.append(best)
        cut = [apply_merge(symbols, best) for symbols in cut]
    return merges


def apply_merge(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """Each occurrence of a pair, from the left, as one symbol."""
    merged: list[str] = []
    for symbol in symbols:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
            pair_ends = True
        else:
            merged.append(symbol)
            pair_ends = False
        if pair_ends:
            merged.append("")  # so that the symbol is not the first of another pair
    return [symbol for symbol in merged if symbol]


def cut_by_definition(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """All merges in their order, each wherever it fits."""
    symbols = [*word[:-1], f"{word[-1]}</w>"]
    for merge in merges:
        symbols = apply_merge(symbols, merge)
    symbols[-1] = symbols[-1].removesuffix("</w>")
    return [*(f"{symbol}@@" for symbol in symbols[:-1]), symbols[-1]]


def cut_in_rounds(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """In each round the first merge that fits; merges may come in any order."""
    symbols = [*word[:-1], f"{word[-1]}</w>"]
    while fitting := [merge for merge in merges if merge in set(pairwise(symbols))]:
        symbols = apply_merge(symbols, fitting[0])
    symbols[-1] = symbols[-1].removesuffix("</w>")
    return [*(f"{symbol}@@" for symbol in symbols[:-1]), symbols[-1]]


MERGES = learn_merges(" ".join(TEXT).split(), 25)
CODES = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES)


def test_words_are_split_by_the_merges_in_order():
    merges, chance = Merges(CODES), random.Random(1)
    words = [
        *" ".join(TEXT).split(),
        *("".join(chance.choices("aedhnsmtw", k=chance.randint(1, 9))) for _ in range(300)),
    ]
    for word in words:
        assert merges.cut(word) == (cut_by_definition(word, MERGES) if len(word) > 1 else [word])
    assert merges.cut("") == []
    for pairs in ([("a", "a"), ("aa", "a"), ("a", "aa")], [("aa", "aa"), ("a", "a"), ("aa", "a</w>")]):
        merges = Merges("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in pairs))
        for length in range(2, 40):
            assert merges.cut("a" * length) == cut_in_rounds("a" * length, pairs)


def test_words_are_split_as_by_subword_nmt_itself():
    program = pytest.importorskip("subword_nmt.apply_bpe")
    chance = random.Random(2)
    early = "".join(f"{a} {b}\n" for a, b in [("a", "a"), ("aa", "</w>"), ("e", "</w>"), ("n", "d"), ("t", "h")])
    for codes in (CODES, early):
        merges, reference = Merges(codes), program.BPE(StringIO(codes))
        for _ in range(500):
            word = "".join(chance.choices("aedhnsmtw\u732b", k=chance.randint(1, 12)))
            assert " ".join(merges.cut(word)) == reference.segment(word)


def test_a_separate_end_of_word_symbol_belongs_to_version_0_1():
    assert Merges("a b\nab </w>\n").cut("ab") == ["ab"]
    assert Merges("a b\n").cut("abab") == ["ab@@", "ab"]
    assert Merges("#version: 0.2\na b\n").cut("abab") == ["ab@@", "a@@", "b"]
    assert Merges("a b 70\nab</w> x 3\nb a</w> 2\n").cut("aba") == ["ab@@", "a"]  # of fastBPE
    assert Merges("b a</w> 2\na b 1\n").cut("aba") == ["a@@", "ba"]
    with pytest.raises(ValueError, match="line 3: 'a b c' is not a pair"):
        Merges("#version: 0.2\na b\na b c\n")


def test_a_vocabulary_reads_and_writes_text_and_survives_its_file():
    vocabulary = CodesVocabulary.learn(CODES, Counter(" ".join(TEXT).split()), 0)
    for text in TEXT:
        ids = vocabulary.encode_batch([text]).ids.tolist()
        assert vocabulary.decode(ids) == text
        assert "".join(map(vocabulary.surface, ids)).rstrip() == text
    again = CodesVocabulary.from_bytes(vocabulary.to_bytes(), "x")
    assert again.size == vocabulary.size
    found = vocabulary.encode_batch(["the \u732b dog", "", "<s> two"])
    assert (
        found.unknown.tolist()[0] == 1
        and 1 not in found.ids
        and again.encode_batch(["the \u732b dog"]).ids.tolist() == [*found.rows()[0].tolist()]
    )


def test_prepared_data_of_merges_train_and_translate(tmp_path, call):
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("".join(f"{line}\n" for line in TEXT * 20))
    (tmp_path / "codes").write_text(CODES)
    base = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 't'}", "--subword=subword-nmt"]
    result = call(*base, "--codes", tmp_path / "codes", f"--output={tmp_path / 'data'}", "--vocab-size=0")
    assert result.code == 0, result.err
    pipeline = PreparedData(tmp_path / "data").pipeline
    assert pipeline.source.pieces("wandering dog") == [
        *cut_by_definition("wandering", MERGES),
        *cut_by_definition("dog", MERGES),
    ]
    sizes = ["--d-model=16", "--d-ff=32", "--heads=2", "--encoder-layers=1", "--decoder-layers=1", "--max-updates=2"]
    assert call("train", f"--data={tmp_path / 'data'}", f"--output={tmp_path / 'run'}", *sizes).code == 0
    (tmp_path / "line").write_text("the dog sees\n")
    (tmp_path / "avoid").write_text("dog\n")
    avoid = ["--input", tmp_path / "line", "--json", "--avoid", tmp_path / "avoid"]
    result = call("translate", "--model", tmp_path / "run", *avoid)
    assert result.code == 0, result.err
    assert (
        "@@" not in json.loads(result.out)["translation"] and "dog" not in json.loads(result.out)["translation"].split()
    )
    apart = ["--no-joint-vocabulary", "--codes", tmp_path / "codes", "--codes", tmp_path / "codes"]
    assert call(*base, *apart, f"--output={tmp_path / 'apart'}").code == 0


def test_a_byte_order_mark_does_not_hide_the_version_of_merges(tmp_path, call):
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("abab ab\n")
    (tmp_path / "codes").write_bytes(b"\xef\xbb\xbf#version: 0.2\r\na b</w>\r\n")
    base = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 't'}", "--subword=subword-nmt"]
    result = call(*base, "--codes", tmp_path / "codes", f"--output={tmp_path / 'data'}", "--vocab-size=0")
    assert result.code == 0, result.err
    assert PreparedData(tmp_path / "data").pipeline.source.pieces("abab ab") == ["a@@", "b@@", "ab", "ab"]


class CountedWord(str):
    """A word that counts how often it is compared."""

    num_comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedWord.num_comparisons += 1
        return str.__eq__(self, other)


def test_splitting_does_not_compare_each_word_with_every_user_symbol():
    symbols, words = [CountedWord(f"<{i}>") for i in range(200)], Counter(f"word{i}" for i in range(200))
    vocabulary = CodesVocabulary.learn(CODES, words, 0, symbols)
    vocabulary.encode_batch([" ".join(words)])
    segmentations_of(vocabulary, 0.1)
    extended(vocabulary, [CountedWord(f"term{i}") for i in range(200)], words, 1)
    assert CountedWord.num_comparisons < 20 * 200


def test_invalid_merges_are_errors(tmp_path, call):
    for language in ("en", "de"):
        (tmp_path / f"t.{language}").write_text("a b\n")
    base = [
        "prepare",
        "--source-lang=en",
        "--target-lang=de",
        f"--train={tmp_path / 't'}",
        f"--output={tmp_path / 'x'}",
    ]
    (tmp_path / "codes").write_text("a b c\n")
    given = ["--codes", tmp_path / "codes"]
    assert call(*base, *given).code == 2
    assert call(*base, "--subword=subword-nmt").code == 2
    assert call(*base, "--subword=subword-nmt", *given, *given).code == 2
    assert_refused(call(*base, "--subword=subword-nmt", *given), 4, "is not a pair")
    (tmp_path / "codes").write_bytes(b"\xff\xfe")
    assert call(*base, "--subword=subword-nmt", *given).code == 4
    assert call(*base, "--subword=subword-nmt", "--codes", tmp_path / "none").code == 5
