"""Columns of prepared data stay with their pairs and tokens, from `nmt prepare --column` into the batches of every rank."""

import gzip
import html
import random
import unicodedata
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plans import plan_of

from nmt import registry
from nmt.artefact import Artefact
from nmt.batch import Batch, Column
from nmt.cli.main import run
from nmt.columns.base import column_kind
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.data.prepare import PrepareOptions, prepare
from nmt.data.shards import Corpus, PreparedData
from nmt.errors import ArtefactError, InputError, UserError
from nmt.extensions.details.alignment import word_of_tokens
from nmt.extensions.fast.training_speedups.capture import padded_to
from nmt.symbols import EOS, PAD, UNK

LETTERS = "abcdefghij"


def random_word(chance: random.Random) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 6)))


class Texts:
    """A corpus in which every value can be derived from the line it belongs to. chosen: more lines after the random ones"""

    def __init__(self, count: int, seed: int = 1, chosen: list[tuple[str, str]] | None = None) -> None:
        chance = random.Random(seed)
        lines = [
            tuple(" ".join(random_word(chance) for _ in range(chance.randint(1, 9))) for _ in range(2))
            for _ in range(count)
        ]
        self.pairs: list[tuple[str, str]] = lines + (chosen or [])

    def write(self, folder: Path, name: str = "t") -> dict[str, Any]:
        """Write texts and columns; gives the options of prepare."""
        folder.mkdir(exist_ok=True)
        rows = {
            "en": [source for source, _ in self.pairs],
            "de": [target for _, target in self.pairs],
            "weight": [f"{weight_of(*pair)!r}" for pair in self.pairs],
            "importance": [" ".join(f"{number!r}" for number in importance_of(*pair)) for pair in self.pairs],
            "links": [" ".join(f"{s}-{t}" for s, t in links_of(*pair)) for pair in self.pairs],
        }
        for ending, lines in rows.items():
            (folder / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines))
        prefix = str(folder / name)
        columns = f"weight={prefix}.weight", f"importance:target={prefix}.importance", f"alignment:links={prefix}.links"
        return {"train": (prefix,), "column": columns}


def weight_of(source: str, target: str) -> float:
    return len(source) + len(target) / 128


def importance_of(source: str, target: str) -> list[float]:
    """A number for each target word, and one for EOS in every second line."""
    numbers = [word.count("a") + len(word) / 8 for word in target.split()]
    return numbers + [len(source) / 4] * (len(source) % 2)


def links_of(source: str, target: str) -> list[tuple[int, int]]:
    """Words that start with the same letter."""
    return [
        (s, t) for s, one in enumerate(source.split()) for t, other in enumerate(target.split()) if one[0] == other[0]
    ]


def options(tmp_path: Path, **given: Any) -> PrepareOptions:
    values = {"output": str(tmp_path / "data"), "vocab_size": 60, **given}
    return PrepareOptions(source_lang="en", target_lang="de", **values)


def expected(data: PreparedData, source: list[int], target: list[int]) -> tuple[float, list[float], list[tuple]]:
    """What belongs to a pair of ids (without EOS), from its text alone."""
    sides = data.pipeline.source, data.pipeline.target
    texts = [side.decode(ids) for side, ids in zip(sides, (source, target), strict=True)]
    words = [  # of each token in the model's order
        side.in_reading_order(word_of_tokens(side, side.in_reading_order(ids)))
        for side, ids in zip(sides, (source, target), strict=True)
    ]
    numbers = importance_of(*texts)
    end = numbers.pop() if len(numbers) > len(texts[1].split()) else 1.0
    links = {
        (s, t) for one, other in links_of(*texts)
        for s in np.flatnonzero(np.array(words[0]) == one).tolist()
        for t in np.flatnonzero(np.array(words[1]) == other).tolist()
    }  # fmt: skip
    return weight_of(*texts), [numbers[word] for word in words[1]] + [end], sorted(links)


