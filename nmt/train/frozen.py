"""Freezing parameters by patterns of their names: they get no gradient and no update, and the optimizer does not know them."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from nmt.errors import UserError, unknown
from nmt.models.base import Model


def freeze(model: Model, patterns: Sequence[str]) -> None:
    """Exclude the parameters that a pattern matches from training. A table that layers share has a name in each of them.

    Raises UserError for a pattern that matches nothing, and if no parameter is left.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in matching(patterns, parameters, "--freeze"):
        parameters[name].requires_grad_(False)
    if patterns and not model.num_parameters():
        raise UserError(f"--freeze {' '.join(patterns)}: leaves nothing to train (name fewer)")


def matching(patterns: Sequence[str], names: Collection[str], flag: str) -> Iterator[str]:
    """The names that a pattern matches; `*` matches dots too. Raises UserError for a pattern that matches none."""
    for pattern in patterns:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            parts = [name.split(".") for name in names]
            ends = {".".join([*part[:end], "*"]) for part in parts for end in range(1, len(part))}
            first = {f"{part[0]}.*" for part in parts if len(part) > 1}
            raise unknown(f"name for {flag}", pattern, {*first, *get_close_matches(pattern, [*ends, *names], n=3)})
        yield from found
