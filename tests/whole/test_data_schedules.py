"""`nmt train` with all methods for little data together: bit-identical after a kill, the same losses on several ranks."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, kill_after_update_10, records_of, train_arguments, updates_of, write_corpus
from forks import forked_nmt
from refusals import assert_refused

from nmt.data.shards import PreparedData

SCHEDULE = ["--data-weights", "news=3 web=1 until=13u", "web=1 news=1 until=3e", "temperature=2"]
ALL = [*SCHEDULE, "--loss-weights=weight", "--subword-sampling=0.2", "--source-word-dropout=0.1"]
ALL += ["--case-noise=0.2", "--typo-noise=0.1", "--target-word-dropout=0.1", "--criterion=r-drop", "--z-loss=1e-3"]
ALL += ["--optimizer=muon", "--ema=0.9", "--freeze=*embedding*", "--clip-norm=1", "--lr=0.002"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, nmt):
    """Prepared data of two corpora, of 60 and 240 pairs."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, pairs in (("talks", 60), ("web", 240), ("dev", 20)):
        write_corpus(folder / name, pairs, pairs)
        (folder / f"{name}.weight").write_text("".join(f"{1 + i % 3 / 2}\n" for i in range(pairs)))
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train=news={folder / 'talks'}"]
    arguments += [f"--train={folder / 'web'}", "--vocab-size=70", f"--valid={folder / 'dev'}"]
    arguments += [f"--column=weight={folder / name}.weight" for name in ("talks", "web")]
    made = nmt(*arguments, f"--output={folder / 'data'}")
    assert made.returncode == 0 and b"corpora: news 60, web 240" in made.stderr, made.stderr
    return folder / "data"


def files_of(run: Path) -> list[bytes]:
    names = "metrics.jsonl", "checkpoints/update-40/model.safetensors", "checkpoints/update-40/training.safetensors"
    return [(run / name).read_bytes() for name in names]


def test_a_killed_run_resumes_bit_for_bit_with_all_data_methods_on(corpora, tmp_path, call):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    kill_after_update_10(train_arguments(corpora, cut, 100_000, *ALL), cut)
    for run in (cut, whole):
        assert call(*train_arguments(corpora, run, 40, *ALL)).code == 0
    assert files_of(cut) == files_of(whole)
    refused = call(*train_arguments(corpora, whole, 50, "--data-weights=web=1", *ALL[len(SCHEDULE) :]))
    assert_refused(refused, 2, "data_weights")
    divided = ["--data-weights", *(word for words in SCHEDULE[1:] for word in words.split()), *ALL[len(SCHEDULE) :]]
    assert call(*train_arguments(corpora, whole, 40, *divided)).code == 0
    again = call("train", f"--config={whole / 'settings.toml'}", "--max-updates=41", "--quiet")
    assert again.code == 0 and len(updates_of(whole)) == 41


def test_two_killed_ranks_resume_bit_for_bit_with_all_data_methods_on(corpora, tmp_path):
    whole, cut, ranks = tmp_path / "whole", tmp_path / "cut", ("--devices=2", "--device=cpu")
    kill_after_update_10(train_arguments(corpora, cut, 100_000, *ALL, *ranks), cut)
    for run in (cut, whole):
        command = [forked_nmt(), *train_arguments(corpora, run, 40, *ALL, *ranks)]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=200)
        assert ended.returncode == 0, ended.stderr
    assert files_of(cut) == files_of(whole)


def test_stages_end_at_updates_counted_from_the_start_of_the_initial_run(corpora, tmp_path, call):
    source, more = (
        tmp_path / "source",
        ("--save-every=1u", "--data-weights", "news=1 until=3u", "web=1 until=6u", "news=1"),
    )
    assert call(*train_arguments(corpora, source, 4, *more)).code == 0
    given = [f"--init-from={source / 'checkpoints/update-4'}", "--init-state=schedule"]
    assert call(*train_arguments(corpora, tmp_path / "run", 7, *more, *given)).code == 0
    states = [
        json.loads((tmp_path / f"run/checkpoints/update-{update}/training.json").read_bytes()) for update in (5, 6, 7)
    ]
    parts = [state["progress"]["position"]["part"] for state in states]
    assert [(part["stage"], part["updates"]) for part in parts] == [(1, 4), (1, 6), (2, 6)]
    other = call(*train_arguments(corpora, tmp_path / "other", 7, "--data-weights=web=1", given[0], "--init-state=all"))
    assert_refused(other, 2, "data_weights", "-> ['web=1']; use the same settings, or load less of the state)")


def test_two_ranks_make_the_same_updates_as_one(corpora, tmp_path, call):
    flags = [*ALL, "--dropout=0"]  # its random draws depend on the rank and the micro-batch
    assert call(*train_arguments(corpora, tmp_path / "one", 25, *flags)).code == 0
    command = [forked_nmt(), *train_arguments(corpora, tmp_path / "two", 25, *flags), "--devices=2", "--device=cpu"]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    one, two = updates_of(tmp_path / "one"), updates_of(tmp_path / "two")
    assert [update["target_tokens"] for update in one] == [update["target_tokens"] for update in two]
    assert [update["loss"] for update in two] == pytest.approx([update["loss"] for update in one], rel=2e-5)


