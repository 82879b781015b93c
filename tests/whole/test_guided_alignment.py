"""Guided alignment from `nmt prepare --align` to the alignment of a translation, and its errors."""

import pytest
from conftest import kill_after_update_10, records_of, train_arguments, write_corpus
from refusals import assert_refused

GUIDED = ("--criterion=guided-alignment", "--alignment-weight=1", "--encoder-weight=0.5")


@pytest.fixture(scope="module")
def aligned_data(tmp_path_factory, nmt):
    folder = tmp_path_factory.mktemp("aligned")
    write_corpus(folder / "train", 300, 1)
    write_corpus(folder / "dev", 20, 2)
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}", "--vocab-size=70"]
    arguments += [f"--valid={folder / 'dev'}", f"--output={folder / 'data'}", "--align", "--hold-out=10"]
    made = nmt(*arguments)
    assert made.returncode == 0, made.stderr
    assert b"columns: alignment (links)" in made.stderr
    return folder / "data"


def test_a_killed_run_resumes_bit_for_bit_and_two_ranks_give_the_same_losses(aligned_data, tmp_path, call):
    whole, cut, alone, ranks = (tmp_path / name for name in ("whole", "cut", "alone", "ranks"))
    kill_after_update_10(train_arguments(aligned_data, cut, 100_000, *GUIDED), cut)
    for run in (cut, whole):
        assert call(*train_arguments(aligned_data, run, 20, *GUIDED)).code == 0
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes()
    for run, devices in ((alone, 1), (ranks, 2)):
        assert call(*train_arguments(aligned_data, run, 20, *GUIDED, "--dropout=0", f"--devices={devices}")).code == 0
    for term in ("alignment", "encoder"):
        of_one, of_two = ([row[term] for row in records_of(run) if term in row] for run in (alone, ranks))
        assert of_two == pytest.approx(of_one, rel=1e-3)
        assert of_one[-1] < of_one[0]


def test_data_without_links_and_a_duplicate_column_name_are_rejected(data, tmp_path, call):
    assert_refused(call(*train_arguments(data, tmp_path / "run", 10, *GUIDED)), 2, "'alignment'", "--align")
    write_corpus(tmp_path / "corpus", 60, 1)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--output={tmp_path / 'data'}", "--align"]
    both = call(*prepare, f"--train={tmp_path / 'corpus'}", "--column=alignment:links=x")
    assert_refused(both, 2, "--align", "--column")
    assert_refused(call(*prepare, f"--valid={tmp_path / 'corpus'}", f"--vocabulary={data}"), 2, "--align")
    assert not (tmp_path / "data").exists()


def test_a_model_without_attention_is_refused(aligned_data, tmp_path, call):
    small = ("--encoder-layers=1", "--decoder-layers=1", "--batch-tokens=100", "--max-updates=1")
    run = ("train", f"--data={aligned_data}", f"--output={tmp_path / 'run'}", *GUIDED, *small, "--schedule=constant")
    refused = call(*run, "--model=deep-att", "--interface=summary", "--hidden-size=8", "--embedding-size=8")
    assert_refused(refused, 2, "no attention weights to train")