def assert_columns_fit(data: PreparedData, corpus: Corpus) -> None:
    assert {name: column.kind for name, column in corpus.columns.items()} == {
        "weight": "pair", "importance": "target", "alignment": "links"
    }  # fmt: skip
    for i in range(len(corpus)):
        at = np.array([i])
        weight, importance, links = expected(data, corpus.sources(at).tolist(), corpus.targets(at).tolist())
        assert corpus.columns["weight"].take(at).values.tolist() == [weight]
        assert corpus.columns["importance"].take(at).values.tolist() == importance
        assert sorted(map(tuple, corpus.columns["alignment"].take(at).values.tolist())) == links


@pytest.mark.parametrize("how", ["bpe", "none", "right-to-left", "separate"])
def test_values_stay_with_their_pair_token_or_link(tmp_path, how):
    given = Texts(150).write(tmp_path)
    more = {
        "bpe": {},
        "none": {"subword": "none", "vocab_size": 0},
        "right-to-left": {"right_to_left": True},
        "separate": {"joint_vocabulary": False},
    }
    prepare(options(tmp_path, **given, **more[how]))
    data = PreparedData(tmp_path / "data")
    assert len(data.train) == 150
    assert_columns_fit(data, data.train)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_dropped_pair_takes_its_values_along(tmp_path, workers):
    odd = [("", "a b"), ("a b", ""), ("a " * 50 + "b", "c"), ("twice", "twice"), ("twice", "twice"), ("bad", "bad")]
    texts = Texts(4500, 2, odd)
    given = texts.write(tmp_path)
    lines = Path(f"{given['train'][0]}.de").read_bytes().split(b"\n")
    lines[4500 + odd.index(("bad", "bad"))] = b"bad \xff bad"
    Path(f"{given['train'][0]}.de").write_bytes(b"\n".join(lines))
    report = prepare(
        options(
            tmp_path, **given, max_length=30, deduplicate=True, hold_out=7, on_bad_line="skip", workers=workers
        )
    )  # fmt: skip
    train, held_out = report["sets"]
    assert all(train["dropped"][reason] for reason in ("empty", "too long", "duplicate", "bad bytes"))
    assert train["columns"] == held_out["columns"] == {"weight": "pair", "importance": "target", "alignment": "links"}
    data = PreparedData(tmp_path / "data")
    assert len(data.train) == train["kept"] < 4000 and len(data.valid["held-out"].corpus) == 643
    assert_columns_fit(data, data.train)
    assert_columns_fit(data, data.valid["held-out"].corpus)


def test_the_number_of_workers_changes_nothing_and_columns_enter_the_fingerprint(tmp_path):
    given = options(tmp_path, **Texts(4500).write(tmp_path), deduplicate=True, hold_out=50)
    for workers in (1, 3):
        prepare(replace(given, output=str(tmp_path / f"data{workers}"), workers=workers))
    manifests = [Artefact(tmp_path / f"data{workers}", "prepared-data").manifest for workers in (1, 3)]
    assert manifests[0] == manifests[1]
    changed = Path(given.train[0] + ".weight")
    changed.write_text("".join(f"{float(line) + 1}\n" for line in changed.read_text().split()))
    prepare(replace(given, output=str(tmp_path / "other")))
    prepare(replace(given, output=str(tmp_path / "without"), column=()))
    prints = [PreparedData(tmp_path / name).fingerprint for name in ("data1", "data3", "other", "without")]
    assert prints[0] == prints[1] and len(set(prints)) == 3


def test_data_without_columns_is_unchanged_and_readable(tmp_path):
    given = Texts(50).write(tmp_path)
    report = prepare(options(tmp_path, train=given["train"]))
    assert report["settings"]["column"] == [] and "columns" not in report["sets"][0]
    assert "columns" not in (tmp_path / "data/data.json").read_text()
    data = PreparedData(tmp_path / "data")
    assert data.train.columns == {}
    loader = Loader(plan_of(data.train, 200, 1), 100)
    assert loader.column_kinds == {} and next(loader.updates(Position())).batches[0].columns == {}


def test_a_column_of_several_files_matches_the_training_files_compressed_or_not(tmp_path):
    first, second = Texts(20).write(tmp_path, "one"), Texts(30, 2).write(tmp_path, "two")
    packed = Path(f"{second['train'][0]}.links")
    packed.with_suffix(".links.gz").write_bytes(gzip.compress(packed.read_bytes()))
    columns = [*first["column"], *second["column"][:2], f"alignment:links={packed}.gz"]
    prepare(options(tmp_path, train=(*first["train"], *second["train"]), column=tuple(columns)))
    data = PreparedData(tmp_path / "data")
    assert len(data.train) == 50
    assert_columns_fit(data, data.train)


