"""Combines several options classes into one, for `registry.open_options_class`."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_type_hints

from nmt.errors import UserError
from nmt.options import options_class

AnyOptions = TypeVar("AnyOptions")


@cache
def opened_class(own: type, others: tuple[type, ...], choices: tuple[tuple[str, Any], ...]) -> type:
    """A class that inherits from several options classes and has all their fields.

    choices: fields of the first class by name, each with its new type
    """
    owners: dict[str, type] = {}
    for cls in (own, *others):
        for name in (option.name for option in dataclasses.fields(cls)):
            if (other := owners.setdefault(name, cls)) is not cls:
                both = f"{other.__name__} ({place_of_class(other)}) and {cls.__name__} ({place_of_class(cls)})"
                raise UserError(f"option '{name}' is declared twice, by {both} (rename one of them)")

    def post_init(self: Any) -> None:
        for cls in (own, *others):
            cls.__post_init__(self)  # type: ignore[attr-defined]

    def reduced(self: Any) -> tuple[Any, ...]:  # pickle looks classes up by name, which finds only `own`
        return _remade, (own, vars(self))

    types = dict(choices)
    body: dict[str, Any] = {
        field.name: dataclasses.field(default=field.default, metadata=field.metadata)
        for field in dataclasses.fields(own)
        if field.name in types
    }
    body |= {"__module__": own.__module__, "__annotations__": types, "is_opened": True}
    body |= {"__post_init__": post_init, "__reduce__": reduced}
    return options_class(type(own.__name__, (*reversed(others), own), body))


def place_of_class(cls: Any) -> str:
    """The place where a class is defined, `FILE:LINE`, or its module if there is no source."""
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return str(cls.__module__)


def _remade(own: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
    return own(**values)


@cache
def shared_class(kind: str, classes: Sequence[type], taken: frozenset[str]) -> type:
    """An options class with the options of several classes, each name once. taken: names to exclude"""
    fields: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for cls in classes:
        for own in dataclasses.fields(cls):
            if own.name not in {*fields, *taken}:
                fields[own.name] = dataclasses.field(default=own.default, metadata=own.metadata)
                types[own.name] = get_type_hints(cls)[own.name]
    return options_class(type("SharedOptions", (), {**fields, "__annotations__": types, "shared_by": kind}))
