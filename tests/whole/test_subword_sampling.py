"""`nmt train --subword-sampling`: exact when resumed and on ranks, only in training, rejected if words cannot be split."""

import pytest
from conftest import kill_after_update_10, records_of, train_arguments, updates_of, write_corpus
from refusals import assert_refused

SAMPLING = "--subword-sampling=0.3"


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def subwords(request, tmp_path_factory, nmt):
    """Prepared data with subwords of the words of `write_corpus`."""
    folder = tmp_path_factory.mktemp(request.param)
    write_corpus(folder / "train", 300, 1)
    write_corpus(folder / "dev", 20, 2)
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}", "--vocab-size=70"]
    arguments += [f"--valid={folder / 'dev'}", f"--subword={request.param}", f"--output={folder / 'data'}", "--quiet"]
    assert nmt(*arguments).returncode == 0
    return folder / "data"


def test_a_killed_run_resumes_bit_for_bit_and_sampling_changes_the_updates(subwords, tmp_path, call):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    kill_after_update_10(train_arguments(subwords, cut, 100_000, SAMPLING), cut)
    for run in (cut, whole):
        assert call(*train_arguments(subwords, run, 20, SAMPLING)).code == 0
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes()
    assert call(*train_arguments(subwords, tmp_path / "plain", 20)).code == 0
    sampled, plain = updates_of(whole), updates_of(tmp_path / "plain")
    numbers = [[update["target_tokens"] for update in of_run] for of_run in (sampled, plain)]
    assert sum(numbers[0]) > sum(numbers[1])
    assert [one["epoch"] for one in sampled] == [other["epoch"] for other in plain]
    refused = call(*train_arguments(subwords, whole, 30, "--subword-sampling=0.2"))
    assert_refused(refused, 2, "subword_sampling: 0.3 -> 0.2")


def test_validation_and_translation_are_never_sampled(subwords, tmp_path, call):
    """If no update changes the weights, a validation gives the same result as without sampling."""
    assert call(*train_arguments(subwords, tmp_path / "model", 20)).code == 0
    still = ("--optimizer=sgd", "--lr=1e-30", f"--init-from={tmp_path / 'model'}", "--valid-every=1u")
    losses = []
    for name, flags in (("plain", ()), ("sampled", (SAMPLING,))):
        assert call(*train_arguments(subwords, tmp_path / name, 1, *still, *flags)).code == 0
        records = records_of(tmp_path / name)
        losses.append([record["valid_loss"] for record in records if "valid_loss" in record])
    assert losses[0] == losses[1] and len(losses[0]) == 1


def test_words_and_token_columns_are_rejected_before_the_run_starts(data, tmp_path, call):
    refused = call(*train_arguments(data, tmp_path / "run", 10, SAMPLING))
    assert_refused(refused, 2, "--subword-sampling")
    assert refused.err.count("\n") == 1
    write_corpus(tmp_path / "corpus", 60, 1)
    lines = (tmp_path / "corpus.de").read_text().splitlines()
    (tmp_path / "weights").write_text("".join(" ".join("1" for _ in line.split()) + "\n" for line in lines))
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    column = f"--column=weight:target={tmp_path / 'weights'}"
    made = call(*prepare, column, "--subword=bpe", "--vocab-size=70", f"--output={tmp_path / 'data'}")
    assert made.code == 0, made.err
    refused = call(*train_arguments(tmp_path / "data", tmp_path / "run", 10, SAMPLING, "--valid-metrics=none"))
    assert_refused(refused, 2, "'weight'")
    refused = call(*train_arguments(data, tmp_path / "run", 10, "--subword-sampling=1.5"))
    assert_refused(refused, 2, "--subword-sampling")
