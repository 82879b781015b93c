"""Model folders and checkpoints: reading and writing weights, optimizer state, and the options that rebuild the model.

A model folder contains `model.safetensors`, `options.json` and `pipeline/`. A checkpoint is a model folder that also contains
`training.safetensors` and `training.json`. A weight format can use a different file for the weights. Nothing is pickled
("Files and folders" in docs/reference/contract.md).
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from nmt import registry, signals
from nmt.artefact import REPAIR, Artefact, new_folder
from nmt.dist import shard_like
from nmt.errors import ArtefactError, DivergedError, ResourceError, UserError, is_utf8, naming, quoted
from nmt.files import to_json
from nmt.log import log
from nmt.models.base import Model
from nmt.models.saved import OPTIONS, ModelFacts, Vocabularies
from nmt.runs import WEIGHTS, find_model, weights_file
from nmt.text.pipeline import Pipeline
from nmt.weight_formats.base import format_of_file, weight_format

TEMPERATURE: Final = "temperature"  # manifest entry of a calibrated model
TRAINING_TENSORS: Final = "training.safetensors"
TRAINED_WEIGHTS: Final = "weights."  # prefix of the trained weights in TRAINING_TENSORS, if --ema saves the average

RANDOM_INITIALIZERS: Final = {
    Tensor.normal_,
    Tensor.uniform_,
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.kaiming_uniform_,
}

SAFETENSORS_TYPES: Final = {  # in the order in which the safetensors library writes tensors
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
WRITE_BUFFER_BYTES: Final = 1 << 20  # buffer size, so that small tensors share a write


def read_weights(artefact: Artefact, mapped: bool = False) -> dict[str, Tensor]:
    """Read the weights of a model folder or checkpoint in any weight format. mapped: see read_tensors"""
    if (name := weights_file(artefact).name) != WEIGHTS:
        return format_of_file(name).read(artefact)
    return read_tensors(artefact.path(WEIGHTS), mapped)


@dataclass(frozen=True)
class LoadedModel:
    """A model loaded from a folder, in evaluation mode. temperature: result of calibration; None if not calibrated"""

    model: Model
    pipeline: Pipeline
    facts: ModelFacts
    folder: Path
    temperature: float | None = None


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers of a model, by name. A shared tensor occurs once."""
    persistent = set(model.state_dict())
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *buffers.items()]}


def put_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], place: object) -> None:
    """Copy weights into a model. own: the model's own weights (see `weights_of`)

    Raises ArtefactError if a value is not finite, or if names, shapes or types differ from the model's.
    """
    check_tensors(weights, own, place)
    check_finite(weights, place)
    for name, tensor in own.items():
        tensor.copy_(shard_like(weights[name], tensor))


def take_weights(model: nn.Module, weights: Mapping[str, Tensor], place: object) -> None:
    """Replace a model's weights without copying. Raises the same errors as put_weights."""
    check_tensors(weights, weights_of(model), place)
    check_finite(weights, place)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in weights:
            tensor.data = weights[name]


def check_tensors(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], place: object) -> None:
    """Raise ArtefactError unless both sets of tensors have the same names, shapes and types."""
    if given.keys() != expected.keys():
        odd = sorted(given.keys() ^ expected.keys())
        raise ArtefactError(
            f"{quoted(place)}: {len(odd)} tensors are missing or unexpected; the first is '{quoted(odd[0])}' ({REPAIR})"
        )
    for name, tensor in expected.items():
        other = given[name]
        if (other.shape, other.dtype) != (tensor.shape, tensor.dtype):
            shapes = f"{tuple(other.shape)} {other.dtype}, expected {tuple(tensor.shape)} {tensor.dtype}"
            raise ArtefactError(f"{quoted(place)}: '{quoted(name)}' has the wrong shape or type: {shapes}")


def check_finite(tensors: Mapping[str, Tensor], place: object) -> None:
    """Raise ArtefactError for a tensor with NaN or infinite values."""
    if (name := _first_not_finite(tensors)) is not None:
        raise ArtefactError(f"{quoted(place)}: tensor '{quoted(name)}' contains NaN or infinity ({REPAIR})")


