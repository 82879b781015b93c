"""The options of the built-in searches. Without torch, so that `--help` answers at once."""

from dataclasses import replace
from typing import Any, Final, Literal

from nmt import opt, options_class, registry
from nmt.options import Part, as_dict, flag_of, options_of, part

MAX_ALTERNATIVES: Final = 100  # beams of a sentence that have memory side by side
MAX_BEAM_SIZE: Final = 10_000  # far more than helps; the memory of a sentence grows with it
MAX_SAMPLES: Final = 100_000
MAX_LENGTH: Final = 100_000  # tokens; memory for the longest translation is taken at the start


def search_signature(name: str, options: Any) -> str:
    """A search and every option, printed beside a score: `beam|beam_size:4|alpha:0.6`. options: None without any"""
    values = {} if options is None else as_dict(options)
    return "|".join([name, *(f"{key}:{value}" for key, value in values.items())])


@options_class
class SearchOptions:
    """The options of every search: how long a translation may be, and which tokens it may have."""

    min_length: int = opt(
        1,
        "tokens that a translation has at least, EOS not counted, even where that is more than the most",
        minimum=0,
        maximum=MAX_LENGTH,
    )
    no_repeat_ngram: int = opt(
        0, "no sequence of this many tokens comes twice in a translation; 0 allows all", minimum=0
    )
    no_unk: bool = opt(False, "never say the unknown word")
    max_len_a: float = opt(
        1.0,
        "a translation has at most a * source + b tokens, EOS not counted on either side",
        minimum=0,
        maximum=MAX_LENGTH,
    )
    max_len_b: int = opt(
        50,
        "b of a * source + b; a translation as long as that is ended there; 50 in the paper",
        minimum=0,
        maximum=MAX_LENGTH,
    )

    def limit(self, source_length: int) -> int:
        """The most tokens of a translation. source_length: tokens; EOS is counted on neither side"""
        return max(self.min_length, int(self.max_len_a * source_length + self.max_len_b))


@options_class
class BeamOptions(SearchOptions):
    beam_size: int = opt(
        4,
        "hypotheses that are kept for each sentence; 4 in the paper",
        aliases=("b", "beam"),
        minimum=1,
        maximum=MAX_BEAM_SIZE,
    )
    length_penalty: Literal["gnmt", "average", "none"] = opt(
        "gnmt",
        "divides the log-probability: gnmt ((5 + n) / 6)^alpha, average n^alpha (fairseq's lenpen); n counts EOS",
    )
    alpha: float = opt(0.6, "strength of the length penalty; 0.6 in the paper", minimum=0)
    coverage_penalty: float = opt(
        0.0,
        "beta of GNMT's: adds beta * sum of log(min(attention a source word got, 1)); 0.2 in GNMT, 0 in the paper",
        minimum=0,
    )
    stop: Literal["best", "full"] = opt(
        "best",
        "a sentence is done when no better hypothesis can come (best), or when beam_size of them have ended (full, as in "
        "fairseq and CTranslate2: quicker); a beam of 1 with the first that ends",
    )
    prune: float | None = opt(
        None,
        "drop tokens more nats below the best token of their hypothesis, and finished hypotheses with a score more below the "
        "best; 3.0 in GNMT, none drops nothing",
        above=0,
    )
    n_best: int = opt(1, "translations to give for each sentence, at most beam_size", aliases=("nbest",), minimum=1)

    def __post_init__(self) -> None:
        if self.n_best > self.beam_size:
            raise ValueError(f"--n-best {self.n_best}: must be at most --beam-size, {self.beam_size}")

    def divisor(self, length: int) -> float:
        """The length penalty (equation 14), which divides a log-probability. length: tokens, EOS counted"""
        if self.length_penalty == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return float(length**self.alpha) if self.length_penalty == "average" else 1.0


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
