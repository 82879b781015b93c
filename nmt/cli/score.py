"""`nmt score`: the log-probability of given translations, in nats."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.command import Command
from nmt.log import log
from nmt.options import REQUIRED, opt

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.translate.score import PairScore

LINES_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    source: str = opt(REQUIRED, "source file, plain or compressed; - is stdin", aliases=("s",))
    target: str = opt(REQUIRED, "target file, plain or compressed; - is stdin", aliases=("t",))
    per_token: bool = opt(False, "also print each target token with its log-probability", aliases=("word-scores",))
    normalize: bool = opt(False, "divide by the number of target tokens, the end of the sentence counted")
    max_tokens: int = opt(4096, "tokens, padding counted, that the device holds at once")
    max_length: int = opt(1024, "tokens of a line; a pair with a longer one gets no score, and is named")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")
    json: bool = opt(False, "print a JSON object a line; log_prob is null where there is no score")

    def __post_init__(self) -> None:
        if self.source == self.target == "-":
            raise ValueError("source and target are both -, but stdin is one text (name a file for one of them)")
        for name in ("max_tokens", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it must be at least 1, or none")


def run(options: ScoreOptions) -> int:
    """Print a line for each pair: its log-probability in nats (natural logarithm); 5 when a pair has none."""
    from nmt.checkpoint import load_model
    from nmt.device import choose_device, use_threads
    from nmt.signals import Signals
    from nmt.translate.rate_limited_warnings import RateLimitedWarnings
    from nmt.translate.score import score
    from nmt.translate.windows import pairs, place_of

    use_threads(options.threads)
    loaded = load_model(Path(options.model), choose_device(options.device))
    failed, done, place = RateLimitedWarnings(log.error), 0, place_of(options.source)
    settings = (options.max_tokens, options.max_length)
    with Signals() as signals:
        for sources, targets in pairs(options.source, options.target, LINES_AT_ONCE, signals.check):
            scores = score(loaded.model, loaded.pipeline, sources, targets, *settings, signals.check)
            for number, pair in enumerate(scores, done + 1):
                if isinstance(pair, str):
                    failed.add(f"{place}:{number}: no score: {pair}")
            sys.stdout.buffer.write("".join(_line(options, pair) for pair in scores).encode())
            sys.stdout.buffer.flush()
            done += len(scores)
            signals.check()
    if failed.count:
        log.warn(f"{place}: {failed.count:,} of {done:,} pairs have no score")
    return 5 if failed.count else 0


def _line(options: ScoreOptions, pair: "PairScore | str") -> str:
    if isinstance(pair, str):
        value, tokens = None, []
    else:
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


COMMAND = Command(
    "score",
    "Log-probability, in nats, of given translations: a line a pair. A blank line is a sentence of no words: a blank "
    "target is scored by its end symbol alone, a blank source tells the model nothing. A pair that cannot be scored gives "
    "nan, and code 5 at the end.",
    ScoreOptions,
    run,
)
