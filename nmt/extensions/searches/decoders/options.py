"""The options of all searches outside the core. This module does not import torch, so that `--help` is fast."""

from dataclasses import replace
from typing import Any, ClassVar, Final

from nmt import opt, options_class, registry
from nmt.decoders.options import MAX_BEAM_SIZE, BeamOptions, SearchOptions
from nmt.options import Part, flag_of, options_of, part

MAX_ALTERNATIVES: Final = 100  # each alternative needs memory for its own beam
MAX_SAMPLES: Final = 100_000


@options_class
class ConstrainedBeamOptions(BeamOptions):
    takes_phrases: ClassVar[bool] = True


@options_class
class DiverseBeamOptions(BeamOptions):
    groups: int = opt(2, "number of equal groups to split the beam into", group="Search", minimum=1)
    diversity_strength: float = opt(
        0.5,
        "penalty, in nats, for each hypothesis in earlier groups that chose the same token",
        group="Search",
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_size % self.groups:
            raise ValueError(f"--groups {self.groups}: must divide --beam-size ({self.beam_size})")


@options_class
class AlternativesOptions(BeamOptions):
    n_best: int = opt(
        5,
        "number of alternative words to suggest after the prefix, best first",
        group="Search",
        common=True,
        aliases=("nbest",),
        minimum=1,
        maximum=MAX_ALTERNATIVES,
    )

    def __post_init__(self) -> None:
        """Check nothing, because each alternative has its own beam, so `beam_size` does not limit `n_best`."""


@options_class
class SamplingOptions(SearchOptions):
    temperature: float = opt(1.0, "sampling temperature; higher is more varied", group="Search", common=True, above=0)
    top_k: int = opt(0, "draw only from the K likeliest tokens; 0 for all", group="Search", common=True, minimum=0)
    top_p: float = opt(
        1.0,
        "probability mass to draw from (nucleus sampling)",
        group="Search",
        common=True,
        above=0,
        maximum=1,
    )
    epsilon: float = opt(
        0.0,
        "never draw a token less probable than this (Hewitt et al., 2022); 0 allows all",
        group="Search",
        minimum=0,
        below=1,
    )
    sampling_seed: int = opt(1, "random seed; the same seed and source sentence give the same samples", group="Search")
    n_best: int = opt(
        1,
        "samples per sentence, most probable first",
        group="Search",
        common=True,
        aliases=("nbest",),
        minimum=1,
        maximum=MAX_SAMPLES,
    )


@options_class
class MbrOptions:
    n_best: int = opt(
        1, "number of distinct translations per sentence, best first", group="Search", common=True, minimum=1
    )
    num_candidates: int = opt(
        32,
        "candidates per sentence to choose from",
        group="Search",
        common=True,
        minimum=1,
        maximum=MAX_BEAM_SIZE,
    )
    candidates: Part = part(
        "decoder",
        "sampling",
        "decoder that finds the candidates; beam search applies no length penalty here",
        group="Search",
    )
    utility: Part = part(
        "metric", "chrf", "metric that scores candidates, with the others as references", group="Search"
    )

    def __post_init__(self) -> None:
        if self.n_best > self.num_candidates:
            raise ValueError(f"--n-best {self.n_best}: must be at most --num-candidates ({self.num_candidates})")
        self.inner_search()

    def inner_search(self) -> Part:
        """The search that finds `num_candidates` candidates. Raises ValueError if its options contradict that number."""
        options = self.candidates.options or registry.choose("decoder", self.candidates.name).options
        required: dict[str, Any] = {"n_best": self.num_candidates, "beam_size": self.num_candidates}
        required["length_penalty"] = "none"  # the weight of a hypothesis is its probability
        own = {option.name: option for option in options_of(type(options)) if option.name in required}
        for name, option in own.items():
            if getattr(options, name) not in (option.default, required[name]):
                flag = flag_of(f"candidates.{name}")
                always = required[name] if name == "length_penalty" else f"--num-candidates ({required[name]})"
                raise ValueError(f"{flag} {getattr(options, name)}: mbr always uses {always} (drop {flag})")
        return replace(self.candidates, options=replace(options, **{name: required[name] for name in own}))
