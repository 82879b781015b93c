"""Measure sentence splitters: precision and recall of the boundaries in paragraphs, and characters per second.

    python benchmarks/sentences.py [--data FOLDER] [--libraries FOLDER] [--half test|dev] [--errors]

A paragraph is eight consecutive lines, joined by spaces (without spaces in Chinese and Japanese). Each line of the list
`sentences.tsv` is one sentence; the rules were tuned on its odd lines in each language (`dev`), and the even ones (`test`)
were held out. From a corpus in FOLDER (newstest, Europarl, Tatoeba) only lines that end like sentences are used. A line can
contain several sentences: a boundary inside it counts as right if all splitters find it. One that only some find is doubtful
and counts only if `sentences-judged.tsv` decides it (corpus, number of non-space characters before it, `+` or `-`).
"""

import argparse
import gzip
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nmt.extensions.texts.sentences import sentences

HERE = Path(__file__).parent
LINES = 8  # lines per paragraph
CORPORA = {
    "newstest2012.en": ("newstest/newstest2012.en.gz", "en"),
    "newstest2012.de": ("newstest/newstest2012.de.gz", "de"),
    "newstest2012.fr": ("newstest/newstest2012.fr.gz", "fr"),
    "europarl.en": ("europarl/en-fr/heldout.en.gz", "en"),
    "europarl.fr": ("europarl/en-fr/heldout.fr.gz", "fr"),
    "tatoeba.en": ("tatoeba/en-de/test.en.gz", "en"),
    "tatoeba.de": ("tatoeba/en-de/test.de.gz", "de"),
    "tatoeba.fr": ("tatoeba/en-fr/test.fr.gz", "fr"),
}
Splitter = Callable[[str, str], list[str]]


class Paragraph(NamedTuple):
    text: str
    ends: set[int]  # of its lines: non-space characters before each end
    start: int  # non-space characters in earlier paragraphs


def own(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text, language)]


def splitters(libraries: Path | None) -> dict[str, Splitter]:
    """The splitters that can be imported, by name."""
    found: dict[str, Splitter] = {"nmt": own}
    if libraries is not None:
        sys.path.append(str(libraries))
    try:
        import sentencex

        found["sentencex"] = lambda text, language: list(sentencex.segment(language, text))
    except ImportError:
        pass
    try:
        import pysbd
        from pysbd.languages import LANGUAGE_CODES

        by_language = {code: pysbd.Segmenter(language=code, clean=False) for code in LANGUAGE_CODES}
        found["pysbd"] = lambda text, language: by_language.get(language, by_language["en"]).segment(text)
    except ImportError:
        pass
    try:
        from sentence_splitter import SentenceSplitter, SentenceSplitterException

        def moses(text: str, language: str) -> list[str]:
            try:
                return SentenceSplitter(language).split(text)
            except SentenceSplitterException:
                return SentenceSplitter("en").split(text)

        found["sentence-splitter"] = moses
    except ImportError:
        pass
    return found


def length(text: str) -> int:
    return len("".join(text.split()))


def paragraphs(lines: list[str], language: str) -> Iterator[Paragraph]:
    start = 0
    for first in range(0, len(lines), LINES):
        block = lines[first : first + LINES]
        ends, count = set(), 0
        for line in block:
            count += length(line)
            ends.add(count)
        yield Paragraph(("" if language in ("zh", "ja") else " ").join(block), ends - {count}, start)
        start += count


def boundaries(split: Splitter, paragraph: Paragraph, language: str) -> set[int]:
    ends, count = set(), 0
    for sentence in split(paragraph.text, language):
        count += length(sentence)
        ends.add(count)
    return ends - {0, length(paragraph.text)}


def context(text: str, place: int) -> str:
    """The text around a boundary, marked with a bar."""
    seen = 0
    for i, character in enumerate(text):
        seen += not character.isspace()
        if seen == place:
            return f"{text[max(0, i - 40) : i + 1]}|{text[i + 1 : i + 30]}"
    return ""


