"""`nmt doctor` as a user runs it: report, examples, JSON, the page of charts, exit statuses."""

import gzip
import os
import re
import signal
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from refusals import assert_refused

import nmt.extensions.doctor.pairs
import nmt.extensions.doctor.sets
from nmt.artefact import Artefact
from nmt.extensions.doctor.languages import language_scores

SOURCE = [f"The house {i} is here, and we have not seen it." for i in range(100, 140)]
TARGET = [f"Das Haus {i} ist hier, und wir haben es nicht gesehen." for i in range(100, 140)]


@pytest.fixture
def corpus(tmp_path):
    """`corpus(source, target)` writes c.en and c.de, and returns the flags that name them."""

    def written(source=SOURCE, target=TARGET):
        for name, lines in (("c.en", source), ("c.de", target)):
            (tmp_path / name).write_bytes(b"".join(line.encode("latin-1") + b"\n" for line in lines))
        return ["doctor", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'c'}"]

    return written


def test_a_clean_corpus_is_reported_on_stdout_alone(corpus, call):
    result = call(*corpus())
    assert (result.code, result.err) == (0, "")
    assert "train: 40 pairs" in result.out and "\nnothing found\n" in result.out
    assert "█" in result.out
    assert not re.search(r"^ +[^ ]+ +0  ", result.out, re.MULTILINE)  # a row without a count, at the end of a histogram


def test_faults_are_reported_by_file_and_line_and_an_error_is_status_3(corpus, call, tmp_path):
    target = [
        *TARGET[:6],
        "",
        "Das ist die Stra\xdfe 107 da, und wir sind es nicht.",
        *TARGET[8:],
        "[bold]one more[/x]",
    ]
    result = call(*corpus(target=target), "--quiet")
    assert (result.code, result.err) == (3, "")
    assert "\nfound: 2 errors, 1 warning\n" in result.out
    assert [line.split()[:4] for line in result.out.splitlines() if line.startswith(("error", "warning", "note"))] == [
        ["error", "train", "pair", "files"],
        ["error", "train", "target", "not"],
        ["warning", "train", "target", "blank"],
    ]
    for place in ("c.de:41: ", "c.de:8:17: ", "c.de:7: "):
        assert f"    {tmp_path}/{place}" in result.out
    assert f"{tmp_path}/c.en has 40 lines, {tmp_path}/c.de has 41" in result.out


def test_a_tsv_file_gives_the_same_findings_as_two_files(corpus, call, tmp_path):
    target = [*TARGET[:6], "", "Stra\xdfe", *TARGET[8:]]
    of_files = call(*corpus(target=target), "--quiet")
    rows = zip(
        (tmp_path / "c.en").read_bytes().splitlines(), (tmp_path / "c.de").read_bytes().splitlines(), strict=True
    )
    (tmp_path / "c.tsv").write_bytes(b"".join(b"\t".join(row) + b"\n" for row in rows))
    command = ["doctor", "--source-lang=en", "--target-lang=de", "--quiet"]
    of_tsv = call(*command, f"--train-tsv={tmp_path / 'c.tsv'}")
    columns_apart = len(SOURCE[7]) + 1  # the column of a fault in the target counts from the start of the line
    expected = of_files.out.replace("c.de:8:5:", f"c.tsv:8:{5 + columns_apart}:").replace("c.de", "c.tsv")
    assert (of_tsv.code, of_tsv.out) == (3, expected.replace("c.en", "c.tsv"))
    (tmp_path / "c.tsv").write_text("only one column\n")
    assert_refused(
        call(*command, f"--train-tsv={tmp_path / 'c.tsv'}"), 3, f"{tmp_path}/c.tsv:1: 1 column found, expected 2"
    )
    assert_refused(call(*command, "--train-tsv=-"), 2, "--train-tsv")


@pytest.mark.parametrize(
    ("fail_on", "blank", "copies", "code"),
    [("error", 1, 0, 0), ("warning", 1, 0, 3), ("never", 1, 9, 0), ("error", 0, 9, 3), ("warning", 0, 0, 0)],
)
def test_the_exit_status_follows_the_worst_finding(fail_on, blank, copies, code, corpus, call):
    source, target = list(SOURCE), list(TARGET)
    target[:blank] = [""] * blank
    target[10 : 10 + copies] = source[10 : 10 + copies]
    assert call(*corpus(source, target), f"--fail-on={fail_on}").code == code


