"""`nmt train --lora-rank`: only adapters are trained and saved, and they are added to their model."""

import json
import shutil

import pytest
import torch
from conftest import reseal, train_arguments
from refusals import assert_refused
from safetensors.torch import load_file, save
from small_models import SMALL, perturb

from nmt import registry
from nmt.batch import dummy_batch
from nmt.checkpoint import load_model, weights_of
from nmt.errors import ArtefactError
from nmt.extensions.methods.low_rank import merged, plain_name
from nmt.extensions.methods.starts.lora import adapt
from nmt.models.base import Vocabularies
from nmt.options import make
from nmt.train.parallel import layers_of

LORA = ("--lora-rank=4", "--valid-every=10u", "--dropout=0")


@pytest.fixture(scope="module")
def base(trained, tmp_path_factory):
    return shutil.copytree(trained / "checkpoints/update-40", tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def adapted(data, base, tmp_path_factory, nmt):
    """A run of 20 updates of adapters."""
    output = tmp_path_factory.mktemp("lora") / "run"
    done = nmt(*train_arguments(data, output, 20, *LORA, "--ema=0.9", f"--init-from={base}"))
    assert done.returncode == 0, done.stderr
    return output


def weights(folder):
    return weights_of(load_model(folder, torch.device("cpu")).model)


def test_a_checkpoint_contains_only_adapters_and_names_its_model(adapted, base):
    folder = adapted / "checkpoints/update-20"
    adapter, own = load_file(folder / "adapter.safetensors"), load_file(base / "model.safetensors")
    assert not (folder / "model.safetensors").exists()
    shapes = {name: tuple(tensor.shape) for name, tensor in adapter.items()}
    layers = {name for name in own if own[name].ndim == 2 and not name.endswith("embedding.weight")} - {"output.weight"}
    expected = {f"{name}.up": (len(own[name]), 4) for name in layers} | {
        f"{name}.down": (4, own[name].shape[1]) for name in layers
    }
    assert shapes == expected
    manifest = json.loads((base / "manifest.json").read_text())
    named = json.loads((folder / "adapter.json").read_text())
    assert named == {"folder": str(base), "sha256": manifest["files"]["model.safetensors"]["sha256"], "scale": 4.0}
    training = load_file(folder / "training.safetensors")
    assert sum(tensor.numel() for tensor in training.values()) < 4 * sum(tensor.numel() for tensor in adapter.values())
    result = weights(adapted)
    for name, tensor in own.items():
        product = adapter[f"{name}.up"] @ adapter[f"{name}.down"] if name in layers else torch.zeros(())
        torch.testing.assert_close(result[name], tensor + 4.0 * product)
        assert torch.equal(result[name], tensor) == (name not in layers)


def test_new_adapters_do_not_change_outputs_by_a_bit(data, base, tmp_path, call):
    still = (*LORA, "--optimizer=sgd", "--lr=1e-30", f"--init-from={base}")
    assert call(*train_arguments(data, tmp_path / "run", 1, *still)).code == 0
    own, result = load_file(base / "model.safetensors"), weights(tmp_path / "run")
    assert all(torch.equal(result[name], own[name]) for name in own)


@pytest.mark.parametrize("name", sorted(set(registry.names("model")) - {"convs2s"}))
def test_a_model_merged_with_its_adapters_gives_the_same_outputs(name):
    """The layers of convs2s are gains times directions, and cannot have adapters."""
    entry = registry.find("model", name)
    torch.manual_seed(1)
    model, plain = (
        entry.cls(make(entry.options, SMALL.get(name, {})), Vocabularies(20, 20, True)).eval() for _ in range(2)
    )
    layers = [name for name, module in model.named_modules() if any(module is layer for layer in layers_of(model))]
    adapt(model, 3, 2.0, [])
    assert layers == [
        name for name, module in model.named_modules() if any(module is layer for layer in layers_of(model))
    ]
    perturb(model, 0.1)
    named = {plain_name(key): tensor for key, tensor in weights_of(model).items()}
    adapter = {key: named.pop(key) for key in list(named) if key.endswith((".up", ".down"))}
    result = merged(named, adapter, 2.0)
    for key, tensor in weights_of(plain).items():
        tensor.copy_(result[key])
    batch = dummy_batch(3, 5, 6)
    with torch.no_grad():
        outputs = [each.output(each(batch).features) for each in (plain, model)]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-4)
    trained = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and all(key.endswith((".up", ".down")) for key in trained)


