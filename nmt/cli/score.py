"""`nmt score`: the log-probability of given translations, in nats."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from nmt.cli.command import Command
from nmt.options import REQUIRED, opt

LINES_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    source: str = opt(REQUIRED, "source file, plain or gzip", aliases=("s",))
    target: str = opt(REQUIRED, "target file, plain or gzip", aliases=("t",))
    per_token: bool = opt(False, "also print each target token with its log-probability", aliases=("word-scores",))
    normalize: bool = opt(False, "divide by the number of target tokens, the end of the sentence counted")
    max_tokens: int = opt(4096, "tokens, padding counted, that the device holds at once")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    json: bool = opt(False, "print a JSON object a line")


def run(options: ScoreOptions) -> None:
    """Print a line for each pair: its log-probability in nats (natural logarithm)."""
    from nmt.checkpoint import load_model
    from nmt.device import choose_device
    from nmt.infer.score import score
    from nmt.text.corpus import read_pairs_at_once

    loaded = load_model(Path(options.model), choose_device(options.device))
    for sources, targets in read_pairs_at_once(Path(options.source), Path(options.target), LINES_AT_ONCE):
        for pair in score(loaded.model, loaded.pipeline, sources, targets, options.max_tokens):
            value = pair.log_prob / len(pair.pieces) if options.normalize else pair.log_prob
            sys.stdout.write(_line(options, value, pair.pieces, pair.log_probs) + "\n")


def _line(options: ScoreOptions, value: float, pieces: list[str], log_probs: list[float]) -> str:
    if options.json:
        tokens = [{"token": piece, "log_prob": log_prob} for piece, log_prob in zip(pieces, log_probs, strict=True)]
        return json.dumps({"log_prob": value, **({"tokens": tokens} if options.per_token else {})}, ensure_ascii=False)
    if not options.per_token:
        return f"{value:.6f}"
    return f"{value:.6f}\t" + " ".join(
        f"{piece}:{log_prob:.4f}" for piece, log_prob in zip(pieces, log_probs, strict=True)
    )


COMMAND = Command("score", "Log-probability, in nats, of given translations.", ScoreOptions, run)