@pytest.mark.parametrize("ranks", [1, 2, 64])
def test_the_batches_of_every_rank_have_the_values_of_their_pairs_and_keep_them_when_split(tmp_path, ranks):
    prepare(options(tmp_path, **Texts(150).write(tmp_path)))
    data = PreparedData(tmp_path / "data")
    kinds = Loader(plan_of(data.train, 200, 1), 100).column_kinds
    shares = [next(Loader(plan_of(data.train, 900, 1), 200, rank, ranks).updates(Position())) for rank in range(ranks)]
    assert any(share.idle for share in shares) == (ranks == 64)
    counted = 0
    for share in shares:
        for batch in share.batches:
            assert {name: column.kind for name, column in batch.columns.items()} == kinds
            for part in (batch, *batch.split(40)):
                for i in range(len(part)):
                    source, target = ([t for t in row.tolist() if t != PAD] for row in (part.source[i], part.target[i]))
                    assert source[-1] == target[-1] == EOS
                    weight, importance, links = expected(data, source[:-1], target[1:-1])
                    assert float(part["weight"][i]) == weight
                    assert part["importance"][i][: len(importance)].tolist() == importance
                    assert not part["importance"][i][len(importance) :].any()
                    assert sorted(tuple(link) for link in part["alignment"][i].tolist() if link[0] >= 0) == links
        counted += sum(map(len, share.batches[: len(share.batches) - share.idle]))
    assert counted == len(shares[0].target_lengths)


# Words of a file, none of which has a space or tab, that text steps cut, change, or drop.
ODD_WORDS = {
    "no-break spaces": "10\u00a0000 3\u202f/\u202f5 kg\u2007x",
    "ideographic": "日本\u3000語 ＡＢＣ ㌔",
    "accents": "geht´s ab¨o c\u0327d ﬁn ½x e\u0301",
    "controls": "a\x0bb c\u2028d e\x85f g\x1ch",
    "marks": "\u200b abc \ufeffdef x\u00ady \u200e",
    "sentencepiece's space": "a▁b ▁ c▁",
    "punctuation": "well-known, (x) R&D [it's] U.S. 12:30 „ab“ ...",
    "case": "STRASSE İstanbul ΣΑΣ Straße",
    "replaced": "a\ufffdb",
}


@pytest.mark.parametrize("how", ["bpe", "words", "right-to-left", "moses", "aggressive", "lower"])
def test_column_values_refer_to_the_words_of_the_file_before_text_steps(tmp_path, how):
    """A number for each word, by position: the tokens with that number spell the word."""
    lines = [*ODD_WORDS.values(), " ".join(ODD_WORDS.values()), "\tone \t two  "]
    (tmp_path / "t.en").write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in lines).encode())
    (tmp_path / "t.de").write_text("".join(f"{line}\n" for line in lines), newline="")
    words = [[word for word in line.replace("\t", " ").split(" ") if word] for line in lines]
    (tmp_path / "w").write_text("".join(" ".join(map(str, range(len(row)))) + " 99\n" for row in words))
    links = [" ".join(f"{i}-{i}" for i in range(len(row))) for row in words]
    (tmp_path / "l").write_text("\n".join(links) + "\n")
    more = {
        "words": {"subword": "none", "vocab_size": 0},
        "right-to-left": {"right_to_left": True},
        "moses": {"tokenizer": "moses"},
        "aggressive": {"tokenizer": "moses-aggressive"},
        "lower": {"lowercase": True, "normalize_punctuation": True},
    }.get(how, {})
    columns = f"w:target={tmp_path / 'w'}", f"l:links={tmp_path / 'l'}"
    given = {"vocab_size": 120, "train": (str(tmp_path / "t"),), "column": columns, "max_length": 0, **more}
    prepare(options(tmp_path, **given))
    data = PreparedData(tmp_path / "data")
    side = data.pipeline.target
    for i, row in enumerate(words):
        ids, values = data.train.targets(np.array([i])).tolist(), data.train.columns["w"].take(np.array([i])).values
        assert values[-1] == 99
        found = [""] * len(row)
        for token, value in side.in_reading_order(list(zip(ids, values[:-1].tolist(), strict=True))):
            found[int(value)] += side.surface(token)
        for word, text in zip(row, found, strict=True):
            assert letters(html.unescape(text)) == letters(word)
        source = data.train.sources(np.array([i])).tolist()
        for one, other in data.train.columns["l"].take(np.array([i])).values.tolist():
            assert letters(data.pipeline.source.surface(source[one])) in letters(found[int(values[other])])


