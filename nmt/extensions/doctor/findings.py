"""The checks of `nmt doctor` with their thresholds and advice, and the findings."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from nmt.errors import quoted
from nmt.extensions.doctor import pairs
from nmt.extensions.doctor.pairs import Detector

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")
SideName = Literal["source", "target", "pair"]
ALWAYS: Final = 0.0
NEVER: Final = math.inf
MIN_SAMPLE: Final = 20  # a share of fewer lines proves nothing, so that the finding is only a note
MAX_EXAMPLE_CHARACTERS: Final = 70  # of each side


@dataclass(frozen=True)
class Check:
    """A kind of fault.

    title: its name for people
    warning, error: the share from which a finding is a warning or an error; below it is a note
    advice: what to do
    detect: for a fault of a single pair, the detector
    clean: whether `nmt clean` removes such pairs by default; None if it has no such rule
    """

    title: str
    warning: float
    error: float
    advice: str
    detect: Detector | None = None
    clean: bool | None = None


# Above each check, the reason for its thresholds. Shares are of the lines or pairs of a set, except where noted.
CHECKS: Final[dict[str, Check]] = {
    # One line more on one side shifts all lines after it; nmt prepare refuses such files.
    "line-counts": Check(
        "files of different length", ALWAYS, ALWAYS, "find where the files part; nothing after it is a translation"
    ),
    "no-lines": Check("no lines", ALWAYS, ALWAYS, "give a file that has lines"),
    # Lengths of translations go together (Gale and Church, 1993): 0.88 to 0.97 in Multi30k, Tatoeba,
    # newstest and Europarl, about 0 when the lines of one side are shifted or shuffled.
    "lengths-unrelated": Check(
        "lengths of both sides unrelated", ALWAYS, ALWAYS, "the lines are probably shifted: look at pairs far apart"
    ),
    # nmt prepare stops at the first such line by default.
    "not-utf8": Check(
        "not UTF-8", ALWAYS, ALWAYS, "convert the file (iconv), or nmt prepare --on-bad-line skip", pairs.not_utf8, True
    ),
    "blank-both-sides": Check(
        "blank on both sides", 0.01, NEVER, "harmless: nmt prepare drops them", pairs.blank_on_both_sides, True
    ),
    # Every corpus has a few, which nmt prepare drops; one in a thousand comes from a step that lost text of one side.
    "blank-one-side": Check(
        "blank on one side", 0.001, 0.1, "nmt prepare drops them; many mean that a cleaning step went over one side only",
        pairs.blank_on_one_side, True,
    ),
    "mojibake": Check(
        "characters decoded wrongly", 0.001, 0.05, "text was decoded as Latin-1 or lost bytes: fix it at its origin",
        pairs.mojibake, True,
    ),
    "control-characters": Check(
        "control characters", 0.01, NEVER, "nmt reads them as spaces; look at what made the file",
        pairs.control_characters, False,
    ),
    # A text of one form is good training text, also where that is not NFC; a hundredth may be one that mixes forms.
    "not-nfc": Check(
        "not in NFC", 0.01, NEVER, "nmt prepare reads the source in NFC; --target-normalization nfc gives the target one form",
        pairs.not_nfc,
    ),
    # Every corpus has some: spaces, ellipses, superscripts. nmt prepare keeps what has a meaning, and the target as it is.
    "compatibility": Check(
        "characters that NFKC would replace", NEVER, NEVER, "natural: nmt prepare keeps their meaning", pairs.compatibility
    ),
    # Text from word processors and web pages has some; from a hundredth on a model learns to write them.
    "invisible": Check(
        "invisible characters", 0.01, NEVER, "nmt prepare leaves them out of the source only: remove them from the target",
        pairs.invisible,
    ),
    # Crawled text always has a few; from a hundredth on a model learns to write them.
    "markup": Check(
        "HTML entities or tags", 0.01, NEVER, "unescape (python: html.unescape) and strip tags", pairs.markup, True
    ),
    # Scripts are certain; quotations and names in other scripts are rarely half of a line.
    "wrong-script": Check(
        "line in another script", 0.001, 0.3, "drop them, or check that the right file is given", pairs.wrong_script, True
    ),
    # Of the kinds of noise that Khayrallah and Koehn (2018) added, copies did most harm, from 5 % on.
    "copy": Check(
        "target is a copy of the source", 0.01, 0.05, "drop them: a model learns to copy", pairs.copy, True
    ),
    # The guess is wrong for about 1 line of 1,000 (docs/measurements.md), so that fewer than ten times as many are a note.
    "swapped": Check(
        "source and target swapped", 0.01, 0.3, "exchange the files, or --source-lang and --target-lang",
        pairs.swapped, True,
    ),
    "wrong-language": Check(
        "line in another language", 0.01, 0.3, "drop them, or check that the right file is given", pairs.wrong_language, True
    ),
    # Such a line has more than 256 tokens in any subwords, so that nmt prepare drops it; a hundredth means that lines are
    # not cut into sentences.
    "long-line": Check(
        "very long line", 0.01, NEVER, "nmt prepare --max-length drops them; or cut them into sentences",
        pairs.long_line, True,
    ),
    "unlike-lengths": Check(
        "one side several times as long", 0.01, 0.1, "free translations, or misaligned; nmt prepare --max-ratio drops them",
        pairs.unlike_lengths, True,
    ),
    # Free translations and headings look so in up to 2 of 1,000 good pairs (docs/measurements.md).
    "truncated": Check(
        "one side ends within a sentence, and is shorter", 0.01, NEVER, "look at what truncated the lines",
        pairs.truncated, True,
    ),
    # Hours, units and number words of one side differ in 2 to 7 % of good pairs (newstest, Tatoeba, Multi30k). The share
    # is of pairs with digits on both sides.
    "numbers-differ": Check(
        "numbers that differ between the sides", 0.3, NEVER, "much of it means that lines do not translate each other",
        pairs.numbers_differ, False,
    ),
    # Common phrases repeat in speeches and subtitles; a tenth means that text was added twice.
    "duplicate-pairs": Check("repeated pair", 0.1, NEVER, "nmt prepare --deduplicate", clean=True),
    # Paraphrases are useful, and some corpora consist of them: always a note.
    "several-targets": Check(
        "source that was there with another target", NEVER, NEVER, "natural in corpora of short sentences"
    ),
    # Every corpus has greetings and headings, so that a hundredth proves nothing; a tenth means a leak.
    "in-training": Check(
        "source sentence that is in the training data", 0.01, 0.1, "take them out of the training data: scores are flattered"
    ),
    # Subwords leave nothing unknown; a thousandth is one unknown token in fifty sentences. The share is of tokens.
    "unknown-tokens": Check(
        "tokens out of vocabulary", 0.001, 0.05, "--byte-fallback, or a --character-coverage nearer 1; or another vocabulary"
    ),
    # Below 2 with a vocabulary of the same text; 2.5 shows one of other text. The share is tokens by words.
    "pieces-a-word": Check("pieces, more than 2.5 a word", ALWAYS, NEVER, "a vocabulary of this text; or a larger one"),
    # What the text pipeline alters in the source is by design; in the target it keeps references from coming back.
    "altered": Check("lines that the text steps alter", NEVER, NEVER, "see the Unicode forms in docs/reference/text.md"),
    # A filter drops some pairs of every corpus; a tenth is a part of the corpus to look at before training.
    "dropped": Check("pairs that nmt prepare drops", 0.1, 0.9, "look at the examples; change the filter or the text"),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A line of a finding. place: FILE:LINE; text: of the line"""

    place: str
    text: str


