"""`nmt train --freeze`: parameters that match a pattern keep their bits, and the rest is trained."""

import shutil
import tomllib

import pytest
import torch
from conftest import train_arguments, updates_of
from refusals import assert_refused
from safetensors.numpy import load_file
from small_models import SMALL

from nmt import registry
from nmt.batch import dummy_batch
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.criteria.options import CrossEntropyOptions
from nmt.extensions.fast.nn.products import transpose_weights
from nmt.extensions.methods.starts.freeze import freeze
from nmt.models.base import Vocabularies
from nmt.options import make
from nmt.symbols import PAD

DECAYED = ("--optimizer=adamw", "--weight-decay=0.5", "--ema=0.9", "--valid-every=10u", "--dropout=0")
FROZEN = ("--freeze=encoder.*", "--freeze=*norm*")


def bits(folder, name="model"):
    return {key: array.tobytes() for key, array in load_file(folder / f"{name}.safetensors").items()}


def is_frozen(name):
    return name.startswith("encoder.") or "norm" in name


@pytest.fixture(scope="module")
def frozen_run(data, trained, tmp_path_factory, nmt):
    """A run of 20 updates with a frozen encoder."""
    output = tmp_path_factory.mktemp("frozen") / "run"
    done = nmt(
        *train_arguments(data, output, 20, *DECAYED, *FROZEN, f"--init-from={trained / 'checkpoints/update-40'}")
    )
    assert done.returncode == 0, done.stderr
    return output


def test_frozen_parameters_keep_their_bits_in_the_weights_and_in_their_average(frozen_run, trained):
    before, after = (
        bits(folder) for folder in (trained / "checkpoints/update-40", frozen_run / "checkpoints/update-20")
    )
    assert {name for name in before if before[name] == after[name]} == set(filter(is_frozen, before))
    training = bits(frozen_run / "checkpoints/update-20", "training")
    assert {name for name in before if f"weights.{name}" in training} == set(before) - set(filter(is_frozen, before))
    states = {name for name in training if not name.startswith("weights.")}
    assert len(states) == 3 * sum(not is_frozen(name) for name in before)


def test_a_run_with_frozen_parameters_resumes_bit_for_bit_and_keeps_its_patterns(frozen_run, data, tmp_path, call):
    cut = shutil.copytree(frozen_run, tmp_path / "cut")
    shutil.rmtree(cut / "checkpoints/update-20")
    settings = tomllib.loads((cut / "settings.toml").read_text())
    assert settings["freeze"] == ["encoder.*", "*norm*"]
    assert call("train", "--config", cut / "settings.toml", f"--output={cut}", "--quiet").code == 0
    assert bits(cut / "checkpoints/update-20", "training") == bits(frozen_run / "checkpoints/update-20", "training")
    more = (*DECAYED, f"--init-from={settings['init_from']}", "--freeze=encoder.*")
    assert_refused(call(*train_arguments(data, cut, 30, *more)), 2, "freeze: ['encoder.*', '*norm*'] -> ['encoder.*']")
    state = (*DECAYED, f"--init-from={cut}", "--init-state=optimizer")
    refused = call(*train_arguments(data, tmp_path / "other", 30, *state))
    assert_refused(refused, 2, "freeze: ['encoder.*', '*norm*'] -> []")
    assert call(*train_arguments(data, tmp_path / "other", 10, *state, *FROZEN)).code == 0


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_several_ranks_keep_frozen_parameters_like_one_process(engine, frozen_run, data, trained, tmp_path, nmt):
    more = (*DECAYED, *FROZEN, f"--init-from={trained / 'checkpoints/update-40'}", "--devices=2", f"--engine={engine}")
    done = nmt(*train_arguments(data, tmp_path / "run", 20, *more))
    assert done.returncode == 0, done.stderr
    alone, ranks = (bits(folder / "checkpoints/update-20") for folder in (frozen_run, tmp_path / "run"))
    assert all(ranks[name] == alone[name] for name in alone if is_frozen(name))
    losses = [[row["loss"] for row in updates_of(run)] for run in (frozen_run, tmp_path / "run")]
    assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-5)


def test_a_pattern_without_a_parameter_is_status_2_and_lists_similar_names(data, tmp_path, call):
    for pattern, message in [
        ("--freeze=encodr.*", "unknown name for --freeze 'encodr.*' (did you mean 'encoder.*'"),
        ("--freeze=qqqq", "(known: decoder.*, encoder.*, output.*, source_embedding.*, target_embedding.*)"),
        ("--freeze=*", "--freeze * leaves nothing to train"),
    ]:
        assert_refused(call(*train_arguments(data, tmp_path / "run", 1, pattern)), 2, message)
        assert not (tmp_path / "run/checkpoints").exists()


def test_a_dry_run_counts_the_trained_parameters(data, tmp_path, call):
    dry = ["--dry-run", "--freeze=encoder.*"]
    numbers = call(*train_arguments(data, tmp_path / "run", 5, *dry, "--json")).json
    text = call(*train_arguments(data, tmp_path / "run", 5, *dry)).out
    assert 0 < numbers["trainable"] < numbers["parameters"]
    assert f"{numbers['parameters']:,} parameters ({numbers['trainable']:,} trained) on" in text


def tiny():
    model = registry.find("model", "transformer")
    torch.manual_seed(1)
    return model.cls(make(model.options, SMALL["transformer"]), Vocabularies(20, 20, True))


def test_a_shared_embedding_is_frozen_by_any_of_its_names():
    model = tiny()
    freeze(model, ["output.weight"])
    assert not model.source_embedding.weight.requires_grad and model.decoder[0].feed_forward.inner.weight.requires_grad


def test_autograd_records_no_layer_without_trained_parameters_at_or_below_it():
    model, recorded = tiny(), {}
    freeze(model, ["source_embedding.*", "encoder.*"])
    for name in ("encoder", "decoder"):
        getattr(model, name)[0].register_forward_hook(lambda _, __, out, name=name: recorded.update({name: out[0]}))
    model(dummy_batch(3, 5, 6))
    assert {name: states.requires_grad for name, states in recorded.items()} == {"encoder": False, "decoder": True}


@pytest.mark.parametrize("trained", [(True, False), (False, True)])
def test_cross_entropy_computes_only_the_requested_gradients(trained):
    torch.manual_seed(1)
    values = torch.randn(6, 4), torch.randn(9, 4)
    targets = torch.tensor([1, 2, 3, 4, 0, 5])
    criterion, real = CrossEntropy(CrossEntropyOptions(), None), (targets != PAD).float()

    def gradients(needed):
        features, weight = (value.clone().requires_grad_(flag) for value, flag in zip(values, needed, strict=True))
        output = torch.nn.Linear(4, 9, bias=False)
        output.weight = torch.nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
        total, _ = sums_of_logits(criterion.of_logits, output, [features], targets, real)
        total.backward()
        return features.grad, output.weight.grad

    for one, both, flag in zip(gradients(trained), gradients((True, True)), trained, strict=True):
        assert torch.equal(one, both) if flag else one is None


def test_a_search_during_training_does_not_change_frozen_layers():
    model = tiny()
    freeze(model, ["encoder.*"])
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    transpose_weights(model)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
