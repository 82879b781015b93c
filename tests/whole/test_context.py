"""`prepare --context`: a model reads the previous sentences, and every command gives it the same ones."""

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ENVIRONMENT, records_of
from forks import forked_nmt
from refusals import assert_refused
from servers import serving

import nmt.data.encode
import nmt.scorings.base
from nmt.artefact import Artefact
from nmt.checkpoint import load_model
from nmt.data.shards import Corpus, PreparedData
from nmt.extensions.ctranslate2.engine import CTranslate2Engine, CTranslate2Model
from nmt.extensions.texts.text_steps import TextSettings, text_steps
from nmt.symbols import SEPARATOR
from nmt.text.pipeline import Pipeline, Side
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.forced_decoding import force_decode
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation

NOUNS = {"cat": ("katze", "sie"), "dog": ("hund", "er"), "lamp": ("lampe", "sie"), "tree": ("baum", "er")}
VERBS = {"falls": "faellt", "sleeps": "schlaeft", "burns": "brennt"}
MODEL = [
    "--encoder-layers=1", "--decoder-layers=1", "--d-model=32", "--d-ff=64", "--heads=2", "--dropout=0", "--norm-position=pre",
    "--batch-tokens=300", "--schedule=constant", "--lr=0.005", "--threads=1",
]  # fmt: skip
FLAGS = ["--source-lang=en", "--target-lang=de", "--quiet"]


