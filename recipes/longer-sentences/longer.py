"""Texts, scores, tables and figures of the recipe for longer sentences.

    longer.py join --data DATA --train PREFIX --test PREFIX --output FOLDER
    longer.py select --data DATA --test PREFIX --output FOLDER
    longer.py score --data DATA --text FOLDER --target-lang de --folder WORK/multi30k/rotary-12-1 --baseline OTHER --sets natural
    longer.py table --work WORK [--plot]

All lengths are those of the source in subwords. The model folders are WORK/CORPUS/POSITIONS-LIMIT-SEED. The tables read their
scores.json, and WORK/report.json (from `nmt report --json`).
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from nmt.artefact import Artefact
from nmt.data.shards import DATA_KIND
from nmt.extensions.scores.significance import compare
from nmt.extensions.watch.pictures.figures import Curve, LineChart, draw_charts
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.storages.base import text_exists
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline, Side

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tables import markdown, mean, runs_of

BOUNDS = (0, 12, 16, 20, 30, 40, 50, 60)  # each bucket excludes its lower bound and includes its upper one
FEWEST_LINES = 30  # a bucket with fewer lines has no score
MOST_JOINED = 5  # sentences per line
LONG = 20  # of the training pairs with longer sources, every second one is a test pair
CERTAIN = 0.05
ORDER = ("sinusoidal", "learned", "relative", "rotary")
Pair = tuple[str, str]


class Bucket(NamedTuple):
    """The scores of a model on test lines of similar length.

    tokens: mean length of the source; ratio: length of the translations over that of the references, in words
    p_value: of the difference in BLEU from the baseline; None for the baseline
    """

    lines: int
    tokens: float
    bleu: float
    ratio: float
    p_value: float | None


class Model(NamedTuple):
    """A finished training. scores: of each test set, by the upper bound of the bucket; signature: of the BLEU"""

    limit: int
    positions: str
    scores: dict[str, dict[int, Bucket]]
    signature: str
    parameters: int
    target_tokens: int
    eflop: float


def pairs_of(prefix: str, pipeline: Pipeline) -> list[Pair]:
    """The pairs of PREFIX.SOURCE and PREFIX.TARGET, plain or compressed."""
    sides = []
    for language in (pipeline.source_lang, pipeline.target_lang):
        path = Path(f"{prefix}.{language}")
        sides.append(read_lines(path if text_exists(path) else Path(f"{path}.gz")))
    return list(zip(*sides, strict=True))


def lengths_of(side: Side, lines: Sequence[str]) -> list[int]:
    """The number of subwords of each line."""
    return [int(length) for length in side.encode_batch(lines).lengths]


def joined(pairs: Sequence[Pair]) -> list[Pair]:
    """All pairs; then each two consecutive ones as one pair, each three, and so on."""
    groups = (pairs[start : start + size] for size in range(1, MOST_JOINED + 1) for start in range(0, len(pairs), size))
    return [(" ".join(source for source, _ in group), " ".join(target for _, target in group)) for group in groups]


def divided(pairs: Sequence[Pair], pipeline: Pipeline) -> tuple[list[Pair], list[Pair]]:
    """Training pairs, and test pairs: every second one whose source has more than LONG tokens."""
    lengths = lengths_of(pipeline.source, [source for source, _ in pairs])
    long = [number for number, length in enumerate(lengths) if length > LONG]
    held_out = {*long[::2]}
    train = [pair for number, pair in enumerate(pairs) if number not in held_out]
    return train, [pairs[number] for number in long[::2]]


def write(folder: Path, name: str, pairs: Sequence[Pair], pipeline: Pipeline, longest: int = 0) -> None:
    """Write pairs as NAME.SOURCE and NAME.TARGET. longest: drop pairs with a source of more tokens, if positive"""
    if longest:
        lengths = lengths_of(pipeline.source, [source for source, _ in pairs])
        pairs = [pair for pair, length in zip(pairs, lengths, strict=True) if 0 < length <= longest]
    for number, language in enumerate((pipeline.source_lang, pipeline.target_lang)):
        (folder / f"{name}.{language}").write_text("".join(pair[number] + "\n" for pair in pairs), encoding="utf-8")


def make_texts(given: argparse.Namespace) -> None:
    """Write the training and test texts to a folder, which appears complete or not at all."""
    pipeline, partial = pipeline_of(given.data), given.output.with_name(given.output.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    test = pairs_of(given.test, pipeline)
    held_out: list[Pair] = []
    if given.command == "join":
        train, held_out = divided(pairs_of(given.train, pipeline), pipeline)
        write(partial, "train", joined(train), pipeline)
        write(partial, "joined", joined(test), pipeline, given.longest)
    write(partial, "natural", test + held_out, pipeline, given.longest)
    partial.rename(given.output)


def pipeline_of(data: Path) -> Pipeline:
    return Pipeline.load(Artefact(data, DATA_KIND))


def buckets_of(lengths: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """(upper bound, line numbers) of each bucket with enough lines."""
    for low, high in pairwise(BOUNDS):
        lines = [line for line, length in enumerate(lengths) if low < length <= high]
        if len(lines) >= FEWEST_LINES:
            yield high, lines


def make_scores(given: argparse.Namespace) -> dict[str, object]:
    """BLEU and length ratio of a model by length, and the paired bootstrap against the baseline."""
    metric, pipeline = Bleu(BleuOptions(tokenize=given.tokenize)), pipeline_of(given.data)
    bleu = metric.build()
    scores: dict[str, dict[int, Bucket]] = {}
    for name in given.sets:
        sources, references = (
            read_lines(given.text / f"{name}.{language}") for language in (pipeline.source_lang, given.target_lang)
        )
        own, others = (read_lines(folder / f"{name}.txt") for folder in (given.folder, given.baseline))
        lengths = lengths_of(pipeline.source, sources)
        scores[name] = {}
        for high, numbers in buckets_of(lengths):
            texts, expected = (
                [[lines[number] for number in numbers] for lines in (own, others)],
                [references[number] for number in numbers],
            )
            score = bleu.corpus_score(texts[0], [expected])
            p_value = None
            if given.folder != given.baseline:
                systems = [("baseline", texts[1]), ("model", texts[0])]
                p_value = compare(systems, [expected], [("bleu", metric)], "bootstrap", given.trials)[-1].p_value
            tokens = statistics.mean(lengths[number] for number in numbers)
            scores[name][high] = Bucket(len(numbers), tokens, score.score, score.sys_len / score.ref_len, p_value)
    return {"scores": scores, "signature": str(bleu.get_signature())}


def models_of(work: Path) -> dict[str, list[Model]]:
    """The finished models of each corpus, ordered by limit and positions."""
    runs = runs_of(work)
    models: dict[str, list[Model]] = {}
    for file in sorted(work.glob("*/*/scores.json")):
        positions, limit, _ = file.parent.name.rsplit("-", 2)
        told, run = json.loads(file.read_text()), runs[file.parent.relative_to(work).as_posix()]
        scores = {
            name: {int(high): Bucket(*bucket) for high, bucket in of.items()} for name, of in told["scores"].items()
        }
        facts = run["parameters"], run["target_tokens"], run["eflop"]
        models.setdefault(file.parts[-3], []).append(Model(int(limit), positions, scores, told["signature"], *facts))
    return {
        corpus: sorted(found, key=lambda model: (model.limit, ORDER.index(model.positions)))
        for corpus, found in models.items()
    }


def grouped(models: Sequence[Model]) -> dict[tuple[int, str], list[Model]]:
    """The models by limit and positions; those of a group differ by their seed."""
    groups: dict[tuple[int, str], list[Model]] = {}
    for model in models:
        groups.setdefault((model.limit, model.positions), []).append(model)
    return groups


def bleu_cell(found: Sequence[Bucket], baseline: Sequence[Bucket], is_beyond: bool) -> str:
    """Mean and deviation of BLEU; +2 or -2 beyond the limit if two seeds differ significantly from the baseline's."""
    cell = mean([bucket.bleu for bucket in found], 1)
    differing = [
        own.bleu > other.bleu
        for own, other in zip(found, baseline, strict=False)
        if own.p_value is not None and own.p_value < CERTAIN
    ]
    better, worse = sum(differing), len(differing) - sum(differing)
    marks = f" +{better}" * bool(better) + f" -{worse}" * bool(worse)
    return cell + marks * is_beyond


