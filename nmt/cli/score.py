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
    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    source: str = opt(REQUIRED, "source file, plain or compressed; - is stdin", aliases=("s",), metavar="FILE")
    target: str = opt(REQUIRED, "target file, plain or compressed; - is stdin", aliases=("t",), metavar="FILE")
    per_token: bool = opt(False, "also print each target token with its log-probability", aliases=("word-scores",))
    normalize: bool = opt(False, "divide by the number of target tokens, the end of the sentence counted")
    max_tokens: int = opt(4096, "tokens of a batch, padding counted", minimum=1)
    max_length: int = opt(1024, "tokens of a line; a pair with a longer one gets no score, and a warning", minimum=1)
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)
    json: bool = opt(False, "print JSON: an object a line; log_prob is null where there is no score")

    def __post_init__(self) -> None:
        if self.source == self.target == "-":
            raise ValueError("--source and --target are both -, but stdin is one text (name a file for one of them)")


def run(options: ScoreOptions) -> int:
    """Log-probability, in nats, of given translations: a line a pair.

    A blank line is a sentence without words: a blank target is scored by its end symbol alone, a blank source leaves the
    model to the target. A pair without a score gives nan, and code 5 at the end.
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
    """The output line of a pair; None is a pair without a score."""
    from nmt.scorings.base import value_of

    value = value_of(options, pair)
    tokens = [] if pair is None else list(zip(pair.pieces, pair.log_probs, strict=True))
    if options.json:
        row: dict[str, object] = {"log_prob": value}
        if options.per_token:
            row["tokens"] = [{"token": piece, "log_prob": log_prob} for piece, log_prob in tokens]
        return json.dumps(row, ensure_ascii=False) + "\n"
    shown = "nan" if value is None else f"{value:z.6f}"  # z: a probability of 1 is 0.000000, not -0.000000
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