def letters(text: str) -> str:
    """The letters and digits, however they are written, without a case."""
    text = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in text if c.isalnum())


def test_two_numbers_for_words_that_merge_into_one_exit_with_3_and_the_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.en").write_text("why :\nwhy :\n")
    Path("t.de").write_text("warum :\nwarum :\n")
    given = {"train": ("t",), "subword": "none", "vocab_size": 0, "normalize_punctuation": True, "overwrite": True}
    Path("FILE").write_text("2 2\n3 3\n")
    prepare(options(tmp_path, **given, column=("w:target=FILE",)))
    Path("FILE").write_text("2 2\n3 4\n")
    Path("links").write_text("0-0 1-1\n1-1\n")
    with pytest.raises(InputError, match="FILE:2: "):
        prepare(options(tmp_path, **given, column=("w:target=FILE",)))
    prepare(options(tmp_path, **given, column=("w:links=links",)))
    column = PreparedData(tmp_path / "data").train.columns["w"]
    assert [column.take(np.array([i])).values.tolist() for i in range(2)] == [[[0, 0]], [[0, 0]]]


BAD = [
    ("weight=FILE", "1\nx\n", "FILE:2: 'x' is not a finite"),
    ("weight=FILE", "nan\n1\n", "FILE:1: 'nan' is not a finite"),
    ("weight=FILE", "1\n1e39\n", "FILE:2: '1e39' is not a finite"),
    ("weight=FILE", "1\n-0.5\n", "FILE:2: '-0.5': weights must not be negative"),
    ("weight:target=FILE", "1 -1\n1 1 1\n", "FILE:1: '-1': weights must not be negative"),
    ("weight=FILE", "1\n1_0\n", "FILE:2: '1_0' is not a finite"),
    ("weight=FILE", "1\n\n", "FILE:2: 0 numbers"),
    ("weight=FILE", "1\n1 2\n", "FILE:2: 2 numbers"),
    ("weight=FILE", "1\n\xff\n", "FILE:2:1: not UTF-8"),
    ("weight:target=FILE", "1 2\n1\n", "FILE:2: 1 numbers; expected 3, one per target word.*or 4"),
    ("weight:target=FILE", "1 2 3 4\n1 2 3\n", "FILE:1: 4 numbers; expected 2.*or 3"),
    ("weight:target=FILE", "1 -inf\n1 2 3\n", "FILE:1: '-inf' is not a finite"),
    ("weight:links=FILE", "0-0 1-2\n\n", "FILE:1: '1-2': must be SOURCE-TARGET.*1 source words and 2 target words"),
    ("weight:links=FILE", "0-1\n2-0\n", "FILE:2: '2-0': must be SOURCE-TARGET"),
    ("weight:links=FILE", "0-1\n0p0\n", "FILE:2: '0p0': must be SOURCE-TARGET"),
    ("weight:links=FILE", "\n0-" + "9" * 5000 + "\n", "FILE:2: '0-99.*must be SOURCE-TARGET"),
    ("weight=FILE", "1\n", "FILE has 1 lines, .*en has 2"),
    ("weight=FILE", "1\n2\n3\n", "FILE has 3 lines, .*en has 2"),
]


@pytest.mark.parametrize(("column", "content", "message"), BAD)
def test_an_invalid_column_line_exits_with_3_and_the_place(tmp_path, monkeypatch, column, content, message):
    monkeypatch.chdir(tmp_path)
    Path("t.en").write_text("house\ngreen house\n")
    Path("t.de").write_text("ein Haus\nein neues Haus\n")
    Path("FILE").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=message) as caught:
        prepare(options(tmp_path, train=("t",), column=(column,), subword="none", vocab_size=0))
    assert caught.value.code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FILE", "t.de", "t.en"]


