"""The checks of `nmt doctor`, with their thresholds and advice, and the findings."""

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
MIN_SAMPLE: Final = 20  # with fewer lines, a share is not significant, so the finding is only a note
MAX_EXAMPLE_CHARACTERS: Final = 70  # per side


@dataclass(frozen=True)
class Check:
    """A kind of fault.

    title: short description
    warning, error: smallest share that makes a finding a warning or an error; with a smaller share it is a note
    advice: what to do about it
    detect: the detector, if the fault concerns a single pair
    clean: whether `nmt clean` removes such pairs by default; None if it has no rule for them
    """

    title: str
    warning: float
    error: float
    advice: str
    detect: Detector | None = None
    clean: bool | None = None


# The comment above each check gives the reason for its thresholds. Unless noted, a share refers to all lines or pairs of a set.
CHECKS: Final[dict[str, Check]] = {
    # A single extra line on one side shifts all lines after it, so nmt prepare refuses such files.
    "line-counts": Check(
        "files of different length", ALWAYS, ALWAYS, "find where the files diverge; the lines after that are not translations"
    ),
    "no-lines": Check("no lines", ALWAYS, ALWAYS, "name a file that is not empty"),
    # The correlation between the lengths of a sentence and its translation (Gale and Church, 1993) is 0.88 to 0.97 in Multi30k,
    # Tatoeba, newstest and Europarl, and about 0 if the lines of one side are shifted or shuffled.
    "lengths-unrelated": Check(
        "lengths of both sides unrelated", ALWAYS, ALWAYS, "the lines are probably shifted; look at pairs throughout the files"
    ),
    # By default, nmt prepare stops at the first such line.
    "not-utf8": Check(
        "not UTF-8", ALWAYS, ALWAYS, "convert the file with iconv, or use nmt prepare --on-bad-line skip", pairs.not_utf8, True
    ),
    "blank-both-sides": Check(
        "blank on both sides", 0.01, NEVER, "harmless, because nmt prepare drops them", pairs.blank_on_both_sides, True
    ),
    # Every corpus has a few such pairs, which nmt prepare drops. One in a thousand means that a step lost text on one side.
    "blank-one-side": Check(
        "blank on one side", 0.001, 0.1, "nmt prepare drops them; if there are many, probably only one side was cleaned",
        pairs.blank_on_one_side, True,
    ),
    "mojibake": Check(
        "wrongly decoded characters", 0.001, 0.05, "the text was decoded as Latin-1, or bytes were lost; convert it again",
        pairs.mojibake, True,
    ),
    "control-characters": Check(
        "control characters", 0.01, NEVER, "nmt reads them as spaces; check the program that wrote the file",
        pairs.control_characters, False,
    ),
    # Text in a single Unicode form is good training text even if that is not NFC. One line in a hundred may indicate mixed forms.
    "not-nfc": Check(
        "not in NFC", 0.01, NEVER, "nmt prepare converts the source to NFC; use --target-normalization nfc for the target",
        pairs.not_nfc,
    ),
    # Every corpus has such characters: special spaces, ellipses, superscripts. nmt prepare keeps those that carry meaning, and
    # leaves the target unchanged.
    "compatibility": Check(
        "characters that NFKC would replace", NEVER, NEVER, "normal; nmt prepare keeps their meaning", pairs.compatibility
    ),
    # Text from word processors and web pages has a few such characters. A model learns them if one line in a hundred has any.
    "invisible": Check(
        "invisible characters", 0.01, NEVER, "nmt prepare removes them only from the source; remove them from the target",
        pairs.invisible,
    ),
    # Crawled text always has a few tags or entities. A model learns to write them if one line in a hundred has any.
    "markup": Check(
        "HTML entities or tags", 0.01, NEVER, "unescape entities (Python: html.unescape) and strip tags", pairs.markup, True
    ),
    # Scripts are recognised with certainty. Quotations and names in other scripts rarely make up half of a line.
    "wrong-script": Check(
        "line in another script", 0.001, 0.3, "drop these lines or check that this is the right file", pairs.wrong_script, True
    ),
    # Of the kinds of noise that Khayrallah and Koehn (2018) added, copies did the most harm, even at a share of 5 %.
    "copy": Check(
        "target is a copy of the source", 0.01, 0.05, "drop these pairs, because the model would learn to copy", pairs.copy, True
    ),
    # The language guess is wrong for about 1 line in 1,000 (docs/measurements.md); up to ten times that share is only a note.
    "swapped": Check(
        "source and target swapped", 0.01, 0.3, "swap the files, or swap --source-lang and --target-lang",
        pairs.swapped, True,
    ),
    "wrong-language": Check(
        "line in another language", 0.01, 0.3, "drop these lines or check that this is the right file", pairs.wrong_language, True
    ),
    # A very long line has more than 256 tokens in any vocabulary, so nmt prepare drops it. One line in a hundred suggests that
    # the text is not split into sentences.
    "long-line": Check(
        "very long line", 0.01, NEVER, "split the lines into sentences, or let nmt prepare --max-length drop them",
        pairs.long_line, True,
    ),
    "unlike-lengths": Check(
        "one side several times as long", 0.01, 0.1, "free translation or misalignment; nmt prepare --max-ratio drops them",
        pairs.unlike_lengths, True,
    ),
    # Free translations and headings look truncated in up to 2 of 1,000 good pairs (docs/measurements.md).
    "truncated": Check(
        "one side is shorter and ends in mid-sentence", 0.01, NEVER, "find out what truncated the lines",
        pairs.truncated, True,
    ),
    # Times, units and number words make digits differ in 2 to 7 % of good pairs (newstest, Tatoeba, Multi30k). The share
    # counts only pairs with digits on both sides.
    "numbers-differ": Check(
        "numbers that differ between the sides", 0.3, NEVER, "a large share suggests that the lines are not translations",
        pairs.numbers_differ, False,
    ),
    # Common phrases recur in speeches and subtitles. If one pair in ten is repeated, text was probably added twice.
    "duplicate-pairs": Check("repeated pair", 0.1, NEVER, "use nmt prepare --deduplicate", clean=True),
    # Paraphrases are useful, and some corpora consist of them, so this is always a note.
    "several-targets": Check(
        "repeated source with a different target", NEVER, NEVER, "normal in corpora of short sentences"
    ),
    # Every corpus has greetings and headings, so a share below one in a hundred means nothing. One in ten is a data leak.
    "in-training": Check(
        "source sentence that is also in the training data", 0.01, 0.1, "remove them from the training data; they inflate scores"
    ),
    # With subwords, no token should be unknown. The share counts tokens: one in a thousand is about one per fifty sentences.
    "unknown-tokens": Check(
        "tokens out of vocabulary", 0.001, 0.05, "use --byte-fallback, a --character-coverage closer to 1, or another vocabulary"
    ),
    # The share is the number of tokens per word. It is below 2 with a vocabulary from the same text; 2.5 shows that the
    # vocabulary comes from other text.
    "tokens-per-word": Check(
        "more than 2.5 tokens per word", ALWAYS, NEVER, "use a vocabulary from this text, or a larger one"
    ),
    # The text pipeline alters the source by design. If it alters the target, translations cannot match the references exactly.
    "altered": Check("lines that the text pipeline alters", NEVER, NEVER, "see the Unicode forms in docs/reference/text.md"),
    # The filter drops some pairs of every corpus. One in ten is worth a look before training.
    "dropped": Check("pairs that nmt prepare drops", 0.1, 0.9, "look at the examples, then change the filter or the text"),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """An example of a finding. place: FILE:LINE; text: the text of the line"""

    place: str
    text: str


@dataclass
class Finding:
    """The lines of a set that fail one check.

    count: number of lines or pairs that have the fault
    of: number of lines or pairs that were examined
    detail: the kind of fault, such as "too long"
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
        """What to do, including the rule of `nmt clean` that removes such pairs."""
        check = CHECKS[self.check]
        flag = "" if check.clean else f" --drop {self.check}"
        return check.advice + ("" if check.clean is None else f"; `nmt clean{flag}` removes such pairs")

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            **vars(self),
            "share": self.share,
            "title": self.title,
            "advice": self.advice,
            "examples": [vars(example) for example in self.examples],
        }


def worst(findings: list[Finding]) -> Severity | None:
    """The worst severity among the findings; None if there are none."""
    return min((finding.severity for finding in findings), key=SEVERITIES.index, default=None)


def _shortened(text: str) -> str:
    """The start of a text, escaped."""
    return quoted(text if len(text) <= MAX_EXAMPLE_CHARACTERS else text[: MAX_EXAMPLE_CHARACTERS - 1] + "…")


Key = tuple[str, SideName, str]  # check, side, detail


@dataclass
class FindingCounts:
    """Counts of faults by check, side and detail, with the first examples of each.

    max_examples: maximum number of examples per count
    of: denominator of a share, by check and side; if missing, the number of all pairs
    """

    max_examples: int
    counts: Counter[Key] = field(default_factory=Counter)
    of: Counter[tuple[str, SideName]] = field(default_factory=Counter)
    examples: dict[Key, list[Example]] = field(default_factory=dict)

    def add(self, check: str, side: SideName, place: str, *texts: str, detail: str = "", times: int = 1) -> None:
        """Count a fault. texts: the line, or both sides of the pair; times: number of faults in the line or pair"""
        key = check, side, detail
        self.counts[key] += times
        kept = self.examples.setdefault(key, [])
        if len(kept) < self.max_examples:
            kept.append(Example(place, " ||| ".join(map(_shortened, texts))))

    def merge(self, later: "FindingCounts") -> None:
        """Add the counts of later pairs."""
        self.counts.update(later.counts)
        self.of.update(later.of)
        for key, examples in later.examples.items():
            kept = self.examples.setdefault(key, [])
            kept += examples[: self.max_examples - len(kept)]

    def findings(self, name: str, num_pairs: int) -> Iterator[Finding]:
        """The findings of the set `name`, one for each check, side and detail."""
        for key, count in sorted(self.counts.items()):
            check, side, detail = key
            of = self.of.get((check, side), num_pairs)
            yield Finding(check, name, side, count, of, detail, self.examples[key])