def test_shares_are_reported_and_invalid_ones_rejected_before_the_run_starts(corpora, tmp_path, call):
    log = tmp_path / "log"
    assert call(*train_arguments(corpora, log, 1, *SCHEDULE)).code == 0
    text = (log / "train.log").read_text()
    assert "percentage of pairs until update 13: news 75, web 25" in text
    assert "until the end of epoch 3: news 50, web 50" in text and "until the end: news 33.33, web 66.67" in text
    for words, message in (
        ("talks=1", "unknown corpus of --data-weights 'talks' (known: news, web)"),
        ("news=1,wab=1", "unknown corpus of --data-weights 'wab' (known: news, web)"),
        ("news=nan", "--data-weights 'news=nan': must be NAME=WEIGHT"),
        ("news=-1", "--data-weights 'news=-1': must be NAME=WEIGHT"),
    ):
        assert_refused(call(*train_arguments(corpora, tmp_path / "none", 1, f"--data-weights={words}")), 2, message)
    assert not (tmp_path / "none").exists()


def test_loss_weights_come_from_a_column_and_affect_only_training(corpora, tmp_path, call):
    still = ("--optimizer=sgd", "--lr=1e-30", "--valid-every=1u", "--dropout=0")  # no update changes a weight
    records = []
    for name, flags in (("plain", ()), ("weighted", ("--loss-weights=weight",))):
        assert call(*train_arguments(corpora, tmp_path / name, 1, *still, *flags)).code == 0
        lines = records_of(tmp_path / name)
        records.append({**lines[0], **lines[-1]})
    plain, weighted = records
    assert weighted["loss"] > 1.2 * plain["loss"] and weighted["nll"] == plain["nll"]
    assert weighted["valid_loss"] == plain["valid_loss"]
    assert_refused(call(*train_arguments(corpora, tmp_path / "none", 1, "--loss-weights=quality")), 2, "'quality'")
    (corpora.parent / "bad.weight").write_text("1\nnan\n" + 58 * "1\n")
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={corpora.parent / 'talks'}"]
    told = call(*prepare, f"--column=w={corpora.parent / 'bad.weight'}", f"--output={tmp_path / 'data'}")
    assert_refused(told, 3, "bad.weight:2", "'nan'")


def test_source_noise_is_a_setting_of_the_run_and_rejected_where_meaningless(corpora, tmp_path, call):
    assert call(*train_arguments(corpora, tmp_path / "plain", 5)).code == 0
    assert call(*train_arguments(corpora, tmp_path / "noisy", 5, "--typo-noise=0.5")).code == 0
    plain, noisy = updates_of(tmp_path / "plain"), updates_of(tmp_path / "noisy")
    assert [update["target_tokens"] for update in noisy] == [update["target_tokens"] for update in plain]
    assert all(one["loss"] != other["loss"] for one, other in zip(plain, noisy, strict=True))
    refused = call(*train_arguments(corpora, tmp_path / "noisy", 6, "--typo-noise=0.4"))
    assert_refused(refused, 2, "typo_noise: 0.5 -> 0.4")
    prepare = [
        "prepare",
        "--source-lang=en",
        "--target-lang=de",
        f"--train={corpora.parent / 'web'}",
        "--vocab-size=70",
    ]
    assert call(*prepare, "--lowercase", f"--output={tmp_path / 'lower'}").code == 0
    refused = call(
        *train_arguments(tmp_path / "lower", tmp_path / "none", 5, "--case-noise=0.1", "--valid-metrics=none")
    )
    assert_refused(refused, 2, "--case-noise", "--lowercase")


def test_a_corpus_can_have_several_files_and_a_single_corpus_keeps_its_given_name(corpora, tmp_path, call):
    folder = corpora.parent
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", "--vocab-size=70", "--quiet"]
    names = [f"--train=a={folder / 'talks'}", f"--train=b={folder / 'web'}", f"--train=a={folder / 'dev'}"]
    assert call(*prepare, *names, f"--output={tmp_path / 'three'}").code == 0
    assert PreparedData(tmp_path / "three").train.corpora == [("a", 60), ("b", 240), ("a", 20)]
    assert call(*prepare, f"--train=x={folder / 'web'}", f"--output={tmp_path / 'named'}").code == 0
    assert PreparedData(tmp_path / "named").train.corpora == [("x", 240)]
    [train] = json.loads((tmp_path / "named/report.json").read_text())["sets"]
    assert train["corpora"] == [["x", 240]]
    run = train_arguments(tmp_path / "named", tmp_path / "run", 1, "--data-weights=x=1", "--valid-metrics=none")
    assert call(*run).code == 0
    assert call(*prepare, f"--train={folder / 'web'}", f"--output={tmp_path / 'one'}").code == 0
    assert PreparedData(tmp_path / "one").train.corpora == [("train", 240)]
    assert "corpora" not in (tmp_path / "one/data.json").read_text()  # the same bytes as in earlier versions


@pytest.mark.parametrize("packed", [False, True])
def test_an_existing_path_with_an_equals_sign_is_not_split_into_name_and_path(
    packed, corpora, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", "--subword=none", "--quiet"]
    write_corpus(Path("a=b"), 30, 1)
    write_corpus(Path("b"), 20, 2)
    columns = [Path(f"a=b.{language}").read_text().splitlines() for language in ("en", "de")]
    Path("a=b.tsv").write_text("".join("\t".join(pair) + "\n" for pair in zip(*columns, strict=True)))
    if packed:
        for language in ("en", "de"):
            Path(f"a=b.{language}.gz").write_bytes(gzip.compress(Path(f"a=b.{language}").read_bytes()))
            Path(f"a=b.{language}").unlink()
    assert call(*prepare, "--train", "a=b", "c=b", "n=a=b", "--train-tsv", "a=b.tsv", "t=a=b.tsv", "-o", "d").code == 0
    assert PreparedData(tmp_path / "d").train.corpora == [("a_b", 30), ("c", 20), ("n", 30), ("a_b", 30), ("t", 30)]
    next(tmp_path.glob("a=b.de*")).unlink()
    assert_refused(call(*prepare, "--train", "a=b", "-o", "e"), 2, "b.de")
