"""`nmt score`: compute the log-probability of given translations."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nmt import registry
from nmt.cli.command import Command
from nmt.cli.prompt import is_typed
from nmt.log import log
from nmt.options import MAX_THREADS, REQUIRED, opt

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.scorings.base import PairScorer, Scoring
    from nmt.translate.results import PairScore


@registry.open_options_class("scoring")
class ScoreOptions:
    model: str = opt(
        REQUIRED,
        "model folder or run folder",
        aliases=("m", "path"),
        group="Input and output",
        common=True,
    )
    source: str = opt(
        REQUIRED, "source file; - is stdin", aliases=("s",), metavar="FILE", group="Input and output", common=True
    )
    target: str = opt(
        REQUIRED, "target file; - is stdin", aliases=("t",), metavar="FILE", group="Input and output", common=True
    )
    per_token: bool = opt(
        False, "also print the score of each target token", aliases=("word-scores",), group="Scores", common=True
    )
    normalize: bool = opt(
        False, "divide each score by the number of tokens, including EOS", group="Scores", common=True
    )
    max_tokens: int = opt(4096, "tokens per batch, including padding", minimum=1, group="Speed and memory")
    max_length: int = opt(
        1024, "maximum tokens per line; pairs with a longer line get no score", minimum=1, group="Speed and memory"
    )
    device: str = opt("auto", "device to use: auto, cpu, cuda or cuda:N", group="Speed and memory", common=True)
    threads: int | None = opt(
        None,
        "CPU threads; if unset, as many as torch chooses",
        minimum=1,
        maximum=MAX_THREADS,
        group="Speed and memory",
    )
    json: bool = opt(False, "print one JSON object per line", group="Input and output", common=True)

    def __post_init__(self) -> None:
        if self.source == self.target == "-":
            raise ValueError("only one of --source and --target can be - (stdin)")


def run(options: ScoreOptions) -> int:
    """Compute the log-probability of existing translations, in nats, one line per pair.

    A blank line is a sentence without words: for a blank target, only the end of the sentence is scored. A pair without a
    score gives nan, and the exit status is 5.
    """
    from nmt import signals
    from nmt.checkpoint import load_model
    from nmt.device import choose_device, use_threads
    from nmt.scorings.base import PairScorer

    use_threads(options.threads)
    asked = registry.active("scoring", options)
    scoring: Scoring | None = asked[0].cls(options) if asked else None
    if scoring is not None:
        scoring.check_model(Path(options.model))
    loaded = load_model(Path(options.model), choose_device(options.device))
    with signals.Signals():
        scorer = PairScorer(options, loaded, not is_typed(options.source, options.target))
        for text in scoring.texts(scorer) if scoring else _lines(options, scorer):
            with log.hidden_bars(sys.stdout.buffer):
                sys.stdout.buffer.write(text.encode())
                sys.stdout.buffer.flush()
            signals.check()
    return 5 if scorer.num_failed else 0


def _lines(options: ScoreOptions, scorer: "PairScorer") -> Iterator[str]:
    """The output lines of each window of pairs."""
    for _, scores in scorer.windows(options.target):
        yield "".join(_line(options, pair) for pair in scores)


def _line(options: ScoreOptions, pair: "PairScore | None") -> str:
    """The output line of a pair. pair: None if it has no score"""
    from nmt.scorings.base import value_of

    value = value_of(options, pair)
    tokens = [] if pair is None else list(zip(pair.pieces, pair.log_probs, strict=True))
    if options.json:
        row: dict[str, object] = {"log_prob": value}
        if options.per_token:
            row["tokens"] = [{"token": piece, "log_prob": log_prob} for piece, log_prob in tokens]
        return json.dumps(row, ensure_ascii=False) + "\n"
    shown = "nan" if value is None else f"{value:z.6f}"  # z prints 0.000000, not -0.000000, for a probability of 1
    if options.per_token:
        shown += "\t" + " ".join(f"{piece}:{log_prob:z.4f}" for piece, log_prob in tokens)
    return shown + "\n"


COMMAND = Command(
    "score",
    ScoreOptions,
    run,
    positional=("source", "target"),
    preload=("torch",),
    group="translate",
    examples=(
        "nmt score test.en test.de --model model",
        "nmt score test.en test.de --model model --per-token",
        "nmt score test.en test.de --model model --json",
    ),
)
