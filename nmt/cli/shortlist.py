"""`nmt shortlist`: which target tokens may translate each source token, so that `nmt translate` need not ask for all."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.cli.command import Command
from nmt.data.shards import PreparedData
from nmt.data.shortlist import coverage, learn
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, opt
from nmt.signals import Signals


@dataclass(frozen=True, kw_only=True)
class ShortlistOptions:
    data: str = opt(REQUIRED, "prepared data that the model was trained on", aliases=("d",))
    output: str = opt(REQUIRED, "file to write, for nmt translate --shortlist", aliases=("o",))
    pairs: int = opt(100_000, "training pairs that are looked at, evenly spaced over the corpus")
    rounds: int = opt(4, "rounds of expectation and maximisation of IBM model 1")
    of_each: int = opt(50, "target tokens of each source token, the likeliest")
    frequent: int = opt(500, "of the most frequent target tokens, how many may always be said")
    overwrite: bool = opt(False, "replace a file that is there")

    def __post_init__(self) -> None:
        for name in ("pairs", "rounds", "of_each", "frequent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


def run(options: ShortlistOptions) -> None:
    """Learn a shortlist, write it, and say how much of the development set it holds."""
    output = Path(options.output)
    if output.exists() and not options.overwrite:
        raise UserError(f"{quoted(output)} is there already (--overwrite replaces it)")
    data = PreparedData(Path(options.data))
    sizes = data.pipeline.source.size, data.pipeline.target.size
    with Signals() as signals:
        found = learn(
            data.train, sizes, options.pairs, options.rounds, options.of_each, options.frequent, signals.check
        )
    found.save(output, data.pipeline.hash)
    log.info(f"{output}: {len(found.words):,} target tokens of {sizes[0]:,} source tokens")
    for dev in data.valid.values():
        every = np.arange(len(dev.corpus))
        sources = np.split(dev.corpus.sources(every), np.cumsum(dev.corpus.source_lengths)[:-1])
        targets = np.split(dev.corpus.targets(every), np.cumsum(dev.corpus.target_lengths)[:-1])
        share, words = coverage(found, sources, targets)
        told = f"{dev.name}: {share:.2%} of its target tokens, {words:,.0f} of {sizes[1]:,} tokens a sentence\n"
        sys.stdout.buffer.write(told.encode())


COMMAND = Command(
    "shortlist",
    "Learn from prepared data which target tokens may translate each source token: nmt translate --shortlist searches among "
    "them alone, which is faster where the vocabulary is large. Prints how much of each development set it holds.",
    ShortlistOptions,
    run,
)
