"""Translating as a user does it: one output line per input line, whatever the lines ("Text" in docs/reference/contract.md)."""

import contextlib
import copy
import gc
import gzip
import itertools
import json
import lzma
import math
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from conftest import ENVIRONMENT, NMT, WORDS, wait_for, write_corpus
from ranks import children_of
from refusals import assert_refused

import nmt.extensions.watch.viewers.drawings
import nmt.translators
from nmt.checkpoint import load_model
from nmt.cli.main import run
from nmt.decoders.base import Decoder, SearchOptions
from nmt.decoders.greedy import Greedy
from nmt.errors import UserError
from nmt.extensions.watch.pictures.attention import attention_maps
from nmt.log import Bar
from nmt.signals import Signals
from nmt.translate.batch_size import (
    MAX_CPU_NUMBERS,
    MAX_CPU_TOKENS,
    MAX_GPU_TOKENS,
    auto_batch_tokens,
    bytes_per_path,
)
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.distributed import serve
from nmt.translate.ensemble import Ensemble
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.options import TranslatorOptions
from nmt.translate.replicas import Replicas
from nmt.translate.requests import Request
from nmt.translate.results import Candidate
from nmt.translate.stream import translate_stream
from nmt.translate.translator import Translator, even_batch_tokens

AWKWARD = [
    b"ban des kit",
    b"ban\xe2\x80\xa8des",  # U+2028
    b"ban\xc2\x85des",  # U+0085
    b"ban\rdes",
    b"ban\x00des",
    b"\xef\xbb\xbfban",  # a BOM that is not at the start
    b"ban \xff\xfe des",
    b"   \t  ",
    b"",
    b"</s> <pad> ban",
    b"[/b] [red]ban",
    b"x" * 1_000_000,
    b"ban des kit\r",
    b"lora",
]


@pytest.fixture
def translate(trained, tmp_path):
    """`translate(bytes, *flags)` in this process: (exit status, output)."""

    def call(content, *flags):
        source, output = tmp_path / "source", tmp_path / "output"
        source.write_bytes(content)
        output.unlink(missing_ok=True)
        files = [f"--input={source}", f"--output={output}"]
        code = run(["translate", f"--model={trained}", *files, "--quiet", "--threads=1", *flags])
        return code, output.read_bytes() if output.exists() else None

    return call


def start(trained, *flags, **pipes):
    command = [*NMT, "translate", f"--model={trained}", "--quiet", "--threads=1", *flags]
    settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    return subprocess.Popen(command, env=ENVIRONMENT, **settings)


def corpus(lines, seed=3):
    chance = random.Random(seed)
    return "".join(" ".join(chance.choices(WORDS, k=chance.randint(0, 9))) + "\n" for _ in range(lines)).encode()


def test_awkward_lines_give_one_line_each_and_do_not_affect_others(translate, capsys):
    code, output = translate(b"\n".join(AWKWARD) + b"\n")
    lines = output.split(b"\n")
    assert code == 0
    assert len(lines) == len(AWKWARD) + 1 and lines[-1] == b""
    assert all(line.decode().isprintable() for line in lines)
    assert [i for i, line in enumerate(lines[:-1]) if not line] == [AWKWARD.index(b"   \t  "), AWKWARD.index(b"")]
    messages = capsys.readouterr().err
    assert f"source:{AWKWARD.index(b'ban ' + bytes([255, 254]) + b' des') + 1}:5: not UTF-8" in messages
    assert f"source:{AWKWARD.index(b'x' * 1_000_000) + 1}: truncated to 1 tokens (--max-source-length)" in messages
    assert messages.count("not in the model's vocabulary") == 1  # of several lines
    assert messages.count("\n") == 4  # and the counts
    for line, translation in zip(AWKWARD, lines, strict=False):
        assert translate(b"\n" + line + b"\n") == (0, b"\n" + translation + b"\n")


def test_separators_and_control_characters_are_spaces_and_crlf_is_one_line_end(translate):
    same = [b"ban des", b"ban\xe2\x80\xa8des", b"ban\xc2\x85des", b"ban\rdes", b"ban\x00des", b"ban des\r"]
    _, output = translate(b"\n".join(same) + b"\n")
    assert len(set(output.splitlines())) == 1


def test_an_invisible_line_is_empty_and_utf_16_is_rejected_by_name(translate, capsys):
    assert translate("\u200b\n\u2060 \u3164\n\u00ad\ufe0f\n".encode()) == (0, b"\n\n\n")
    for encoding in ("utf-16-le", "utf-16-be"):
        assert translate("\ufeffban des\n".encode(encoding))[0] == 3
        assert "source:1:1: UTF-16, not UTF-8 (convert" in capsys.readouterr().err


def test_a_bom_at_the_start_is_ignored_and_the_last_line_needs_no_lf(translate):
    assert translate(b"\xef\xbb\xbfban des\nlora") == translate(b"ban des\nlora\n")


def test_empty_input_gives_empty_output(translate):
    assert translate(b"") == (0, b"")


def test_batches_windows_and_the_locale_do_not_change_results(translate, trained, new_nmt):
    content = corpus(40)
    _, output = translate(content)
    assert output.count(b"\n") == 40
    for flags in (["--batch-tokens=1"], ["--batch-tokens=50"], ["--buffer-size=1"], ["--buffer-size=7"]):
        assert translate(content, *flags) == (0, output)
    process = new_nmt("translate", f"--model={trained}", "--quiet", "--threads=1", input=content, env={"LC_ALL": "C"})
    assert (process.returncode, process.stdout, process.stderr) == (0, output, b"")


@pytest.mark.parametrize("decoder", ["greedy", "beam", "sampling"])
def test_every_decoder_translates_a_line_in_a_batch_as_it_does_alone(translate, decoder):
    content = corpus(12)
    _, output = translate(content, f"--decoder={decoder}")
    alone = [translate(line, f"--decoder={decoder}", "--batch-tokens=1")[1] for line in content.splitlines(True)]
    assert b"".join(alone) == output