@pytest.mark.parametrize(("column", "content", "message"), [row for row in BAD if "lines" not in row[2]])
@pytest.mark.parametrize("hold_out", [0, 2])
def test_pairs_with_an_invalid_column_line_can_be_skipped(tmp_path, monkeypatch, column, content, message, hold_out):
    """The other line of each pair of lines is right."""
    monkeypatch.chdir(tmp_path)
    Path("t.en").write_text("house\ngreen house\n" * 2)
    Path("t.de").write_text("ein Haus\nein neues Haus\n" * 2)
    Path("FILE").write_bytes(content.encode("latin-1") * 2)
    given = {"train": ("t",), "column": (column,), "subword": "none", "vocab_size": 0, "hold_out": hold_out}
    bad = int(message.split(":")[1])
    if hold_out and bad == 1:
        with pytest.raises(InputError, match="2 bad column"):
            prepare(options(tmp_path, **given, on_bad_line="skip"))
        return
    for text_set in prepare(options(tmp_path, **given, on_bad_line="skip"))["sets"]:
        is_bad = text_set["name"] == "held-out" if hold_out else True
        assert text_set["dropped"]["bad column"] == (2 if is_bad else 0)
        assert text_set["read"] == text_set["kept"] + text_set["dropped"]["bad column"]


@pytest.mark.parametrize("kind", ["pair", "target", "signed-pair", "signed-target"])
def test_all_zero_weights_are_refused_and_numbers_can_be_negative(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    Path("t.en").write_text("house\nhouse\n")
    Path("t.de").write_text("Haus\nHaus\n")
    given = options(tmp_path, train=("t",), column=(f"w:{kind}=FILE",), subword="none", vocab_size=0, overwrite=True)
    zero, signed = (
        "0",
        "0 -1" if kind.endswith("target") else "-1",
    )  # without a number of its own, the line's end has 0 too
    is_weight = kind in ("pair", "target")
    Path("FILE").write_text(f"{zero}\n{zero}\n")
    with pytest.raises(InputError, match=r"FILE: .* column w") if is_weight else nullcontext():
        prepare(given)
    Path("FILE").write_text(f"{zero}\n{signed}\n")
    with pytest.raises(InputError, match="FILE:2") if is_weight else nullcontext():
        prepare(given)
    if not is_weight:
        assert PreparedData(tmp_path / "data").train.columns["w"].take(np.array([1])).values.tolist()[-1] == -1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("weight",), "expected NAME=FILE"),
        (("Weight=w",), "expected NAME=FILE"),
        (("source=w",), "must not be source, target, lengths"),
        (("weight:numbers=w",), "\\(choose from links, pair, signed-pair, signed-target, target"),
        (("weight=w", "weight:links=w"), "already given with kind pair"),
        (("weight=w", "weight=w"), "2 files for 1 pairs of training files"),
        (("weight=nowhere",), "nowhere: no such file"),
    ],
)
def test_impossible_columns_exit_with_2(tmp_path, monkeypatch, columns, message):
    monkeypatch.chdir(tmp_path)
    for name in ("t.en", "t.de", "w"):
        Path(name).write_text("1\n")
    with pytest.raises(UserError, match=message) as caught:
        prepare(options(tmp_path, train=("t",), column=columns, subword="none", vocab_size=0))
    assert caught.value.code == 2


def test_columns_without_training_pairs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--column needs training pairs"):
        options(tmp_path, vocabulary="m", valid=("dev",), column=("weight=w",))


@pytest.mark.parametrize(
    "name", ["train.weight.bin", "train.importance.bin", "train.alignment.bin", "train.alignment.counts.bin"],
)  # fmt: skip
def test_a_flipped_byte_in_a_column_exits_with_4_before_it_is_used(tmp_path, name):
    prepare(options(tmp_path, **Texts(50).write(tmp_path)))
    path = tmp_path / "data" / name
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(ArtefactError, match="damaged") as caught:
        next(Loader(plan_of(PreparedData(tmp_path / "data").train, 10_000, 1), 10_000).updates(Position()))
    assert caught.value.code == 4


