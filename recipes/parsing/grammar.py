"""A small treebank from a grammar: Penn trees of different sentences, determined by the seed.

The preposition determines the attachment of a phrase: `of` to the noun before it, the others to the verb.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from nmt.files import write_output

MAX_DEPTH = 7  # below this depth only the first rule of each symbol is used, because first rules are not recursive

# Rules of a symbol, each with its weight. The label is the part of the symbol before a hyphen.
BASE_NP = [(4, "DT NN"), (2, "DT JJ NN"), (2, "NNP"), (2, "DT NNS"), (1, "CD JJ NNS"), (1, "PRP")]
RULES = {
    "S-main": [
        (8, "NP VP ."),
        (2, "PP-in , NP VP ."),
        (1, "SBAR-while , NP VP ."),
        (2, "S , CC S ."),
        (1, "`` S '' ."),
    ],
    "S": [(1, "NP VP")],
    "NP": [
        *BASE_NP,
        (3, "NP-base PP-of"),
        (1, "NP-base SBAR-who"),
        (1, "NP-base CC NP-base"),
        (1, "NP-base , NP-name ,"),
    ],
    "NP-base": BASE_NP,
    "NP-name": [(1, "NNP NNP")],
    "VP": [
        *((4, "VBD NP"), (3, "VBD NP PP-in"), (1, "VBD-go ADVP"), (1, "VBD-give PRT NP"), (2, "VBD-say SBAR-that")),
        *((1, "VBD-be ADJP"), (2, "MD VP-plain"), (1, "VP-gone CC VP-gone")),
    ],
    "VP-plain": [(2, "VB NP"), (1, "VB NP PP-in")],
    "VP-gone": [(1, "VBD-go")],
    "ADJP": [(2, "RB-very JJ"), (1, "JJ CC JJ")],
    "ADVP": [(1, "RB")],
    "PRT": [(1, "RP")],
    "PP-of": [(1, "IN-of NP")],
    "PP-in": [(1, "IN NP")],
    "SBAR-that": [(1, "IN-that S")],
    "SBAR-while": [(1, "IN-while S")],
    "SBAR-who": [(1, "WHNP S-gap")],
    "WHNP": [(1, "WP")],
    "S-gap": [(1, "VP")],
}
WORDS = {
    "DT": "the a this every no",
    "NN": "dog girl teacher river letter garden piano window captain violin bridge kitchen lamp forest engine",
    "NNS": "dogs letters rivers sailors windows bridges lamps engines pianos apples",
    "NNP": "Anna Peter London Maria Oslo Rivera Tanaka",
    "PRP": "he she they it",
    "CD": "two three seven twenty",
    "JJ": "old green quiet heavy bright strange small tired",
    "VBD": "saw painted repaired carried followed heard bought found",
    "VBD-go": "left slept arrived laughed waited",
    "VBD-give": "gave turned handed",
    "VBD-say": "said thought knew",
    "VBD-be": "was seemed",
    "VB": "see paint repair carry follow hear",
    "MD": "will could must",
    "RB": "quickly yesterday outside again",
    "RB-very": "very quite",
    "RP": "up off over",
    "IN": "in near behind under with",
    "IN-of": "of",
    "IN-that": "that",
    "IN-while": "while because",
    "WP": "who",
    "CC": "and or",
    ",": ",",
    ".": ". !",
    "``": "``",
    "''": "''",
}


def draw(random: Random, symbol: str = "S-main", depth: int = 0) -> str:
    """A random tree for a symbol."""
    label = symbol.split("-")[0]
    if symbol in WORDS:
        return f"({label} {random.choice(WORDS[symbol].split())})"
    rules = RULES[symbol]
    weights = [weight for weight, _ in rules] if depth < MAX_DEPTH else [1] + [0] * (len(rules) - 1)
    [(_, symbols)] = random.choices(rules, weights)
    return f"({label} {' '.join(draw(random, child, depth + 1) for child in symbols.split())})"


def treebank(seed: int) -> Iterator[str]:
    """Yield different trees endlessly."""
    random, seen = Random(seed), set[str]()
    while True:
        tree = f"(TOP {draw(random)})"
        if tree not in seen:
            seen.add(tree)
            yield tree


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (("train", 8000), ("dev", 300), ("test", 500)):
        parser.add_argument(f"--{name}", type=int, default=count, help="trees")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    trees = treebank(given.seed)
    for name in ("test", "dev", "train"):  # the recipe makes all files again unless the last one exists
        lines = "".join(f"{next(trees)}\n" for _ in range(getattr(given, name)))
        write_output(given.output / f"{name}.trees", lines.encode())


if __name__ == "__main__":
    main()