def test_n_best_lists_have_the_moses_format(translate):
    code, output = translate(b"ban des\n\nlora\n", "--n-best=3")
    assert code == 0
    rows = [line.split(" ||| ") for line in output.decode().splitlines()]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"] + ["2"] * 3
    assert rows[3][1] == ""
    best = translate(b"ban des\n\nlora\n")[1].decode().splitlines()
    assert [rows[i][1] for i in (0, 3, 4)] == best
    for first in (0, 4):
        scores = [float(row[3]) for row in rows[first : first + 3]]
        assert scores == sorted(scores, reverse=True)
        for row, score in zip(rows[first : first + 3], scores, strict=True):
            label, log_prob = row[2].split()
            assert label == "LogProb="
            length = len(row[1].split()) + 1  # the tokens of this model are words
            assert score == pytest.approx(float(log_prob) / ((5 + length) / 6) ** 0.6, abs=1e-5)


def test_json_and_raw_tokens_show_the_same_translation(translate):
    content = b"ban des\n\n[/b] lora\n"
    _, text = translate(content)
    records = [json.loads(line) for line in translate(content, "--json")[1].splitlines()]
    assert [record["translation"] for record in records] == text.decode().splitlines()
    assert [len(record["candidates"]) for record in records] == [1, 0, 1]
    tokens = [" ".join(token for one in record["candidates"] for token in one["tokens"]) for record in records]
    assert translate(content, "--raw-tokens")[1].decode().splitlines() == tokens


def test_statistics_count_all_lines_and_appear_only_with_the_translations(translate, tmp_path):
    file = tmp_path / "stats.json"
    assert translate(b"ban des\n\nkit\n", f"--stats={file}")[0] == 0
    stats = json.loads(file.read_text())
    assert (stats["lines"], stats["failed"]) == (3, 0)
    assert stats["lines_per_second"] == pytest.approx(3 / stats["seconds"])
    file.unlink()
    assert translate(b"ban\ndes \xff\n", "--strict", f"--stats={file}")[0] == 3
    assert not file.exists()
    assert translate(b"ban\n", f"--stats={tmp_path / 'no folder' / 'x'}") == (5, None)


def test_gzip_is_read_and_damaged_gzip_is_status_3(translate):
    content = corpus(50)
    assert translate(gzip.compress(content)) == translate(content)
    assert translate(gzip.compress(content)[:-20])[0] == 3


def test_strict_stops_at_bad_bytes_and_reports_where(translate, trained, nmt, capsys):
    assert translate(b"ban\ndes \xff\nkit\n", "--strict") == (3, None)  # a file exists completely or not at all
    assert "source:2:5: not UTF-8" in capsys.readouterr().err
    process = nmt("translate", f"--model={trained}", "--strict", "--quiet", input=b"ban\ndes \xff\nkit\n")
    assert process.returncode == 3
    assert process.stdout == translate(b"ban\n")[1]
    assert process.stderr.startswith(b"nmt: error: stdin:2:5: not UTF-8")


def test_an_existing_output_file_is_kept_when_the_command_fails(trained, tmp_path):
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_bytes(b"\xff\n")
    output.write_bytes(b"precious\n")
    assert run(["translate", f"--model={trained}", f"--input={source}", f"--output={output}", "--strict"]) == 3
    assert output.read_bytes() == b"precious\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "source"]


def test_an_output_is_never_world_writable_whatever_the_umask(trained, new_nmt, tmp_path):
    done = new_nmt("translate", f"--model={trained}", f"--output={tmp_path / 'output'}", input=b"ban\n", umask=0)
    assert done.returncode == 0 and (tmp_path / "output").stat().st_mode & 0o777 == 0o664


def test_missing_files_are_status_2_or_4(translate, trained, tmp_path, capsys):
    assert run(["translate", f"--model={trained}", f"--input={tmp_path / '[b]no'}"]) == 2
    assert "[b]no: no such file" in capsys.readouterr().err
    assert run(["translate", f"--model={tmp_path / 'no'}", f"--input={os.devnull}"]) == 4
    assert run(["translate", f"--model={trained}", "It's raining."]) == 2
    piped = f"""`echo 'It'"'"'s raining.' | nmt translate --model {trained}`"""
    assert f"'It's raining.': no such file (to translate a text, pipe it: {piped})" in capsys.readouterr().err
    assert translate(b"ban\n", "--n-best=5")[0] == 2  # more than the beam holds


def test_a_typed_line_is_answered_immediately_and_a_signal_ends_the_wait(trained, translate):
    process = start(trained)
    for line in (b"ban des\n", b"lora\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == translate(line)[1]
    process.stdin.write(b"half a li")
    process.stdin.flush()
    process.send_signal(signal.SIGTERM)
    rest, messages = process.communicate(timeout=60)
    assert (process.returncode, rest, messages) == (143, b"", b"")


def test_a_closed_output_is_a_silent_status_141(trained):
    reading, writing = os.pipe()
    process = start(trained, "--buffer-size=1", "--decoder=greedy", stdout=writing)
    os.close(writing)
    process.stdin.write(corpus(100))
    process.stdin.flush()
    assert os.read(reading, 1)
    os.close(reading)
    _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (141, b"")


def test_long_lines_among_short_ones_are_reported_and_do_not_affect_others(translate, capsys):
    short = corpus(100).splitlines(True)
    long = [b"x" * 1_000_000, b"ban " * 250_000, b"\xff\xfe" * 500_000, b"\0" * 1_000_000, b"ban\0\xff " * 200_000]
    flags = ["--decoder=greedy", "--max-source-length=40", "--max-len-b=5"]
    _, alone = translate(b"".join(short), *flags)
    capsys.readouterr()
    places = range(10, 110, 20)
    for place, line in zip(places, long, strict=True):
        short.insert(place, line + b"\n")
    code, output = translate(b"".join(short), *flags)
    lines = output.splitlines(True)
    assert code == 0 and len(lines) == 105
    assert b"".join(line for i, line in enumerate(lines) if i not in places) == alone
    assert [bool(lines[i].strip()) for i in places] == [True, True, True, False, True]
    messages = capsys.readouterr().err
    assert [f"source:{place + 1}: truncated to" in messages for place in places] == [True, True, False, True, True]
    assert [f"source:{place + 1}:1: not UTF-8" in messages for place in places] == [False, False, True, False, False]
    assert f"source:{places[4] + 1}:5: not UTF-8" in messages


def test_empty_lines_are_released_once_printed(loaded, tmp_path):
    class EmptyLines:
        chunks = 60

        def waiting(self, seconds):
            return True

        def read(self):
            self.chunks -= 1
            return b"\n" * 1000 if self.chunks >= 0 else b""

    held = {}

    def show(number, request, translation):
        if number in (20_000, 58_000):
            gc.collect()
            held[number] = tracemalloc.get_traced_memory()[0]
        return "\n"

    tracemalloc.start()
    try:
        with (tmp_path / "output").open("wb") as output:
            translate_stream(
                translator(loaded, Touchy(lambda source: None)),
                EmptyLines(),
                output,
                "text",
                show,
                2000,
                LineWarnings("x"),
                True,
                Bar(""),
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "output").stat().st_size == 60_000
    assert held[58_000] - held[20_000] < 2 * 38_000  # bytes: less than a quarter of a reference per line
    assert peak - held[20_000] < 2000 * 1000  # of a window


def test_a_full_device_is_status_5(trained):
    with Path("/dev/full").open("wb") as full:
        process = start(trained, stdout=full)
        _, messages = process.communicate(b"ban\n", timeout=60)
    assert process.returncode == 5
    assert messages == b"nmt: error: stdout: No space left on device\n"


def test_a_closed_stdin_is_status_2(trained):
    command = [*NMT, "translate", f"--model={trained}", "--quiet"]
    process = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, preexec_fn=lambda: os.close(0), stdin=None, timeout=60
    )
    assert process.returncode == 2
    assert process.stderr.startswith(b"nmt: error: stdin is closed")