def test_the_json_has_the_content_of_the_table(corpus, call, tmp_path):
    source = [*SOURCE[:4], "The house 104 &amp; its door, and we have it.", *SOURCE[5:]]
    report = call(*corpus(source), "--json", "--examples=1").json
    (finding,) = report["findings"]
    assert (finding["severity"], finding["check"], finding["count"], finding["of"]) == ("warning", "markup", 1, 40)
    assert finding["examples"] == [
        {"place": f"{tmp_path}/c.en:5", "text": "The house 104 &amp; its door, and we have it."}
    ]
    (figures,) = report["sets"]
    assert figures["pairs"] == figures["examined"] == 40
    assert [sum(count for _, count in rows) for rows in figures["lengths"].values()] == [40, 40, 40]


def test_the_page_has_every_chart_and_escapes_text_of_the_corpus(corpus, call, tmp_path):
    hostile = "<script>alert(1)</script> \x1b[31m and more"
    result = call(*corpus([hostile, *SOURCE[1:]]), f"--html={tmp_path / 'report.html'}")
    assert result.code == 0 and "report.html" in result.err
    assert "\x1b" not in result.out
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "\x1b" not in page
    body = page.removeprefix("<!DOCTYPE html>\n").replace('<meta charset="utf-8">', "").replace("<br>", "<br/>")
    drawings = list(ElementTree.fromstring(body).iter("{http://www.w3.org/2000/svg}svg"))
    assert len(drawings) == 3


def test_prepared_data_can_be_given_without_a_flag(data, call):
    result = call("doctor", data, "--json", "--fail-on=never")
    assert [(row["kind"], row["name"], row["pairs"], row["unit"]) for row in result.json["sets"]] == [
        ("train", "train", 300, "tokens"), ("valid", "dev", 20, "tokens"),
    ]  # fmt: skip
    assert result.code == 0


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_corpus_is_found_by_its_file_names_and_by_their_common_prefix(ending, corpus, call, tmp_path, monkeypatch):
    by_flags = call(*corpus(target=[*TARGET[:6], "", *TARGET[7:]]), "--json", "--fail-on=never")
    monkeypatch.chdir(tmp_path)
    for name in ("c.en", "c.de") if ending else ():
        Path(name + ending).write_bytes(gzip.compress(Path(name).read_bytes()))
        Path(name).unlink()
    Path("c.txt").write_text("no language\n")
    Path("c.de.bak").write_text("another file\n")
    languages = ["--source-lang=en", "--target-lang=de"]
    for words in (
        [f"c.en{ending}", f"c.de{ending}"],
        ["c", "--source-lang=en"],
        ["c", "--target-lang=de"],
        ["c", *languages],
        [tmp_path / "c", *languages],
    ):
        found = call("doctor", *words, "--json", "--fail-on=never")
        assert found.code == 0, found.err
        assert found.json["sets"] == by_flags.json["sets"]
    turned = call("doctor", f"c.de{ending}", f"c.en{ending}", "--json", "--fail-on=never").json["sets"][0]["sides"]
    assert [turned[side]["words"] for side in ("target", "source")] == [
        by_flags.json["sets"][0]["sides"][side]["words"] for side in ("source", "target")
    ]
    either = call("doctor", "c", "--fail-on=never")
    assert either.code == 0 and f"c.en{ending}" in either.err and f"c.de{ending}" in either.err


def test_an_unknown_corpus_name_lists_the_existing_files(corpus, call, tmp_path, monkeypatch):
    corpus()
    monkeypatch.chdir(tmp_path)
    for command in (["doctor"], ["prepare", "--output=data"]):
        assert_refused(call(*command, "c.en"), 2, "c.en", "c.de")
    assert_refused(call("prepare", "c", "--output=data"), 2, "c.de", "c.en")
    Path("c.fr").write_text("x\n")
    for command in (["doctor"], ["prepare", "--output=data"]):
        several = call(*command, "c")
        assert several.code == 2 and all(name in several.err for name in ("c.en", "c.de", "c.fr"))
    Path("pairs.tsv").write_text("a\tb\n")
    assert_refused(call("doctor", "pairs.tsv"), 2, "--source-lang", "--target-lang")
    assert call("doctor", "pairs.tsv", "--source-lang=en", "--target-lang=de").code == 0
    for name in ("hyp.txt", "ref.txt"):
        Path(name).write_text("a b\n")
    assert_refused(call("doctor", "hyp.txt", "ref.txt"), 2, "--source-lang")
    assert call("doctor", "hyp.txt", "ref.txt", "--source-lang=en", "--target-lang=de", "--fail-on=never").code == 0
    Path(".en").write_text("x\n")
    assert all(call("clean", "--dry-run", name).code == 2 for name in (".", ""))


