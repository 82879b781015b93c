"""The options of greedy and beam search. Without torch, so that `--help` answers at once."""

from typing import Any, ClassVar, Final, Literal

from nmt import opt, options_class, registry
from nmt.options import as_dict

MAX_BEAM_SIZE: Final = 10_000  # far more than helps; the memory of a sentence grows with it
MAX_LENGTH: Final = 100_000  # tokens; memory for the longest translation is taken at the start


def search_signature(name: str, options: Any) -> str:
    """A search and every option, printed next to a score: `beam|beam_size:4|alpha:0.6`. options: None without any"""
    values = {} if options is None else as_dict(options)
    return "|".join([name, *(f"{key}:{value}" for key, value in values.items())])


def phrase_decoders() -> list[str]:
    """The decoders that take phrases, by name. Imports none."""
    classes = registry.options_classes("decoder")
    return [name for name, cls in classes.items() if getattr(cls, "takes_phrases", False)]


def phrases_hint() -> str:
    """The end of a message about phrases: which decoder takes them."""
    return f" (give --decoder {' or '.join(found)})" if (found := phrase_decoders()) else ""


@options_class
class SearchOptions:
    """The options of every search: how long a translation may be, and which tokens it may have.

    takes_phrases: whether the search can hold to phrases that a translation must contain
    """

    takes_phrases: ClassVar[bool] = False
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