class Touchy(Decoder):
    """Greedy search that fails for some sources."""

    def __init__(self, fails):
        self.fails, self.sizes = fails, []

    def decode(self, scorer, source, constraints):
        self.sizes.append(len(source))
        if (error := self.fails(source)) is not None:
            raise error
        return Greedy(SearchOptions()).search(scorer, source)


@pytest.fixture(scope="module")
def loaded(trained):
    return load_model(trained, torch.device("cpu"))


def translator(loaded, decoder):
    options = TranslatorOptions(batch_tokens=1000)
    return Translator(BuiltInEngine(loaded.pipeline, loaded.model, options, decoder), options)


LINES = [" ".join(WORDS[i : i + 1 + i % 4]) for i in range(16)]
REQUESTS = [Request(line) for line in LINES]


def test_a_batch_out_of_memory_is_retried_in_halves_down_to_one_sentence(loaded, capsys):
    whole = translator(loaded, Greedy(SearchOptions())).translate(REQUESTS)
    for most in (5, 1):
        small = translator(loaded, Touchy(lambda source, most=most: MemoryError() if len(source) > most else None))
        found = small.translate(REQUESTS)
        assert [one.text for one in found] == [one.text for one in whole]
        scores = [one.candidates[0].score for one in whole]
        assert [one.candidates[0].score for one in found] == pytest.approx(scores, abs=1e-4)
        assert max(small.engine.decoder.sizes) == len(LINES)
        assert not any(one.error for one in found)
        [warning] = [one.warnings["retried"] for one in found if one.warnings]
        assert f"a batch of {len(LINES)} sentences failed (MemoryError: )" in warning
    assert capsys.readouterr().err == ""  # its caller logs


def test_a_failed_sentence_gives_an_empty_line_and_a_message_and_the_others_continue(loaded, capsys):
    token = loaded.pipeline.source.encode(LINES[6])[0]
    bad = [i for i, line in enumerate(LINES) if token in loaded.pipeline.source.encode(line)]
    broken = translator(loaded, Touchy(lambda source: RuntimeError("no [/b]") if (source == token).any() else None))
    whole = translator(loaded, Greedy(SearchOptions())).translate(REQUESTS)
    found, warnings = broken.translate(REQUESTS), LineWarnings("book")
    warnings.add_translations(found, first=101)
    assert [one.text for one in found] == ["" if i in bad else one.text for i, one in enumerate(whole)]
    assert warnings.num_failed == len(bad)
    messages = capsys.readouterr().err
    assert all(f"nmt: error: book:{101 + i}: not translated: RuntimeError: no [/b]" in messages for i in bad)


def test_a_hypothesis_that_cannot_be_converted_to_text_fails_only_its_line(loaded, monkeypatch):
    whole = translator(loaded, Greedy(SearchOptions())).translate(REQUESTS)
    bad, candidate = whole[1].text, Candidate.of

    def made(hypothesis, target):
        if target.decode(hypothesis.tokens) == bad:
            raise IndexError("no such word")
        return candidate(hypothesis, target)

    monkeypatch.setattr(Candidate, "of", made)
    found = translator(loaded, Greedy(SearchOptions())).translate(REQUESTS)
    assert [one.text for one in found] == [one.text if one.text != bad else "" for one in whole]
    assert found[1].error == "IndexError: no such word"


def test_an_error_in_a_rank_is_not_mistaken_for_the_end_of_its_leader():
    class Leader:
        rank = 1

        def fetch(self, key, seconds):
            return b'[{"text": "ban"}]'

    class Failing:
        def translate(self, *asked):
            raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="new thread"), Signals():
        serve(Failing(), Leader())


def test_two_translators_with_the_same_search_keep_their_own_languages(loaded):
    search = Greedy(SearchOptions())
    one = translator(loaded, search)
    assert search.target is None and one.engine.decoder.target is not None


def test_a_user_error_is_not_mistaken_for_a_bad_sentence(loaded):
    with pytest.raises(UserError, match="no such setting"):
        translator(loaded, Touchy(lambda source: UserError("no such setting"))).translate(REQUESTS)


