"""The options of the other searches. Without torch, so that `--help` answers at once."""

from dataclasses import replace
from typing import Any, ClassVar, Final

from nmt import opt, options_class, registry
from nmt.decoders.options import MAX_BEAM_SIZE, BeamOptions, SearchOptions
from nmt.options import Part, flag_of, options_of, part

MAX_ALTERNATIVES: Final = 100  # beams of a sentence that have memory side by side
MAX_SAMPLES: Final = 100_000


@options_class
class ConstrainedBeamOptions(BeamOptions):
    takes_phrases: ClassVar[bool] = True


@options_class
class DiverseBeamOptions(BeamOptions):
    groups: int = opt(2, "groups that the beam is divided into, of equal size", minimum=1)
    diversity_strength: float = opt(
        0.5, "nats that a word loses for each hypothesis of a group before that says it now", minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_size % self.groups:
            raise ValueError(f"--groups {self.groups}: must divide --beam-size, {self.beam_size}")


@options_class
class AlternativesOptions(BeamOptions):
    n_best: int = opt(
        5,
        "words to try behind the prefix; each gives one translation",
        aliases=("nbest",),
        minimum=1,
        maximum=MAX_ALTERNATIVES,
    )

    def __post_init__(self) -> None:
        """Each alternative has a beam of its own, so `beam_size` does not bound `n_best`."""


@options_class
class SamplingOptions(SearchOptions):
    temperature: float = opt(
        1.0, "divides the log-probabilities; below 1 is bolder in what is likely, above 1 wilder", above=0
    )
    top_k: int = opt(0, "draw from this many most probable words; 0 draws from all", minimum=0)
    top_p: float = opt(
        1.0,
        "draw from the fewest words that have this probability together (after temperature and top_k)",
        above=0,
        maximum=1,
    )
    epsilon: float = opt(
        0.0, "never draw a word of less probability than this (Hewitt et al., 2022); 0 allows all", minimum=0, below=1
    )
    sampling_seed: int = opt(1, "with the source sentence it decides what is drawn; equal lines give equal samples")
    n_best: int = opt(
        1,
        "independent samples for each sentence, shown with the most probable first",
        aliases=("nbest",),
        minimum=1,
        maximum=MAX_SAMPLES,
    )


@options_class
class MbrOptions:
    n_best: int = opt(1, "different translations shown, with the greatest expected utility first", minimum=1)
    num_candidates: int = opt(
        32, "candidates of a sentence: samples, or the size of a beam", minimum=1, maximum=MAX_BEAM_SIZE
    )
    candidates: Part = part("decoder", "sampling", "search for candidates; a beam has no length penalty")
    utility: Part = part("metric", "chrf", "metric of a candidate with another as the reference")

    def __post_init__(self) -> None:
        if self.n_best > self.num_candidates:
            raise ValueError(f"--n-best {self.n_best}: must be at most --num-candidates, {self.num_candidates}")
        self.inner_search()

    def inner_search(self) -> Part:
        """The search for candidates, which finds num_candidates. ValueError for options of it that say otherwise."""
        options = self.candidates.options or registry.choose("decoder", self.candidates.name).options
        required: dict[str, Any] = {"n_best": self.num_candidates, "beam_size": self.num_candidates}
        required["length_penalty"] = "none"  # the weight of a hypothesis is its probability
        own = {option.name: option for option in options_of(type(options)) if option.name in required}
        for name, option in own.items():
            if getattr(options, name) not in (option.default, required[name]):
                flag = flag_of(f"candidates.{name}")
                always = required[name] if name == "length_penalty" else f"--num-candidates, {required[name]}"
                raise ValueError(f"{flag} {getattr(options, name)}: with mbr it is always {always} (leave it out)")
        return replace(self.candidates, options=replace(options, **{name: required[name] for name in own}))
