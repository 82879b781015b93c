"""`nmt clean` as a user runs it: lines kept byte for byte, pairs removed and counted, exit statuses, signals."""

import gzip
import os
import signal
from collections import Counter

import pytest
from refusals import assert_refused

import nmt.data.encode
import nmt.extensions.doctor.clean
import nmt.extensions.doctor.pairs
from nmt.extensions.doctor.clean import DEFAULT_RULES, RULES
from nmt.extensions.doctor.languages import language_scores

KEPT = [
    (f"The house {i} is here, and we have not seen it.", f"Das Haus {i} ist hier, und wir haben es nicht gesehen.")
    for i in range(40)
]
FAULTY = {  # by rule: a pair that breaks it first
    "not-utf8": (b"The caf\xe9 is here.", b"Das Caf\xe9 ist hier."),
    "blank-both-sides": (b" ", b""),
    "blank-one-side": (b"Is it here?", b""),
    "mojibake": (b"The king.", "Der KÃ¶nig.".encode()),
    "control-characters": (b"the\x07bell", b"die\x07Glocke"),
    "markup": (b"the <b>one</b> & all", b"der <b>eine</b>"),
    "wrong-script": (b"They have not seen us.", "Они нас не видели.".encode()),
    "copy": (b"We have seen this house.", b"We have seen this house."),
    "swapped": (b"Sie sind uns nicht gut.", b"They have not seen us."),
    "wrong-language": (b"They have not seen us.", b"Ils ne nous ont pas vus."),
    "long-line": (b"one " * 400, b"zwei " * 300),
    "unlike-lengths": (b"No.", b"Das hat mit uns beiden nichts zu tun."),
    "truncated": (b"They went down to the river.", b"Sie gingen"),
    "numbers-differ": (b"at 5 or 6", b"um 5 oder 7"),
    "duplicate-pairs": tuple(text.encode() for text in KEPT[3]),
}


@pytest.fixture
def corpus(tmp_path):
    """`corpus(pairs, name="c", end=...)` writes NAME.en and NAME.de, and returns the command that cleans them into `out`."""

    def written(pairs, name="c", end=b"\n", compressed=False):
        for side, language in enumerate(("en", "de")):
            lines = (pair[side] if isinstance(pair[side], bytes) else pair[side].encode() for pair in pairs)
            content = end.join(lines) + end
            path = tmp_path / f"{name}.{language}"
            path.write_bytes(content) if not compressed else path.with_name(f"{path.name}.gz").write_bytes(
                gzip.compress(content)
            )
        return ["clean", tmp_path / name, "--source-lang=en", "--target-lang=de", f"--output={tmp_path / 'out'}"]

    return written


def test_each_rule_removes_its_pair_and_leaves_the_others_unchanged(corpus, call, tmp_path):
    assert set(FAULTY) == set(RULES)
    faulty = list(FAULTY.items())
    pairs = [
        pair for i, good in enumerate(KEPT) for pair in (good, *(pair for _, pair in faulty[i - 10 : i - 9] if i >= 10))
    ]
    result = call(*corpus(pairs), "--drop=all", f"--rejected={tmp_path / 'bad.tsv'}", "--json", "--quiet")
    assert (result.code, result.err) == (0, "")
    report = result.json
    assert report["removed"] == dict.fromkeys(RULES, 1)
    assert (report["read"], report["kept"]) == (len(pairs), len(KEPT))
    for side, language in enumerate(("en", "de")):
        assert (tmp_path / f"out.{language}").read_text().splitlines() == [pair[side] for pair in KEPT]
    rows = [line.split(b"\t") for line in (tmp_path / "bad.tsv").read_bytes().removesuffix(b"\n").split(b"\n")]
    for (rule, pair), row in zip(faulty, rows, strict=True):
        number = pairs.index(pair, 5) + 1
        assert row == [rule.encode(), f"{tmp_path}/c.en:{number}".encode(), *pair]
    examples = {rule: found["place"] for rule, [found] in report["examples"].items()}
    assert set(examples) == set(RULES)
    assert examples["duplicate-pairs"] == f"{tmp_path}/c.en:{pairs.index(FAULTY['duplicate-pairs'], 5) + 1}"
    assert examples["copy"] == f"{tmp_path}/c.en:{pairs.index(FAULTY['copy']) + 1}"