def test_a_failed_sentence_is_status_5_at_the_end(trained, tmp_path, capsys):
    plugin, source, output = tmp_path / "touchy.py", tmp_path / "source", tmp_path / "output"
    plugin.write_text(
        "from nmt import register\n"
        "from nmt.decoders.base import SearchOptions\n"
        "from nmt.decoders.greedy import Greedy\n"
        "@register('decoder', 'touchy', SearchOptions)\n"
        "class Touchy(Greedy):\n"
        "    def decode(self, scorer, source, constraints):\n"
        "        if source.shape[1] == 4:\n"
        "            raise RuntimeError('three words are too many')\n"
        "        return super().decode(scorer, source, constraints)\n"
    )
    source.write_text("ban\nban des kit\nlora\n")
    files = [f"--input={source}", f"--output={output}"]
    assert run(["translate", f"--model={trained}", *files, f"--plugin={plugin}", "--decoder=touchy", "--quiet"]) == 5
    lines = output.read_bytes().split(b"\n")
    assert len(lines) == 4 and lines[0] and not lines[1] and lines[2]
    assert "source:2: not translated" in capsys.readouterr().err


def test_a_model_without_finite_numbers_fails_its_sentences(loaded, trained, capsys):
    broken = load_model(trained, torch.device("cpu"))
    with torch.no_grad():
        broken.model.output.weight.fill_(float("nan"))
    ruined = translator(broken, Greedy(SearchOptions()))
    found, warnings = ruined.translate(REQUESTS), LineWarnings("input")
    warnings.add_translations(found)
    assert [one.text for one in found] == [""] * len(LINES)
    assert warnings.num_failed == len(LINES)
    assert capsys.readouterr().err.count("probabilities are not finite") == 10  # named; the others are counted


@pytest.mark.parametrize("packed", [gzip, lzma])
def test_compressed_text_in_a_pipe_is_reported_and_not_translated(packed, trained, nmt):
    refused = nmt("translate", "--model", trained, input=packed.compress(b"ban kis\n"))
    assert refused.returncode == 3 and refused.stdout == b"" and b"from a pipe must not be compressed" in refused.stderr


def test_translations_start_with_the_prefixes_of_their_lines(translate):
    lines = ["ban des kit", "lora ban", "", "kit ||| ", "des ban"]
    plain = translate("\n".join(line.split(" |||")[0] for line in lines).encode())[1].decode().split("\n")
    prefixes = ["MULI", "", "", "", "KIT LORA"]
    asked = [f"{line} ||| {prefix}" if prefix else line for line, prefix in zip(lines, prefixes, strict=True)]
    code, output = translate("\n".join(asked).encode(), "--input-form=prefix")
    found = output.decode().split("\n")
    assert code == 0
    assert [line.startswith(prefix) for line, prefix in zip(found[:-1], prefixes, strict=True)] == [True] * 5
    assert [found[1], found[2], found[3]] == [plain[1], plain[2], plain[3]]


def test_translations_contain_the_phrases_of_their_lines(translate):
    asked = "ban des kit ||| LORA KIT\nlora ban\ndes ||| MULI ||| BAN\n"
    code, output = translate(asked.encode(), "--input-form=phrases", "--decoder=constrained-beam", "--beam-size=8")
    first, second, third, _ = output.decode().split("\n")
    assert code == 0
    assert "LORA KIT" in first and "MULI" in third and "BAN" in third
    assert second == translate(b"lora ban", "--beam-size=8")[1].decode().strip()
    assert translate(asked.encode(), "--input-form=phrases")[0] == 2  # a plain beam search cannot fulfil it


def test_a_phrase_both_required_and_avoided_is_rejected_with_the_reason(translate, tmp_path, capsys):
    (tmp_path / "avoid").write_text("MULI\n")
    flags = "--input-form=phrases", "--decoder=constrained-beam", f"--avoid={tmp_path / 'avoid'}"
    assert translate(b"ban ||| MULI BAN\nban ||| BAN\n", *flags)[0] == 5
    messages = capsys.readouterr().err
    assert "source:1: not translated: the phrase 'MULI BAN' is both required and forbidden" in messages
    assert "source:2" not in messages


def test_the_input_is_not_overwritten_by_its_translation(trained, tmp_path, call):
    (tmp_path / "text").write_text("ban\n")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    result = call("translate", f"--model={trained}", f"--input={tmp_path / 'text'}", f"--output={tmp_path / 'link'}")
    assert_refused(result, 2, "--input", "--output")
    assert (tmp_path / "text").read_text() == "ban\n"


def test_the_file_behind_stdin_or_another_name_of_the_input_is_not_overwritten(trained, tmp_path, nmt):
    text = tmp_path / "text"
    text.write_text("kit ban\n")
    with text.open("rb") as stdin:
        refused = nmt("translate", f"--model={trained}", f"--output={text}", stdin=stdin)
    assert_refused(refused, 2, "--input", "--output")
    (tmp_path / "hard").hardlink_to(text)
    refused = nmt("translate", f"--model={trained}", f"--input={text}", f"--output={tmp_path / 'hard'}")
    assert_refused(refused, 2, "--input", "--output")
    assert text.read_text() == "kit ban\n"


def test_texts_to_avoid_have_a_limit(translate, tmp_path, capsys):
    lines = [{"source": "ban", "avoid": ["x" * length, "y"]} for length in (4999, 5000)]
    code, output = translate("".join(f"{json.dumps(line)}\n" for line in lines).encode(), "--input-form=json")
    first, second = map(json.loads, output.splitlines())
    assert code == 5 and "error" not in first
    assert second["error"] == "the texts to avoid have 5,001 characters, but at most 5,000 are allowed"
    (tmp_path / "avoid").write_text(f"mus\n{'x' * 5001}\n")
    assert translate(b"ban\n", f"--avoid={tmp_path / 'avoid'}")[0] == 3
    assert "avoid:2: 5,001 characters, but a text to avoid may have at most 5,000" in capsys.readouterr().err


def test_no_translation_contains_words_to_avoid(translate, tmp_path):
    content = corpus(40)
    _, plain = translate(content)
    common = max(set(plain.decode().split()), key=plain.decode().split().count)
    (tmp_path / "avoid").write_text(f"{common}\n\n")
    for decoder in ("beam", "greedy", "sampling"):
        code, output = translate(content, f"--avoid={tmp_path / 'avoid'}", f"--decoder={decoder}")
        assert code == 0
        assert common not in output.decode().split()
    assert len(output.splitlines()) == 40


