"""Measure the alignment error rate of the attention of every layer and head against reference alignments.

    python benchmarks/alignment.py --model FOLDER ... [--source test.en --target test.de --gold test.align]

Without files the sentences are held-out ones of the toy language (recipes/toy), whose grammar gives the alignment;
the models are then those of `recipes/toy/run.sh`. The reference translation is force-decoded. A target word is
aligned to the source word with the most attention (`--alignment hard`), at the step that emits the word, as in `nmt
translate`, or at the step that reads it (Chen et al., 2020). A gold file has Pharaoh's form: `0-0 2-1` for sure
pairs, `3p1` for possible ones. Prints a table for each model: error rate (Och and Ney, 2003), precision and recall,
in percent.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
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
from nmt.symbols import BOS, EOS
from nmt.text.corpus import read_lines
from nmt.text.words import word_of_tokens
from nmt.translate.alignment import (
    Pair,
    ReferenceAlignment,
    Weights,
    agreement,
    hard_alignment,
    read_gold,
    threshold_alignment,
    word_weights,
)

TOY: Final = Path(__file__).parents[1] / "recipes" / "toy"
THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
SEED: Final = 2  # of the sentences; a sentence is held out by its hash, whatever the seed

Sentence = tuple[str, str, ReferenceAlignment]


def toy_sentences() -> Iterator[Sentence]:
    """Held-out sentences of the toy language, English and German; an endless iterator."""
    sys.path.insert(0, str(TOY))  # the modules of the recipe are no package
    english, german, generate, meaning, words = map(
        import_module, ("english", "german", "generate", "meaning", "words")
    )
    chance = Random(SEED)
    while True:
        sentence = meaning.draw(chance)
        source, target = english.say(sentence), german.say(sentence)
        if generate.split_of(generate.text(source)) == "test":
            sure, possible = map(frozenset, words.links(source, target))
            yield generate.text(source), generate.text(target), ReferenceAlignment(sure, possible)


def word_attention(loaded: LoadedModel, source: str, target: str) -> Weights:
    """(2, layers, heads, target words, source words) attention of the step that emits a word, and of the one that reads it."""
    sides = loaded.pipeline.source, loaded.pipeline.target
    tokens = [side.encode(text) for side, text in zip(sides, (source, target), strict=True)]
    batch = Batch(torch.tensor([[*tokens[0], EOS]]), torch.tensor([[BOS, *tokens[1], EOS]]))
    with torch.inference_mode():
        weights = loaded.model.attentions(batch)["cross"][:, 0].numpy()  # L H T S
    words = [word_of_tokens(side, one) for side, one in zip(sides, tokens, strict=True)]
    if [max(one) + 1 for one in words] != [len(text.split()) for text in (source, target)]:
        raise SystemExit(f"the model's pipeline has other words than the gold alignment: {source!r}, {target!r}")
    return np.stack([word_weights(weights[:, :, step:], *words) for step in (0, 1)])


def show(loaded: LoadedModel, sentences: list[Sentence]) -> None:
    """Print the table of a model."""
    looked = [word_attention(loaded, source, target) for source, target, _ in sentences]
    gold = [true for *_, true in sentences]
    _, layers, heads, *_ = looked[0].shape
    default = loaded.model.alignment_layer
    said_and_read = ("the step that says the word", "the step that reads it")
    print(
        "| | " + " | ".join(f"{step}: AER | precision | recall" for step in said_and_read) + " |\n" + "|---" * 7 + "|"
    )

    def row(name: str, weights: list[Weights], pairs: Callable[[Weights], list[Pair]] = hard_alignment) -> None:
        """weights: of each sentence (2, target words, source words)"""
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
    parser.add_argument(
        "--source", type=Path, help="sentences whose words are aligned, as --target and --gold have them"
    )
    parser.add_argument("--target", type=Path)
    parser.add_argument("--gold", type=Path)
    parser.add_argument("--sentences", type=int, default=500, help="of the toy language")
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