def test_the_corpus_name_determines_the_source_language(corpus, call, tmp_path, monkeypatch):
    corpus()
    monkeypatch.chdir(tmp_path)
    for name in ("en", "de"):
        Path(f"c.{name}").rename(f"news-v1.en-de.{name}")
    prepared = call("prepare", "news-v1.en-de", "--output=data", "--dump-config")
    assert prepared.code == 0
    values = tomllib.loads(prepared.out)
    assert [values[name] for name in ("source", "target", "source_lang", "target_lang")] == [
        ["news-v1.en-de.en"], ["news-v1.en-de.de"], "en", "de",
    ]  # fmt: skip
    Path("dumped.toml").write_text(prepared.out)
    assert tomllib.loads(call("prepare", "--config=dumped.toml", "--dump-config").out) == values
    made = ("--subword=none", "--vocab-size=0", "--quiet")
    assert call("prepare", "news-v1.en-de", "--output=data", *made).code == 0
    assert call("prepare", "news-v1.en-de.en", "news-v1.en-de.de", "--output=other", *made).code == 0
    files = ["--source=news-v1.en-de.en", "--target=news-v1.en-de.de", "--source-lang=en", "--target-lang=de"]
    assert call("prepare", *files, "--output=third", *made).code == 0
    first, *others = (Artefact(Path(name), "prepared-data").manifest["files"] for name in ("data", "other", "third"))
    texts = [name for name in first if name != "report.json"]  # which has the names of the files
    assert len(texts) > 2 and all(files[name] == first[name] for files in others for name in texts)


def test_a_set_named_after_its_kind_is_reported_by_one_word(tmp_path, call):
    for name, lines in (("train", SOURCE), ("valid", SOURCE[:1])):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    files = [f"--train={tmp_path / 'train'}", f"--valid={tmp_path / 'valid'}"]
    result = call("doctor", "--source-lang=en", "--target-lang=de", *files, "--fail-on=never")
    assert result.code == 0 and "\nvalid: 1 pairs" in result.out and "in the training" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no corpus"), (["nowhere"], 4, "nowhere"), (["nowhere", "--train=a"], 2, "--train A --train B"),
        (["a", "b"], 2, "a: no such file"), (["a.en", "b.en"], 2, "a.en: no such file"), (["a.en", "b.de", "c.fr"], 2, "a.en"),
        (["a.en", "b.de"], 2, "a.en"), (["a.en", "a.de", "--source=b"], 2, "--source"),
        (["--train=nowhere", "--source-lang=en", "--target-lang=de"], 2, "nowhere.en: no such file"),
        (["--train=a", "--source-lang=en"], 2, "--target-lang"), (["--fail-on=note", "d"], 2, "--fail-on"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(arguments, code, message, call):
    result = call("doctor", *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err and result.err.count("\n") == 1


def test_a_vocabulary_for_different_languages_is_rejected(corpus, data, call):
    arguments = corpus()
    arguments[2] = "--target-lang=en"
    assert_refused(call(*arguments, f"--vocabulary={data}"), 2, "translates en-de, but the data is en-en")


def test_a_signal_ends_doctor_between_two_chunks(corpus, call, monkeypatch):
    monkeypatch.setattr(nmt.extensions.doctor.sets, "CHUNK_PAIRS", 10)
    guessed = []

    def stopped(text):
        guessed.append(text)
        os.kill(os.getpid(), signal.SIGTERM)
        return language_scores(text)

    monkeypatch.setattr(nmt.extensions.doctor.pairs, "language_scores", stopped)
    assert call(*corpus()) == (128 + signal.SIGTERM, "", "")
    assert len(guessed) == 20  # both sides of the first chunk
