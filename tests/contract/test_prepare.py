"""`nmt prepare` keeps both sides together, is a function of its inputs, and leaves nothing half made (contract: "Text")."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import tarfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import reseal, small_disk, wait_for
from forks import forked_nmt

from nmt.artefact import MANIFEST, Artefact, new_folder
from nmt.data import sets
from nmt.data.duplicates import find_repeated
from nmt.data.encode import Chunk, FilePair, decode
from nmt.data.prepare import PrepareOptions, prepare
from nmt.data.row_files import SetWriter
from nmt.data.sets import text_sets, with_counts
from nmt.data.shards import PreparedData, SetFacts, write_facts
from nmt.errors import ArtefactError, InputError, ResourceError, UserError
from nmt.files import to_json
from nmt.storages.base import text_exists
from nmt.symbols import UNK
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline
from nmt.text.settings import SideSettings

NMT = [sys.executable, "-c", "from nmt.cli.main import main; main()"]
NOUNS = ["house", "garden", "river", "mountain", "teacher", "student", "window", "letter", "kitchen", "market"]
VERBS = ["sees", "builds", "paints", "finds", "leaves", "loves", "visits", "remembers", "describes", "crosses"]


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [
        " ".join(f"the {chance.choice(NOUNS)} {chance.choice(VERBS)}" for _ in range(chance.randint(1, 4)))
        + f" {i % 97}."
        for i in range(count)
    ]


def write(prefix: Path, source: list[str], target: list[str]) -> str:
    """Two files of lines; gives back the prefix."""
    Path(f"{prefix}.en").write_text("".join(line + "\n" for line in source))
    Path(f"{prefix}.de").write_text("".join(line + "\n" for line in target))
    return str(prefix)


def corpus(prefix: Path, count: int, seed: int = 1) -> str:
    lines = sentences(count, seed)
    return write(prefix, lines, [line.upper() for line in lines])


def options(tmp_path: Path, **given: Any) -> PrepareOptions:
    """Options for a word vocabulary, unless others are given."""
    values = {"output": str(tmp_path / "data"), "subword": "none", "vocab_size": 0, **given}
    return PrepareOptions(source_lang="en", target_lang="de", **values)


def hashes(folder: Path) -> dict[str, str]:
    return {name: facts["sha256"] for name, facts in Artefact(folder, "prepared-data").manifest["files"].items()}


def texts(data: PreparedData) -> list[tuple[str, str]]:
    """The training pairs as text again."""
    source, target = data.pipeline.source, data.pipeline.target
    return [
        (
            source.decode(data.train.sources(np.array([i])).tolist()),
            target.decode(data.train.targets(np.array([i])).tolist()),
        )
        for i in range(len(data.train))
    ]


# What is in it


def test_prepared_data_can_be_read_back(tmp_path):
    train, dev, test = (
        corpus(tmp_path / "train", 500),
        corpus(tmp_path / "dev", 20, 2),
        corpus(tmp_path / "test", 30, 3),
    )
    report = prepare(options(tmp_path, train=(train,), valid=(dev,), test=(test, dev), subword="bpe", vocab_size=150))
    data = PreparedData(tmp_path / "data")
    lines = sentences(500, 1)
    assert texts(data) == [(line, line.upper()) for line in lines]
    assert data.train.source_lengths.dtype == np.uint32
    assert data.train.source_lengths.tolist() == [len(data.train.sources(np.array([i]))) for i in range(500)]
    assert list(data.valid) == ["dev"] and list(data.test) == ["test", "dev"]
    assert data.test["test"].target_lines == [line.upper() for line in sentences(30, 3)]
    assert len(data.test["test"].corpus) == 30
    assert data.pipeline.joint and data.pipeline.source.size == report["vocabulary"]["source"] <= 150
    assert data.train.sources(np.array([0])).dtype == np.uint16
    assert json.loads((tmp_path / "data/report.json").read_bytes()) == report


def test_evaluation_sets_have_the_requested_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for prefix, seed in (("train", 1), ("dev", 2), ("talks=dev", 3)):
        corpus(tmp_path / prefix, 20, seed)
    prepare(options(tmp_path, train=("train",), valid=("news=dev", "dev"), test=("talks=dev", "dev.source=dev")))
    data = PreparedData(tmp_path / "data")
    assert list(data.valid) == ["news", "dev"] and list(data.test) == ["talks=dev", "dev.source"]  # a file's name wins
    assert data.valid["news"].source_lines == data.test["dev.source"].source_lines == sentences(20, 2)
    assert data.test["talks=dev"].source_lines == sentences(20, 3)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_an_already_segmented_text_is_reported(share, tmp_path, capsys):
    lines = [f"so@@ me {line}" if i < 20 * share else line for i, line in enumerate(sentences(20, 2))]
    dev = write(tmp_path / "dev", lines, lines)
    prepare(options(tmp_path, train=(corpus(tmp_path / "train", 50),), valid=(dev,), subword="none"))
    assert ("dev.en is already split into subwords ('@@ ')" in capsys.readouterr().err) == (share > 0.1)


def test_separate_vocabularies_cover_only_their_own_side(tmp_path):
    train = corpus(tmp_path / "train", 200)
    prepare(options(tmp_path, train=(train,), subword="unigram", vocab_size=80, joint_vocabulary=False))
    data = PreparedData(tmp_path / "data")
    assert not data.pipeline.joint
    assert UNK in data.pipeline.source.encode("THE HOUSE") and UNK not in data.pipeline.target.encode("THE HOUSE")
    assert texts(data)[7] == (sentences(8, 1)[7], sentences(8, 1)[7].upper())


@pytest.mark.parametrize("subword", ["bpe", "none"])
def test_right_to_left_targets_are_stored_backwards_and_decode_normally(tmp_path, subword):
    given = {"train": (corpus(tmp_path / "train", 200),), "subword": subword, "vocab_size": 80 * (subword == "bpe")}
    prepare(options(tmp_path, **given))
    prepare(options(tmp_path, **given, right_to_left=True, output=str(tmp_path / "turned")))
    reused = {"vocabulary": str(tmp_path / "data"), "train": given["train"], "output": str(tmp_path / "reused")}
    prepare(PrepareOptions(source_lang="en", target_lang="de", right_to_left=True, **reused))
    usual, turned, again = (PreparedData(tmp_path / name) for name in ("data", "turned", "reused"))
    for i in range(200):
        own, other = (data.train.targets(np.array([i])).tolist() for data in (usual, turned))
        assert other == own[::-1] == again.train.targets(np.array([i])).tolist()
        assert turned.train.sources(np.array([i])).tolist() == usual.train.sources(np.array([i])).tolist()
    assert texts(turned) == texts(usual)
    assert turned.pipeline.hash == again.pipeline.hash != usual.pipeline.hash
    assert turned.pipeline.target.pieces("THE HOUSE") == usual.pipeline.target.pieces("THE HOUSE")
    facts = [json.loads((tmp_path / name / "pipeline/pipeline.json").read_bytes()) for name in ("data", "turned")]
    assert (
        "right_to_left" not in facts[0]["target"] and facts[1]["target"]["right_to_left"]
    )  # as ever, where it is as ever


def test_files_gzip_and_prefixes_form_one_corpus_in_the_given_order(tmp_path):
    one = write(tmp_path / "one", ["a", "b"], ["A", "B"])
    for language, content in (("en", b"c\n"), ("de", b"C\n")):
        (tmp_path / f"two.{language}.gz").write_bytes(gzip.compress(content))
    files = {"source": (f"{one}.en",), "target": (f"{one}.de",)}
    prepare(options(tmp_path, train=(one, str(tmp_path / "two")), **files))
    assert texts(PreparedData(tmp_path / "data")) == [("a", "A"), ("b", "B"), ("c", "C"), ("a", "A"), ("b", "B")]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_a_corpus_is_found_by_its_prefix_however_it_is_compressed(tmp_path, ending, pack):
    prepare(options(tmp_path, train=(corpus(tmp_path / "c", 20),)))
    plain = hashes(tmp_path / "data")
    for language in ("en", "de"):
        path = tmp_path / f"c.{language}"
        path.with_name(path.name + ending).write_bytes(pack(path.read_bytes()))
        path.unlink()
    prepare(options(tmp_path, train=(str(tmp_path / "c"),), overwrite=True))
    assert hashes(tmp_path / "data") == plain


def test_separators_inside_a_line_shift_nothing(tmp_path):
    odd = ["one\u2028two", "three\x85four", "five\rsix", "seven\x0ceight\x0bnine", "ten\x00\x1celeven", "last"]
    (tmp_path / "t.en").write_bytes(b"\xef\xbb\xbf" + "".join(line + "\r\n" for line in odd).encode())
    (tmp_path / "t.de").write_text("".join(f"{i}\n" for i in range(6)))
    given = str(tmp_path / "t")
    report = prepare(options(tmp_path, train=(given,), valid=(given,)))
    data = PreparedData(tmp_path / "data")
    words = ["one two", "three four", "five six", "seven eight nine", "ten eleven", "last"]
    assert texts(data) == [(text, str(i)) for i, text in enumerate(words)]
    assert data.valid["t"].source_lines[4] == "ten  eleven"
    assert len(data.valid["t"].source_lines) == 6 == report["sets"][0]["kept"]


@pytest.mark.parametrize("subword", ["bpe", "unigram", "char", "none"])
def test_control_symbols_in_a_corpus_are_text(tmp_path, subword):
    lines = [*sentences(50, 1), *["a </s> b <pad> <s>c <unk>"] * 20]
    train = write(tmp_path / "train", lines, lines)
    prepare(options(tmp_path, train=(train,), subword=subword, vocab_size=90 if subword != "none" else 0))
    data = PreparedData(tmp_path / "data")
    assert texts(data)[-1][0] == lines[-1]
    assert min(int(data.train.sources(np.array([i])).min()) for i in range(len(lines))) > UNK


@pytest.mark.parametrize(("source", "target"), [("bpe", "none"), ("none", "unigram"), ("bpe", "unigram")])
def test_the_target_may_have_subwords_of_another_kind(tmp_path, source, target):
    labels = ["(NP XX )NP", "(VP ``  )VP ﬁ"] * 30  # NFKC would make two letters of the last
    train = write(tmp_path / "train", sentences(60, 1), labels)
    given = options(
        tmp_path, train=(train,), subword=source, target_subword=target, vocab_size=60, joint_vocabulary=False
    )
    prepare(given)
    pipeline = PreparedData(tmp_path / "data").pipeline
    for side, kind, form in ((pipeline.source, source, "folded"), (pipeline.target, target, "exact")):
        assert side.settings.subword == kind
        assert side.settings.normalization == ("none" if kind == "none" else form)
    if target == "none":
        assert pipeline.target.size == 4 + 7 and pipeline.target.pieces(labels[1]) == labels[1].split()


# What is left out


@pytest.mark.parametrize("subword", ["none", "bpe", "char"])
def test_a_word_of_a_megabyte_is_too_long_and_does_not_enter_the_vocabulary(subword, tmp_path):
    lines = sentences(60, 1)
    long = ["x" * 2**20, *lines[1:30], "a " + "y" * 2**20, *lines[31:]]
    train = write(tmp_path / "train", long, lines)
    report = prepare(options(tmp_path, train=(train,), subword=subword, vocab_size=100, max_length=200))
    assert report["sets"][0]["dropped"]["too long"] == 2 and report["sets"][0]["kept"] == 58
    data = PreparedData(tmp_path / "data")
    assert max(len(text) for pair in texts(data) for text in pair) < 1000
    vocabulary = data.pipeline.source.vocabulary
    assert max(len(vocabulary.decode([token])) for token in range(vocabulary.size)) < 1000


def test_the_count_read_equals_kept_plus_dropped_and_pairs_are_dropped_on_both_sides(tmp_path):
    pairs = [
        ("a b c", "A B C"),
        ("", "A"),
        ("a", " \t "),
        ("a b c d e f", "A B"),
        ("a", "A B C D"),
        ("a b c", "A B C"),
        ("a b", "A B C"),
        ("  a   b c", "A B C"),
    ]
    train = write(tmp_path / "train", *map(list, zip(*pairs, strict=True)))
    report = prepare(options(tmp_path, train=(train,), max_length=5, max_ratio=3.0, deduplicate=True))
    found = report["sets"][0]
    dropped = {reason: count for reason, count in found["dropped"].items() if count}
    assert dropped == {"empty": 2, "too long": 1, "ratio": 1, "duplicate": 1}
    assert found["read"] == len(pairs) == found["kept"] + sum(dropped.values())
    kept = texts(PreparedData(tmp_path / "data"))
    assert kept == [("a b c", "A B C"), ("a b", "A B C"), ("a b c", "A B C")]
    assert found["source"]["tokens"] == found["source"]["words"] == 8 and found["target"]["longest"] == 3


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("words", [1, 2])
def test_duplicates_are_found_with_any_number_of_partitions(at_once, words):
    chance = np.random.default_rng(1)
    keys = chance.integers(0, 12, size=(500, words)).astype("<u8")  # of 12 or 144 different ones
    seen, wanted = {(0,) * words}, []
    for key in map(tuple, keys.tolist()):
        wanted.append(key in seen and any(key))
        seen.add(key)
    assert find_repeated(keys, at_once).tolist() == wanted
    assert 0 < sum(wanted) < 500


def test_removing_duplicates_keeps_the_order_and_leaves_no_temporary_files(tmp_path):
    lines = [f"{'ab'[i % 2]} {i % 3000}" for i in range(7000)]
    train = write(tmp_path / "train", lines, lines)
    report = prepare(options(tmp_path, train=(train,), deduplicate=True))["sets"][0]
    data = PreparedData(tmp_path / "data")
    once = list(dict.fromkeys(lines))
    assert texts(data) == [(line, line) for line in once]
    assert (report["kept"], report["dropped"]["duplicate"]) == (len(once), len(lines) - len(once))
    assert report["source"]["words"] == 2 * len(once)
    assert not list((tmp_path / "data").glob("*spool*"))


def test_the_fast_and_the_careful_way_of_reading_lines_agree(tmp_path):
    raw = [b"one", b"t\xc3\xa9w\xc2\xa0o", b"  three  ", b""]
    odd = [b"c\rd", b"e\x00f", b"g\xe2\x80\xa8h", b"cr\r"]
    files = FilePair(tmp_path / "s", tmp_path / "t")
    for rows in (raw, odd, raw + odd):
        joined = b"".join(row + b"\n" for row in rows)
        for content in (joined, joined + b"last", joined + b"last\r"):
            number = len(rows) + (not content.endswith(b"\n"))
            for first in (1, 5):
                lines = list(io.BytesIO(content))
                found = decode(Chunk(files, np.arange(first, first + number), lines, lines), "error")
                (tmp_path / "text").write_bytes(content)
                assert found.source == found.target == list(read_lines(tmp_path / "text"))


def test_every_nth_pair_is_held_out_over_all_files_and_no_vocabulary_sees_it(tmp_path):
    one = write(tmp_path / "one", [f"a{i}" for i in range(25)], [f"A{i}" for i in range(25)])
    two = write(tmp_path / "two", [f"b{i}" for i in range(18)], [f"B{i}" for i in range(18)])
    report = prepare(options(tmp_path, train=(one, two), hold_out=10))
    data = PreparedData(tmp_path / "data")
    names = [f"{letter}{i}" for letter, size in (("a", 25), ("b", 18)) for i in range(size)]
    held_out = names[9::10]
    assert data.valid["held-out"].source_lines == held_out
    assert [source for source, _ in texts(data)] == [name for name in names if name not in held_out]
    assert report["sets"][1]["source"]["unknown"] == len(held_out)
    with pytest.raises(InputError, match="--hold-out 50 is too large for 43 training pairs"):
        prepare(options(tmp_path, output=str(tmp_path / "other"), train=(one, two), hold_out=50))
    with pytest.raises(ValueError, match="--hold-out 1 "):
        options(tmp_path, train=(one,), hold_out=1)


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_sample_is_of_the_training_pairs_alone_however_they_are_held_out(tmp_path, seed):
    given = options(tmp_path, train=(corpus(tmp_path / "train", 400),), hold_out=2, subword="bpe", vocab_size=80)
    train = text_sets(given, 2)[0]
    train = with_counts(train, {})
    numbers = [int(number) for chunk in train.sample(100, seed) for number in chunk.numbers]
    assert len(numbers) == 100 and all(number % 2 for number in numbers)
    assert set(np.diff(numbers)) == {4}
    prepare(replace(given, subword_sample=200, seed=seed))


def test_pairs_are_held_out_of_training_pairs_only(tmp_path):
    with pytest.raises(ValueError, match="--hold-out needs training pairs"):
        options(tmp_path, vocabulary="m", valid=("dev",), hold_out=3)


def test_truecased_data_gives_its_capitals_back_and_needs_words(tmp_path):
    lines = [
        "The house sees the river.",
        "In the house is Anna.",
        "The river finds Anna.",
        "Anna loves the house.",
    ] * 5
    train = write(tmp_path / "train", lines, lines)
    prepare(options(tmp_path, train=(train,), tokenizer="moses", truecase=True))
    pipeline = PreparedData(tmp_path / "data").pipeline
    words = ["the", "river", ".", "Anna", "sees", "the", "house", "."]
    assert pipeline.source.pieces("The river. Anna sees the house.") == words
    assert pipeline.target.decode(pipeline.target.encode("The river finds Anna.")) == "The river finds Anna."
    for wrong in ({"truecase": True}, {"truecase": True, "tokenizer": "moses", "lowercase": True}):
        with pytest.raises(ValueError, match="--truecase needs --tokenizer"):
            options(tmp_path, train=(train,), **wrong)


def test_texts_in_an_archive_are_prepared_like_plain_files(tmp_path, monkeypatch):
    train, dev = corpus(tmp_path / "train", 60), corpus(tmp_path / "dev", 20, 2)
    (tmp_path / "dev.en.sgm").write_text(as_sgm((tmp_path / "dev.en").read_text().splitlines(), "src"))
    (tmp_path / "dev.de.sgm").write_text(as_sgm((tmp_path / "dev.de").read_text().splitlines(), "ref"))
    archive = tmp_path / "all.tgz"
    with tarfile.open(archive, "w:gz") as file:
        for name in ("train.en", "train.de", "dev.en.sgm", "dev.de.sgm"):
            file.add(tmp_path / name, f"texts/{name}")
    prepare(options(tmp_path, output=str(tmp_path / "plain"), train=(train,), valid=(dev,)))
    inside = archive / "texts"
    sides = {"valid_source": (str(inside / "dev.en.sgm"),), "valid_target": (str(inside / "dev.de.sgm"),)}
    searched: list[Path] = []
    monkeypatch.setattr(sets, "text_exists", lambda path: (searched.append(path), text_exists(path))[1])
    prepare(options(tmp_path, output=str(tmp_path / "packed"), train=(str(inside / "train"),), **sides))
    assert searched == [inside / "train.en", inside / "train.de"]  # each time a large archive is read
    plain, packed = hashes(tmp_path / "plain"), hashes(tmp_path / "packed")
    assert plain.pop("report.json") != packed.pop("report.json")
    assert plain == packed
    refused = prepare_fails(options(tmp_path, output=str(tmp_path / "x"), train=(str(inside / "tarin"),)))
    assert "tarin.en" in refused


def as_sgm(lines: list[str], kind: str) -> str:
    segments = "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(lines, 1))
    return f'<{kind}set setid="dev" srclang="any">\n<doc docid="1">\n<p>\n{segments}</p>\n</doc>\n</{kind}set>\n'


def prepare_fails(given: PrepareOptions) -> str:
    with pytest.raises(UserError) as caught:
        prepare(given)
    return str(caught.value)


def test_evaluation_sets_keep_every_line_but_the_loss_skips_empty_ones(tmp_path):
    train = corpus(tmp_path / "train", 50)
    dev = write(tmp_path / "dev", ["the house", "", "river", "x " * 400], ["THE HOUSE", "A", "", "unseen"])
    prepare(options(tmp_path, train=(train,), valid=(dev,), max_length=20))
    found = PreparedData(tmp_path / "data").valid["dev"]
    assert found.source_lines == ["the house", "", "river", "x " * 400]
    assert found.target_lines == ["THE HOUSE", "A", "", "unseen"]
    assert found.corpus.source_lengths.tolist() == [2, 0, 1, 400]
    assert sorted(int(i) for batch in found.batches(100) for i in batch) == [0, 3]


def test_unknown_words_are_counted(tmp_path):
    train = write(tmp_path / "train", ["a a a b c", "a a b"], ["x x", "x"])
    report = prepare(options(tmp_path, train=(train,), min_frequency=2, joint_vocabulary=False))
    assert report["sets"][0]["source"]["unknown"] == 1
    assert report["sets"][0]["source"]["unknown_percent"] == 12.5
    assert report["vocabulary"]["source"] == 4 + 2 and report["vocabulary"]["target"] == 4 + 1


# Text that cannot be used


def test_files_of_different_lengths_are_refused_with_both_counts(tmp_path):
    train = write(tmp_path / "train", ["a", "b", "c"], ["A", "B"])
    with pytest.raises(InputError, match=r"train\.en has 3 lines, .*train\.de has 2") as caught:
        prepare(options(tmp_path, train=(train,)))
    assert caught.value.code == 3
    assert sorted(os.listdir(tmp_path)) == ["train.de", "train.en"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_byte_is_named_by_file_line_and_byte(tmp_path, workers):
    train = corpus(tmp_path / "train", 4500)
    with Path(f"{train}.de").open("r+b") as file:
        content = file.read().split(b"\n")
        content[4099] = b"abc\xff"
        content[4400] = b"\xff"
        file.seek(0)
        file.write(b"\n".join(content))
        file.truncate()
    with pytest.raises(InputError, match=r"train\.de:4100:4: not UTF-8"):
        prepare(options(tmp_path, train=(train,), workers=workers))
    assert sorted(os.listdir(tmp_path)) == ["train.de", "train.en"]


@pytest.mark.parametrize(("policy", "kept"), [("skip", 2), ("replace", 3)])
def test_bad_bytes_are_skipped_or_replaced_on_request(tmp_path, policy, kept):
    (tmp_path / "t.en").write_bytes(b"a\nb\xff\nc\n")
    (tmp_path / "t.de").write_bytes(b"A\nB\nC\n")
    given = str(tmp_path / "t")
    report = prepare(options(tmp_path, train=(given,), valid=(given,), on_bad_line=policy))
    train, valid = report["sets"]
    assert train["kept"] == kept and train["dropped"]["bad bytes"] == 3 - kept
    assert valid["kept"] == 3 and valid["lines_with_replaced_bytes"] == 1
    data = PreparedData(tmp_path / "data")
    assert data.valid["t"].source_lines == ["a", "b\ufffd", "c"]
    assert [pair for pair in texts(data) if pair[0] in "ac"] == [("a", "A"), ("c", "C")]


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ({"train": ("none",)}, 2, "none.en: no such file, with or without .gz"),
        ({"train": ("empty",)}, 3, "is empty"),
        ({"train": ("blank",)}, 3, "no training pairs are left .dropped: 1 empty."),
        ({"train": ("blank",), "subword": "bpe", "vocab_size": 50}, 3, r"blank\.en and .*blank\.de: no text to learn"),
        ({"train": ("invisible",)}, 3, "no training pairs are left .dropped: 4 empty."),
        ({"train": ("one",), "valid": ("utf-16",)}, 3, r"utf-16\.en:1:1: UTF-16, not UTF-8"),
        ({"train": ("blank",), "valid": ("utf-16",)}, 3, r"utf-16\.en:1:1: UTF-16, not UTF-8"),  # told first
        ({"train": ("utf-32",)}, 3, r"utf-32\.en:1:1: UTF-32, not UTF-8 .*`iconv -f utf-32"),
        ({"train": ("utf-16",), "on_bad_line": "skip"}, 3, r"utf-16\.en:1:1: UTF-16, not UTF-8"),
        ({"train": ("one",), "subword": "bpe", "vocab_size": 6}, 2, "at least --vocab-size"),
        (
            {"train": ("one",), "valid": ("one", "sub/one")},
            2,
            "2 valid sets have the same name 'one' .name each set with `--valid NAME=",
        ),
        ({"source": ("one.en",), "target": ("/dev/null",)}, 2, "not a regular file"),
    ],
)
def test_failed_preparation_is_reported_and_leaves_nothing(tmp_path, monkeypatch, given, code, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name, lines in (("empty", []), ("blank", [""]), ("one", ["a house"]), ("sub/one", ["a house"])):
        write(tmp_path / name, lines, lines)
    for language in ("en", "de"):
        (tmp_path / f"invisible.{language}").write_text("\u200b\n\u2060 \ufeff\n\u3164\n\u00ad\u200e\n")
        (tmp_path / f"utf-16.{language}").write_text("a house\n", encoding="utf-16")
        (tmp_path / f"utf-32.{language}").write_text("a house\n", encoding="utf-32")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match=told.replace("'", ".?")) as caught:
        prepare(options(tmp_path, **given))
    assert caught.value.code == code
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"train": ("t",), "workers": 0},
        {"train": ("t",), "max_ratio": 0.5},
        {"train": ("t",), "seed": -1},
        {"train": ("t",), "min_length": 9, "max_length": 8},
        {"train": ("t",), "subword": "bpe", "vocab_size": 0},
        {"train": ("t",), "character_coverage": 0.97},
        {"train": ("t",), "target_subword": "bpe", "vocab_size": 50},
        {"train": ("t",), "target_subword": "bpe", "joint_vocabulary": False},
        {"source": ("a", "b"), "target": ("c",)},
        {"train": ("t",), "valid_source": ("a",)},
    ],
)
def test_invalid_settings_are_refused(tmp_path, given):
    with pytest.raises(ValueError, match=r"--|nothing to prepare"):
        options(tmp_path, **given)


# A function of inputs, settings and seed


@pytest.mark.parametrize("subword", ["bpe", "none"])
def test_the_number_of_workers_changes_no_byte(tmp_path, subword):
    train, dev = corpus(tmp_path / "train", 5000), corpus(tmp_path / "dev", 30, 2)
    size = 200 if subword == "bpe" else 0
    given = options(
        tmp_path, train=(train,), valid=(dev,), subword=subword, vocab_size=size, deduplicate=True, subword_sample=700
    )
    results = []
    for workers in (1, 2):
        prepare(replace(given, output=str(tmp_path / f"data{workers}"), workers=workers))
        results.append((tmp_path / f"data{workers}" / MANIFEST).read_bytes())
    assert results[0] == results[1]
    assert PreparedData(tmp_path / "data1").fingerprint == PreparedData(tmp_path / "data2").fingerprint


def test_the_seed_chooses_the_sample_and_nothing_else_changes_it(tmp_path):
    train = corpus(tmp_path / "train", 3000)
    vocabularies = []
    for i, seed in enumerate((1, 1, 2)):
        given = options(tmp_path, train=(train,), subword="bpe", vocab_size=120, subword_sample=40, seed=seed)
        prepare(replace(given, output=str(tmp_path / f"data{i}")))
        vocabularies.append(PreparedData(tmp_path / f"data{i}").pipeline.hash)
    assert vocabularies[0] == vocabularies[1] != vocabularies[2]


def test_the_fingerprint_depends_on_the_order_of_training_pairs_but_not_on_validation_data(tmp_path):
    one, dev = write(tmp_path / "one", ["a", "b"], ["A", "B"]), write(tmp_path / "dev", ["a"], ["B"])
    other = write(tmp_path / "other", ["b", "a"], ["B", "A"])
    for name, given in (
        ("1", {"train": (one,)}),
        ("2", {"train": (one,), "valid": (dev,)}),
        ("3", {"train": (other,)}),
    ):
        prepare(replace(options(tmp_path, **given), output=str(tmp_path / f"data{name}")))
    prints = [PreparedData(tmp_path / f"data{name}").fingerprint for name in "123"]
    assert prints[0] == prints[1] != prints[2]


def test_a_named_vocabulary_is_used_as_it_is(tmp_path, call):
    train, other = corpus(tmp_path / "train", 300), write(tmp_path / "other", ["Ａ unseen"], ["the garden"])
    prepare(options(tmp_path, train=(train,), subword="bpe", vocab_size=100, lowercase=True))
    reused = PrepareOptions(
        source_lang="en",
        target_lang="de",
        test=(other,),
        vocabulary=str(tmp_path / "data"),
        output=str(tmp_path / "more"),
    )
    prepare(reused)
    first, second = PreparedData(tmp_path / "data"), PreparedData(tmp_path / "more")
    assert second.pipeline.hash == first.pipeline.hash
    assert len(second.train) == 0
    learnt = call("shortlist", f"--data={tmp_path / 'more'}", f"--output={tmp_path / 'shortlist'}")
    assert learnt.code == 2 and "more: no training pairs" in learnt.err and not (tmp_path / "shortlist").exists()
    assert second.test["other"].corpus.targets(np.array([0])).tolist() == first.pipeline.target.encode("The Garden")
    with pytest.raises(UserError, match="--lowercase and --vocabulary"):
        prepare(replace(reused, lowercase=True, overwrite=True))
    with pytest.raises(UserError, match="translates en-de, but the data is de-en"):
        prepare(replace(reused, source_lang="de", target_lang="en", overwrite=True))


# Whole or not at all


def test_a_second_prepare_into_the_same_folder_is_refused_unless_it_may_overwrite(tmp_path):
    one, other = write(tmp_path / "one", ["a"], ["A"]), write(tmp_path / "other", ["b"], ["B"])
    prepare(options(tmp_path, train=(one,)))
    before = hashes(tmp_path / "data")
    with pytest.raises(UserError, match="already exists"):
        prepare(options(tmp_path, train=(other,)))
    assert hashes(tmp_path / "data") == before
    prepare(options(tmp_path, train=(other,), overwrite=True))
    assert texts(PreparedData(tmp_path / "data")) == [("b", "B")]


@pytest.fixture
def long_corpus(tmp_path) -> str:
    """A corpus whose preparing takes a second or more."""
    lines = sentences(2000, 1) * 25
    return write(tmp_path / "long", lines, lines)


def start(tmp_path: Path, train: str, *more: str) -> "subprocess.Popen[bytes]":
    arguments = ["--source-lang=en", "--target-lang=de", f"--train={train}", f"--output={tmp_path / 'data'}"]
    return subprocess.Popen([forked_nmt(), "prepare", *arguments, *more], stderr=subprocess.PIPE)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("moment", ["learning", "encoding"])
def test_a_signal_ends_it_with_128_plus_its_number_and_leaves_nothing(tmp_path, long_corpus, workers, moment):
    subword = "bpe" if moment == "learning" else "none"
    process = start(tmp_path, long_corpus, f"--subword={subword}", "--vocab-size=500", f"--workers={workers}")
    partial = tmp_path / ".data.partial"
    shard = partial / "train.source.bin"
    begun = partial.exists if moment == "learning" else lambda: shard.exists() and shard.stat().st_size > 0
    wait_for(begun, process, 60)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert sorted(os.listdir(tmp_path)) == ["long.de", "long.en"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_kill_leaves_no_data_and_the_next_run_succeeds(tmp_path, long_corpus, workers):
    process = start(tmp_path, long_corpus, "--subword=none", f"--workers={workers}")
    wait_for((tmp_path / ".data.partial/train.source.bin").exists, process, 60)
    process.kill()
    process.communicate(timeout=60)  # returns when no worker holds stderr any more: none outlives its parent
    assert not (tmp_path / "data").exists()
    short = write(tmp_path / "short", ["a"], ["A"])
    again = start(tmp_path, short, "--subword=none")
    again.communicate(timeout=60)
    assert again.returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["data", "long.de", "long.en", "short.de", "short.en"]
    assert texts(PreparedData(tmp_path / "data")) == [("a", "A")]


def test_a_full_disk_exits_with_5_reports_the_free_space_and_leaves_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    train = corpus(tmp_path / "train", 4000)
    with small_disk(disk, 64 << 10):
        with pytest.raises(ResourceError, match=r"free; make space") as caught:
            prepare(replace(options(tmp_path, train=(train,)), output=str(disk / "data")))
        assert caught.value.code == 5
        assert os.listdir(disk) == []


# Sets that are damaged or hostile


Row = tuple[list[int], list[int]]


def written(folder: Path, pipeline: Pipeline, rows: list[Row], lengths: list[tuple[int, int]]) -> Path:
    """A prepared-data folder with whatever ids and lengths are given."""
    with new_folder(folder, "prepared-data", {}) as temporary:
        (temporary / "pipeline").mkdir()
        pipeline.save(temporary / "pipeline")
        writer = SetWriter(temporary, "train", pipeline.sizes)
        source, target = (np.array([token for row in rows for token in row[side]], dtype=np.uint32) for side in (0, 1))
        writer.add(np.array(lengths, dtype=np.uint32).reshape(-1, 2), source, target)
        writer.close()
        write_facts(temporary, [SetFacts("train", "train", "train", writer.pairs)])
    return folder


@pytest.fixture
def pipeline(tmp_path) -> Pipeline:
    prepare(options(tmp_path, train=(write(tmp_path / "t", ["a b c"], ["x y z"]),)))
    return PreparedData(tmp_path / "data").pipeline


def test_pairs_can_be_read_from_any_position(tmp_path, pipeline):
    chance = random.Random(1)
    rows = [
        tuple([chance.randrange(3, 10) for _ in range(chance.choice((0, 1, 7, 40, 100)))] for _ in range(2))
        for _ in range(300)
    ]
    folder = written(tmp_path / "s", pipeline, rows, [(len(source), len(target)) for source, target in rows])
    train = PreparedData(folder).train
    order = chance.sample(range(300), 300)
    assert train.sources(np.array(order)).tolist() == [token for i in order for token in rows[i][0]]
    assert train.targets(np.array(order)).tolist() == [token for i in order for token in rows[i][1]]
    assert [(train.sources(np.array([i])).tolist(), train.targets(np.array([i])).tolist()) for i in range(300)] == rows


@pytest.mark.parametrize(
    ("row", "told"),
    [(([4, 10], [4, 4]), "a number is not between 3 and 9"), (([4, 2], [4, 4]), "a number is not between 3 and 9")],
)
def test_invalid_token_ids_are_refused(tmp_path, pipeline, row, told):
    assert pipeline.source.size == 10
    folder = written(tmp_path / "s", pipeline, [row], [(2, 2)])
    with pytest.raises(ArtefactError, match=told):
        PreparedData(folder).train.sources(np.array([0]))


@pytest.mark.parametrize("kinds", [[], ["train", "train"], ["valid"]])
def test_data_has_one_set_to_train_on(tmp_path, pipeline, kinds):
    folder = written(tmp_path / "s", pipeline, [([4], [4])], [(1, 1)])
    content = to_json([{"kind": kind, "name": "n", "stem": f"s{i}", "pairs": 0} for i, kind in enumerate(kinds)])
    (folder / "data.json").write_bytes(content)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["files"]["data.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / MANIFEST).write_bytes(to_json(manifest))
    with pytest.raises(ArtefactError, match="one training set"):
        PreparedData(folder)


def test_lengths_that_do_not_add_up_to_the_file_are_refused(tmp_path, pipeline):
    folder = written(tmp_path / "s", pipeline, [([4, 5], [4])], [(2, 3)])
    with pytest.raises(ArtefactError, match="its lengths require 6"):
        _ = PreparedData(folder).train


@pytest.mark.parametrize("name", ["train.source.bin", "train.target.bin", "train.lengths.bin"])
def test_a_file_with_an_extra_byte_is_refused(tmp_path, pipeline, name):
    folder = written(tmp_path / "s", pipeline, [([4, 5], [4])], [(2, 1)])
    reseal(folder, name, (folder / name).read_bytes() + b"x")
    with pytest.raises(ArtefactError, match=r"(its lengths|1 pairs) require \d+ \(prepare the data again"):
        _ = PreparedData(folder).train


@pytest.mark.parametrize("name", ["train.source.bin", "train.target.bin", "train.lengths.bin"])
def test_a_flipped_byte_is_found_before_it_is_used(tmp_path, pipeline, name):
    path = tmp_path / "data" / name
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(ArtefactError, match=r"damaged|its lengths require"):
        PreparedData(tmp_path / "data").train.sources(np.arange(1))
        PreparedData(tmp_path / "data").train.targets(np.arange(1))


def test_a_file_truncated_while_open_is_named_and_does_not_crash_the_process(tmp_path, pipeline):
    folder = written(tmp_path / "s", pipeline, [([4] * 5000, [5])], [(5000, 1)])
    train = PreparedData(folder).train
    os.truncate(folder / "train.source.bin", 100)
    with pytest.raises(ArtefactError, match=r"train\.source\.bin: truncated to 100 of 10,000 bytes"):
        train.sources(np.array([0]))
    train = PreparedData(written(tmp_path / "t", pipeline, [([4] * 5000, [5])], [(5000, 1)])).train
    os.truncate(tmp_path / "t/train.lengths.bin", 4)
    for read in (lambda: train.source_lengths, lambda: train.sources(np.array([0])), lambda: len(train)):
        with pytest.raises(ArtefactError, match=r"train\.lengths\.bin: truncated to 4 of 8 bytes"):
            read()


def test_data_of_format_1_is_read_and_keeps_its_fingerprint(tmp_path, pipeline):
    folder = tmp_path / "data"
    ids = PreparedData(folder).train.sources(np.arange(1)).tolist()
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["format"] == 2 and not [name for name in manifest["files"] if name.endswith(".sums")]
    parts = ["train.lengths.bin", "train.source.bin", "train.source.sums", "train.target.bin", "train.target.sums"]
    for name in parts[2::2]:  # which format 1 had besides, of each 64 KiB
        (folder / name).write_bytes(hashlib.sha256((folder / name).with_suffix(".bin").read_bytes()).digest())
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        manifest["files"][name] = {"size": 32, "sha256": digest}
    (folder / MANIFEST).write_bytes(to_json({**manifest, "format": 1}))
    data = PreparedData(folder)
    assert data.train.sources(np.arange(1)).tolist() == ids
    rows = "".join(f"{name} {manifest['files'][name]['sha256']}\n" for name in parts)
    assert data.fingerprint == hashlib.sha256(f"{rows}{data.pipeline.hash}".encode()).hexdigest()


def test_preparing_never_imports_torch(tmp_path):
    train = corpus(tmp_path / "train", 20)
    program = (
        "import sys; from nmt.cli.main import run; "
        f"code = run(['prepare', '--source-lang=en', '--target-lang=de', '--train={train}', '--vocab-size=60',"
        f" '--output={tmp_path / 'data'}', '--quiet']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""


def test_the_report_is_printed_on_stderr_and_as_json_on_stdout(tmp_path):
    train = corpus(tmp_path / "train", 20)
    told = subprocess.run(
        [*NMT, "prepare", "--source-lang=en", "--target-lang=de", "--train", train, "--subword=none", "--json",
         f"--output={tmp_path / 'data'}"], capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout) == json.loads((tmp_path / "data/report.json").read_bytes())
    assert b"20 pairs read, 20 kept" in told.stderr


@pytest.mark.parametrize(
    "name", [field.name for field in fields(SideSettings) if field.name not in ("language", "language_case")]
)
def test_every_text_option_reaches_the_pipeline_and_is_refused_with_an_existing_vocabulary(name, tmp_path):
    train = write(tmp_path / "t", sentences(60, 1), sentences(60, 2))
    values = {
        "normalization": "nfc", "normalize_punctuation": True, "lowercase": True, "tokenizer": "moses", "subword": "bpe",
        "truecase": True, "right_to_left": True, "user_symbols": ["<2de>"], "context": 2,
        "reversible": False,
    }  # fmt: skip
    given = {name: values[name], **({"tokenizer": "moses"} if name in ("truecase", "reversible") else {})}
    size = {"vocab_size": 60} if name == "subword" else {}
    prepare(options(tmp_path, train=(train,), **size, **given))
    saved = json.loads((tmp_path / "data/pipeline/pipeline.json").read_text())
    of_side = {"source": "right_to_left", "target": "context"}
    assert all(
        saved[side].get(name, False) == (values[name] if name != without else False)
        for side, without in of_side.items()
    )
    if name not in ("right_to_left", "context", "user_symbols"):  # tags that the vocabulary has may be named
        changed = "unigram" if name == "subword" else values[name]
        extra = {**given, name: changed}
        reused = PrepareOptions(
            source_lang="en", target_lang="de", train=(train,), vocabulary=str(tmp_path / "data"),
            output=str(tmp_path / "other"), **extra,
        )  # fmt: skip
        with pytest.raises(UserError, match="and --vocabulary"):
            prepare(reused)


@pytest.mark.parametrize("deduplicate", [False, True])
def test_no_training_pair_has_a_held_out_sentence_even_ignoring_punctuation(tmp_path, deduplicate):
    """Sources repeat with other targets, long targets with other sources; short targets may repeat."""
    chance = random.Random(1)
    marks = [str, str.upper, "{}!".format, " {}".format, lambda text: text.replace(" ", "\u00a0"), "„{}“".format]
    sources, targets = sentences(60, 3), [f"{text} und noch etwas mehr" for text in sentences(60, 4)]
    targets[:10] = ["ja"] * 10
    rows = [(chance.choice(sources), chance.choice(targets)) for _ in range(900)]
    texts = [[chance.choice(marks)(text) for text in side] for side in zip(*rows, strict=True)]
    given = {"train": (write(tmp_path / "c", *texts),), "hold_out": 100, "deduplicate": deduplicate}
    train, held_out = prepare(options(tmp_path, **given))["sets"]
    held = {side: {rows[i][side] for i in range(99, 900, 100)} for side in (0, 1)}
    leaks = [row for i, row in enumerate(rows) if i % 100 != 99 if row[0] in held[0] or row[1] in held[1] - {"ja"}]
    assert train["dropped"]["equals held-out"] == len(leaks) > 100
    assert train["read"] == train["kept"] + sum(train["dropped"].values()) and held_out["kept"] == 9
    kept = [row for i, row in enumerate(rows) if i % 100 != 99 if row not in leaks]
    assert deduplicate or train["kept"] == len(kept)
    prepare(options(tmp_path, **given, workers=2, overwrite=True))
    assert len(PreparedData(tmp_path / "data").train) == train["kept"]


@pytest.mark.parametrize("subword", ["bpe", "unigram", "char"])
@pytest.mark.parametrize(
    ("gap", "letters"), [(" ", "abcdefgh"), (" ▅ ", "abcdefgh"), (" ", "गघचछजटडत"), ("", "日本語学校川先生")]
)
def test_subwords_are_learnt_from_long_lines_too(tmp_path, subword, gap, letters):
    """One line gives the characters that its words give in a line each."""
    chance = random.Random(1)
    words = ["".join(chance.choices(letters, k=chance.randint(1, 5))) for _ in range(3000)]
    given = {"subword": subword, "vocab_size": 40, "joint_vocabulary": False, "max_length": 0}
    for name, lines in (("long", [gap.join(words)] * 2), ("short", words * 2)):
        train = write(tmp_path / name, ["a b c"] * len(lines), lines)
        prepare(options(tmp_path, **given, train=(train,), output=str(tmp_path / f"{name}-data")))
    found = [PreparedData(tmp_path / f"{name}-data").pipeline.target for name in ("long", "short")]
    pieces = [{side.piece(token) for token in range(side.size)} for side in found]
    assert set(letters) <= {letter for piece in pieces[0] for letter in piece}
    assert UNK not in found[0].encode(" ".join(words))
    assert gap == "" or subword == "unigram" or pieces[0] == pieces[1]


def test_a_file_that_contributes_no_text_is_named(tmp_path):
    train = write(tmp_path / "t", ["one", "two"], ["\u200b", " "])
    assert "t.de" in prepare_fails(
        options(tmp_path, train=(train,), subword="bpe", vocab_size=12, joint_vocabulary=False)
    )