def table_of(models: Sequence[Model], name: str) -> Iterator[str]:
    """The lines of a Markdown table of BLEU, and of one of length ratios, for a test set."""
    groups = grouped(models)
    counts = {high: bucket.lines for high, bucket in models[0].scores[name].items()}
    lows = dict(zip(BOUNDS[1:], BOUNDS, strict=False))
    titles = [f"{lows[high] + 1} to {high} ({lines:,} lines)" for high, lines in counts.items()]
    for quantity in ("BLEU", "length ratio"):
        rows = [["trained up to", "positions", *titles]]
        for (limit, positions), found in groups.items():
            cells = []
            for high in counts:
                buckets, baseline = ([one.scores[name][high] for one in of] for of in (found, groups[limit, ORDER[0]]))
                if quantity == "BLEU":
                    cells.append(bleu_cell(buckets, baseline, high > limit))
                else:
                    cells.append(mean([bucket.ratio for bucket in buckets], 2))
            rows.append([str(limit), positions, *cells])
        yield from (f"### `{name}`: {quantity}", "", *markdown(rows), "")


def cost_table(models: Sequence[Model]) -> list[str]:
    """The lines of a table of parameters and costs."""
    rows = [["trained up to", "positions", "parameters, M", "target tokens, M", "counted PFLOPs", "seeds"]]
    for (limit, positions), found in grouped(models).items():
        first = found[0]
        costs = f"{first.parameters / 1e6:.2f}", f"{first.target_tokens / 1e6:.2f}", f"{first.eflop * 1e3:.3f}"
        rows.append([str(limit), positions, *costs, str(len(found))])
    return markdown(rows)


