"""Measure the alignment error rate of the attention of every layer and head against reference alignments.

    python benchmarks/alignment.py --model FOLDER ... [--source test.en --target test.de --gold test.align]

Without files the sentences are held-out ones of the toy language (recipes/toy), since its grammar gives the alignment;
the models must then come from `recipes/toy/run.sh`. The reference translation is force-decoded. A target word is
aligned to the source word with the most attention (`--alignment hard`), at the step that emits the word, as in `nmt
translate`, or at the step that reads it (Chen et al., 2020). A gold file has the Pharaoh format: `0-0 2-1` for sure
pairs, `3p1` for possible ones. Prints one table per model: error rate (Och and Ney, 2003), precision and recall,
in percent.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import torch

from nmt.batch import Batch
from nmt.checkpoint import LoadedModel, load_model
from nmt.errors import InputError, quoted
from nmt.extensions.details.alignment import (
    AttentionWeights,
    Pair,
    hard_alignment,
    threshold_alignment,
    word_weights,
)
from nmt.symbols import BOS, EOS
from nmt.text.corpus import read_lines, text_lines

TOY: Final = Path(__file__).parents[1] / "recipes" / "toy"
THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
SEED: Final = 2  # seed of the sentences; whether a sentence is held out depends only on its hash

PAIR: Final = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True)
class ReferenceAlignment:
    """The true alignment of a sentence. sure: pairs beyond doubt; possible: these and further acceptable pairs"""

    sure: frozenset[Pair]
    possible: frozenset[Pair]


@dataclass(frozen=True)
class Agreement:
    """The agreement of alignments with true ones (Och and Ney, 2003, section 6), from 0 to 1; error_rate: AER"""

    precision: float
    recall: float
    error_rate: float


Sentence = tuple[str, str, ReferenceAlignment]


def toy_sentences() -> Iterator[Sentence]:
    """Held-out sentences of the toy language in English and German, as an endless iterator."""
    sys.path.insert(0, str(TOY))  # the modules of the recipe are not a package
    english, german, generate, meaning, words = map(
        import_module, ("english", "german", "generate", "meaning", "words")
    )
    chance = Random(SEED)
    while True:
        sentence = meaning.draw(chance)
        source, target = english.realise(sentence), german.realise(sentence)
        if generate.split_of(generate.text(source)) == "test":
            sure, possible = map(frozenset, words.links(source, target))
            yield generate.text(source), generate.text(target), ReferenceAlignment(sure, possible)


def read_gold(path: Path) -> list[ReferenceAlignment]:
    """True alignments, one sentence per line: Pharaoh's `0-0 2-1` for sure pairs, `3p1` for possible ones."""
    alignments = []
    for number, line in enumerate(text_lines(path), 1):
        sure, possible = set(), set()
        for word in line.split():
            if (parts := PAIR.fullmatch(word)) is None:
                raise InputError(f"{quoted(path)}:{number}: {quoted(word)} is no pair (0-0 if sure, 0p0 if possible)")
            pair = int(parts[1]), int(parts[3])
            possible.add(pair)
            if parts[2] == "-":
                sure.add(pair)
        alignments.append(ReferenceAlignment(frozenset(sure), frozenset(possible)))
    return alignments


def agreement(alignments: Sequence[Iterable[Pair]], gold: Sequence[ReferenceAlignment]) -> Agreement:
    """The agreement of alignments A with true ones, S sure and P possible, summed over all sentences.

    Precision is |A & P| / |A|, recall |A & S| / |S|, AER 1 - (|A & S| + |A & P|) / (|A| + |S|). Precision of an empty A
    and recall of an empty S are 1. Raises ValueError if there are not as many alignments as true ones.
    """
    pairs = [(frozenset(alignment), true) for alignment, true in zip(alignments, gold, strict=True)]
    num_pairs, num_sure = sum(len(alignment) for alignment, _ in pairs), sum(len(true.sure) for _, true in pairs)
    possible = sum(len(alignment & true.possible) for alignment, true in pairs)
    sure = sum(len(alignment & true.sure) for alignment, true in pairs)
    return Agreement(
        possible / num_pairs if num_pairs else 1.0,
        sure / num_sure if num_sure else 1.0,
        1 - (sure + possible) / (num_pairs + num_sure) if num_pairs + num_sure else 0.0,
    )


def word_attention(loaded: LoadedModel, source: str, target: str) -> AttentionWeights:
    """(2, layers, heads, target words, source words) attention at the step that emits a word, and at the one that reads it."""
    sides = loaded.pipeline.source, loaded.pipeline.target
    tokens = [side.encode(text) for side, text in zip(sides, (source, target), strict=True)]
    batch = Batch(torch.tensor([[*tokens[0], EOS]]), torch.tensor([[BOS, *tokens[1], EOS]]))
    with torch.inference_mode():
        weights = loaded.model.attentions(batch)["cross"][:, 0].numpy()  # L H T S
    words = [side.word_of_tokens(one) for side, one in zip(sides, tokens, strict=True)]
    if [max(one) + 1 for one in words] != [len(text.split()) for text in (source, target)]:
        raise SystemExit(f"the model's pipeline has other words than the gold alignment: {source!r}, {target!r}")
    return np.stack([word_weights(weights[:, :, step:], *words) for step in (0, 1)])


def show(loaded: LoadedModel, sentences: list[Sentence]) -> None:
    """Print the table for a model."""
    looked = [word_attention(loaded, source, target) for source, target, _ in sentences]
    gold = [true for *_, true in sentences]
    _, layers, heads, *_ = looked[0].shape
    default = loaded.model.alignment_layer
    said_and_read = ("the step that says the word", "the step that reads it")
    print(
        "| | " + " | ".join(f"{step}: AER | precision | recall" for step in said_and_read) + " |\n" + "|---" * 7 + "|"
    )

    def row(
        name: str, weights: list[AttentionWeights], pairs: Callable[[AttentionWeights], list[Pair]] = hard_alignment
    ) -> None:
        """weights: attention of each sentence (2, target words, source words)"""
        figures = []
        for step in (0, 1):
            found = agreement([pairs(one[step]) for one in weights], gold)
            figures += [found.error_rate, found.precision, found.recall]
        print(f"| {name} | " + " | ".join(f"{100 * figure:.1f}" for figure in figures) + " |")

    for layer in range(layers):
        usual = ", the default" if layer == default else ""
        row(f"layer {layer + 1}{usual}", [one[:, layer].mean(1) for one in looked])
        for head in range(heads if heads > 1 else 0):
            row(f"layer {layer + 1}, head {head + 1}", [one[:, layer, head] for one in looked])
    row("mean of all layers", [one.mean((1, 2)) for one in looked])
    for threshold in THRESHOLDS:
        name = f"layer {default + 1}, above {threshold}"
        row(name, [one[:, default].mean(1) for one in looked], partial(threshold_alignment, threshold=threshold))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, nargs="+", required=True, help="model folders")
    parser.add_argument("--source", type=Path, help="source sentences; --target and --gold have the same lines")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--sentences", type=int, default=500, help="number of toy sentences")
    given = parser.parse_args()
    if given.source:
        sides: Any = (read_lines(given.source), read_lines(given.target), read_gold(given.gold))
        sentences = list(zip(*sides, strict=True))
    else:
        sentences = list(islice(toy_sentences(), given.sentences))
    for folder in given.model:
        loaded = load_model(folder, torch.device("cpu"))
        print(f"\n{folder}: {loaded.facts.model}, {len(sentences)} sentences\n")
        show(loaded, sentences)


if __name__ == "__main__":
    main()
