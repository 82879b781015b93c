"""Evaluate `nmt translate --markup`: whether tags are kept, and whether they are placed as by a human.

    python benchmarks/markup.py --model FOLDER --source test.en [--lines 500] [--gold benchmarks/markup.tsv]

Tags are put around random words of the source lines. It prints how many translations have each tag once, are well-formed,
and otherwise equal the translation of the plain line. Each line of the gold file has a tagged sentence, a tab, and its
translation, tagged by hand. The model is force-decoded to that translation; its tags are placed by attention, and compared
with the manual ones: elements with the same text, and the F1 of the words in them.
"""

import argparse
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from random import Random

import numpy as np

from nmt.extensions.texts.markup import parse
from nmt.extensions.texts.passages import Passage, escaped
from nmt.extensions.texts.projection import projected, unit_weights
from nmt.text.corpus import read_lines
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.forced_decoding import force_decode
from nmt.translate.options import TranslatorOptions
from nmt.translators import load

TAG = re.compile(r"<[^<>]*>")


def with_tags(line: str, random: Random) -> str:
    """A line with up to three elements, one possibly inside another, and a single tag."""
    words = list(map(escaped, line.split()))
    count = 0

    def marked(words: list[str], depth: int) -> list[str]:
        nonlocal count
        if not words or count == 3 or not depth:
            return words
        start = random.randrange(len(words))
        end = start + 1 + random.randrange(min(4 * depth, len(words) - start))
        count += 1
        name = f"t{count}"
        inside = marked(words[start:end], depth - 1)
        inside[0] = f"<{name}>{inside[0]}"
        inside[-1] += f"</{name}>"
        return [*words[:start], *inside, *marked(words[end:], depth)]

    words = marked(words, 2)
    words.insert(random.randrange(len(words) + 1), "<x/>")
    return " ".join(words)


def kept(source: str, translation: str, plain: str) -> tuple[bool, bool, bool]:
    """Whether a translation has each tag once, is well-formed, and otherwise equals that of the plain line."""
    has_all = sorted(TAG.findall(source)) == sorted(TAG.findall(translation))
    try:
        text = "".join(ElementTree.fromstring(f"<line>{translation}</line>").itertext())
    except ElementTree.ParseError:
        return has_all, False, False
    return has_all, True, text.split() == plain.split()


def elements(line: str) -> dict[str, set[int]]:
    """The numbers of the words in each element."""
    [passage] = [part for part in parse(line, "xml") if isinstance(part, Passage)]
    begins = [found.start() for found in re.finditer(r"\S+", passage.text)]
    return {
        element.open: {i for i, place in enumerate(begins) if element.start <= place < element.end}
        for element in passage.elements
    }


def judge(engine: BuiltInEngine, gold: list[str]) -> tuple[int, int, float]:
    """For the gold lines: elements with the same words, all elements, and the F1 of their words."""
    same = total = right = ours = theirs = 0
    source, target = engine.pipeline.source, engine.pipeline.target
    for line in gold:
        tagged, wanted = line.split("\t")
        [passage] = [part for part in parse(tagged, "xml") if isinstance(part, Passage)]
        [reference] = [part for part in parse(wanted, "xml") if isinstance(part, Passage)]
        ids, tokens = source.encode(passage.text), target.encode(reference.text)
        [forced] = force_decode(engine.scorer, [np.array(ids)], [tokens])
        pieces = list(map(source.surface, ids)), list(map(target.surface, tokens))
        weights = unit_weights(passage, reference.text, *pieces, forced.weights[: len(tokens), : len(ids)])
        found = elements(projected(passage, reference.text, weights))
        for name, words in elements(wanted).items():
            same, total = same + (words == found[name]), total + 1
            right, ours, theirs = right + len(words & found[name]), ours + len(found[name]), theirs + len(words)
            if words != found[name]:
                print(f"  {name} {projected(passage, reference.text, weights)}")
    return same, total, 2 * right / (ours + theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--gold", type=Path, default=Path(__file__).with_name("markup.tsv"))
    given = parser.parse_args()
    lines, random = read_lines(given.source)[: given.lines], Random(1)
    tagged = [with_tags(line, random) for line in lines]
    translator = load(given.model, options=TranslatorOptions(markup="xml", replicas=1))
    translations = [translation.text for translation in translator.translate(tagged)]
    plain = [translation.text for translation in translator.translate(list(map(escaped, lines)))]
    plain = ["".join(ElementTree.fromstring(f"<line>{line}</line>").itertext()) for line in plain]
    rows = [kept(*row) for row in zip(tagged, translations, plain, strict=True)]
    for i, name in enumerate(("all tags kept", "well-formed", "the plain translation")):
        print(f"{name}: {sum(row[i] for row in rows)} of {len(rows)}")
    assert isinstance(translator.engine, BuiltInEngine)
    same, total, f1 = judge(translator.engine, read_tagged(given.gold))
    print(f"elements equal to the manual ones: {same} of {total}; F1 of their words: {100 * f1:.1f}")


def read_tagged(path: Path) -> list[str]:
    return path.read_text().splitlines()


if __name__ == "__main__":
    main()
