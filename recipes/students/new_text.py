"""Make new text from parts of a training text, so that students can learn more from a teacher than from that text alone.

    new_text.py splice --input train.en --output spliced.en --count 120000
    new_text.py phrases --input train.en --output phrases.en
    new_text.py join --source phrases.en --target phrases.de --side source --output joined.en --count 150000

splice: "a man in a red shirt ." and "two dogs run in the snow ." both have "in", and give "a man in the snow .". Sentences are
split only at frequent words, and a new sentence is not longer than both of its originals.
phrases: sentences are split before frequent words into phrases such as "in a red shirt"; each different phrase once.
join: phrases (--side source) or their translations (--side target), several per line, so that the start of a line does
not reveal the rest.
Words are separated by spaces. The same text, count and seed give the same output.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmt.errors import InputError, UserError
from nmt.files import write_output
from nmt.text.corpus import misaligned, read_lines

Sentence = list[str]  # words

NUM_CUT_WORDS = 20  # the most frequent words of a text, at which it is split
MIN_PART_WORDS = 2
MAX_PHRASE_WORDS = 7
MAX_JOINED_PHRASES = 5  # phrases per line
DRAWS_PER_SENTENCE = 10  # maximum number of draws per new sentence


def frequent_words(sentences: list[Sentence]) -> set[str]:
    """The most frequent words of a text that contain a letter."""
    counts = Counter(word for words in sentences for word in words if any(map(str.isalpha, word)))
    return {word for word, _ in counts.most_common(NUM_CUT_WORDS)}


def spliced(sentences: list[Sentence], count: int, draws: random.Random) -> list[str]:
    """`count` new sentences, without duplicates or sentences of the text; fewer if random draws do not find that many."""
    shared, places = frequent_words(sentences), defaultdict[str, list[tuple[Sentence, int]]](list)
    for words in sentences:
        for place in range(MIN_PART_WORDS, len(words) - MIN_PART_WORDS):
            if words[place] in shared:
                places[words[place]].append((words, place))
    first_places = [place for of_word in places.values() for place in of_word]
    known, new = {" ".join(words) for words in sentences}, dict[str, None]()
    for _ in range(DRAWS_PER_SENTENCE * count if first_places else 0):
        (first, end) = draws.choice(first_places)
        second, start = draws.choice(places[first[end]])
        words = first[:end] + second[start:]
        if (sentence := " ".join(words)) not in known and len(words) <= max(len(first), len(second)):
            new[sentence] = None
        if len(new) == count:
            break
    return list(new)


def phrases(sentences: list[Sentence]) -> list[str]:
    """The different phrases of a text, the most frequent first."""
    shared, counts = frequent_words(sentences), Counter[str]()
    for words in sentences:
        cuts = [0]
        for place, word in enumerate(words):
            if word in shared and place - cuts[-1] >= MIN_PART_WORDS:
                cuts.append(place)
        for start, end in zip(cuts, [*cuts[1:], len(words)], strict=True):
            if MIN_PART_WORDS <= end - start <= MAX_PHRASE_WORDS:
                counts[" ".join(words[start:end])] += 1
    return [phrase for phrase, _ in counts.most_common()]


def is_usable(source: str, target: str) -> bool:
    """Whether the translation of a phrase has about its length, and at most one repeated word."""
    words = target.split()
    repeats = len(words) - len(set(words))
    return bool(words) and repeats < 2 and len(source) / 2 <= len(target) + 4 and len(target) <= 2 * len(source) + 6


def without_mark(source: str, target: str) -> str:
    """A translation without the punctuation that its model adds at the end of a sentence."""
    words = target.split()
    if words and not any(map(str.isalnum, words[-1])) and words[-1:] != source.split()[-1:]:
        words.pop()
    return " ".join(words)


def joined(pairs: list[tuple[str, str]], count: int, draws: random.Random) -> Iterator[tuple[str, str]]:
    """`count` lines of two phrases or more, and their translations."""
    for _ in range(count if pairs else 0):
        sources, targets = zip(*draws.choices(pairs, k=draws.randint(2, MAX_JOINED_PHRASES)), strict=True)
        yield " ".join(sources), " ".join(targets)


def new_lines(given: argparse.Namespace) -> Iterable[str]:
    """The lines that the command line asks for. Raises InputError if phrases and translations differ in number."""
    if given.part == "join":
        sources, targets = read_lines(given.source), read_lines(given.target)
        if len(sources) != len(targets):
            raise misaligned(given.source, given.target, len(sources), len(targets))
        pairs = [(source, without_mark(source, target)) for source, target in zip(sources, targets, strict=True)]
        lines = joined([pair for pair in pairs if is_usable(*pair)], given.count, random.Random(given.seed))
        return (line[given.side == "target"] for line in lines)
    sentences = [line.split() for line in read_lines(given.input)]
    if given.part == "splice":
        return spliced(sentences, given.count, random.Random(given.seed))
    return phrases(sentences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("splice", "phrases", "join"):
        part = parts.add_parser(name)
        for flag in ("--source", "--target") if name == "join" else ("--input",):
            part.add_argument(flag, type=Path, required=True)
        part.add_argument("--output", type=Path, required=True)
        if name == "join":
            part.add_argument("--side", choices=("source", "target"), required=True)
        if name != "phrases":
            part.add_argument("--count", type=int, required=True)
            part.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        lines = list(new_lines(given))
        if not lines:
            raise InputError("the text has no parts to join")
        write_output(given.output, "".join(f"{line}\n" for line in lines).encode())
    except UserError as error:
        print(f"new_text.py: error: {error}", file=sys.stderr)
        raise SystemExit(error.code) from None


if __name__ == "__main__":
    main()
