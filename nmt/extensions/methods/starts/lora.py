"""Trains adapters: freezes a model, and adds low-rank adapters to its layers (Hu et al., 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.utils import parametrize

from nmt import UserError, register
from nmt.artefact import Artefact
from nmt.checkpoint import put_weights, weights_of
from nmt.dist import full_tensor
from nmt.extensions.methods.low_rank import LowRank, adaptable, merged, plain_name
from nmt.extensions.methods.starts.options import LoraOptions
from nmt.extensions.methods.starts.patterns import matching
from nmt.extensions.methods.weight_formats.low_rank import ADAPTER_BASE, AdapterBase
from nmt.extensions.methods.weight_formats.options import LowRankOptions
from nmt.files import to_json
from nmt.models.base import Model
from nmt.starts.base import Start
from nmt.train.kept_weights import KeptWeights


@register("start", "lora", LoraOptions)
class Lora(Start):
    """Only low-rank adapters of linear layers are trained (Hu et al., 2021)."""

    parameter_options: ClassVar[Sequence[str]] = ("lora_rank",)
    kept: "Adapters | None"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.kept = Adapters(options.lora_alpha / options.lora_rank) if options.lora_rank else None

    def change(self, model: Model) -> None:
        """See Start."""
        if self.kept is not None:
            adapt(model, self.options.lora_rank, self.kept.scale, self.options.lora_targets)


class Adapters(KeptWeights):
    """Stores adapters and buffers in checkpoints. All other weights stay in the model that the adapters are added to.

    scale: factor of the product of an adapter's matrices, alpha / r
    """

    file = LowRankOptions.file
    is_whole = False

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.added_to: AdapterBase | None = None  # set when the base model is read

    def begin(self, artefact: Artefact) -> None:
        """See KeptWeights. Raises UserError if the model itself has an adapter."""
        self.added_to = AdapterBase.of(artefact, self.scale)

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        """See KeptWeights."""
        adapters = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        return {plain_name(name): weight for name, weight in weights_of(model).items() if name not in adapters}

    def own(self, model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See KeptWeights."""
        frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        return {plain_name(name): weight for name, weight in weights.items() if name not in frozen}

    def whole(self, model: nn.Module, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """See KeptWeights."""
        base, adapter = (
            {name: full_tensor(weight) for name, weight in each.items()} for each in (self.base(model), own)
        )
        return merged(base, adapter, self.scale)

    def restore(self, model: nn.Module, own: Mapping[str, Tensor], checkpoint: Artefact) -> None:
        """See KeptWeights."""
        self.added_to = AdapterBase.read(checkpoint)
        put_weights(self.base(model), self.added_to.weights(checkpoint.folder), self.added_to.folder)
        super().restore(model, own, checkpoint)

    def write(self, folder: Path) -> None:
        """See KeptWeights."""
        assert self.added_to is not None
        (folder / ADAPTER_BASE).write_bytes(to_json(asdict(self.added_to)))


def adapt(model: Model, rank: int, scale: float, patterns: Sequence[str]) -> None:
    """Freeze a model, and add adapters to the linear layers that match a pattern; without patterns, to all but the output layer.

    Raises UserError for a pattern that matches nothing, or for a model without such layers.
    """
    layers = adaptable(model)
    outputs = {id(module) for module in model.output.modules()}
    targets = [name for name, layer in layers.items() if id(layer) not in outputs]
    if patterns:
        targets = list(dict.fromkeys(matching(patterns, layers, "--lora-targets")))
    if not targets:
        raise UserError(f"--lora-rank: {type(model).__name__} has no linear layers for adapters (use --freeze instead)")
    model.requires_grad_(False)
    for layer in [layers[name] for name in targets]:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, rank, scale))