def _first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor with NaN or infinity. The sum is a fast check: if it is finite, so are all values."""
    floats = ((name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point())
    wrong = (name for name, tensor in floats if not (tensor.sum().isfinite() or tensor.isfinite().all()))
    return next(wrong, None)


def read_tensors(path: Path, mapped: bool = False) -> dict[str, Tensor]:
    """Read a safetensors file into memory.

    mapped: whether to map the file instead; its pages are then read on first use, and copied on write
    """
    mapped = mapped and is_utf8(str(path))  # safetensors can only open paths in UTF-8
    try:
        with naming(path):
            return load_file(path) if mapped else load(path.read_bytes())
    except SafetensorError as error:
        raise ArtefactError(f"{quoted(path)}: not a safetensors file: {error}") from None
    except RuntimeError as error:  # torch cannot map the file
        raise ResourceError(f"{quoted(path)} cannot be read: {quoted(error)}") from error


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """The size of tensors in bytes."""
    return sum(tensor.nbytes for tensor in tensors.values())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, one tensor at a time. The result is byte for byte what the safetensors library would write.

    The library itself copies all tensors, writes its own temporary file, and hides the error number for a full disk.
    metadata: texts by name, for other toolkits
    """
    types = list(SAFETENSORS_TYPES)
    ordered = sorted(tensors, key=lambda name: (types.index(tensors[name].dtype), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in ordered:
        tensor, begin = tensors[name], end
        end += tensor.nbytes
        header[name] = {
            "dtype": SAFETENSORS_TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    with path.open("wb", buffering=WRITE_BUFFER_BYTES) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            tensor = tensors[name].detach().cpu().contiguous()
            values = tensor.as_strided((tensor.numel(),), (1,))  # a tensor with a single value can have any stride
            file.write(values.view(torch.uint8).numpy().data)


def write_model(
    folder: Path, weights: Mapping[str, Tensor], facts: ModelFacts, pipeline: Pipeline, file: str = WEIGHTS
) -> None:
    """Write weights, options and pipeline into a new folder. file: name of the file for the weights"""
    write_tensors(folder / file, weights)
    (folder / OPTIONS).write_bytes(to_json(asdict(facts)))
    (folder / "pipeline").mkdir()
    pipeline.save(folder / "pipeline")


@contextlib.contextmanager
def at_most(limit: float, error: UserError) -> Iterator[None]:
    """Raise an error as soon as a model under construction exceeds a given number of parameters, before its memory is used.

    Shared tables may be counted more than once.
    """
    built = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal built
        built += 0 if parameter is None else parameter.numel()
        if built > limit:
            raise error

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def build_model(facts: ModelFacts, folder: Path) -> Model:
    """Build a network with new weights. Raises ArtefactError for invalid options or sizes. folder: shown in errors"""
    try:
        options = registry.options_within("model", facts.model, registry.choice_from(facts.options))
    except UserError as error:
        raise ArtefactError(f"{quoted(folder)}: cannot build the model: {error}") from None
    if odd := {option.key for option in options} ^ set(facts.options):
        other = f"a version of nmt in which {facts.model} has different options: {quoted(', '.join(sorted(odd)))}"
        raise ArtefactError(f"{quoted(folder)} was written by {other} (use the version of nmt that wrote it)")
    try:
        return cast(Model, registry.build(registry.choose("model", facts.model, facts.options), facts.vocabularies))
    except (UserError, ValueError, RuntimeError, MemoryError) as error:
        raise ArtefactError(f"{quoted(folder)}: cannot build the model: {quoted(error)}") from error


class NoRandomWeights(TorchFunctionMode):
    """A context in which random initializers skip parameters, so that their memory stays unused until it is replaced."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if function in RANDOM_INITIALIZERS:
            filled = named["tensor"] if "tensor" in named else arguments[0]
            if isinstance(filled, nn.Parameter) or isinstance(
                filled._base, nn.Parameter
            ):  # the call would fill a parameter, or part of one
                return filled
        return function(*arguments, **named)


def load_model(folder: Path, device: torch.device) -> LoadedModel:
    """Load a model from a model folder, a checkpoint or a run. On a CPU, the weights are mapped from their file.

    Raises ArtefactError for a damaged folder, and UserError for weights that the device cannot use.
    """
    folder = find_model(folder)
    with log.progress("loading the model"):
        artefact = Artefact(folder, "model", "checkpoint")
        facts = ModelFacts.read(artefact)
        if (stored := weight_format(facts.weights)) is not None:
            stored.check(device)
        pipeline = Pipeline.load(artefact)
        sizes = Vocabularies(*pipeline.sizes, pipeline.joint)
        if sizes != facts.vocabularies:
            wrong = f"the model was built for {asdict(facts.vocabularies)}, but its pipeline has {asdict(sizes)}"
            raise ArtefactError(f"{quoted(folder)}: {wrong} ({REPAIR})")
        weights = read_weights(artefact, mapped=True)
        held = sum(tensor.numel() for tensor in weights.values())
        too_large = ArtefactError(f"{quoted(folder / OPTIONS)} describes a far larger model than {WEIGHTS} contains")
        with at_most(4 * held, too_large), NoRandomWeights():
            model = build_model(facts, folder)
        if stored is not None:
            stored.convert_layers(model)
        take_weights(model, weights, weights_file(artefact))
        return LoadedModel(model.to(device).eval(), pipeline, facts, folder, _temperature(artefact))


def _temperature(artefact: Artefact) -> float | None:
    """The temperature that `nmt score --calibrate` stored in a manifest; None if there is none.

    Raises ArtefactError for an invalid temperature.
    """
    temperature = artefact.manifest.get(TEMPERATURE)
    if temperature is None or (isinstance(temperature, int | float) and 0 < temperature < math.inf):
        return temperature
    raise ArtefactError(
        f"{quoted(artefact.folder)}: {TEMPERATURE} in the manifest must be a positive number, not {quoted(temperature)}"
    )


def flat_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as (tensors by "index.name", other values by the same keys)."""
    state = optimizer.state_dict()["state"]
    flat = {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}
    tensors = {key: value for key, value in flat.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in flat.items() if key not in tensors}


def create_optimizer_state(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
    """Take a dummy step, so that an optimizer creates its state. The caller then overwrites the state and the weights."""
    optimizer.zero_grad(set_to_none=True)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def put_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], place: object
) -> None:
    """Restore an optimizer's state from the result of flat_optimizer, but keep its options.

    Raises ArtefactError if names, shapes or types differ from the optimizer's own state.
    """
    own_tensors, own_plain = flat_optimizer(optimizer)
    check_tensors(tensors, own_tensors, place)
    if {key: type(value) for key, value in plain.items()} != {key: type(value) for key, value in own_plain.items()}:
        raise ArtefactError(f"{quoted(place)}: the saved state does not match optimizer {type(optimizer).__name__}")
    state: dict[int, dict[str, Any]] = {}
    placed = {key: shard_like(tensors[key], own) for key, own in own_tensors.items()}  # all ranks use the same order
    for key, value in {**placed, **plain}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Average the weights of model folders, summing in float64. Integer tensors are taken from the last folder.

    Raises ArtefactError if names, shapes or types differ, or if a value is not finite.
    """
    first: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    with log.progress("averaging", len(folders), "checkpoints") as bar:
        for folder in folders:
            signals.check()
            artefact = Artefact(folder, "model", "checkpoint")
            weights, place = read_weights(artefact), weights_file(artefact)
            first = first or {name: torch.empty_like(tensor, device="meta") for name, tensor in weights.items()}
            check_tensors(weights, first, place)
            check_finite(weights, place)
            for name, tensor in weights.items():
                if not tensor.is_floating_point():
                    sums[name] = tensor
                else:
                    sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
            bar.advance()
    return {name: (t / len(folders)).float() if t.is_floating_point() else t for name, t in sums.items()}


def save_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    facts: ModelFacts,
    pipeline: Pipeline,
    more_facts: Mapping[str, Any],
) -> None:
    """Write a complete model folder, or nothing. more_facts: additional entries of the manifest"""
    refuse_not_finite(weights, folder)
    manifest = {"torch": str(torch.__version__), "vocabulary": pipeline.hash, **more_facts}
    with new_folder(folder, "model", manifest, size_of(weights)) as temporary:
        write_model(temporary, weights, facts, pipeline)
        signals.check()


def refuse_not_finite(weights: Mapping[str, Tensor], place: object) -> None:
    """Raise DivergedError if a weight is NaN or infinite, because such a model must never be saved."""
    if (name := _first_not_finite(weights)) is not None:
        raise DivergedError(f"{quoted(place)} was not saved: '{name}' contains NaN or infinity")