def test_the_buffers_of_an_adapter_replace_the_models():
    weights = {"inner.weight": torch.ones(3, 2), "passes": torch.zeros(())}
    adapter = {"inner.weight.up": torch.ones(3, 1), "inner.weight.down": torch.ones(1, 2), "passes": torch.tensor(7.0)}
    result = merged(weights, adapter, 0.5)
    assert result["passes"] == 7 and (result["inner.weight"] == 1.5).all()


def test_adapters_resume_bit_for_bit_and_need_their_model(adapted, base, data, tmp_path, call):
    cut = shutil.copytree(adapted, tmp_path / "cut")
    shutil.rmtree(cut / "checkpoints/update-20")
    given = (*LORA, "--ema=0.9", f"--init-from={base}")
    assert call(*train_arguments(data, cut, 20, *given)).code == 0
    for name in ("adapter", "training"):
        file = f"checkpoints/update-20/{name}.safetensors"
        assert (cut / file).read_bytes() == (adapted / file).read_bytes()
    assert_refused(call(*train_arguments(data, cut, 30, *given, "--lora-alpha=3")), 2, "lora_alpha: 16.0 -> 3.0")


def test_adapters_can_translate_be_averaged_and_start_another_run(adapted, base, data, tmp_path, call):
    (tmp_path / "text").write_text("ban des kit\nlo mura\n")
    assert call("average", "--run", adapted, "--last=1", "--output", tmp_path / "merged").code == 0
    text = ("--input", tmp_path / "text", "--engine=torch")
    translations = [call("translate", "--model", model, *text) for model in (adapted, tmp_path / "merged")]
    assert translations[0].code == 0 and translations[0].out == translations[1].out
    assert call("average", "--run", adapted, "--last=2", "--output", tmp_path / "mean").code == 0
    means = zip(*(weights(adapted / f"checkpoints/update-{update}").items() for update in (10, 20)), strict=True)
    mean = weights(tmp_path / "mean")
    assert all(torch.allclose(mean[name], (one + other) / 2) for (name, one), (_, other) in means)
    for model, name in ((adapted, "exported"), (tmp_path / "merged", "twice")):
        assert call("export", "--model", model, "--format=model", "--output", tmp_path / name).code == 0
        assert call("export", "--model", model, "--format=int8", "--output", tmp_path / f"{name}-8").code == 0
    merged = (tmp_path / "merged/model.safetensors").read_bytes()
    assert {(tmp_path / name / "model.safetensors").read_bytes() for name in ("exported", "twice")} == {merged}
    int8 = {(tmp_path / f"{name}-8/model.safetensors").read_bytes() for name in ("exported", "twice")}
    assert len(int8) == 1 and int8 != {merged}
    still = ("--optimizer=sgd", "--lr=1e-30")
    assert call(*train_arguments(data, tmp_path / "run", 1, *still, f"--init-from={adapted}")).code == 0
    assert all(torch.equal(tensor, weights(adapted)[name]) for name, tensor in weights(tmp_path / "run").items())
    again = call(*train_arguments(data, tmp_path / "other", 1, *LORA, f"--init-from={adapted}"))
    assert_refused(again, 2, "an adapter cannot be trained on top of another adapter (merge it first")


