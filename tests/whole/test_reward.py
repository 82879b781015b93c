"""`nmt train --criterion reward`: starts from a trained model, is recorded by name, resumes bit for bit."""

import json

import pytest
from conftest import train_arguments
from refusals import assert_refused

REWARD = ("--criterion=reward", "--criterion.decoder.n-best=4", "--criterion.decoder.max-len-b=2", "--no-valid-bleu")


def test_reward_training_requires_a_trained_model(data, trained, tmp_path, call):
    for more in ([], ["--dry-run"]):
        refused = call(*train_arguments(data, tmp_path / "run", 2, *REWARD, *more))
        assert_refused(refused, 2, "--criterion", "--init-from", "MODEL")
    assert not list(tmp_path.glob("run/checkpoints/*"))
    dry = call(*train_arguments(data, tmp_path / "run", 2, *REWARD, f"--init-from={trained}", "--dry-run", "--json"))
    assert dry.code == 0 and dry.json["first"] == 1


@pytest.mark.parametrize("objective", ["reward", "risk"])
def test_a_resumed_reward_run_draws_the_samples_of_an_uninterrupted_one(objective, data, trained, tmp_path, call):
    more = (*REWARD, f"--objective={objective}", f"--init-from={trained}", "--valid-every=2u", "--lr=0.001")
    for folder, ends in (("whole", [4]), ("cut", [2, 4])):
        for end in ends:
            result = call(*train_arguments(data, tmp_path / folder, end, *more, "--save-every=2u"))
            assert result.code == 0, result.err
    whole, cut = ((tmp_path / folder / "metrics.jsonl").read_bytes() for folder in ("whole", "cut"))
    assert whole == cut
    records = [json.loads(line) for line in whole.splitlines()]
    updates = [record for record in records if "loss" in record]
    assert len(updates) == 4 and all(0 <= record["reward"] < 1 < record["nll"] for record in updates)
    assert {"valid_loss", "valid_ppl", "valid_reward"} <= records[-1].keys()


def test_a_reward_is_set_by_options_and_invalid_combinations_are_rejected(data, trained, tmp_path, call):
    def run(*more):
        return call(*train_arguments(data, tmp_path / "run", 1, *REWARD, f"--init-from={trained}", *more))

    assert_refused(run("--with-reference"), 2, "--objective")
    assert_refused(run("--reward=bleu", "--reward.tokenize=14a"), 2, "BLEU", "'14a'")
    taken = run(
        "--reward=chrf", "--reward.lowercase", "--likelihood-weight=0.3", "--objective=risk", "--with-reference"
    )
    assert taken.code == 0, taken.err
