"""The options of wrappers. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class RerankOptions:
    rerank: tuple[str, ...] = opt(
        (),
        "model folders or runs that re-rank the candidates of the search: of the same direction, also from right to left "
        "(nmt prepare --right-to-left), of the other direction, or a language model",
    )
    rerank_weights: tuple[float, ...] = opt(
        (),
        "weights of the search's score and of each --rerank model, `1,0.5`; none: equal weights",
        needs=("rerank",),
    )
    rerank_candidates: int | None = opt(
        None, "candidates of the search; none: its beam size, else --n-best", minimum=1, needs=("rerank",)
    )


@options_class
class ShortlistSearchOptions:
    shortlist: str | None = opt(
        None,
        "file of nmt shortlist: search only among likely translations of the source tokens; in CTranslate2 the lines of a "
        "batch share them",
    )

    def __post_init__(self) -> None:
        models = getattr(self, "model", ())
        if self.shortlist is not None and isinstance(models, tuple) and len(models) > 1:
            raise ValueError(f"--shortlist: works with one model, and {len(models)} are given (leave it out)")
