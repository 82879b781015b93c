"""Model folders and checkpoints: what a model is on disk, and what a run must keep to go on bit for bit.

A model folder holds `model.safetensors`, `options.json` and `pipeline/`; a checkpoint is a model folder with
`training.safetensors` and `training.json` beside them. Nothing is pickled (docs/contract.md, rules 10-13).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from nmt import registry
from nmt.artefact import Artefact, new_folder, to_json, write_file
from nmt.dist import shard_like
from nmt.errors import ArtefactError, DivergedError, UserError, quoted
from nmt.models.base import Model, Vocabularies
from nmt.nn.quantized import empty_rounded, int8_available, quantize
from nmt.options import as_dict
from nmt.runs import WEIGHTS, find_model
from nmt.text.pipeline import Pipeline

OPTIONS: Final = "options.json"
TRAINING_TENSORS: Final = "training.safetensors"

DRAWING: Final = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}

Weights = Literal["fp32", "int8"]


@dataclass(frozen=True)
class ModelFacts:
    """What options.json says: how to build the network again.

    model: its registered name; options: of its options class; vocabularies: source and target size, and joint
    weights: int8 is what nmt.nn.quantized makes of a network
    """

    model: str
    options: Mapping[str, Any]
    vocabularies: Mapping[str, Any]
    weights: Weights = "fp32"

    def to_json(self) -> dict[str, Any]:
        sizes = dict(self.vocabularies)
        return {"model": self.model, "options": dict(self.options), "vocabularies": sizes, "weights": self.weights}

    @classmethod
    def of(cls, name: str, options: Any, vocabularies: Vocabularies) -> "ModelFacts":
        return cls(name, as_dict(options), asdict(vocabularies))

    @classmethod
    def read(cls, artefact: Artefact) -> "ModelFacts":
        found = artefact.json(OPTIONS)
        try:
            weights = found.get("weights", "fp32")  # folders of earlier days do not say it
            facts = cls(str(found["model"]), dict(found["options"]), dict(found["vocabularies"]), weights)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"{quoted(artefact.folder / OPTIONS)}: not a model's options: {error!r}") from None
        if weights not in get_args(Weights):
            told = f"has weights of '{quoted(weights)}', this nmt reads {' and '.join(get_args(Weights))}"
            raise ArtefactError(f"{quoted(artefact.folder)}: {told} (use the nmt that wrote it)")
        return facts

    def build(self, folder: Path) -> Model:
        """The network with fresh weights; sizes that do not fit are an ArtefactError."""
        sizes = {"source": int, "target": int, "joint": bool}
        if {key: type(value) for key, value in self.vocabularies.items()} != sizes:
            raise ArtefactError(f"{quoted(folder / OPTIONS)}: not a model's vocabularies: {quoted(self.vocabularies)}")
        try:
            options = registry.options_within("model", self.model, registry.choice_from(self.options))
        except UserError as error:
            raise ArtefactError(f"{quoted(folder)}: its model cannot be built: {error}") from None
        own = {option.key for option in options}
        if own != set(self.options):
            odd = ", ".join(sorted(own ^ set(self.options)))
            raise ArtefactError(
                f"{quoted(folder)}: was written by another version of {self.model}: options {quoted(odd)}"
            )
        try:
            part = registry.choose("model", self.model, self.options)
            return cast(Model, registry.build(part, Vocabularies(**self.vocabularies)))
        except (UserError, ValueError, RuntimeError, MemoryError) as error:
            raise ArtefactError(f"{quoted(folder)}: its model cannot be built: {quoted(error)}") from error


@dataclass(frozen=True)
class LoadedModel:
    """A model read from a folder, in evaluation mode."""

    model: Model
    pipeline: Pipeline
    facts: ModelFacts
    folder: Path


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that make a model what it is, by name; a shared one once."""
    persistent = set(model.state_dict())
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *buffers.items()]}


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], place: object) -> None:
    """Copy weights into a model; ArtefactError unless names and shapes are the model's own."""
    own = weights_of(model)
    check_tensors(weights, own, place)
    for name, tensor in own.items():
        tensor.copy_(shard_like(weights[name], tensor))


def take_weights(model: nn.Module, weights: Mapping[str, Tensor], place: object) -> None:
    """Make weights a model's own, in place of its, without copying them; raises as put_weights."""
    check_tensors(weights, weights_of(model), place)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in weights:
            tensor.data = weights[name]


