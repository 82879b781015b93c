"""`prepare --context`: a model reads the sentences before a line, and each command gives it the same."""

import json
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ENVIRONMENT, NMT
from servers import serving

import nmt.data.encode
from nmt.data.shards import Corpus, PreparedData
from nmt.text.context import SEPARATOR
from nmt.translate.ctranslate2_engine import CTranslate2Engine
from nmt.translate.own_engine import OwnEngine

NOUNS = {"cat": ("katze", "sie"), "dog": ("hund", "er"), "lamp": ("lampe", "sie"), "tree": ("baum", "er")}
VERBS = {"falls": "faellt", "sleeps": "schlaeft", "burns": "brennt"}
MODEL = [
    "--encoder-layers=1", "--decoder-layers=1", "--d-model=32", "--d-ff=64", "--heads=2", "--dropout=0", "--norm-position=pre",
    "--batch-tokens=300", "--schedule=constant", "--lr=0.005", "--threads=1", "--no-valid-bleu",
]  # fmt: skip
FLAGS = ["--source-lang=en", "--target-lang=de", "--quiet"]


def documents(number: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of two lines and a blank one: the pronoun of the second is that of the noun of the first."""
    chance, rows = random.Random(seed), []
    for _ in range(number):
        noun, verb, other = chance.choice([*NOUNS]), chance.choice([*VERBS]), chance.choice([*VERBS])
        german, pronoun = NOUNS[noun]
        rows += [
            (f"the {noun} {verb}", f"{german} {VERBS[verb]}"),
            (f"it {other}", f"{pronoun} {VERBS[other]}"),
            ("", ""),
        ]
    return rows


def write(prefix: Path, rows: list[tuple[str, str]]) -> Path:
    for side, language in enumerate(("en", "de")):
        prefix.with_suffix(f".{language}").write_text("".join(row[side] + "\n" for row in rows))
    return prefix


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write(folder / "train", documents(600, 1))
    write(folder / "valid", documents(20, 2))
    return folder


def prepare(call, corpus, output, *flags):
    sets = [f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}"]
    done = call("prepare", *FLAGS, *sets, "--subword=none", "--vocab-size=0", f"--output={output}", *flags)
    assert done.code == 0, done.err
    return output


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    """One that has learnt the pronouns."""
    folder = tmp_path_factory.mktemp("model")
    commands = [
        ["prepare", *FLAGS, f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}", "--subword=none", "--vocab-size=0",
         "--context=1", f"--output={folder / 'data'}"],
        ["train", f"--data={folder / 'data'}", f"--output={folder / 'run'}", *MODEL, "--max-updates=250", "--quiet"],
        ["average", f"--run={folder / 'run'}", f"--output={folder / 'model'}", "--last=1", "--quiet"],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run([*NMT, *command], capture_output=True, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr.decode()
    return folder / "model"


@pytest.mark.parametrize("engine", ["own", "ctranslate2"])
def test_a_pronoun_is_translated_by_the_sentence_before(call, corpus, model, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    for more in ([], ["--buffer-size=1"], ["--buffer-size=7", "--batch-tokens=30"]):
        done = call("translate", "--model", model, "--input", corpus / "valid.en", f"--engine={engine}", *more)
        assert done.code == 0 and done.out == (corpus / "valid.de").read_text(), more


def test_ranks_share_out_lines_with_their_contexts(nmt, corpus, model):
    done = nmt(
        "translate", "--model", model, "--input", corpus / "valid.en", "--devices=2", "--device=cpu", "--engine=own"
    )
    assert done.returncode == 0 and done.stdout.decode() == (corpus / "valid.de").read_text(), done.stderr


def test_a_file_begins_a_document_and_marks_of_byte_order_and_line_ends_count_for_nothing(call, model, tmp_path):
    (tmp_path / "one").write_bytes(b"\xef\xbb\xbfthe lamp burns\r\nit falls\r\n")
    (tmp_path / "two").write_bytes(b"it falls\n")
    files = ["--input", tmp_path / "one", tmp_path / "two"]
    [_, pronoun, alone] = call("translate", "--model", model, *files).out.splitlines()
    assert pronoun == "sie faellt"
    assert [alone] == call("translate", "--model", model, "--input", tmp_path / "two").out.splitlines()


def source_ids(pairs: Corpus) -> list[list[int]]:
    return [row.tolist() for row in pairs.rows(np.arange(len(pairs)))[0]]


def sources(folder: Path, name: str) -> list[str]:
    """The source lines of a prepared set as text again."""
    data = PreparedData(folder)
    return list(
        map(data.pipeline.source.decode, source_ids(data.train if name == "train" else data.valid[name].corpus))
    )


def expected(lines: list[str], size: int) -> list[str]:
    """Each line with those before it since the last blank one."""
    texts = []
    for i, line in enumerate(lines):
        begin = max([k + 1 for k in range(i) if not lines[k]], default=0)
        texts.append(f" {SEPARATOR} ".join([*lines[max(begin, i - size) : i], line]) if line else "")
    return texts


@pytest.mark.parametrize("size", [1, 3])
def test_prepared_sources_have_the_lines_before_them(call, corpus, tmp_path, monkeypatch, size):
    lines = (corpus / "train.en").read_text().split("\n")[:-1]
    whole = prepare(call, corpus, tmp_path / "whole", f"--context={size}")
    assert sources(whole, "train") == [text for text in expected(lines, size) if text]
    prepare(call, corpus, tmp_path / "workers", f"--context={size}", "--workers=2")
    monkeypatch.setattr(nmt.data.encode, "CHUNK_PAIRS", 2)
    prepare(call, corpus, tmp_path / "small", f"--context={size}")
    for other in ("workers", "small"):
        for name in ("train.source.bin", "train.target.bin", "train.lengths.bin", "valid.valid.source.bin"):
            assert (tmp_path / other / name).read_bytes() == (whole / name).read_bytes(), (other, name)


def test_held_out_pairs_have_the_training_pairs_before_them(call, corpus, tmp_path):
    folder = prepare(call, corpus, tmp_path / "data", "--context=1", "--hold-out=2")
    lines = (corpus / "train.en").read_text().split("\n")[:-1]
    texts = expected(lines, 1)
    assert sources(folder, "held-out") == texts[1::2]
    assert sources(folder, "train") == [text for text in texts[::2] if text]


def test_equal_pairs_with_other_contexts_are_no_duplicates(call, tmp_path):
    write(tmp_path / "train", [("a", "A"), ("b", "B"), ("c", "C"), ("b", "B"), ("", ""), ("a", "A"), ("b", "B")])
    write(tmp_path / "valid", [("a", "A")])
    plain = prepare(call, tmp_path, tmp_path / "plain", "--deduplicate")
    assert sources(plain, "train") == ["a", "b", "c"]
    folder = prepare(call, tmp_path, tmp_path / "data", "--deduplicate", "--context=1")
    assert sources(folder, "train") == ["a", "a <sep> b", "b <sep> c", "c <sep> b"]


def test_a_pair_that_is_too_long_with_its_context_is_kept_without(call, corpus, tmp_path):
    folder = prepare(call, corpus, tmp_path / "data", "--context=2", "--max-length=5")
    assert {len(text.split()) for text in sources(folder, "train")} == {2, 3}


@pytest.fixture
def read(monkeypatch):
    """The ids of the lines that an engine gets."""
    ids: list[list[int]] = []
    for engine in (OwnEngine, CTranslate2Engine):
        whole = engine.search

        def search(self, batches, check, whole=whole):
            ids.extend(line.source for batch in batches for line in batch)
            return whole(self, batches, check)

        monkeypatch.setattr(engine, "search", search)
    return ids


def test_translate_reads_what_prepare_wrote(call, corpus, model, read, tmp_path):
    sets = [f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}", f"--vocabulary={model}"]
    assert call("prepare", *FLAGS, *sets, f"--output={tmp_path / 'data'}").code == 0
    rows = source_ids(PreparedData(tmp_path / "data").valid["valid"].corpus)
    assert call("translate", "--model", model, "--input", corpus / "valid.en", "--engine=own").code == 0
    assert sorted(read) == sorted(row for row in rows if row) and max(map(len, read)) == 6


def test_texts_of_several_sentences_and_documents_have_a_context_too(call, model, tmp_path):
    text = tmp_path / "text"
    text.write_text("the cat falls\nthe dog burns\nit falls\n")
    assert call("translate", "--model", model, "--input", text, "--split").out.split("\n")[2] == "er faellt"
    assert call("translate", "--model", model, "--input", text, "--markup=html").out.split("\n")[2] == "er faellt"
    cues = "1\n00:00:01,000 --> 00:00:02,000\nthe lamp burns\n\n2\n00:00:03,000 --> 00:00:04,000\nit falls\n\n"
    (tmp_path / "film.srt").write_text(cues)
    done = call("translate", "--model", model, "--input", tmp_path / "film.srt", "--format=srt", "--buffer-size=1")
    assert done.code == 0 and "sie faellt" in done.out, done.err


def test_a_json_object_may_name_its_context(call, model, tmp_path):
    requests = [
        {"source": "it burns", "source_context": ["the tree falls", "the lamp burns"]},
        {"source": "it burns", "source_context": ["the tree falls"]},
        {"source": ""},
        {"source": "the lamp falls"},
        {"source": "it sleeps", "id": 3},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(request) + "\n" for request in requests))
    done = call("translate", "--model", model, "--input", tmp_path / "lines", "--input-form=json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["translation"] for row in rows] == ["sie brennt", "er brennt", "", "lampe faellt", "sie schlaeft"]
    assert rows[4]["id"] == 3 and "source_context" not in rows[0]


def test_a_model_without_a_context_refuses_one(call, trained, tmp_path):
    (tmp_path / "lines").write_text('{"source": "ban", "source_context": ["kit"]}\n{"source": "ban"}\n')
    done = call("translate", "--model", trained, "--input", tmp_path / "lines", "--input-form=json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 5 and "reads each line alone" in rows[0]["error"] and "error" not in rows[1]


def test_alignments_are_those_of_the_line(call, corpus, model):
    done = call("translate", "--model", model, "--input", corpus / "valid.en", "--alignment=soft", "--json")
    lines = (corpus / "valid.en").read_text().split("\n")
    for line, row in zip(lines, map(json.loads, done.out.splitlines()), strict=False):
        weights = row["candidates"][0]["alignment"] if line else []
        assert {len(of_word) for of_word in weights} <= {len(line.split())}


def test_scores_and_scores_of_validation_are_those_of_the_context(call, corpus, model):
    files = ["--source", corpus / "valid.en"]
    right = call("score", "--model", model, *files, "--target", corpus / "valid.de", "--json")
    log_probs = [json.loads(line)["log_prob"] for line in right.out.splitlines()]
    assert min(log_probs[1::3]) > -2
    evaluated = call(
        "evaluate", "--model", model, *files, "--reference", corpus / "valid.de", "--metrics=chrf", "--json"
    )
    assert evaluated.json[0]["value"] == 100


def test_each_request_of_a_server_is_a_document(model, tmp_path):
    with serving(tmp_path, "--model", model) as server:
        lines = ["the lamp burns", "it falls", "", "it falls"]
        answer = server.translate(text=lines)
        assert [row["translation"] for row in answer["translations"]][:2] == ["lampe brennt", "sie faellt"]
        [alone] = server.translate(text=["it falls"])["translations"]
        assert alone["translation"] == answer["translations"][3]["translation"]


@pytest.mark.parametrize("kind", ["none", "bpe", "char", "subword-nmt"])
def test_a_model_without_a_context_is_given_one(call, corpus, tmp_path, kind):
    size = {"none": 0, "subword-nmt": 0, "bpe": 40, "char": 25}[kind]
    (tmp_path / "codes").write_text("#version: 0.2\nt h\nth e</w>\n")
    codes = [f"--codes={tmp_path / 'codes'}"] if kind == "subword-nmt" else []
    data = prepare(call, corpus, tmp_path / "data", f"--subword={kind}", f"--vocab-size={size}", *codes)
    flags = [*MODEL, "--max-updates=4", "--quiet"]
    assert call("train", f"--data={data}", f"--output={tmp_path / 'run'}", *flags).code == 0
    sets = [f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}", f"--vocabulary={tmp_path / 'run'}"]
    done = call("prepare", *FLAGS, *sets, "--context=1", f"--output={tmp_path / 'more'}")
    assert done.code == 0, done.err
    more = PreparedData(tmp_path / "more").pipeline
    assert more.context == 1 and more.source.size == PreparedData(data).pipeline.source.size + 1
    assert more.source.piece(more.source.encode(SEPARATOR)[0]).removeprefix("\u2581") == SEPARATOR
    lines = (corpus / "train.en").read_text().split("\n")[:-1]
    assert sources(tmp_path / "more", "train") == [text for text in expected(lines, 1) if text]
    tuned = [f"--data={tmp_path / 'more'}", f"--output={tmp_path / 'tuned'}", f"--init-from={tmp_path / 'run'}", *flags]
    done = call("train", *tuned)
    assert done.code == 0, done.err
    again = call("prepare", *FLAGS, *sets[:2], f"--vocabulary={tmp_path / 'tuned'}", f"--output={tmp_path / 'again'}")
    assert again.code == 0 and PreparedData(tmp_path / "again").pipeline.hash == more.hash


def test_what_has_no_meaning_with_a_context_is_refused(call, corpus, model, trained, tmp_path):
    train = [*FLAGS, f"--train={corpus / 'train'}", f"--output={tmp_path / 'data'}"]
    done = call("prepare", *train, "--context=1", "--align")
    assert done.code == 2 and "--context" in done.err and "--align" in done.err and not (tmp_path / "data").exists()
    assert call("prepare", *train, "--context=-1").code == 2
    done = call("translate", f"--model={model}", f"--rerank={model}", "--input", corpus / "valid.en")
    assert done.code == 2 and "cannot rank" in done.err
