"""Options classes that are open to parts: a part brings its options, and no other file changes."""

import copy
import dataclasses
import importlib

import pytest

from nmt import UserError, opt, options_class, registry
from nmt.cli.commands import commands
from nmt.options import as_dict, choice, make, options_of


@options_class
class PruningOptions:
    prune_below: float = opt(0.0, "a bound", minimum=0)

    def __post_init__(self):
        if self.prune_below == 13:
            raise ValueError("--prune-below 13: is unlucky")


@options_class
class OtherOptions:
    depth: int = opt(1, "a number", minimum=1)


@pytest.fixture
def searches(monkeypatch):
    """Three parts of a kind, one without options; the shelf of parts is as before afterwards."""
    monkeypatch.setitem(registry.FOLDERS, "search", "searches")
    monkeypatch.setattr(registry._shelf, "parts", dict(registry._shelf.parts))
    for name, options, order in (("deep", OtherOptions, 2), ("pruning", PruningOptions, 1), ("plain", object, 0)):
        options = options if options is not object else options_class(type("NoOptions", (), {}))
        registry.register("search", name, options)(type(name.title(), (), {"order": order}))


@registry.open_options_class("search")
class Settings:
    width: int = opt(4, "hypotheses", minimum=1)
    search: str = choice("search", "plain", "the search", also=("auto",))

    def __post_init__(self):
        if self.width == 13:
            raise ValueError("--width 13: is unlucky")


@options_class
class RelatedOptions:
    guide: str | None = opt(None, "a file", excludes=("blind",))
    trust: float = opt(0.5, "share of the guide", needs=("guide",), excludes=("what_only_others_have",))
    blind: bool = opt(False, "without a guide")


@pytest.mark.parametrize(
    "values, named",
    [({"trust": "0.2"}, "--trust needs --guide"), ({"guide": "x", "blind": True}, "--guide and --blind cannot")],
)
def test_an_option_is_refused_without_what_it_needs_and_with_what_it_excludes(values, named):
    with pytest.raises(UserError, match=named):
        make(RelatedOptions, values)
    assert make(RelatedOptions, {"guide": "x", "trust": 0.2}).trust == 0.2
    assert make(RelatedOptions, {"trust": 0.5}).trust == 0.5  # its default


def test_relations_name_options_that_exist():
    owners = [importlib.import_module(file.module).COMMAND.options for file in commands().values()]
    parts = [registry.options_class_of(kind, name) for kind in registry.FOLDERS for name in registry.names(kind)]
    options = [option for cls in (*owners, *parts) for option in options_of(cls)]
    related = {name for option in options for name in (*option.needs, *option.excludes)}
    assert related and related <= {option.name for option in options}


def test_an_open_class_has_the_options_of_all_components(searches):
    options = Settings(width=2, depth=3)
    assert isinstance(options, Settings) and isinstance(options, PruningOptions) and isinstance(options, OtherOptions)
    assert as_dict(options) == {"width": 2, "search": "plain", "depth": 3, "prune_below": 0.0}
    assert [option.name for option in options_of(Settings)] == ["width", "search", "depth", "prune_below"]
    assert dataclasses.replace(options, prune_below=1.5) == Settings(width=2, depth=3, prune_below=1.5)
    assert copy.deepcopy(options) == options


@pytest.mark.parametrize(
    "values, named", [({"width": "13"}, "width"), ({"prune_below": "13"}, "prune-below"), ({"depth": "0"}, "depth")]
)
def test_the_checks_of_all_classes_are_applied(searches, values, named):
    with pytest.raises(UserError, match=f"--{named}"):
        make(Settings, values)


def test_a_choice_takes_the_names_of_its_kind(searches):
    assert make(Settings, {"search": "deep"}).search == "deep"
    assert make(Settings, {"search": "auto"}).search == "auto"
    with pytest.raises(UserError, match=r"--search 'depth': must be plain, auto, deep or pruning"):
        make(Settings, {"search": "depth"})


def test_a_component_is_active_when_one_of_its_options_is_set(searches):
    assert registry.active("search", Settings(width=9)) == []
    assert [entry.name for entry in registry.active("search", Settings(depth=2, prune_below=1.0))] == [
        "pruning",
        "deep",
    ]


def test_a_component_registered_later_adds_its_options(searches):
    before = Settings()

    @options_class
    class LateOptions:
        late: int = opt(0, "a number")

    registry.register("search", "late", LateOptions)(type("Late", (), {"order": 3}))
    assert Settings(late=1).late == 1
    assert not hasattr(before, "late")


def test_two_components_cannot_have_options_of_the_same_name(searches):
    @options_class
    class SameOptions:
        depth: int = opt(2, "a number")

    registry.register("search", "same", SameOptions)(type("Same", (), {}))
    with pytest.raises(UserError, match="'depth'"):
        Settings()