@dataclass
class Finding:
    """The lines of a set with the fault of a check.

    count, of: number of lines or pairs with the fault, and of those examined for it
    detail: the kind of the fault: "too long"
    """

    check: str
    set: str
    side: SideName
    count: int
    of: int
    detail: str = ""
    examples: list[Example] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def severity(self) -> Severity:
        check = CHECKS[self.check]
        if self.of < MIN_SAMPLE and check.warning > ALWAYS:
            return "note"
        return "error" if self.share >= check.error else "warning" if self.share >= check.warning else "note"

    @property
    def title(self) -> str:
        return CHECKS[self.check].title + (f": {self.detail}" if self.detail else "")

    @property
    def advice(self) -> str:
        """What to do, with the rule of `nmt clean` that removes such pairs."""
        check = CHECKS[self.check]
        flag = "" if check.clean else f" --drop {self.check}"
        return check.advice + ("" if check.clean is None else f"; `nmt clean{flag}` removes such pairs")

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            **vars(self),
            "share": self.share,
            "told": self.title,
            "advice": self.advice,
            "examples": [vars(example) for example in self.examples],
        }


def worst(findings: list[Finding]) -> Severity | None:
    """The worst severity among findings; None for no finding."""
    return min((finding.severity for finding in findings), key=SEVERITIES.index, default=None)


def _cut(text: str) -> str:
    """The beginning of a text, escaped."""
    return quoted(text if len(text) <= MAX_EXAMPLE_CHARACTERS else text[: MAX_EXAMPLE_CHARACTERS - 1] + "…")


Key = tuple[str, SideName, str]  # check, side, detail


@dataclass
class FindingCounts:
    """Counts of faults by check, side and detail, with the first examples of each.

    max_examples: examples kept of each
    of: number of lines or pairs that a share is taken of, by check and side; without an entry it is of all pairs
    """

    max_examples: int
    counts: Counter[Key] = field(default_factory=Counter)
    of: Counter[tuple[str, SideName]] = field(default_factory=Counter)
    examples: dict[Key, list[Example]] = field(default_factory=dict)

    def add(self, check: str, side: SideName, place: str, *texts: str, detail: str = "", times: int = 1) -> None:
        """Count a fault. texts: of the line, or of both sides of a pair; times: number of faults in it"""
        key = check, side, detail
        self.counts[key] += times
        kept = self.examples.setdefault(key, [])
        if len(kept) < self.max_examples:
            kept.append(Example(place, " ||| ".join(map(_cut, texts))))

    def merge(self, later: "FindingCounts") -> None:
        """Add the counts of later pairs."""
        self.counts.update(later.counts)
        self.of.update(later.of)
        for key, examples in later.examples.items():
            kept = self.examples.setdefault(key, [])
            kept += examples[: self.max_examples - len(kept)]

    def findings(self, name: str, num_pairs: int) -> Iterator[Finding]:
        """The findings of the set `name`; those of a check by side and detail."""
        for key, count in sorted(self.counts.items()):
            check, side, detail = key
            of = self.of.get((check, side), num_pairs)
            yield Finding(check, name, side, count, of, detail, self.examples[key])
