"""Loading a model: memory holds what the file holds, and nothing is invented."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from conftest import WORDS, small_model
from safetensors.torch import load_file
from torch import nn

from nmt import opt, register
from nmt.artefact import Artefact, new_folder
from nmt.checkpoint import build_model, load_model, read_tensors, weights_of, write_model
from nmt.errors import ArtefactError, ResourceError, UserError
from nmt.extensions.fast.nn.quantized import Int8Embedding, Int8Linear, quantize, rounded
from nmt.extensions.toolkits.model_folder import export_model
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.nn.linear import remove_weight_norm
from nmt.runs import WEIGHTS
from nmt.symbols import EOS, PAD, SYMBOLS

CPU = torch.device("cpu")
SHAPES = {
    "tied": ("transformer", {"d_model": 32, "d_ff": 48, "heads": 4, "encoder_layers": 2, "decoder_layers": 1}),
    "untied": (
        "transformer",
        {
            "d_model": 32, "d_ff": 48, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "tie": "none",
            "positions": "learned", "output_bias": True, "attention_bias": True, "norm_position": "pre",
        },
    ),
    "target": ("transformer", {"d_model": 32, "d_ff": 48, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "tie": "target"}),
    "recurrent": ("rnnsearch", {"embedding_size": 24, "hidden_size": 32, "attention_size": 28, "maxout_size": 20}),
    "convolution": ("convs2s", {"encoder_layers": "24k3,9k2", "decoder_layers": "24k3", "embedding_size": 20, "output_size": 16}),
}  # fmt: skip
SOURCE = torch.tensor([[5, 6, 7, EOS], [8, EOS, PAD, PAD]])


@pytest.fixture(scope="module", params=SHAPES)
def folder(request, tmp_path_factory):
    name, options = SHAPES[request.param]
    return small_model(tmp_path_factory.mktemp("model") / "model", name, **options)


@torch.inference_mode()
def log_probs(model):
    state, found = model.start(SOURCE), []
    for token in (1, 9, 10):
        step, state = model.step(torch.full((len(SOURCE),), token), state)
        found.append(step)
    return torch.stack(found)


def in_files(tensor):
    """The file that a tensor's numbers are mapped from; empty where they are in memory of their own."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, last = line.split(maxsplit=5)
        first, end = (int(address, 16) for address in addresses.split("-"))
        if first <= tensor.data_ptr() < end:
            return last if last.startswith("/") else ""
    return ""


def test_the_weights_of_a_loaded_model_lie_in_its_file(folder):
    model = load_model(folder, CPU).model
    stored = load_file(folder / WEIGHTS)
    for name, tensor in weights_of(model).items():
        assert torch.equal(tensor, stored[name]) and in_files(tensor) == str(folder / WEIGHTS)


def test_loading_a_transformer_draws_no_random_weights(tmp_path):
    folder, before = small_model(tmp_path / "model", **SHAPES["untied"][1]), torch.get_rng_state()
    load_model(folder, CPU)
    assert torch.equal(torch.get_rng_state(), before)


def test_tied_weights_stay_tied_and_changing_a_loaded_model_leaves_its_file_unchanged(folder):
    loaded, content = load_model(folder, CPU), (folder / WEIGHTS).read_bytes()
    built = build_model(loaded.facts, folder)
    names = [name for name, _ in built.named_parameters()]
    assert [name for name, _ in loaded.model.named_parameters()] == names
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.zero_()
    assert (folder / WEIGHTS).read_bytes() == content
    assert log_probs(load_model(folder, CPU).model).abs().sum() > 0


@dataclass(frozen=True, kw_only=True)
class OddOptions:
    width: int = opt(8, "width")


class Odd(Model):
    """A parameter with two names from the start, one that is no layer's, kept and other buffers, torch's own recurrence."""

    def __init__(self, options, vocabularies):
        super().__init__()
        self.width = options.width
        shared = nn.Parameter(torch.randn(vocabularies.target, options.width))
        self.words, self.output = nn.Embedding(1, 1), nn.Linear(1, 1)
        self.words.weight = self.output.weight = shared
        self.recurrent = nn.GRU(options.width, options.width, batch_first=True)
        self.factor = nn.Parameter(torch.ones(()), requires_grad=False)
        self.register_buffer("mean", torch.zeros(options.width))
        self.register_buffer("powers", torch.arange(options.width).float(), persistent=False)
        self.plain, self.kept = torch.arange(options.width).float(), [self.factor]
        self.register_buffer(
            "drawn", torch.empty(3).normal_(generator=torch.Generator().manual_seed(5)), persistent=False
        )

    def forward(self, batch):
        states = self.recurrent(self.words(batch.target_input) * self.factor + self.mean)[0]
        return Output(states + self.powers - self.plain, {})

    def start(self, source):
        return State(hypotheses={"state": self.mean.expand(1, len(source), -1).transpose(0, 1)})

    def step(self, tokens, state):
        states, after = self.recurrent(
            self.words(tokens)[:, None], state.hypotheses["state"].transpose(0, 1).contiguous()
        )
        return self.log_probs(states[:, 0] * self.factor), state.after({}, {"state": after.transpose(0, 1)}, None)


