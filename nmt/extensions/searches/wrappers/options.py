"""The options of the wrappers. This module does not import torch, so that `--help` is fast."""

from nmt import opt, options_class


@options_class
class RerankOptions:
    rerank: tuple[str, ...] = opt(
        (),
        "models that re-rank the search's candidates: forward, right-to-left, reverse or language models",
        group="Several models",
        metavar="MODEL",
    )
    rerank_weights: tuple[float, ...] = opt(
        (),
        "weights of the search score and of each --rerank model, e.g. 1,0.5; equal by default",
        group="Several models",
        needs=("rerank",),
    )
    rerank_candidates: int | None = opt(
        None,
        "candidates to re-rank per sentence; by default, the beam size or, without a beam, --n-best",
        group="Several models",
        minimum=1,
        needs=("rerank",),
    )


@options_class
class ShortlistSearchOptions:
    shortlist: str | None = opt(
        None,
        "file written by nmt shortlist; limits the search to likely translations of source tokens",
        group="Speed and memory",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        models = getattr(self, "model", ())
        if self.shortlist is not None and isinstance(models, tuple) and len(models) > 1:
            raise ValueError(f"--shortlist works with only one model, but {len(models)} were given (drop --shortlist)")