def test_the_command_takes_columns_and_names_them(tmp_path, capfd):
    given = Texts(30).write(tmp_path)
    columns = [word for column in given["column"] for word in ("--column", column)]
    asked = ["--source-lang=en", "--target-lang=de", f"--train={given['train'][0]}", "--vocab-size=60"]
    assert run(["prepare", *asked, *columns, f"--output={tmp_path / 'data'}"]) == 0
    assert "30 kept; columns: weight (pair), importance (target), alignment (links)" in capfd.readouterr().err


PLUGIN = '''
"""A kind of column in one file: a number for each source word."""

import numpy as np

from nmt import register
from nmt.columns.base import ColumnKind, padded_rows
from nmt.options import NoOptions
from nmt.rows import Rows


@register("column", "source", NoOptions)
class SourceColumn(ColumnKind):
    """A number for each source word: (B, S - 1) in a batch."""

    sides = (0,)

    def read(self, items):
        words = [len(line.split()) for line in items.sentences.prepared[0]]
        for i in np.flatnonzero(items.sentences.good & (items.counts != words)).tolist():
            raise items.error(i, "must be a number for each source word")
        return Rows(items.numbers(), items.counts)

    def counts(self, lengths):
        return lengths[..., 0]

    def of_batch(self, rows):
        return padded_rows(rows, self.filler, np.float32)

    def ones(self, num_pairs, target_length):
        return Rows(np.ones(num_pairs), np.ones(num_pairs, np.int64))

    def positions(self, source, target):
        return source - 1
'''


def test_a_column_kind_from_one_plugin_file_is_read_stored_and_batched(tmp_path, capfd):
    chance, plugin = random.Random(1), f"--plugin={tmp_path / 'kind.py'}"
    (tmp_path / "kind.py").write_text(PLUGIN)
    words = [[chance.choice(LETTERS) * chance.randint(1, 4) for _ in range(chance.randint(1, 6))] for _ in range(2100)]
    for name, lines in (("en", words), ("de", words), ("size", [[str(len(word)) for word in row] for row in words])):
        (tmp_path / f"t.{name}").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    asked = [
        "prepare", str(tmp_path / "t.en"), str(tmp_path / "t.de"), "--subword=none", "--workers=2", plugin,
        f"--column=size:source={tmp_path / 't.size'}", f"--output={tmp_path / 'data'}",
    ]  # fmt: skip
    try:
        assert run(asked) == 0
        data = PreparedData(tmp_path / "data")
        [batch] = next(Loader(plan_of(data.train, 10**6, 1), 10**6).updates(Position())).batches
        for row in (batch, padded_to(batch, 2200, 9, 9), batch.rows(slice(5, 9))):
            real = (row.source != PAD) & (row.source != EOS)
            lengths = [[len(data.pipeline.source.piece(int(token))) for token in ids] for ids in row.source]
            sizes = row["size"][:, : real.shape[1] - 1]
            assert (sizes.numpy() == np.where(real, lengths, 0)[:, :-1]).all()
        assert run([*asked, "--context=1", "--overwrite"]) == 2 and "--context" in capfd.readouterr().err
        (tmp_path / "t.size").write_text("1 2 3 4 5 6 7\n" * 2100)
        assert run([*asked, "--overwrite"]) == 3 and "t.size:1: must be a number for" in capfd.readouterr().err
    finally:
        registry._shelf.parts.pop(("column", "source"), None)
    with pytest.raises(ArtefactError, match="the unknown kind 'source'"):
        _ = PreparedData(tmp_path / "data").train


@pytest.mark.parametrize("name", registry.names("column"))
def test_dummy_values_have_the_form_of_real_ones(name):
    kind, lengths = column_kind(name), np.full((3, 2), 4)
    rows = kind.ones(3, 5)
    assert kind.fits(rows, lengths) and (kind.stores_counts or (kind.counts(lengths) == rows.lengths).all())
    values = torch.from_numpy(kind.of_batch(rows))
    batch = Batch(torch.full((3, 5), UNK), torch.full((3, 6), UNK), {"c": Column(values, name)})
    again = padded_to(batch, 4, 7, 9).rows(slice(0, 3))["c"]
    assert torch.equal(kind.narrowed(again, 5), values)