def test_replacing_the_model_of_the_adapters_is_status_4(adapted, base, trained, tmp_path, call):
    (tmp_path / "text").write_text("ban\n")
    translate = ("translate", "--model", adapted, "--input", tmp_path / "text")
    aside = base.rename(base.with_name("aside"))
    try:
        assert_refused(call(*translate), 4, adapted)
        base.symlink_to(trained / "checkpoints/update-30")
        assert_refused(call(*translate), 4, f"{base}/model.safetensors: not the model that the adapter needs")
        base.unlink()
        base.symlink_to(aside)
        assert call(*translate).code == 0
    finally:
        base.unlink(missing_ok=True)
        aside.rename(base)


UP, DOWN = (f"encoder.0.feed_forward.inner.weight.{matrix}" for matrix in ("up", "down"))
NORM = "encoder.0.feed_forward_residual.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {UP: (1, 4)},
            "(64, 32) in the model, but the low-rank matrices have shapes (1, 4) and (4, 32)",
        ),  # a sum would repeat the row
        ({DOWN: (4, 1)}, "(64, 32) in the model, but the low-rank matrices have shapes (64, 4) and (4, 1)"),
        (
            {UP: (10**6, 1), DOWN: (1, 10**6)},
            "the low-rank matrices have shapes (1000000, 1) and (1, 1000000)",
        ),  # terabytes
        ({UP: (64,)}, "the low-rank matrices have shapes (64,) and (4, 32)"),
        ({UP: None}, "has only one of its two matrices"),
        ({DOWN: None}, "has only one of its two matrices"),
        ({f"{NORM}.up": (32, 4), f"{NORM}.down": (4, 32)}, "(32,) in the model, but the low-rank matrices"),
        ({NORM: (1,)}, f"'{NORM}' has shape (1,), expected (32,)"),
        ({"x": (1,)}, "the model has no 'x'"),
    ],
)
def test_a_damaged_or_hostile_adapter_is_status_4_before_any_computation(change, message, adapted, tmp_path):
    model = shutil.copytree(adapted / "checkpoints/update-20", tmp_path / "model")
    tensors = load_file(model / "adapter.safetensors")
    for name, shape in change.items():
        tensors.pop(name, None)
        if shape is not None:
            tensors[name] = torch.zeros(shape)
    reseal(model, "adapter.safetensors", save(tensors))
    with pytest.raises(ArtefactError) as refused:
        load_model(model, torch.device("cpu"))
    text = str(refused.value)
    assert (
        text.startswith(f"{model / 'adapter.safetensors'}: the adapter does not fit the model") and message in text
    ), text


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_several_ranks_train_the_same_adapters_as_one_process(engine, adapted, base, data, tmp_path, nmt):
    more = (*LORA, "--ema=0.9", f"--init-from={base}", "--devices=2", f"--engine={engine}")
    done = nmt(*train_arguments(data, tmp_path / "run", 20, *more))
    assert done.returncode == 0, done.stderr
    rows = [(run / "metrics.jsonl").read_text().splitlines() for run in (adapted, tmp_path / "run")]
    losses = [[row["loss"] for row in map(json.loads, each) if "loss" in row] for each in rows]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    files = [load_file(run / "checkpoints/update-20/adapter.safetensors") for run in (adapted, tmp_path / "run")]
    assert files[0].keys() == files[1].keys()


def test_options_incompatible_with_adapters_are_rejected(data, base, tmp_path, call):
    given = f"--init-from={base}"
    for more, message in [
        (["--lora-rank=4"], "adapters need a trained model (add --init-from MODEL)"),
        ([given, "--lora-rank=4", "--freeze=encoder.*"], "(drop --freeze)"),
        ([given, "--lora-rank=4", "--init-state=all"], "(drop --init-state)"),
        ([given, "--lora-targets=encoder.*"], "needs --lora-rank"),
        ([given, "--lora-rank=4", "--lora-targets=encodr.*"], "unknown name for --lora-targets 'encodr.*'"),
    ]:
        assert_refused(call(*train_arguments(data, tmp_path / "run", 1, *more)), 2, message)