def test_json_lines_keep_extra_fields_and_a_line_that_is_not_an_object_is_reported(translate, capsys):
    lines = [
        '{"source": "ban des", "id": 7, "meta": {"a": [1]}}',
        '{"text": "kit", "target_prefix": "MULI", "avoid": ["KIT"]}',
        "",
        "ban",
        '{"id": 3}',
        '{"text": ["kit"], "id": 4}',
        f'{{"text": "kit", "id": 6, "deep": {"[" * 900}1{"]" * 900}}}',  # it can be read, but not written again
        f'{{"text": "kit", "deep": {"[" * 99}1{"]" * 99}}}',
        '{"text": "", "constraints": ["MULI"], "id": 8}',
        '{"text": "kit", "error": "another one\'s", "candidates": 3}',
    ]
    code, output = translate("\n".join(lines).encode(), "--input-form=json")
    records = [json.loads(line) for line in output.decode().splitlines()]
    assert code == 5
    assert len(records) == len(lines)
    assert records[0]["id"] == 7 and records[0]["meta"] == {"a": [1]}
    assert records[0]["translation"] == translate(b"ban des")[1].decode().strip()
    assert records[1]["translation"].startswith("MULI") and "KIT" not in records[1]["translation"].split()
    assert records[2] == {"source": "", "translation": "", "candidates": []}
    assert all(record["error"] and record["translation"] == "" for record in [*records[3:7], records[8]])
    assert [records[number].get("id") for number in (3, 4, 5, 6, 8)] == [None, 3, 4, 6, 8]
    assert records[9].keys() == {"source", "translation", "candidates"} and len(records[9]["candidates"]) == 1
    assert "nested more than 100 levels deep" in records[6]["error"]
    assert (
        records[7]["translation"] == translate(b"kit")[1].decode().strip()
        and str(records[7]["deep"]) == "[" * 99 + "1" + "]" * 99
    )
    messages = capsys.readouterr().err
    assert "source:4: not translated: not JSON" in messages
    assert "source:5: not translated: the field `source` is missing" in messages
    assert "source:6: not translated: not a valid request" in messages
    assert "source:9: not translated: the line has no words" in messages
    assert messages.endswith("lines: 5 not translated\n")  # and no zeros


WORDLESS = [
    "12345",
    "1 2 3",
    "|",
    "---",
    "$ 1,234.56",
    "🎉",
    "½ ± ²",
    "٣٤٥",
    "“…”",
    "https://a.org/b",
    "b@c.de",
    "(c)",
    "2.",
    "  7 ",
]


@pytest.mark.parametrize(
    "flags", [[], ["--split"], ["--markup=html"], ["--repair"], ["--raw-tokens"], ["--decoder=greedy"]]
)
def test_lines_without_words_are_returned_unchanged(call, trained, tmp_path, flags):
    (tmp_path / "text").write_text("\n".join([*WORDLESS, "ban"]) + "\n")
    lines = call("translate", "--model", trained, tmp_path / "text", *flags).out.splitlines()
    assert lines[:-1] == WORDLESS and lines[-1] != "ban"
    translated = call("translate", "--model", trained, tmp_path / "text", "--symbols=translate").out.splitlines()
    assert len(translated) == len(lines) and translated != lines


def test_several_files_are_translated_like_their_concatenation(call, trained, tmp_path):
    first, second = tmp_path / "first.en", tmp_path / "second.en.gz"
    first.write_bytes(b"ban des\nkit")  # without an LF at its end
    second.write_bytes(gzip.compress(b"muli\n\xff\n"))
    alone = [call("translate", "--model", trained, file) for file in (first, second)]
    both = call("translate", "--model", trained, first, "--input", second)
    assert both.code == 0 and sorted(both.out.splitlines()) == sorted("".join(done.out for done in alone).splitlines())
    assert both.out.count("\n") == 4 and f"{second}:2:1: not UTF-8" in both.err
    n_best = call("translate", "--model", trained, "--n-best=2", first, second).out.splitlines()
    assert [int(line.split(" ||| ")[0]) for line in n_best] == [0, 0, 1, 1, 2, 2, 3]  # the last has no words
    assert call("translate", "--model", trained, first, tmp_path / "none").code == 2


def test_a_second_model_without_its_flag_is_not_read_as_text(call, trained, tmp_path):
    assert_refused(call("translate", "--model", trained, trained, tmp_path / "text"), 2, trained, "--model")


def test_the_search_is_reported_only_with_verbose(call, trained, tmp_path):
    (tmp_path / "text").write_text("ban\n")
    assert call("translate", "--model", trained, tmp_path / "text").err == ""
    assert "beam_size:4" in call("translate", "--model", trained, tmp_path / "text", "--verbose").err


def test_lines_with_unknown_words_are_counted_and_the_first_is_named(call, trained, tmp_path):
    (tmp_path / "text").write_text("ban\nban ☃ ☃\nban ☃\n☃\n\n")
    told = call("translate", "--model", trained, tmp_path / "text").err.splitlines()
    assert len(told) == 2
    assert f"{tmp_path / 'text'}:2: 2 of 3 tokens are not in the model's vocabulary" in told[0]
    assert told[1].endswith("lines: 2 with unknown tokens")


@pytest.mark.parametrize(("key", "code"), [(b"\x04", 0), (b"\x03", 130)])
def test_a_terminal_gets_a_prompt_with_persistent_history(key, code, trained):
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= ENVIRONMENT | {"TERM": "dumb"}
        os.execv(NMT[0], [*NMT, "translate", "--model", str(trained)])

    def shown_until(text: bytes) -> bytes:
        shown = b""
        while not shown.endswith(text):
            shown += os.read(terminal, 4096)
        return shown

    assert shown_until(b"en> ") == b"type a line of text, or Ctrl-D to end\r\nen> "
    os.write(terminal, b"ban des\n")
    first = shown_until(b"en> ")
    os.write(terminal, b"\x1b[A\n")  # the line before
    assert shown_until(b"en> ") == first and first.startswith(b"ban des\r\n") and first.count(b"\n") == 2
    rest = b""
    with contextlib.suppress(OSError):  # it has ended
        while True:
            os.write(
                terminal, key
            )  # repeat while nothing happens: Python can lose a Ctrl-C between prompt and first read
            while select.select([terminal], [], [], 5)[0]:
                rest += os.read(terminal, 4096)
    assert rest.endswith(b"\r\n"), "the shell's prompt begins a line of its own"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    os.close(terminal)