def check_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], place: object) -> None:
    """ArtefactError unless both have the same names, and shapes and types by name."""
    if found.keys() != wanted.keys():
        odd = sorted(found.keys() ^ wanted.keys())
        raise ArtefactError(f"{quoted(place)}: {len(odd)} tensors are missing or too many, first '{quoted(odd[0])}'")
    for name, tensor in wanted.items():
        given = found[name]
        if (given.shape, given.dtype) != (tensor.shape, tensor.dtype):
            told = f"{tuple(given.shape)} of {given.dtype} where {tuple(tensor.shape)} of {tensor.dtype} is wanted"
            raise ArtefactError(f"{quoted(place)}: '{quoted(name)}' is {told}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file, whole."""
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise ArtefactError(f"{quoted(path)}: not a safetensors file: {error}") from None


def map_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file by memory map: a page of it is read when it is first used, and what writes there writes a copy."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ArtefactError(f"{quoted(path)}: not a safetensors file: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; through our own writer, so that a full disk is an OSError with its path."""
    write_file(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def write_model(folder: Path, weights: Mapping[str, Tensor], facts: ModelFacts, pipeline: Pipeline) -> None:
    """Write the three things a model folder holds into a folder that is being filled."""
    write_tensors(folder / WEIGHTS, weights)
    write_file(folder / OPTIONS, to_json(facts.to_json()))
    (folder / "pipeline").mkdir()
    pipeline.save(folder / "pipeline")


@contextlib.contextmanager
def _no_larger_than(weights: Mapping[str, Tensor], folder: Path) -> Iterator[None]:
    """Stop the building of a model that its weights cannot fit before it takes the memory: ArtefactError.

    While a model is built a table that is shared may be counted more than once, hence the factor.
    """
    most, built = 4 * sum(tensor.numel() for tensor in weights.values()), 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal built
        built += 0 if parameter is None else parameter.numel()
        if built > most:
            raise ArtefactError(f"{quoted(folder / OPTIONS)}: describes a far larger model than {WEIGHTS} holds")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


class _Undrawn(TorchFunctionMode):
    """While it lasts no parameter is filled by chance: its memory is not touched, and costs nothing until it is replaced."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if function in DRAWING:
            filled = named["tensor"] if "tensor" in named else arguments[0]
            if isinstance(filled, nn.Parameter) or isinstance(filled._base, nn.Parameter):  # itself, or a part of it
                return filled
        return function(*arguments, **named)


def check_int8(device: torch.device) -> None:
    """UserError unless this torch can multiply numbers of 8 bits there."""
    if device.type != "cpu":
        raise UserError("weights of 8 bits are for CPUs (give --device cpu)")
    if not int8_available():
        raise UserError("this torch has no products of 8-bit numbers (translate in fp32)")


def load_model(folder: Path, device: torch.device) -> LoadedModel:
    """The model of a model folder, a checkpoint or a run, its weights mapped from their file, not copied, on a CPU.

    Raises ArtefactError when it is damaged or does not fit, UserError when its weights are not for this device.
    """
    folder = find_model(folder)
    artefact = Artefact(folder, "model", "checkpoint")
    facts = ModelFacts.read(artefact)
    if facts.weights == "int8":
        check_int8(device)
    pipeline = Pipeline.load(artefact)
    sizes = {"source": pipeline.source.size, "target": pipeline.target.size, "joint": pipeline.joint}
    if sizes != dict(facts.vocabularies):
        raise ArtefactError(f"{quoted(folder)}: the model was built for {facts.vocabularies}, its pipeline has {sizes}")
    weights = map_tensors(artefact.path(WEIGHTS))
    with _no_larger_than(weights, folder), _Undrawn():
        model = facts.build(folder)
    if facts.weights == "int8":
        quantize(model, empty_rounded)
    take_weights(model, weights, folder / WEIGHTS)
    return LoadedModel(model.to(device).eval(), pipeline, facts, folder)


def flat_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as (tensors by "index.name", plain values)."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                plain[f"{index}.{name}"] = value
    return tensors, plain


def begin(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer make the state that it has after a first step; what that does to the weights is not kept by anyone."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def put_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], place: object
) -> None:
    """Give an optimizer, fresh or begun, back what flat_optimizer took; its options stay those it was built with.

    Raises ArtefactError unless the state has the names, shapes and types of the optimizer's own.
    """
    own_tensors, own_plain = flat_optimizer(optimizer)
    check_tensors(tensors, own_tensors, place)
    if {key: type(value) for key, value in plain.items()} != {key: type(value) for key, value in own_plain.items()}:
        raise ArtefactError(f"{quoted(place)}: the optimizer's values are not those of {type(optimizer).__name__}")
    state: dict[int, dict[str, Any]] = {}
    placed = {key: shard_like(tensors[key], own) for key, own in own_tensors.items()}  # all ranks in one order
    for key, value in [*placed.items(), *plain.items()]:
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def average_weights(folders: Sequence[Path], check: Callable[[], None]) -> dict[str, Tensor]:
    """The mean of the weights of model folders, summed in float64; what is not a float is the last folder's.

    check: called before each folder is read; may raise to stop
    Raises ArtefactError when they do not fit together.
    """
    sums: dict[str, Tensor] = {}
    for folder in folders:
        check()
        weights = read_tensors(Artefact(folder, "model", "checkpoint").path(WEIGHTS))
        if sums and {k: v.shape for k, v in sums.items()} != {k: v.shape for k, v in weights.items()}:
            raise ArtefactError(f"{quoted(folder)}: its tensors differ from those of {quoted(folders[0])}")
        for name, tensor in weights.items():
            if not tensor.is_floating_point():
                sums[name] = tensor
            else:
                sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: _mean(tensor, len(folders)) for name, tensor in sums.items()}


def _mean(total: Tensor, count: int) -> Tensor:
    return (total / count).float() if total.is_floating_point() else total


def save_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    facts: ModelFacts,
    pipeline: Pipeline,
    told: Mapping[str, Any],
    check: Callable[[], None],
) -> None:
    """Write a model folder, whole or not at all.

    told: further facts for its manifest; check: called before it gets its name; may raise to stop
    """
    refuse_not_finite(weights, folder)
    manifest = {"torch": str(torch.__version__), "vocabulary": pipeline.hash, **told}
    with new_folder(folder, "model", manifest) as temporary:
        write_model(temporary, weights, facts, pipeline)
        check()


def refuse_not_finite(weights: Mapping[str, Tensor], place: object) -> None:
    """DivergedError when a weight is not a number, or infinite: such a model is never written."""
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise DivergedError(f"{quoted(place)}: weights are not finite, first in '{broken[0]}'; not saved")
