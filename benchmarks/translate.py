"""How fast `nmt translate` is beside CTranslate2: the same model, sentences, search and threads, in turn in one run.

    python benchmarks/translate.py --model FOLDER --source test.en --reference test.de [--beam 4 1] [--rounds 3] [--length N]

Each round runs each system once, one after the other, in a process of its own: one pass over a tenth of the text to warm up, then
one that counts; and 100 sentences one by one, for the latency. A system's figure is the median of its rounds. --length N makes
every translation N tokens long, for models that are not trained. CTranslate2 gets the same pieces (`nmt export`) and its best
settings for throughput: as many workers as threads, of one thread each.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nmt.text.corpus import read_lines

HERE = Path(__file__)
SYSTEMS = ("nmt fp32", "nmt int8", "ctranslate2 float32", "ctranslate2 int8")


def timed(translate: Any, lines: list[str]) -> tuple[float, list[str]]:
    """(seconds, translations)"""
    began = time.perf_counter()
    found = translate(lines)
    return time.perf_counter() - began, found


def nmt(given: argparse.Namespace, weights: str) -> tuple[Any, Any]:
    """(translates lines, number of tokens of the last translations)"""
    import torch

    from nmt import registry
    from nmt.device import keep_pages, use_threads
    from nmt.infer.requests import Request
    from nmt.infer.translator import Translator, load_scorer
    from nmt.nn import linear

    keep_pages()
    use_threads(1)
    linear.use("auto")
    options: dict[str, Any] = {"beam_size": given.beam, "length_penalty": "average", "alpha": 1.0, "stop": "full"}
    if given.length:
        options |= {"min_length": given.length, "max_len_a": 0.0, "max_len_b": given.length}
    pipeline, scorer = load_scorer([given.model], torch.device("cpu"), int8=weights == "int8")
    translator = Translator(
        pipeline,
        scorer,
        registry.build("decoder", "beam", options),
        given.batch_tokens,
        replicas=given.replicas,
        threads=max(1, given.threads // given.replicas),
    )
    counted = [0]

    def translate(lines: list[str]) -> list[str]:
        found = translator.translate([Request(line) for line in lines])
        counted[0] = sum(len(one.candidates[0].tokens) + 1 for one in found)
        return [one.text for one in found]

    return translate, counted


def ctranslate2(given: argparse.Namespace, weights: str) -> tuple[Any, Any]:
    """As `nmt`, by CTranslate2."""
    import ctranslate2 as library

    from nmt.artefact import Artefact
    from nmt.text.pipeline import Pipeline

    folder = given.work / "ctranslate2"
    pipeline = Pipeline.load(Artefact(folder, "ctranslate2"))
    engine = library.Translator(
        str(folder), compute_type=weights, inter_threads=given.threads, intra_threads=1, max_queued_batches=-1
    )
    options: dict[str, Any] = {"beam_size": given.beam, "length_penalty": 1.0, "max_batch_size": 32}
    if given.length:
        options |= {"min_decoding_length": given.length, "max_decoding_length": given.length}
    counted = [0]
    piece = [pipeline.source.piece(token) for token in range(pipeline.source.size)]
    number = {pipeline.target.piece(token): token for token in range(pipeline.target.size)}

    def translate(lines: list[str]) -> list[str]:
        pieces = [[piece[token] for token in row] for row in pipeline.source.encode_batch(lines).rows()]
        found = engine.translate_batch(pieces, **options)
        counted[0] = sum(len(one.hypotheses[0]) + 1 for one in found)
        return [pipeline.target.decode([number[piece] for piece in one.hypotheses[0]]) for one in found]

    return translate, counted


def one(given: argparse.Namespace) -> dict[str, Any]:
    """What one system does, in this process."""
    lines = read_lines(given.source)
    engine, weights = given.one.split()
    began = time.perf_counter()
    translate, counted = (nmt if engine == "nmt" else ctranslate2)(given, weights)
    translate(lines[:1])
    first = time.perf_counter() - began
    translate(lines[: len(lines) // 10])
    seconds, found = timed(translate, lines)
    tokens = counted[0]
    each = sorted(timed(translate, [line])[0] for line in lines[100 : 100 + given.singles])
    return {
        "sentences": len(lines) / seconds,
        "tokens": tokens / seconds,
        "first": first,
        "median": 1000 * statistics.median(each) if each else 0.0,
        "p99": 1000 * each[int(0.99 * (len(each) - 1))] if each else 0.0,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "lines": found,
    }


def bleu_of(lines: list[str], given: argparse.Namespace) -> str:
    if given.reference is None:
        return ""
    import sacrebleu

    references = [read_lines(given.reference)]
    return f"{sacrebleu.corpus_bleu(lines, references, tokenize=given.tokenize, force=True).score:.2f}"


def compare(given: argparse.Namespace, beam: int) -> None:
    """A table: the systems by row."""
    rounds: list[dict[str, dict[str, Any]]] = []
    for _ in range(given.rounds):
        found = {}
        for name in given.systems:
            command = [sys.executable, str(HERE), *given.words, f"--beam={beam}", f"--one={name}"]
            found[name] = json.loads(subprocess.check_output(command))
        rounds.append(found)
    reference = given.systems[-1]
    forced = f", {given.length} tokens each" if given.length else ""
    print(f"\nbeam {beam}{forced}, {given.threads} threads, {given.rounds} rounds in turn")
    print(
        f"| system | sentences/s (each round) | tokens/s | times {reference} | BLEU | one sentence alone: median, p99, ms "
        "| to the first, s | peak MB |\n" + "|---" * 8 + "|"
    )
    for name in given.systems:
        ones = [found[name] for found in rounds]
        speeds = [found["sentences"] for found in ones]
        ratio = statistics.median(found[name]["sentences"] / found[reference]["sentences"] for found in rounds)
        tokens, first, median, p99, peak = (
            statistics.median(found[key] for found in ones) for key in ("tokens", "first", "median", "p99", "peak")
        )
        each = ", ".join(f"{speed:.1f}" for speed in speeds)
        score = bleu_of(ones[0]["lines"], given)
        print(
            f"| {name} | {statistics.median(speeds):.1f} ({each}) | {tokens:,.0f} | {ratio:.2f} | {score} "
            f"| {median:.1f}, {p99:.1f} | {first:.2f} | {peak:,.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, help="for BLEU")
    parser.add_argument("--tokenize", default="13a", help="BLEU's tokenizer; none for a model of tokenised text")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="the last is the reference"
    )
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--length", type=int, default=0, help="tokens of every translation; 0: as the model ends them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--singles", type=int, default=100, help="sentences that are translated one by one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=2, help="of nmt")
    parser.add_argument("--batch-tokens", type=int, default=2000, help="of nmt")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-translate"))
    parser.add_argument("--one", choices=SYSTEMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        given.beam = given.beam[0]
        json.dump(one(given), sys.stdout)
        return
    given.words = sys.argv[1:]
    given.work.mkdir(parents=True, exist_ok=True)
    asked = ["export", f"--model={given.model}", "--format=ctranslate2", f"--output={given.work / 'ctranslate2'}"]
    subprocess.run(
        [sys.executable, "-m", "nmt", *asked, "--overwrite", "--quiet"], check=True, stdout=subprocess.DEVNULL
    )
    for beam in given.beam:
        compare(given, beam)


if __name__ == "__main__":
    main()