def test_word_scores_sum_to_the_log_probability_and_words_are_aligned_within_the_line(translate, trained, loaded):
    content = corpus(12)
    records = [
        json.loads(line) for line in translate(content, "--json", "--word-scores", "--alignment=hard")[1].splitlines()
    ]
    assert [record["translation"] for record in records] == translate(content)[1].decode().splitlines()
    for line, record in zip(content.decode().splitlines(), records, strict=True):
        for one in record["candidates"]:
            words = one["translation"].split()
            assert len(one["word_scores"]) == len(words) + 1
            assert sum(one["word_scores"]) == pytest.approx(one["log_prob"], abs=1e-3)
            pairs = [tuple(map(int, pair.split("-"))) for pair in one["alignment"].split()]
            assert [target for _, target in sorted(pairs, key=lambda pair: pair[1])] == list(range(len(words)))
            assert all(0 <= source < len(line.split()) for source, _ in pairs)


def test_alignments_and_scores_follow_the_text_even_in_n_best_lists(translate):
    content = b"ban des kit\n\nlora\n"
    plain = translate(content)[1].decode().splitlines()
    rows = [
        line.split(" ||| ") for line in translate(content, "--alignment=soft", "--word-scores")[1].decode().splitlines()
    ]
    assert [row[0] for row in rows] == plain
    for source, row in zip(content.decode().splitlines(), rows, strict=True):
        weights = [list(map(float, word.split(","))) for word in row[1].split()]
        assert [len(one) for one in weights] == [len(source.split())] * len(row[0].split())
        assert all(0 < sum(one) <= 1 + 1e-5 for one in weights)  # the rest is the end of the sentence
        assert row[2].startswith("WordScores=") or not row[0]
    n_best = [
        line.split(" ||| ") for line in translate(content, "--n-best=2", "--alignment=0.2")[1].decode().splitlines()
    ]
    assert all(len(row) == 5 and row[3].startswith("LogProb=") for row in n_best)
    tokens = translate(content, "--raw-tokens", "--alignment=hard")[1].decode().splitlines()
    for line in tokens:
        said, pairs = line.split(" ||| ") if " ||| " in line else (line.removesuffix(" |||"), "")
        assert len(pairs.split()) == len(said.split())


def test_an_ensemble_of_one_model_twice_translates_like_it_and_a_different_vocabulary_is_rejected(
    translate, trained, data, tmp_path, nmt
):
    content = corpus(30)
    _, plain = translate(content, "--json")
    for mean in ("log-probabilities", "probabilities"):
        code, together = translate(content, "--json", f"--model={trained}", f"--model={trained}", f"--ensemble={mean}")
        assert code == 0
        for one, other in zip(plain.splitlines(), together.splitlines(), strict=True):
            assert json.loads(one)["translation"] == json.loads(other)["translation"]
    assert translate(content, f"--model={trained}", "--model-weights=1,0")[0] == 0
    assert translate(content, f"--model={trained}", "--model-weights=1,2,3")[0] == 2
    assert translate(content, "--model-weights=1")[0] == 2


@pytest.mark.parametrize(
    "flags",
    [
        ["--shortlist=x", "--decoder=sampling"],
        ["--replace-unk", "--raw-tokens"],
        ["--replicas=0"],
        ["--batch-tokens=0"],
        ["--batch-tokens=many"],
        ["--alignment=diagonal"],
        ["--alignment=1.5"],
        ["--unk-dictionary=x"],
        ["--input-form=xml"],
        ["--avoid=/no/such"],
        ["--shortlist=/no/such"],
        ["--output=x.gz"],
        ["--attention=x.html", "--beam-graph=./x.html"],
        ["--attention=x.html", "--output=x.html"],
    ],
)
def test_contradictory_output_settings_are_status_2(translate, flags):
    assert translate(b"ban\n", *flags)[0] == 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--beam-graph=x.html", "--glossary=x"], "--beam-graph"),
        (["--input=-", "--input=a", "--input=-"], "only one input can be -"),
        (["--stats=-"], "--stats cannot be -"),
    ],
)
def test_drawing_another_search_and_using_a_stream_twice_are_rejected(trained, capfd, flags, told):
    assert run(["translate", f"--model={trained}", *flags]) == 2 and told in capfd.readouterr().err


def test_a_json_object_is_one_line_for_every_reader(translate):
    code, output = translate(b'{"text": "ban", "id": "a\\u2028b\\u0085c\\u009bd"}\n', "--input-form=json")
    [line] = output.decode().splitlines()
    assert code == 0 and json.loads(line)["id"] == "a\u2028b\u0085c\u009bd"


def test_int8_and_a_shortlist_of_all_words_give_nearly_the_same_translations(translate, data, tmp_path):
    content = corpus(60)
    _, plain = translate(content)
    path = tmp_path / "words.shortlist"
    assert run(["shortlist", f"--data={data}", f"--output={path}", "--of-each=1000", "--frequent=1000", "--quiet"]) == 0
    for flag, wanted in (
        (f"--shortlist={path}", 55),
        ("--precision=int8", 40),
    ):  # a model after 40 updates is seldom certain
        code, found = translate(content, flag)
        same = sum(one == other for one, other in zip(plain.splitlines(), found.splitlines(), strict=True))
        assert code == 0 and same >= wanted
    assert run(["shortlist", f"--data={data}", f"--output={path}", "--quiet"]) == 2  # it exists
    assert translate(content, f"--shortlist={path}", f"--model={path}")[0] == 2