class Counts:
    """Numbers of boundaries: found and right, found, and right."""

    def __init__(self) -> None:
        self.hits = self.found = self.wanted = 0
        self.seconds, self.characters = 0.0, 0

    def __str__(self) -> str:
        precision, recall = self.hits / max(1, self.found), self.hits / max(1, self.wanted)
        return f"{100 * precision:6.1f} {100 * recall:6.1f} {200 * self.hits / max(1, self.found + self.wanted):6.1f}"


def judged() -> dict[str, dict[int, bool]]:
    """Which doubtful boundaries of each corpus are right."""
    places: dict[str, dict[int, bool]] = defaultdict(dict)
    path = HERE / "sentences-judged.tsv"
    for line in path.read_text().splitlines() if path.exists() else ():
        corpus, place, verdict = line.split("\t")
        places[corpus][int(place)] = verdict == "+"
    return places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the corpora (default: measure only the list)")
    parser.add_argument(
        "--libraries", type=Path, help="folder where sentencex, pysbd and sentence-splitter are installed"
    )
    parser.add_argument("--half", choices=("test", "dev"), default="test", help="half of the list to measure")
    parser.add_argument("--lines", type=int, default=1000, help="lines per corpus")
    parser.add_argument("--errors", nargs="?", const="nmt", help="show the wrong boundaries of a splitter")
    parser.add_argument("--doubts", action="store_true", help="show the doubtful boundaries without a judgement")
    args = parser.parse_args()
    systems, verdicts = splitters(args.libraries), judged()

    texts: dict[str, tuple[list[str], str]] = {}
    rows = [line.split("\t") for line in (HERE / "sentences.tsv").read_text().splitlines()]
    for language in dict.fromkeys(language for language, _ in rows):
        own_lines = [text for of, text in rows if of == language]
        texts[f"list.{language}"] = own_lines[args.half == "test" :: 2], language
    for name, (path, language) in CORPORA.items() if args.data is not None else ():
        with gzip.open(args.data / path, "rt", encoding="utf-8", newline="\n") as file:
            lines = [" ".join(line.split()) for line in file]
        texts[name] = (
            [line for line in lines if line.endswith((".", "?", "!", '."', ".”", ".“", ". »"))][: args.lines],
            language,
        )

    print(f"{'text':16} " + " ".join(f"{name:>20}" for name in systems))
    print(f"{'':16} " + " ".join(f"{'P      R     F1':>20}" for _ in systems))
    total = {name: Counts() for name in systems}
    for corpus, (lines, language) in texts.items():
        is_list = corpus.startswith("list.")
        counts = {name: Counts() for name in systems}
        for paragraph in paragraphs(lines, language):
            found = {}
            for name, split in systems.items():
                begin = time.perf_counter()
                found[name] = boundaries(split, paragraph, language)
                counts[name].seconds += time.perf_counter() - begin
                counts[name].characters += len(paragraph.text)
            inside = set().union(*found.values()) - paragraph.ends
            agreed = set() if is_list else inside.intersection(*found.values())
            verdict = {place: verdicts[corpus].get(place + paragraph.start) for place in inside - agreed}
            right = paragraph.ends | agreed | {place for place, is_right in verdict.items() if is_right}
            unknown = set() if is_list else {place for place, is_right in verdict.items() if is_right is None}
            for name, of_system in found.items():
                known = of_system - unknown
                counts[name].hits += len(known & right)
                counts[name].found += len(known)
                counts[name].wanted += len(right)
                if name == args.errors:
                    for place in sorted(known ^ right):
                        print(f"{corpus} {'cut ' if place in known else 'lost'} {context(paragraph.text, place)}")
            if args.doubts:
                for place in sorted(unknown):
                    finders = ",".join(name for name in systems if place in found[name])
                    print(f"{corpus}\t{place + paragraph.start}\t?\t{finders}\t{context(paragraph.text, place)}")
        print(f"{corpus:16} " + " ".join(f"{counts[name]!s:>20}" for name in systems))
        for name in systems:
            total[name].seconds += counts[name].seconds
            total[name].characters += counts[name].characters
    speeds = (f"{count.characters / count.seconds:,.0f}" for count in total.values())
    print(f"{'characters/s':16} " + " ".join(f"{speed:>20}" for speed in speeds))


if __name__ == "__main__":
    main()
