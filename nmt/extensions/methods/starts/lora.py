"""Training adapters: a model is frozen, and layers get low-rank adapters (Hu et al., 2021)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from nmt import UserError, register
from nmt.extensions.methods.low_rank import adaptable, add_adapters
from nmt.extensions.methods.starts.options import LoraOptions
from nmt.extensions.methods.starts.patterns import matching
from nmt.models.base import Model
from nmt.starts.base import Start


@register("start", "lora", LoraOptions)
class Lora(Start):
    """Low-rank adapters of linear layers are trained, and nothing else (Hu et al., 2021)."""

    parameter_options: ClassVar[Sequence[str]] = ("lora_rank",)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.adapter_scale = options.lora_alpha / options.lora_rank if options.lora_rank else None

    def change(self, model: Model) -> None:
        """See Start."""
        if self.adapter_scale is not None:
            adapt(model, self.options.lora_rank, self.adapter_scale, self.options.lora_targets)


def adapt(model: Model, rank: int, scale: float, patterns: Sequence[str]) -> None:
    """Freeze a model, and give adapters to the linear layers whose weights a pattern matches; to all but the output for none.

    Raises UserError for a pattern that matches nothing, and for a model without such layers.
    """
    layers = adaptable(model)
    outputs = {id(module) for module in model.output.modules()}
    targets = [name for name, layer in layers.items() if id(layer) not in outputs]
    if patterns:
        targets = list(dict.fromkeys(matching(patterns, layers, "--lora-targets")))
    if not targets:
        raise UserError(
            f"--lora-rank: {type(model).__name__} has no linear layers that can have adapters (give --freeze)"
        )
    add_adapters(model, [layers[name] for name in targets], rank, scale)
