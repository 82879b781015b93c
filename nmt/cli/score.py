"""`nmt score`: the log-probability of given translations, in nats."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nmt.cli.command import Command
from nmt.cli.prompt import is_typed
from nmt.log import log
from nmt.options import MAX_THREADS, REQUIRED, opt, options_class

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.translate.results import PairScore

WINDOW_LINES: Final = 10_000


@options_class
class ScoreOptions:
    """The options of `nmt score`."""

    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    source: str = opt(REQUIRED, "source file, plain or compressed; - is stdin", aliases=("s",))
    target: str = opt(REQUIRED, "target file, plain or compressed; - is stdin", aliases=("t",))
    per_token: bool = opt(False, "also print each target token with its log-probability", aliases=("word-scores",))
    normalize: bool = opt(False, "divide by the number of target tokens, the end of the sentence counted")
    max_tokens: int = opt(4096, "tokens of a batch, padding counted", minimum=1)
    max_length: int = opt(1024, "tokens of a line; a pair with a longer one gets no score, and a warning", minimum=1)
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)
    json: bool = opt(False, "print a JSON object a line; log_prob is null where there is no score")

    def __post_init__(self) -> None:
        if self.source == self.target == "-":
            raise ValueError("--source and --target are both -, but stdin is one text (name a file for one of them)")


def run(options: ScoreOptions) -> int:
    """Log-probability, in nats, of given translations: a line a pair.

    A blank line is a sentence without words: a blank target is scored by its end symbol alone, a blank source leaves the
    model to the target. A pair without a score gives nan, and code 5 at the end.
    """
    from nmt.checkpoint import load_model
    from nmt.device import choose_device, use_threads
    from nmt.signals import Signals
    from nmt.translate.forced_decoding import score
    from nmt.translate.line_warnings import RateLimitedWarnings
    from nmt.translate.results import Failure
    from nmt.translate.windows import LineEstimate, pairs, place_of

    use_threads(options.threads)
    loaded = load_model(Path(options.model), choose_device(options.device))
    failures, num_pairs, place = RateLimitedWarnings(log.error), 0, place_of(options.source)
    settings = options.max_tokens, options.max_length
    estimate, output = LineEstimate(options.source), sys.stdout.buffer
    shown = not is_typed(options.source, options.target)
    with Signals() as signals, log.progress("scoring", estimate.total, "pairs", shown=shown) as bar:
        for sources, targets in pairs(options.source, options.target, WINDOW_LINES, estimate, signals.check):
            scores = score(loaded.model, loaded.pipeline, sources, targets, *settings, signals.check, bar.advance)
            for number, pair in enumerate(scores, num_pairs + 1):
                if isinstance(pair, Failure):
                    failures.add(f"{place}:{number}: no score: {pair.message}")
            lines = (_line(options, None if isinstance(pair, Failure) else pair) for pair in scores)
            with log.hidden_bars(output):
                output.write("".join(lines).encode())
                output.flush()
            num_pairs += len(scores)
            signals.check()
    if failures.count:
        log.warn(f"{place}: {failures.count:,} of {num_pairs:,} pairs have no score")
    return 5 if failures.count else 0


def _line(options: ScoreOptions, pair: "PairScore | None") -> str:
    """The output line of a pair; None is a pair without a score."""
    value, tokens = None, []
    if pair is not None:
        value = pair.log_prob / len(pair.pieces) if options.normalize else pair.log_prob
        tokens = list(zip(pair.pieces, pair.log_probs, strict=True))
    if options.json:
        row: dict[str, object] = {"log_prob": value}
        if options.per_token:
            row["tokens"] = [{"token": piece, "log_prob": log_prob} for piece, log_prob in tokens]
        return json.dumps(row, ensure_ascii=False) + "\n"
    shown = "nan" if value is None else f"{value:z.6f}"  # z: a probability of 1 is 0.000000, not -0.000000
    if options.per_token:
        shown += "\t" + " ".join(f"{piece}:{log_prob:z.4f}" for piece, log_prob in tokens)
    return shown + "\n"


COMMAND = Command("score", run.__doc__, ScoreOptions, run, preload=("torch",))
