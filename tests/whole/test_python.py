"""The Python API: the examples of docs/how-to/python.md run, and what it returns is what the commands print."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ENVIRONMENT

import nmt
from nmt.errors import UserError
from nmt.translate.options import TranslatorOptions
from nmt.translate.results import Failure, PairScore

PAGE = Path(__file__).parents[2] / "docs/how-to/python.md"
LINES = ["ban des kit", "", "lora"]


@pytest.fixture
def commands(trained, tmp_path, call):
    """`commands(name, *flags)`: the output lines of `nmt translate` or `nmt score` for LINES."""
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    files = {
        "translate": ["--input", tmp_path / "lines"],
        "score": ["--source", tmp_path / "lines", "--target", tmp_path / "lines"],
    }
    return lambda name, *flags: call(name, "--model", trained, *files[name], "--threads=1", *flags).out.splitlines()


def test_the_examples_of_the_page_run(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "model").symlink_to(trained)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec("".join(examples), {})
    assert len(examples) == 7 and "no-such-model" in capsys.readouterr().out


def test_translations_equal_those_of_the_command(trained, commands):
    translator = nmt.load(trained, device="cpu", decoder_options={"n_best": 2})
    translations = translator.translate(LINES)
    assert [translation.text for translation in translations] == commands("translate")
    assert [len(translation.candidates) for translation in translations] == [2, 0, 2]


def test_scores_equal_those_of_the_command_and_of_an_ensemble_of_one_model(trained, commands):
    scores = [nmt.load(*models).score(LINES, LINES) for models in ([trained], [trained, trained])]
    printed = [float(line) for line in commands("score")]
    for pairs in scores:
        assert [pair.log_prob for pair in pairs] == pytest.approx(printed, abs=1e-4)
        assert all(isinstance(pair, PairScore) for pair in pairs)


def test_a_line_that_cannot_be_scored_is_a_failure(trained):
    [failure] = nmt.load(trained, options=TranslatorOptions(max_source_length=2)).score(["ban ban ban"], ["BAN"])
    assert isinstance(failure, Failure) and "3 tokens" in failure.message


def test_a_line_that_is_too_long_is_truncated_with_a_warning_and_nothing_is_logged(trained, capsys):
    translator = nmt.load(trained, options=TranslatorOptions(max_source_length=2))
    whole, cut = translator.translate(["ban des", "ban des kit"])
    assert (whole.warnings, cut.warnings.keys()) == ({}, {"truncated"}) and cut.text == whole.text
    assert capsys.readouterr().err == ""


def test_arguments_that_do_not_fit_the_model_are_rejected(trained):
    with pytest.raises(UserError, match="--model-weights"):
        nmt.load(trained, options=TranslatorOptions(model_weights=(1.0,)))
    with pytest.raises(UserError, match="--shortlist"):
        nmt.load(trained, decoder="sampling", options=TranslatorOptions(shortlist="x"))


@pytest.mark.parametrize(
    ("decoder", "values", "told"),
    [
        ("beam", {"baem_size": 7}, "did you mean 'beam_size'"),
        ("beam", {"baem-size": 7}, "did you mean 'beam_size'"),
        ("mbr", {"candidates.temprature": 2}, "did you mean 'candidates.temperature'"),
        ("mbr", {"candidates": {"temprature": 2}}, "did you mean 'candidates.temperature'"),
        ("mbr", {"candidates": "beam", "candidates.temperature": 2}, "unknown option of decoder mbr"),
    ],
)
def test_an_unknown_decoder_option_is_rejected(decoder, values, told, trained):
    with pytest.raises(UserError, match=re.escape("decoder_options: ")) as refused:
        nmt.load(trained, decoder=decoder, decoder_options=values)
    assert told in str(refused.value)


def test_decoder_options_can_have_dashes_and_be_nested(trained):
    translator = nmt.load(trained, decoder_options={"beam-size": 7})
    assert translator.engine.decoder.options.beam_size == 7
    with pytest.raises(UserError, match="'beam_size' is set twice"):
        nmt.load(trained, decoder_options={"beam-size": 7, "beam_size": 8})
    nested = {"num-candidates": 3, "utility": {"name": "bleu"}, "candidates": {"name": "sampling", "temperature": 2}}
    options = nmt.load(trained, decoder="mbr", decoder_options=nested).engine.decoder.options
    assert (options.num_candidates, options.utility.name, options.candidates.options.temperature) == (3, "bleu", 2)


def test_a_string_in_place_of_lines_is_rejected(trained):
    translator = nmt.load(trained)
    for text in ("ban des", b"ban des"):
        with pytest.raises(UserError, match="must be a list of lines, not a single string"):
            translator.translate(text)
        with pytest.raises(UserError, match="must be a list of lines, not a single string"):
            translator.score(LINES, text)
    with pytest.raises(UserError, match=re.escape("requests[1] must be str or Request, not bytes")):
        translator.translate(["ban", b"des"])


def test_an_iterator_of_lines_is_rejected(trained):
    translator = nmt.load(trained)
    with pytest.raises(UserError, match="must be a list of lines, not generator"):
        translator.translate(line for line in LINES)
    with pytest.raises(UserError, match="must be a list of lines, not map"):
        translator.score(LINES, map(str, LINES))


def test_unequal_numbers_of_sources_and_targets_are_rejected_with_both_counts(trained):
    with pytest.raises(UserError, match="the same number of lines, not 3 and 2"):
        nmt.load(trained).score(LINES, LINES[:2])


def test_two_loaded_models_search_with_the_same_number_of_threads(trained):
    code = f"""
import nmt, torch
from nmt.translate.options import TranslatorOptions
loaded = [nmt.load({str(trained)!r}, options=TranslatorOptions(engine="torch", device="cpu")) for _ in range(2)]
print([(one.engine.replicas, one.engine._replicas._threads) for one in loaded])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**ENVIRONMENT, "OMP_NUM_THREADS": "4"}, capture_output=True
    )
    first, second = ast.literal_eval(done.stdout.decode())
    assert first == second and first[0] * first[1] >= 2, done.stderr