def test_the_table_adds_up_and_nothing_is_written_in_a_dry_run(corpus, call, tmp_path):
    pairs = [*KEPT, *FAULTY.values(), FAULTY["copy"], ("\x1b[31m [bold]x[/x] &amp;", "x")]
    arguments = corpus(pairs)[:-1]
    before = sorted(os.listdir(tmp_path))
    result = call(*arguments, "--dry-run")
    assert (result.code, sorted(os.listdir(tmp_path))) == (0, before)
    assert "\x1b" not in result.out
    words = [line.split() for line in result.out.splitlines()]
    counts = {row[0]: int(row[1]) for row in words if row and row[0] in RULES}
    assert set(counts) == set(DEFAULT_RULES)
    assert counts["copy"] == 2 and counts["markup"] == 2
    read, kept, removed = (int(word.replace(",", "")) for word in words[0] if word.replace(",", "").isdigit())
    assert read == len(pairs) == kept + removed and removed == sum(counts.values())


@pytest.mark.parametrize(
    ("flags", "rules"),
    [
        ([], DEFAULT_RULES),
        (["--drop=numbers-differ"], {*DEFAULT_RULES, "numbers-differ"}),
        (["--keep=markup,copy", "--keep=swapped"], set(DEFAULT_RULES) - {"markup", "copy", "swapped"}),
        (["--keep=all", "--drop=copy,swapped"], {"copy", "swapped"}),
        (["--keep=all"], set()),
        (["--drop=all", "--keep=copy"], set(RULES) - {"copy"}),
    ],
)
def test_rules_are_chosen_by_drop_and_keep(flags, rules, corpus, call):
    report = call(*corpus([*KEPT, *FAULTY.values()]), *flags, "--json").json
    assert set(report["removed"]) == set(rules)
    assert report["read"] == report["kept"] + sum(report["removed"].values())