def documents(number: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of two lines and a blank one; the pronoun of the second line refers to the noun of the first."""
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
    """A model that has learnt the pronouns."""
    folder = tmp_path_factory.mktemp("model")
    commands = [
        ["prepare", *FLAGS, f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}", "--subword=none", "--vocab-size=0",
         "--context=1", f"--output={folder / 'data'}"],
        ["train", f"--data={folder / 'data'}", f"--output={folder / 'run'}", *MODEL, "--max-updates=250", "--quiet",
         "--valid-metrics=chrf", "--valid-every=250u"],
        ["average", f"--run={folder / 'run'}", f"--output={folder / 'model'}", "--last=1", "--quiet"],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run([forked_nmt(), *command], capture_output=True, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr.decode()
    return folder / "model"


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_pronoun_is_translated_using_the_previous_sentence(call, corpus, model, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    for more in (
        [],
        ["--buffer-size=1"],
        ["--buffer-size=7", "--batch-tokens=30"],
        ["--replicas=2", "--batch-tokens=30"],
    ):
        done = call("translate", "--model", model, "--input", corpus / "valid.en", f"--engine={engine}", *more)
        assert done.code == 0 and done.out == (corpus / "valid.de").read_text(), more


def test_lines_are_shared_among_ranks_with_their_contexts(nmt, corpus, model):
    flags = [
        "--devices=2",
        "--device=cpu",
        "--engine=torch",
        "--buffer-size=4",
    ]  # documents go over two ranks and windows
    done = nmt("translate", "--model", model, "--input", corpus / "valid.en", *flags)
    assert done.returncode == 0 and done.stdout.decode() == (corpus / "valid.de").read_text(), done.stderr


def test_each_file_starts_a_document_whatever_its_byte_order_mark_and_line_ends(call, model, tmp_path):
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
    """Each line with the previous lines since the last blank one."""
    texts = []
    for i, line in enumerate(lines):
        begin = max([k + 1 for k in range(i) if not lines[k]], default=0)
        texts.append(f" {SEPARATOR} ".join([*lines[max(begin, i - size) : i], line]) if line else "")
    return texts


@pytest.mark.parametrize("size", [1, 3])
def test_prepared_sources_include_the_previous_lines(call, corpus, tmp_path, monkeypatch, size):
    lines = (corpus / "train.en").read_text().split("\n")[:-1]
    whole = prepare(call, corpus, tmp_path / "whole", f"--context={size}")
    assert sources(whole, "train") == [text for text in expected(lines, size) if text]
    prepare(call, corpus, tmp_path / "workers", f"--context={size}", "--workers=2")
    monkeypatch.setattr(nmt.data.encode, "CHUNK_PAIRS", 2)
    prepare(call, corpus, tmp_path / "small", f"--context={size}")
    for other in ("workers", "small"):
        for name in ("train.source.bin", "train.target.bin", "train.lengths.bin", "valid.valid.source.bin"):
            assert (tmp_path / other / name).read_bytes() == (whole / name).read_bytes(), (other, name)


def test_the_length_filter_measures_lines_without_context_and_dropped_lines_remain_context(call, tmp_path):
    write(tmp_path / "train", [("a b", "A B"), ("c", "C C C"), ("d e f", "D E F"), ("g", "G")])
    write(tmp_path / "valid", [("a", "A")])
    folder = prepare(call, tmp_path, tmp_path / "data", "--context=1", "--max-ratio=2", "--min-length=1")
    assert sources(folder, "train") == ["a b", "c <sep> d e f", "d e f <sep> g"]
    folder = prepare(call, tmp_path, tmp_path / "long", "--context=1", "--min-length=2")
    assert sources(folder, "train") == ["a b", "c <sep> d e f"]


def test_each_file_starts_a_document_in_prepare_as_in_translate(call, tmp_path):
    write(tmp_path / "one", [("a", "A"), ("b", "B")])
    write(tmp_path / "two", [("c", "C"), ("\x07", "X"), ("d", "D"), ("e", "E"), ("f", "F")])
    content = (tmp_path / "two.en").read_bytes().replace(b"e\n", b"\xef\xbb\xbfe\r\n")
    (tmp_path / "two.en").write_bytes(content)
    done = call(
        "prepare", *FLAGS, "--train", tmp_path / "one", tmp_path / "two", "--subword=none", "--vocab-size=0", "--context=1",
        f"--output={tmp_path / 'data'}",
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = ["c", "", "d", "\ufeffe", "f"]
    assert sources(tmp_path / "data", "train") == ["a", "a <sep> b", *[text for text in expected(lines, 1) if text]]


def test_equal_pairs_with_different_contexts_are_not_duplicates(call, tmp_path):
    write(tmp_path / "train", [("a", "A"), ("b", "B"), ("c", "C"), ("b", "B"), ("", ""), ("a", "A"), ("b", "B")])
    write(tmp_path / "valid", [("a", "A")])
    plain = prepare(call, tmp_path, tmp_path / "plain", "--deduplicate")
    assert sources(plain, "train") == ["a", "b", "c"]
    folder = prepare(call, tmp_path, tmp_path / "data", "--deduplicate", "--context=1")
    assert sources(folder, "train") == ["a", "a <sep> b", "b <sep> c", "c <sep> b"]


def test_a_pair_too_long_with_its_context_is_kept_without_it(call, corpus, tmp_path):
    folder = prepare(call, corpus, tmp_path / "data", "--context=2", "--max-length=5")
    assert {len(text.split()) for text in sources(folder, "train")} == {2, 3}


@pytest.fixture
def read(monkeypatch):
    """The ids of the lines passed to an engine."""
    ids: list[list[int]] = []
    for engine in (BuiltInEngine, CTranslate2Engine):
        whole = engine.search

        def search(self, batches, whole=whole):
            ids.extend(line.source for batch in batches for line in batch)
            return whole(self, batches)

        monkeypatch.setattr(engine, "search", search)
    return ids


def test_translate_gives_the_engine_the_same_ids_as_prepare(call, corpus, model, read, tmp_path):
    sets = [f"--train={corpus / 'train'}", f"--valid={corpus / 'valid'}", f"--vocabulary={model}"]
    assert call("prepare", *FLAGS, *sets, f"--output={tmp_path / 'data'}").code == 0
    rows = source_ids(PreparedData(tmp_path / "data").valid["valid"].corpus)
    assert call("translate", "--model", model, "--input", corpus / "valid.en", "--engine=torch").code == 0
    assert sorted(read) == sorted(row for row in rows if row) and max(map(len, read)) == 6


def test_multi_sentence_texts_and_documents_use_context_too(call, model, tmp_path):
    text = tmp_path / "text"
    text.write_text("the cat falls\nthe dog burns\nit falls\n")
    assert call("translate", "--model", model, "--input", text, "--split").out.split("\n")[2] == "er faellt"
    assert call("translate", "--model", model, "--input", text, "--markup=html").out.split("\n")[2] == "er faellt"
    cues = "1\n00:00:01,000 --> 00:00:02,000\nthe lamp burns\n\n2\n00:00:03,000 --> 00:00:04,000\nit falls\n\n"
    (tmp_path / "film.srt").write_text(cues)
    done = call("translate", "--model", model, "--input", tmp_path / "film.srt", "--format=srt", "--buffer-size=1")
    assert done.code == 0 and "sie faellt" in done.out, done.err


def test_a_json_object_can_give_its_context(call, model, tmp_path):
    requests = [
        {"source": "it burns", "source_context": ["the tree falls", "the lamp burns"]},
        {"source": "it burns", "source_context": ["the tree falls"]},
        {"source": ""},
        {"source": "the lamp falls"},
        {"source": "it sleeps", "id": 3},
        {"source": "the tree falls", "source_context": []},
        {"sourc": "it sleeps"},
        {"source": "it falls"},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(request) + "\n" for request in requests))
    done = call("translate", "--model", model, "--input", tmp_path / "lines", "--input-form=json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    translations = ["sie brennt", "er brennt", "", "lampe faellt", "sie schlaeft", "baum faellt", "", "er faellt"]
    assert [row["translation"] for row in rows] == translations
    assert rows[4]["id"] == 3 and "source_context" not in rows[0]


def test_a_model_without_context_rejects_one(call, trained, tmp_path):
    (tmp_path / "lines").write_text('{"source": "ban", "source_context": ["kit"]}\n{"source": "ban"}\n')
    done = call("translate", "--model", trained, "--input", tmp_path / "lines", "--input-form=json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 5 and "needs a model with context" in rows[0]["error"] and "error" not in rows[1]


def test_alignments_cover_the_line_without_its_context(call, model, tmp_path):
    (tmp_path / "lines").write_text("the lamp burns\nit falls\n")
    flags = ["--alignment=soft", "--json", "--engine=torch"]
    done = call("translate", "--model", model, "--input", tmp_path / "lines", *flags)
    weights = json.loads(done.out.splitlines()[1])["candidates"][0]["alignment"]
    loaded = load_model(model, torch.device("cpu"))
    sides = loaded.pipeline.source, loaded.pipeline.target
    texts = f"the lamp burns {SEPARATOR} it falls", "sie faellt"
    [forced] = force_decode(loaded.model, *([side.encode(text)] for side, text in zip(sides, texts, strict=True)))
    assert np.allclose(weights, forced.weights[:2, 4:6], atol=1e-4)


def test_scoring_and_validation_use_the_context(call, corpus, model, monkeypatch, tmp_path):
    monkeypatch.setattr(nmt.scorings.base, "WINDOW_LINES", 4)
    files = ["--source", corpus / "valid.en", "--target", corpus / "valid.de"]
    rows = call("score", "--model", model, *files, "--json").out.splitlines()
    assert min(json.loads(line)["log_prob"] for line in rows[1::3]) > -2
    wrong = {"sie": "er", "er": "sie"}
    lines = [line.split() for line in (corpus / "valid.de").read_text().split("\n")[:-1]]
    others = [f"{wrong[words[0]]} {words[1]}" if words and words[0] in wrong else "" for words in lines]
    (tmp_path / "wrong").write_text("".join(f"{line}\n" for line in others))
    contrast = call("score", "--model", model, *files, "--contrast", tmp_path / "wrong", "--json").json
    assert contrast["all"] == {"lines": 20, "right": 20, "accuracy": 1.0}
    texts = ["--source", corpus / "valid.en", "--reference", corpus / "valid.de"]
    assert call("evaluate", "--model", model, *texts, "--metrics=chrf", "--json").json[0]["value"] == 100
    metrics = records_of(model.parent / "run")
    assert [row["valid_chrf"] for row in metrics if "valid_chrf" in row] == [100]


def test_export_tunes_the_length_penalty_with_context(call, corpus, model, monkeypatch, tmp_path):
    pytest.importorskip("ctranslate2")
    lengths, whole = set(), CTranslate2Model.translate

    def translate(self, sources, **settings):
        lengths.update(map(len, sources))
        return whole(self, sources, **settings)

    monkeypatch.setattr(CTranslate2Model, "translate", translate)
    dev = ["--tune", corpus / "valid.en", corpus / "valid.de"]
    done = call("export", "--model", model, "--format=ctranslate2", "--output", tmp_path / "out", *dev)
    assert done.code == 0 and 6 in lengths, done.err


def test_each_request_of_a_server_is_a_document(model, tmp_path):
    with serving(tmp_path, "--model", model) as server:
        lines = ["the lamp burns", "it falls", "", "it falls"]
        answer = server.translate(text=lines)
        assert [row["translation"] for row in answer["translations"]][:2] == ["lampe brennt", "sie faellt"]
        [alone] = server.translate(text=["it falls"])["translations"]
        assert alone["translation"] == answer["translations"][3]["translation"]
        for noun, pronoun in (("lamp", "sie"), ("tree", "er")):
            [own] = server.translate(text=[{"text": "it falls", "context": [f"the {noun} burns"]}])["translations"]
            fields = {"text": ["it falls"], "target_lang": "DE", "context": f"the {noun} burns"}
            _, deepl, _ = server.ask("POST", "/v2/translate", fields)
            assert own["translation"] == deepl["translations"][0]["text"] == f"{pronoun} faellt"
        fields = {
            "text": ["it falls"] * 3,
            "target_lang": "DE",
            "context": "the lamp burns " * 3000,
        }  # the context is read with each line
        status, problem, _ = server.ask("POST", "/v2/translate", fields)
        assert status == 413 and "135,024 characters" in problem["message"]


@pytest.mark.parametrize("kind", ["none", "bpe", "char", "subword-nmt"])
def test_data_with_context_can_extend_a_vocabulary_without_it(call, corpus, tmp_path, kind):
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
    sets[-1] = f"--vocabulary={tmp_path / 'tuned'}"
    assert call("prepare", *FLAGS, *sets, "--context=2", f"--output={tmp_path / 'longer'}").code == 0
    longer = [
        f"--data={tmp_path / 'longer'}",
        f"--output={tmp_path / 'last'}",
        f"--init-from={tmp_path / 'tuned'}",
        *flags,
    ]
    done = call("train", *longer, "--init-state=optimizer")
    assert done.code == 0, done.err


def test_options_meaningless_with_context_are_rejected(call, corpus, model, trained, tmp_path):
    train = [*FLAGS, f"--train={corpus / 'train'}", f"--output={tmp_path / 'data'}"]
    (tmp_path / "links").write_text("0-0\n" * 1800)
    flags = {"--align": "--align", f"--column=c:links={tmp_path / 'links'}": "links", "--hold-out=20": "--hold-out"}
    for more in ("--context=1", f"--vocabulary={model}"):
        for flag, named in flags.items():
            assert_refused(call("prepare", *train, more, flag), 2, "--context", named)
            assert not (tmp_path / "data").exists()
    assert call("prepare", *train, "--context=-1").code == 2
    done = call("translate", f"--model={model}", f"--rerank={model}", "--input", corpus / "valid.en")
    assert_refused(done, 2, "cannot re-rank")


def rounds(text: str, context: tuple[str, ...], settings: TextSettings, pipeline: Pipeline) -> list[list[Request]]:
    """The requests in each round for a text if all translations are broken."""
    steps, found = text_steps(Request(text, context=context), settings, pipeline), []
    wanted = next(steps)
    while True:
        found.append(wanted.requests)
        broken = [Translation([Candidate("ja " * 40, [5] * 40, -1.0, -1.0)]) for _ in wanted.requests]
        try:
            wanted = steps.send(broken)
        except StopIteration:
            return found


def test_sentences_and_repaired_halves_have_the_previous_sentences_with_their_tags_as_context(model):
    pipeline = Pipeline.load(Artefact(model, "model"))
    tagged = replace(pipeline.source.settings, user_symbols=("<2de>", SEPARATOR), context=2)
    pipeline = Pipeline(Side(tagged, pipeline.source.vocabulary), pipeline.target, False)
    text, context = "<2de> The cat falls. It burns. It sleeps.", ("<2de> A dog. It stands.", "One.")
    [requests] = rounds(text, context, TextSettings(split=True), pipeline)
    assert [request.text for request in requests] == ["<2de> The cat falls.", "<2de> It burns.", "<2de> It sleeps."]
    assert [request.context for request in requests] == [
        ("<2de> It stands.", "One."), ("One.", "<2de> The cat falls."), ("<2de> The cat falls.", "<2de> It burns."),
    ]  # fmt: skip
    first, second = rounds("The cat falls today. It burns.", ("One.",), TextSettings(repair=True), pipeline)
    assert [request.context for request in first] == [("One.",)]
    assert [request.text for request in second] == ["The cat falls today.", "It burns."]
    assert [request.context for request in second] == [("One.",), ("One.", "The cat falls today.")]


def test_doctor_reads_lines_without_their_contexts(call, corpus, model):
    of_data = call("doctor", model.parent / "data").out
    of_text = call("doctor", "--source-lang=en", "--target-lang=de", "--train", corpus / "train").out
    assert all("source: 3,000 words" in out for out in (of_data, of_text)) and SEPARATOR not in of_data