def test_any_kind_of_model_is_loaded_as_it_was_saved(tmp_path):
    register("model", "odd", OddOptions)(Odd)
    folder = small_model(tmp_path / "model", "odd")
    model = load_model(folder, CPU).model
    assert model.words.weight is model.output.weight and not model.factor.requires_grad
    assert model.kept[0] is model.factor
    same = Odd(OddOptions(), Vocabularies(len(WORDS) + len(SYMBOLS), len(WORDS) + len(SYMBOLS), True))
    with torch.no_grad():
        for name, tensor in weights_of(same).items():
            tensor.copy_(load_file(folder / WEIGHTS)[name])
    assert torch.equal(log_probs(model), log_probs(same)) and torch.equal(model.drawn, same.drawn)


def test_a_stored_8_bit_model_equals_one_quantized_at_load_time(folder, tmp_path):
    made, output = load_model(folder, CPU), tmp_path / "int8"
    quantize(made.model)
    export_model(load_model(folder, CPU), output, "int8")
    stored = load_model(output, CPU)
    assert (stored.facts, stored.pipeline.hash) == (replace(made.facts, weights="int8"), made.pipeline.hash)
    wanted, found = weights_of(made.model), weights_of(stored.model)
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert torch.equal(log_probs(stored.model), log_probs(made.model))
    assert any(isinstance(module, Int8Linear) for module in stored.model.modules())
    assert not any(isinstance(module, nn.Linear | nn.Embedding) for module in stored.model.modules())
    matrices = [tensor for tensor in found.values() if tensor.dtype == torch.int8]
    fewer = sum(3 * matrix.numel() - 4 * len(matrix) for matrix in matrices)  # a byte for four, and a scale a row
    plain = load_model(folder, CPU).model
    remove_weight_norm(plain)
    assert size(found) == size(weights_of(plain)) - fewer


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def test_a_tied_table_is_stored_once(tmp_path):
    folder = small_model(tmp_path / "model", **SHAPES["tied"][1])
    model = load_model(folder, CPU).model
    quantize(model)
    assert isinstance(model.source_embedding, Int8Embedding) and model.source_embedding.weight is model.output.weight
    names = [name for name in weights_of(model) if "embedding" in name or name.startswith("output")]
    assert names == ["source_embedding.weight", "source_embedding.scale"]


def test_each_row_of_an_8_bit_table_is_within_half_a_step():
    torch.manual_seed(1)
    table, ids = nn.Embedding(20, 16), torch.tensor([[0, 3], [19, 3]])
    found = Int8Embedding(*rounded(table.weight.detach()))(ids)
    step = table.weight[ids].abs().amax(-1, keepdim=True) / 127
    assert found.shape == (2, 2, 16) and torch.all((found - table(ids)).abs() <= step / 2 * (1 + 1e-5))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weights": "int4"}, "weights have the format 'int4', but this version reads only fp32 and int8"),
        ({"weights": "int8"}, "tensors are missing or unexpected"),
    ],
)
def test_weights_that_contradict_their_description_are_refused(change, told, tmp_path):
    loaded = load_model(small_model(tmp_path / "model", **SHAPES["tied"][1]), CPU)
    with new_folder(tmp_path / "other", "model", {}) as temporary:
        write_model(temporary, weights_of(loaded.model), replace(loaded.facts, **change), loaded.pipeline)
    with pytest.raises(ArtefactError, match=told):
        load_model(tmp_path / "other", CPU)


def test_loading_8_bit_weights_on_a_gpu_says_that_they_need_a_cpu(tmp_path):
    folder = small_model(tmp_path / "model", **SHAPES["tied"][1])
    export_model(load_model(folder, CPU), tmp_path / "int8", "int8")
    assert Artefact(tmp_path / "int8", "model").manifest["made_of"] == str(folder)
    assert load_model(tmp_path / "int8", CPU).temperature is None
    export_model(replace(load_model(folder, CPU), temperature=1.3), tmp_path / "calibrated", "int8")
    assert load_model(tmp_path / "calibrated", CPU).temperature == 1.3
    with pytest.raises(UserError, match="only on CPUs"):
        load_model(tmp_path / "int8", torch.device("cuda"))


def test_weights_that_torch_cannot_map_are_named(tmp_path, monkeypatch):
    def load_file(path):  # whose own opening of the file succeeds, and torch's does not
        return torch.UntypedStorage.from_file(str(path) + ".gone", False, 8)

    monkeypatch.setattr("nmt.checkpoint.load_file", load_file)
    with pytest.raises(ResourceError, match=r"model\.safetensors cannot be read: unable to open file"):
        read_tensors(tmp_path / WEIGHTS, mapped=True)