def charts_of(models: Sequence[Model]) -> Iterator[LineChart]:
    """A chart for each limit and test set: mean BLEU of each kind of positions by mean length."""
    groups = grouped(models)
    for limit in dict.fromkeys(model.limit for model in models):
        for name in models[0].scores:
            curves = []
            for positions in ORDER:
                found = groups.get((limit, positions), [])
                points = [
                    (found[0].scores[name][high].tokens, statistics.mean(one.scores[name][high].bleu for one in found))
                    for high in (found[0].scores[name] if found else ())
                ]
                curves.append(Curve(positions, points))
            yield LineChart(f"{name}, trained up to {limit} tokens", "source tokens", "BLEU", curves)


def print_tables(given: argparse.Namespace) -> None:
    print(
        "Mean over the seeds (standard deviation). +N and -N: N of the seeds are significantly better or worse than sinusoidal"
    )
    print(
        f"positions with the same limit and seed (paired bootstrap, p < {CERTAIN}), in buckets beyond the limit. Lengths and"
    )
    print("limits are in subwords. Tokens and PFLOPs are those of one training.")
    for corpus, models in models_of(given.work).items():
        print(f"\n## {corpus}\n")
        for name in models[0].scores:
            print("\n".join(table_of(models, name)))
        print("\n".join(cost_table(models)))
        print("\n" + "\n".join(f"`{signature}`" for signature in sorted({model.signature for model in models})))
        if given.plot:
            (given.work / f"{corpus}.svg").write_bytes(draw_charts(list(charts_of(models)), "svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    join = commands.add_parser("join", help="training and test text of joined sentences, and natural test sentences")
    join.add_argument("--train", required=True, help="prefix of the training text")
    select = commands.add_parser("select", help="natural test sentences")
    for command in (join, select):
        command.add_argument("--test", required=True, help="prefix of the test text")
        command.add_argument("--output", type=Path, required=True)
        command.add_argument("--longest", type=int, default=BOUNDS[-1], help="drop test lines with more tokens")
    score = commands.add_parser("score", help="write the scores of a model's translations to its folder")
    score.add_argument("--text", type=Path, required=True, help="folder with sources and references")
    score.add_argument("--folder", type=Path, required=True, help="folder with translations, SET.txt; gets scores.json")
    score.add_argument("--baseline", type=Path, required=True, help="folder to compare with; may be the same")
    score.add_argument("--target-lang", required=True)
    score.add_argument("--sets", nargs="+", required=True)
    score.add_argument("--tokenize", default="13a", help="BLEU's tokenizer")
    score.add_argument("--trials", type=int, default=1000)
    for command in (join, select, score):
        command.add_argument("--data", type=Path, required=True, help="prepared data, for its subwords")
    table = commands.add_parser("table", help="print the tables of all finished models")
    table.add_argument("--work", type=Path, required=True)
    table.add_argument("--plot", action="store_true", help="also write WORK/CORPUS.svg")
    given = parser.parse_args()
    if given.command == "score":
        (given.folder / "scores.json").write_text(json.dumps(make_scores(given), indent=1))
    elif given.command == "table":
        print_tables(given)
    else:
        make_texts(given)


if __name__ == "__main__":
    main()