def test_unsatisfiable_constraints_fail_only_their_line(translate, capsys):
    nested = '{"text": "ban", "n": ' + "[" * 100_000 + "]" * 100_000 + "}"
    long = json.dumps({"text": "ban", "target_prefix": "BAN " * 50})
    phrases = '{"text": "ban", "constraints": ["BAN"]}'
    extra = json.dumps({"text": "ban", "notes": "x" * 5000})
    content = "\n".join([nested, long, phrases, extra, '{"text": "ban"}']).encode()
    code, output = translate(content, "--input-form=json", "--max-source-length=16")
    records = [json.loads(line) for line in output.decode().splitlines()]
    assert code == 5 and [bool(record["translation"]) for record in records] == [False, False, False, True, True]
    assert [bool(record.get("error")) for record in records] == [True, True, True, False, False]
    assert records[3]["notes"] == "x" * 5000
    messages = capsys.readouterr().err
    assert all(f"source:{number}: not translated" in messages for number in (1, 2, 3))
    assert "prefix and phrases have" in messages and "constrained-beam" in messages


def test_unknown_words_are_replaced_and_words_are_split_at_blanks(translate, tmp_path):
    (tmp_path / "words").write_text("qux QUUX\nqux LATER\n")  # the first counts
    lines = ["ban qux des", "a\u20acb ban", "\u20ac", "kit\u2581des \u3000 lora"]
    content = "\n".join(lines).encode()
    _, plain = translate(content)
    assert "<unk>" in translate(b"qux ||| NOWORD\n", "--input-form=prefix")[1].decode()
    replaced = "--replace-unk", f"--unk-dictionary={tmp_path / 'words'}"
    code, output = translate(b"qux ||| NOWORD\n", "--input-form=prefix", *replaced)
    assert code == 0 and "QUUX" in output.decode() and "<unk>" not in output.decode()
    code, output = translate(content, "--replace-unk", "--word-scores", "--alignment=hard", "--json")
    assert code == 0 and len(output.splitlines()) == len(plain.splitlines()) == 4
    for line, record in zip(lines, map(json.loads, output.decode().splitlines()), strict=True):
        pairs = [pair.split("-") for pair in record["candidates"][0]["alignment"].split()]
        assert all(int(source) < len(line.replace("\u2581", " ").split()) for source, _ in pairs)


def test_a_dictionary_of_whole_words_is_learnt_and_replaces_unknown_words(translate, data, call, tmp_path):
    corpus = tmp_path / "corpus"
    write_corpus(corpus, 300, 5)
    with corpus.with_suffix(".en").open("a") as source, corpus.with_suffix(".de").open("a") as target:
        source.write("qux ban\n" * 3)  # words unknown to the model but in a larger vocabulary
        target.write("BAN QUUX\n" * 3)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={corpus}", "--quiet"]
    assert call(*prepare, "--subword=none", f"--output={tmp_path / 'words-data'}").code == 0
    files = [f"--output={tmp_path / 'list'}", f"--dictionary={tmp_path / 'words'}", "--quiet"]
    learnt = call("shortlist", f"--data={tmp_path / 'words-data'}", *files)
    assert learnt.code == 0, learnt.err
    dictionary = dict(line.split(" ") for line in (tmp_path / "words").read_text().splitlines())
    assert dictionary == {word: word.upper() for word in WORDS} | {"qux": "QUUX"}
    line = b"qux ||| NOWORD\n"
    assert "<unk>" in translate(line, "--input-form=prefix")[1].decode()
    replacing = "--replace-unk", f"--unk-dictionary={tmp_path / 'words'}"
    code, output = translate(line, "--input-form=prefix", *replacing)
    assert code == 0 and output.startswith(b"QUUX") and b"<unk>" not in output
    again = call("shortlist", f"--data={data}", f"--output={tmp_path / 'other'}", *files[1:])
    assert_refused(again, 2, "words already exists")


def test_a_dictionary_contains_words_not_subwords(call, tmp_path):
    write_corpus(tmp_path / "corpus", 50, 5)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    assert call(*prepare, "--subword=bpe", "--vocab-size=60", f"--output={tmp_path / 'data'}").code == 0
    refused = call("shortlist", "--data", tmp_path / "data", "--output", tmp_path / "l", "--dictionary", tmp_path / "d")
    assert_refused(refused, 2, "--subword")
    assert not (tmp_path / "d").exists() and not (tmp_path / "l").exists()


def test_an_unwritable_file_is_reported_before_the_data_is_read(call, tmp_path):
    for flags in (["--output=missing/l"], ["--output=l", f"--dictionary={tmp_path}", "--overwrite"]):
        assert_refused(call("shortlist", "--data=nowhere", *flags), 5, "cannot be written")


class Free:
    """A device's memory."""

    def __init__(self, on_gpu, free):
        self.on_gpu, self.free = on_gpu, lambda: free


def test_batch_sizes_adapt_to_speed_and_memory(loaded):
    model = copy.copy(loaded.model)
    for model.width, on_gpu, free, paths, replicas in itertools.product(
        (64, 512, 1000), (False, True), (2**25, 2**34), (1, 64), (1, 3)
    ):
        found = auto_batch_tokens(model, Free(on_gpu, free), paths, replicas)
        assert found.bit_count() == 1
        assert found == 1 or replicas * found * paths * bytes_per_path(model) <= free / 2
        assert found <= MAX_GPU_TOKENS if on_gpu else found <= MAX_CPU_TOKENS and found * model.width <= MAX_CPU_NUMBERS
        assert found == auto_batch_tokens(Ensemble([model]), Free(on_gpu, free), paths, replicas)
        assert found >= auto_batch_tokens(Ensemble([model, model]), Free(on_gpu, free), paths, replicas)
    model.width = 512
    assert auto_batch_tokens(model, Free(False, 2**34), 4, 2) == 2048
    assert auto_batch_tokens(model, Free(False, 0), 4, 2) == 1


def test_weights_are_prepared_once_before_the_second_batch():
    done = []
    one = Replicas(lambda item: (item, len(done)), 1, torch.device("cpu"), 1, lambda: done.append("settled"))
    assert [list(one.in_order(items)) for items in ([], [7], [], [8], [8, 9])] == [
        [],
        [(7, 0)],
        [],
        [(8, 1)],
        [(8, 1), (9, 1)],
    ]