def test_lines_are_copied_byte_for_byte_from_several_corpora_plain_compressed_and_tsv(corpus, call, tmp_path):
    end = b"\r\n"
    corpus(
        [("\ufeffThe cat's here\u00a0 now.", "\ufeffDie Katze ist \tjetzt hier. "), *KEPT[:3], FAULTY["copy"]], "a", end
    )
    for language in ("en", "de"):  # without the last line end
        (tmp_path / f"a.{language}").write_bytes((tmp_path / f"a.{language}").read_bytes().removesuffix(end))
    corpus(KEPT[10:14], "b", compressed=True)
    (tmp_path / "t.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in KEPT[20:22]))
    files = [tmp_path / "a", tmp_path / "b", f"--train-tsv={tmp_path / 't.tsv'}", f"--output={tmp_path / 'out'}"]
    result = call("clean", "--source-lang=en", "--target-lang=de", *files, "--gzip", "--workers=2")
    assert (result.code, result.err) == (0, "")
    for side, language in enumerate(("en", "de")):
        first = ["The cat's here\u00a0 now.", "Die Katze ist \tjetzt hier. "][side]
        lines = [
            first + "\r\n",
            *(pair[side] + "\r\n" for pair in KEPT[:3]),
            *(pair[side] + "\n" for pair in KEPT[10:14] + KEPT[20:22]),
        ]
        assert gzip.decompress((tmp_path / f"out.{language}.gz").read_bytes()).decode() == "".join(lines)


def test_a_repeated_pair_is_found_across_chunks_files_and_workers(corpus, call, tmp_path, monkeypatch):
    monkeypatch.setattr(nmt.data.encode, "CHUNK_PAIRS", 7)
    corpus(KEPT[5:15], "b")
    arguments = [*corpus(KEPT + KEPT[:3]), tmp_path / "b", "--json"]
    one = call(*arguments).json
    assert Counter(one["removed"])["duplicate-pairs"] == 13 and one["kept"] == len(KEPT)
    places = [found["place"] for found in one["examples"]["duplicate-pairs"]]
    assert places == [f"{tmp_path}/c.en:{len(KEPT) + i}" for i in (1, 2, 3)]
    assert (tmp_path / "out.en").read_text().splitlines() == [source for source, _ in KEPT]
    two = call(*arguments, "--workers=2")
    assert (two.code, two.err, two.json) == (0, "", one)


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        (["--drop=copies"], 2, "copies"),
        (["--drop=copy", "--keep=copy"], 2, "copy"),
        (["--output=c"], 2, "c.en"),
        (["--target-lang=en"], 2, "--target-lang"),
        (["--dry-run", "--rejected=x"], 2, "--rejected"),
        (["--rejected=out.en"], 2, "out.en"),
        (["--output=nowhere/out"], 5, "nowhere"),
        (["nothing"], 2, "nothing.en"),
        (["longer"], 3, "longer.de"),
        (["wide"], 3, "wide.en:1"),
        (["empty"], 3, "empty.en"),
    ],
)
def test_an_error_prints_one_line_and_leaves_no_file(flags, code, named, corpus, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus(KEPT)
    corpus(KEPT, "longer")
    with (tmp_path / "longer.de").open("a") as file:
        file.write("Eine mehr.\n")
    corpus([], "empty", b"")
    for language in ("en", "de"):
        (tmp_path / f"wide.{language}").write_bytes("The house\n".encode("utf-16"))
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    words = [] if flags[0] in ("nothing", "longer", "wide", "empty") else ["c"]
    result = call("clean", *words, "--source-lang=en", "--target-lang=de", "--output=out", *flags)
    assert (result.code, result.out) == (code, "")
    assert named in result.err and result.err.count("\n") == 1
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


@pytest.mark.parametrize("phase", ["judging", "copying"])
def test_a_signal_ends_cleaning_and_keeps_the_old_files(phase, corpus, call, tmp_path, monkeypatch):
    monkeypatch.setattr(nmt.data.encode, "CHUNK_PAIRS", 10)
    arguments = corpus(KEPT)
    for language in ("en", "de"):
        (tmp_path / f"out.{language}").write_text("old\n")
    before = sorted(os.listdir(tmp_path))

    def stopped(*given):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*given)

    module, name = (
        (nmt.extensions.doctor.pairs, "language_scores")
        if phase == "judging"
        else (nmt.extensions.doctor.clean, "_whole_lines")
    )
    real = language_scores if phase == "judging" else nmt.extensions.doctor.clean._whole_lines
    monkeypatch.setattr(module, name, stopped)
    result = call(*arguments)
    assert (result.code, result.out) == (128 + signal.SIGTERM, "")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "out.en").read_text() == (tmp_path / "out.de").read_text() == "old\n"


def test_doctor_names_the_rule_and_finds_nothing_left_to_clean(corpus, call, tmp_path):
    arguments = corpus([*KEPT, *FAULTY.values()])
    of_doctor = ["doctor", "--source-lang=en", "--target-lang=de", "--json", "--fail-on=never"]
    findings = call(*of_doctor, f"--train={tmp_path / 'c'}").json["findings"]
    assert {found["check"] for found in findings} >= set(RULES)
    assert all("nmt clean" in found["advice"] for found in findings if found["check"] in RULES)
    call(*arguments, "--drop=all")
    assert call(*of_doctor, f"--train={tmp_path / 'out'}").json["findings"] == []


def test_an_empty_cleaned_corpus_triggers_a_warning(corpus, call):
    result = call(*corpus([(target, source) for source, target in KEPT]))
    assert result.code == 0 and "warning" in result.err


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_an_output_that_is_a_link_to_the_corpus_is_refused(link, corpus, call, tmp_path):
    arguments = corpus(KEPT)
    for name, linked in (("out.de", "c.de"), ("bad.tsv", "c.en"), ("bad.tsv", "out.en")):
        (tmp_path / "out.en").write_text("old\n")
        link(tmp_path / linked, tmp_path / name)
        rejected = [f"--rejected={tmp_path / name}"] if name == "bad.tsv" else []
        assert_refused(call(*arguments, *rejected), 2, tmp_path / name)
        (tmp_path / name).unlink()
