"""`nmt prepare --extend` and `nmt train --init-from`: new words get entries, and the model's previous entries are unchanged."""

import json

import pytest
import torch
from conftest import train_arguments, write_corpus
from refusals import assert_refused
from safetensors.torch import load_file

from nmt.artefact import Artefact
from nmt.extensions.vocabularies.extension import parts_of_new_entries
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

STILL = ("--optimizer=sgd", "--lr=1e-30", "--valid-metrics=none")  # an update that does not change the weights
NEW_WORDS = ["qua vex zo", "vexqua quazo zo", "zo quazo vex", "ban vex qua"] * 5


@pytest.fixture(scope="module")
def new_text(tmp_path_factory):
    """A corpus with new words, and a file of tags."""
    folder = tmp_path_factory.mktemp("new")
    write_corpus(folder / "new", 30, 7)
    for language in ("en", "de"):
        with (folder / f"new.{language}").open("a") as file:
            file.writelines(f"<2{language}> {line}\n" for line in NEW_WORDS)
    (folder / "tags").write_text("<2en>\n<2de>\n\n<2fr>\n")
    return folder


def prepare(new_text, *more):
    languages = ("--source-lang=en", "--target-lang=de", "--quiet")
    return ["prepare", *languages, f"--train={new_text / 'new'}", f"--valid={new_text / 'new'}", *more]


@pytest.mark.parametrize("kind", ["none", "bpe", "unigram", "separate"])
def test_an_extended_model_keeps_its_rows_and_gets_means_of_them_for_new_entries(kind, new_text, tmp_path, call):
    write_corpus(tmp_path / "old", 200, 1)
    subword = ["--subword=none", "--no-joint-vocabulary"] if kind == "separate" else [f"--subword={kind}"]
    size = [] if kind in ("none", "separate") else ["--vocab-size=60"]
    learn = [
        *prepare(tmp_path)[:-2],
        f"--train={tmp_path / 'old'}",
        *subword,
        *size,
        f"--output={tmp_path / 'old-data'}",
    ]
    assert call(*learn).code == 0
    tie = ["--tie=none"] if kind == "separate" else []
    assert call(*train_arguments(tmp_path / "old-data", tmp_path / "old-run", 10, *tie, "--output-bias")).code == 0
    old_folder = tmp_path / "old-run/checkpoints/update-10"

    given = (f"--vocabulary={tmp_path / 'old-run'}", "--extend=8", f"--extend-with={new_text / 'tags'}")
    extended = call(*prepare(new_text, *given, f"--output={tmp_path / 'data'}"), "--no-quiet")
    assert extended.code == 0 and "entries to the existing" in extended.err, extended.err
    report = json.loads((tmp_path / "data/report.json").read_text())
    assert report["settings"]["extend"] == 8
    begin = [*tie, "--output-bias", f"--init-from={tmp_path / 'old-run'}"]
    begun = call(*train_arguments(tmp_path / "data", tmp_path / "run", 1, *STILL, *begin))
    assert begun.code == 0, begun.err

    before, after = (
        load_file(folder / "model.safetensors") for folder in (old_folder, tmp_path / "run/checkpoints/update-1")
    )
    old, new = (
        Pipeline.load(Artefact(folder, "checkpoint")) for folder in (old_folder, tmp_path / "run/checkpoints/update-1")
    )
    grown = {name for name in before if before[name].shape != after[name].shape}
    tables = {"source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias"}
    assert grown == (tables if kind == "separate" else {"source_embedding.weight", "output.bias"})
    for name, tensor in before.items():
        assert after[name][: len(tensor)].numpy().tobytes() == tensor.numpy().tobytes()
        sides = (new.source, old.source) if name.startswith("source") else (new.target, old.target)
        if name in grown:
            parts = parts_of_new_entries(*(side.vocabulary for side in sides))
            expected = torch.stack([tensor[tokens].sum(0) / len(tokens) for tokens in parts])
            torch.testing.assert_close(after[name][len(tensor) :], expected)
    assert new.source.decode(new.source.encode("<2de> vex <2fr> ban")) == "<2de> vex <2fr> ban"
    assert UNK not in new.source.encode("<2de> vex <2fr> ban")

    trained = call(*train_arguments(tmp_path / "data", tmp_path / "trained", 10, *begin))
    assert trained.code == 0, trained.err
    assert call("translate", "--model", tmp_path / "trained", "--input", new_text / "new.en").code == 0
    resumed = call(*train_arguments(tmp_path / "data", tmp_path / "trained", 20, *begin))
    assert resumed.code == 0, resumed.err


def test_impossible_extensions_are_rejected_with_advice(trained, data, new_text, tmp_path, call):
    vocabulary, output = f"--vocabulary={trained}", f"--output={tmp_path / 'data'}"
    (tmp_path / "words").write_text("one word\n")
    (tmp_path / "blanks").write_text("one\n a\n")
    for code, *given, message in [
        (2, "--extend=8", "--extend needs a vocabulary to add entries to (add --vocabulary MODEL)"),
        (2, f"--extend-with={new_text / 'tags'}", "--extend-with needs a vocabulary"),
        (3, vocabulary, f"--extend-with={tmp_path / 'words'}", "words:1: 'one word' cannot be an entry"),
        (3, vocabulary, f"--extend-with={tmp_path / 'blanks'}", "blanks:2: ' a' cannot be an entry"),
    ]:
        assert_refused(call(*prepare(new_text, *given, output)), code, message)
        assert not (tmp_path / "data").exists()
    valid = ["prepare", "--source-lang=en", "--target-lang=de", f"--valid={new_text / 'new'}", vocabulary, output]
    assert "--extend 8 needs training text" in call(*valid, "--extend=8").err

    assert call(*prepare(new_text, vocabulary, "--extend=8", output)).code == 0
    run = train_arguments(tmp_path / "data", tmp_path / "run", 10, f"--init-from={trained}")
    assert_refused(call(*run, "--init-state=optimizer"), 2, "has new entries, for which there is no state")
    assert call(*run).code == 0
    smaller = call(*train_arguments(data, tmp_path / "other", 10, f"--init-from={tmp_path / 'run'}"))
    assert_refused(smaller, 4, "--extend")


@pytest.mark.parametrize(
    ("languages", "way"),
    [
        (("en", "nl"), ("--target-lang de", "--source FILE.en", "--target FILE.nl", "--vocabulary")),
        (("en", "de-AT"), ("--target-lang de", "--target FILE.de-AT")),
        (("de", "en"), ("--source-lang en --target-lang de",)),
    ],
)
def test_languages_that_differ_from_the_models_are_rejected_with_advice(languages, way, data, tmp_path, call):
    write_corpus(tmp_path / "c", 20, 1)
    for language, old in zip(languages, ("en", "de"), strict=True):
        (tmp_path / f"x.{language}").write_bytes((tmp_path / f"c.{old}").read_bytes())
    source, target = languages
    given = [f"--train={tmp_path / 'x'}", f"--vocabulary={data}", f"--output={tmp_path / 'd'}"]
    assert_refused(call("prepare", f"--source-lang={source}", f"--target-lang={target}", *given), 2, *way)
    files = [f"--source={tmp_path / f'x.{source}'}", f"--target={tmp_path / f'x.{target}'}", *given[1:]]
    assert call("prepare", "--source-lang=en", "--target-lang=de", *files).code == 0