def test_every_replica_gets_equally_many_batches_that_are_not_too_small():
    for tokens, replicas in ((26_000, 8), (5_000, 2), (100_000, 3)):
        size = even_batch_tokens(tokens, 2048, replicas)
        batches = math.ceil(tokens / size)
        assert batches % replicas == 0 and size <= 2048
        assert (batches - replicas) * 2048 < tokens  # one batch fewer per replica would not be enough
    assert even_batch_tokens(3_000, 2048, 1) == 2048  # no replica waits
    assert even_batch_tokens(600, 2048, 2) == 2048 // 4
    assert even_batch_tokens(1, 3, 2) == 1
    assert even_batch_tokens(0, 2048, 2) >= 1  # empty lines have none


@pytest.mark.parametrize("content", [corpus(200), b"\n" * 200])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_concurrent_batches_give_the_same_lines(translate, content, precision):
    flags = f"--precision={precision}", "--batch-tokens=100"
    assert translate(content, *flags, "--replicas=3")[1] == translate(content, *flags)[1]


def test_a_line_that_cannot_be_drawn_is_still_translated(translate, tmp_path, monkeypatch, capsys):
    content = corpus(3)

    def fail(model, pipeline, source, target):
        if source == pipeline.source.encode(content.decode().splitlines()[1]):
            raise MemoryError("no room")
        return attention_maps(model, pipeline, source, target)

    monkeypatch.setattr(nmt.extensions.watch.viewers.drawings, "attention_maps", fail)
    assert translate(content, f"--attention={tmp_path / 'look.html'}") == translate(content)
    assert "line 2 could not be drawn: MemoryError: no room" in capsys.readouterr().err
    assert (tmp_path / "look.html").stat().st_size


@pytest.mark.parametrize(("name", "lines"), [("look.svg", 1), ("look.html", 3)])
def test_attention_is_computed_only_for_drawn_lines(translate, tmp_path, monkeypatch, name, lines):
    read = []
    monkeypatch.setattr(
        nmt.extensions.watch.viewers.drawings,
        "attention_maps",
        lambda *given: read.append(given) or attention_maps(*given),
    )
    assert translate(corpus(5), f"--attention={tmp_path / name}", "--attention-lines=3")[0] == 0
    assert len(read) == lines and (tmp_path / name).stat().st_size


@pytest.fixture
def replicas(trained, tmp_path):
    """A translation of very many lines by two replicas, and their process ids."""
    if sys.platform != "linux":
        pytest.skip("replicas are threads here")
    source = tmp_path / "source"
    source.write_bytes(corpus(20_000))
    flags = f"--input={source}", "--replicas=2", "--batch-tokens=40"
    process = start(trained, *flags, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(children_of(process.pid)) == 2, process, 60)
        yield process, children_of(process.pid)
    finally:
        process.kill()
        process.communicate()


def test_a_killed_replica_is_named_and_the_other_ends(replicas):
    process, (victim, other) = replicas
    os.kill(victim, signal.SIGKILL)
    messages = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 5 and "a search process died" in messages and "--replicas" in messages
    until(lambda: not runs(other))


def test_replicas_end_when_their_parent_is_killed(replicas):
    process, numbers = replicas
    process.kill()
    until(lambda: not any(map(runs, numbers)))


def test_a_signal_ends_even_an_unresponsive_replica(replicas):
    process, (victim, other) = replicas
    os.kill(victim, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    messages = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in messages
    until(lambda: not runs(victim) and not runs(other))


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(number):
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_attention_is_drawn_in_a_page_and_on_the_terminal(trained, translate, tmp_path, capsys):
    page = tmp_path / "look.html"
    content = corpus(5)
    code, output = translate(content, f"--attention={page}", "--attention-lines=2")
    assert code == 0 and output == translate(content)[1]
    assert page.read_text().startswith("<!DOCTYPE html>")
    capsys.readouterr()
    assert translate(b"ban des\n", "--attention=terminal")[0] == 0
    assert "cross-attention, layer 1 of 1, mean of 2 heads" in capsys.readouterr().err
    assert translate(b"ban des\n", "--attention=terminal", f"--model={trained}", f"--model={trained}")[0] == 0
    assert "cross-attention, layer 1 of 1, one head" in capsys.readouterr().err
    for wrong in ("look.gif", "no/such/folder/look.html"):
        assert translate(content, f"--attention={tmp_path / wrong}")[0] == 2


def test_a_checkpoint_removed_by_its_run_is_replaced_by_the_current_best(trained, tmp_path, call, monkeypatch):
    (tmp_path / "line").write_text(f"{WORDS[0]}\n")
    command = ["translate", "--model", trained, "--input", tmp_path / "line"]
    wanted, found = call(*command), []
    real = nmt.translators.find_model

    def find_model(folder):
        found.append(real(folder) if found else trained / "checkpoints/update-7")
        return found[-1]

    monkeypatch.setattr(nmt.translators, "find_model", find_model)
    done = call(*command)
    assert (done.code, done.out) == (0, wanted.out) and len(found) == 2, done.err
    monkeypatch.setattr(nmt.translators, "find_model", lambda folder: trained / "checkpoints/update-7")
    assert call(*command).code == 4


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_an_output_that_is_a_link_to_an_input_or_another_output_is_refused(link, trained, call, new_nmt, tmp_path):
    (tmp_path / "lines").write_text(f"{WORDS[0]}\n")
    link(tmp_path / "lines", tmp_path / "link")
    command = ["translate", "--model", trained]
    for first, second in itertools.permutations([tmp_path / "lines", tmp_path / "link"]):
        for flags in ([f"--input={first}", f"--output={second}"], [f"--output={first}", f"--stats={second}"]):
            assert_refused(call(*command, *flags), 2, "name the same file", second)
        with first.open("rb") as stdin:
            assert_refused(new_nmt(*command, f"--output={second}", stdin=stdin), 2, "name the same file", second)
    assert (tmp_path / "lines").read_text() == f"{WORDS[0]}\n"
