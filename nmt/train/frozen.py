"""Training a part of a model: parameters are frozen by patterns of their names, or all are and layers get adapters."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from nmt.errors import UserError, unknown
from nmt.models.base import Model
from nmt.nn.lora import adaptable, add_adapters


def freeze(model: Model, patterns: Sequence[str]) -> None:
    """Exclude the parameters that a pattern matches from training. A table that layers share has a name in each of them.

    Raises UserError for a pattern that matches nothing, and if no parameter is left.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in matching(patterns, parameters, "--freeze"):
        parameters[name].requires_grad_(False)
    if patterns and not model.num_parameters():
        raise UserError(f"--freeze {' '.join(patterns)}: leaves nothing to train (name fewer)")


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


def matching(patterns: Sequence[str], names: Collection[str], flag: str) -> Iterator[str]:
    """The names that a pattern matches; `*` matches dots too. Raises UserError for a pattern that matches none."""
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            parts = [name.split(".") for name in names]
            ends = {".".join([*part[:end], "*"]) for part in parts for end in range(1, len(part))}
            first = {f"{part[0]}.*" for part in parts if len(part) > 1}
            raise unknown(f"name for {flag}", pattern, {*first, *get_close_matches(pattern, [*ends, *names], n=3)})
        yield from matches
