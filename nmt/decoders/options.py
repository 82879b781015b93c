"""The options of greedy and beam search. This module does not import torch, so that `--help` is fast."""

from typing import Any, ClassVar, Final, Literal

from nmt import opt, options_class, registry
from nmt.options import as_dict

MAX_BEAM_SIZE: Final = 10_000  # far above any useful beam size; memory per sentence grows with it
MAX_LENGTH: Final = 100_000  # tokens, limited because memory for the longest translation is allocated at the start


def search_signature(name: str, options: Any) -> str:
    """Name a search and all its options, to be printed next to a score: `beam|beam_size:4|alpha:0.6`.

    options: the options of the decoder, or None if it has none
    """
    values = {} if options is None else as_dict(options)
    return "|".join([name, *(f"{key}:{value}" for key, value in values.items())])


def phrase_decoders() -> list[str]:
    """The names of the decoders that accept phrases. Imports none of them."""
    classes = registry.options_classes("decoder")
    return [name for name, cls in classes.items() if getattr(cls, "takes_phrases", False)]


def phrases_hint() -> str:
    """The advice that ends a message about phrases: which decoder accepts them."""
    return f" (use --decoder {' or '.join(found)})" if (found := phrase_decoders()) else ""


@options_class
class SearchOptions:
    """The options of every search: limits on the length and on the tokens of a translation.

    takes_phrases: whether the search can force phrases into a translation
    """

    takes_phrases: ClassVar[bool] = False
    max_len_a: float = opt(
        1.0,
        "factor a in the maximum length, a * source length + b tokens; EOS is not counted",
        minimum=0,
        maximum=MAX_LENGTH,
    )
    max_len_b: int = opt(
        50,
        "constant b in the maximum length, a * source length + b tokens; EOS is not counted",
        minimum=0,
        maximum=MAX_LENGTH,
    )
    min_length: int = opt(
        1,
        "minimum length in tokens, without EOS; overrides the maximum",
        minimum=0,
        maximum=MAX_LENGTH,
    )
    no_repeat_ngram: int = opt(
        0, "size of token n-grams that must not be repeated; 0 allows repeats", group="Search", minimum=0
    )
    no_unk: bool = opt(False, "never generate the unknown token")

    def limit(self, source_length: int) -> int:
        """The maximum number of tokens of a translation. source_length: in tokens. Neither count includes EOS."""
        return max(self.min_length, int(self.max_len_a * source_length + self.max_len_b))


@options_class
class BeamOptions(SearchOptions):
    beam_size: int = opt(
        4,
        "hypotheses to keep for each sentence",
        group="Search",
        common=True,
        aliases=("b", "beam"),
        minimum=1,
        maximum=MAX_BEAM_SIZE,
    )
    n_best: int = opt(
        1, "number of translations, up to the beam size", group="Search", common=True, aliases=("nbest",), minimum=1
    )
    length_penalty: Literal["gnmt", "average", "none"] = opt(
        "gnmt",
        "length penalty for n tokens: gnmt is ((5 + n) / 6)^alpha, average is n^alpha",
    )
    alpha: float = opt(0.6, "strength of the length penalty; higher favours longer output", group="Search", minimum=0)
    coverage_penalty: float = opt(
        0.0,
        "weight of GNMT's penalty on source words with little attention; GNMT used 0.2",
        minimum=0,
    )
    stop: Literal["best", "full"] = opt(
        "best",
        "stop when no better hypothesis is possible (best) or after beam_size finished hypotheses (full, faster)",
    )
    prune: float | None = opt(
        None,
        "drop tokens and finished hypotheses that are this many nats worse than the best; GNMT used 3",
        above=0,
    )

    def __post_init__(self) -> None:
        if self.n_best > self.beam_size:
            raise ValueError(f"--n-best {self.n_best}: must be at most --beam-size ({self.beam_size})")

    def divisor(self, length: int) -> float:
        """The length penalty (GNMT's equation 14), which divides the log-probability. length: in tokens, with EOS"""
        if self.length_penalty == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return float(length**self.alpha) if self.length_penalty == "average" else 1.0
