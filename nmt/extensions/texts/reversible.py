"""Makes a tokenizer reversible: its tokens are changed only where they would not restore the text."""

import re
from itertools import groupby
from typing import Final

from nmt.tokenizers.base import Tokenizer

SPACE_TOKEN: Final = "\u2423"  # ␣: represents a space that detokenising would drop
ENDING_MARKS: Final = re.compile(r"(.*?[^.,;:!?…])([.,;:!?…]+)")


class Reversible(Tokenizer):
    """A reversible version of a tokenizer, which keeps times, tags and addresses whole and adds SPACE_TOKEN if necessary.

    Lines that the original tokenizer can restore get exactly its tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.language)
        self._tokenizer = tokenizer

    def tokenize(self, text: str) -> str:
        tokens = self._tokenizer.tokenize(text)
        words = [word for word in text.split(" ") if word]
        wanted = " ".join(words)
        if self.detokenize(tokens) == wanted:
            return tokens
        return self._corrected(words, wanted, _tokens_of_words(words, tokens.split(" ")))

    def detokenize(self, text: str) -> str:
        parts = text.split(f" {SPACE_TOKEN} ")
        return " ".join(self._tokenizer.detokenize(part) if " " in part else part for part in parts)

    def _corrected(self, words: list[str], wanted: str, rows: list[list[str]]) -> str:
        """Change the tokens at the first difference from the wanted text, and repeat this until there is no difference.

        rows: tokens of each word
        """
        spaces = [False] * len(words)  # whether there is a SPACE_TOKEN before each word
        while True:
            marked = ([SPACE_TOKEN] * is_space + row for is_space, row in zip(spaces, rows, strict=True))
            tokens = " ".join(token for row in marked for token in row)
            given = self.detokenize(tokens)
            if given == wanted:
                return tokens
            differences = (i for i, (one, other) in enumerate(zip(given, wanted, strict=False)) if one != other)
            place = next(differences, min(len(given), len(wanted)))
            word = wanted.count(" ", 0, place)
            around = [i for i in (word, word + 1) if 0 < i < len(words)]
            if wanted[place : place + 1] == " " and not spaces[word + 1]:
                spaces[word + 1] = True
            elif rows[word] != [words[word]]:
                rows[word] = without_marks if rows[word] != (without_marks := _cut(words[word])) else [words[word]]
            elif not all(spaces[i] for i in around):
                for i in around:
                    spaces[i] = True
            else:
                return f" {SPACE_TOKEN} ".join(words)


def _cut(word: str) -> list[str]:
    """Split a word from its final punctuation, and different marks from each other."""
    cut = ENDING_MARKS.fullmatch(word)
    return [cut[1], *("".join(marks) for _, marks in groupby(cut[2]))] if cut else [word]


def _tokens_of_words(words: list[str], tokens: list[str]) -> list[list[str]]:
    """The tokens of each word; the word itself if its tokens do not spell it out."""
    rows, left = [], iter(tokens)
    for word in words:
        row, visible, length = [], "".join(word.split()), 0
        while length < len(visible):
            row.append(next(left, visible))
            length += len(row[-1])
        rows.append(row if "".join(row) == visible else [word])
    return rows
