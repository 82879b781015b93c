"""The description of a network in a model folder, options.json. This module does not import torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import ArtefactError, expecting, quoted
from nmt.options import as_dict

OPTIONS: Final = "options.json"
FLOAT32: Final = "fp32"


@dataclass(frozen=True)
class Vocabularies:
    """The vocabulary sizes that a model is built for.

    source, target: number of entries, including control symbols
    joint: whether source and target share one vocabulary
    """

    source: int
    target: int
    joint: bool


@dataclass(frozen=True)
class ModelFacts:
    """The content of options.json, from which `nmt.checkpoint.build_model` rebuilds the network.

    model: registered name
    options: values of its options class
    vocabularies: the sizes of the vocabularies
    weights: fp32, or the name of a weight format (nmt.weight_formats.base)
    """

    model: str
    options: Mapping[str, Any]
    vocabularies: Vocabularies
    weights: str = FLOAT32  # absent in older folders

    @classmethod
    def of(cls, name: str, options: Any, vocabularies: Vocabularies) -> "ModelFacts":
        return cls(name, as_dict(options), vocabularies)

    @classmethod
    def read(cls, artefact: Artefact) -> "ModelFacts":
        content = artefact.json(OPTIONS)
        with expecting("a model's options", artefact.folder / OPTIONS):
            facts = msgspec.convert(content, cls)
        if asdict(facts.vocabularies) != (given := content["vocabularies"]):  # also catches additional entries
            raise ArtefactError(f"{quoted(artefact.folder / OPTIONS)}: invalid vocabulary sizes: {quoted(given)}")
        if facts.weights not in (known := [FLOAT32, *registry.choosable("weight-format", "converts")]):
            found = f"the weights have the format '{quoted(facts.weights)}', but this version reads only {' and '.join(known)}"
            raise ArtefactError(f"{quoted(artefact.folder)}: {found} (use the version of nmt that wrote the folder)")
        return replace(facts, options=registry.completed("model", facts.model, facts.options))
