"""What can be wrong with a corpus: each check with its thresholds and advice, and what was found of it."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from nmt.errors import quoted

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")
SideName = Literal["source", "target", "pair"]
ALWAYS: Final = 0.0
NEVER: Final = math.inf
LEAST_OF: Final = 20  # a share of fewer proves nothing, so that it is only a note
LONGEST_EXAMPLE: Final = 70  # characters of a side that an example shows


@dataclass(frozen=True)
class Check:
    """Something that is looked for. told: how it is named to a person.

    warning, error: the share from which what is found is one; below it is a note
    """

    told: str
    warning: float
    error: float
    advice: str


# Beside each check, why its thresholds are what they are. Shares are of lines or pairs of a set unless said otherwise.
CHECKS: Final[dict[str, Check]] = {
    # One line more on one side shifts all that follow: never right, and nmt prepare refuses it.
    "line-counts": Check(
        "files of different length", ALWAYS, ALWAYS, "find where the files part; nothing after it is a translation"
    ),
    "no-lines": Check("no lines", ALWAYS, ALWAYS, "give a file that has lines"),
    # Lengths of translations go together (Gale and Church, 1993): 0.88 to 0.97 in Multi30k, Tatoeba,
    # newstest and Europarl, about 0 when the lines of one side are shifted or shuffled.
    "lengths-unrelated": Check(
        "lengths of both sides unrelated", ALWAYS, ALWAYS, "the lines are probably shifted: look at pairs far apart"
    ),
    # nmt prepare stops at the first such line unless it is told not to.
    "not-utf8": Check("not UTF-8", ALWAYS, ALWAYS, "convert the file (iconv), or nmt prepare --on-bad-line skip"),
    # A few are in every corpus and nmt prepare drops them; one in a thousand is a step that lost text of one side.
    "blank-one-side": Check(
        "blank on one side", 0.001, 0.1, "nmt prepare drops them; many mean that a cleaning step went over one side only"
    ),
    "blank-both-sides": Check("blank on both sides", 0.01, NEVER, "harmless: nmt prepare drops them"),
    # Common phrases repeat in speeches and subtitles; a tenth is text that was added twice.
    "duplicate-pairs": Check("pair that was there before", 0.1, NEVER, "nmt prepare --deduplicate"),
    # Paraphrases are wanted, and some corpora are made of them: told, not judged.
    "several-targets": Check(
        "source that was there with another target", NEVER, NEVER, "natural in corpora of short sentences"
    ),
    # Greetings and headings are in every corpus, so that a hundredth proves nothing; a tenth is leaked.
    "in-training": Check(
        "source sentence that is in the training data", 0.01, 0.1, "take them out of the training data: scores are flattered"
    ),
    # Longer than 256 tokens in any subwords, so that nmt prepare drops it; a hundredth are lines not cut into sentences.
    "long-line": Check("very long line", 0.01, NEVER, "nmt prepare --max-length drops them; or cut them into sentences"),
    "unlike-lengths": Check(
        "one side several times as long", 0.01, 0.1, "free translations, or misaligned; nmt prepare --max-ratio drops them"
    ),
    # Of the noise that Khayrallah and Koehn (2018) added, copies did most harm, and already 5 % of them did.
    "copy": Check("target is a copy of the source", 0.01, 0.05, "drop them: a model learns to copy"),
    # The guess errs in about 1 line of 1,000 (docs/doctor.md), so that only more than that is told as worse than a note.
    "swapped": Check("source and target swapped", 0.01, 0.3, "exchange the files, or --source-lang and --target-lang"),
    "wrong-language": Check("line in another language", 0.01, 0.3, "drop them, or look which file is there"),
    # Letters do not err; quotations and names of other scripts are rarely half of a line.
    "wrong-script": Check("line in another script", 0.001, 0.3, "drop them, or look which file is there"),
    "control-characters": Check(
        "control characters", 0.01, NEVER, "nmt reads them as spaces; look at what made the file"
    ),
    # Crawled text always has a few; from a hundredth on a model writes them.
    "markup": Check("HTML entities or tags", 0.01, NEVER, "unescape (python: html.unescape) and strip tags"),
    "mojibake": Check(
        "characters decoded wrongly", 0.001, 0.05, "text was decoded as Latin-1 or lost bytes: mend it at its origin"
    ),
    # Hours, units and numbers of which one is a word differ in 2 to 7 % of good pairs (newstest, Tatoeba, Multi30k); shares
    # are of pairs with digits on both sides.
    "numbers-differ": Check(
        "numbers that differ between the sides", 0.3, NEVER, "much of it means that lines do not translate each other"
    ),
    # Of tokens. Subwords are there so that nothing is unknown; a thousandth is a sentence in fifty with one.
    "unknown-tokens": Check(
        "tokens out of vocabulary", 0.001, 0.05, "--byte-fallback, or a --character-coverage nearer 1; or another vocabulary"
    ),
    # Below 2 with a vocabulary of the same text; at 2.5 it was learnt from other text. The share is over words.
    "pieces-a-word": Check("pieces, more than 2.5 a word", ALWAYS, NEVER, "a vocabulary of this text; or a larger one"),
    # A filter is there to drop some; a tenth is a part of the corpus that one should look at first.
    "dropped": Check("pairs that nmt prepare drops", 0.1, 0.9, "look at the examples; change the filter or the text"),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """Where it was found. place: FILE:LINE; text: what stands there."""

    place: str
    text: str


@dataclass
class Finding:
    """What was found of a check in a set. count, of: how many of how many; detail: which kind of it, "too long"."""

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
        if self.of < LEAST_OF and check.warning > ALWAYS:
            return "note"
        return "error" if self.share >= check.error else "warning" if self.share >= check.warning else "note"

    @property
    def told(self) -> str:
        return CHECKS[self.check].told + (f": {self.detail}" if self.detail else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "check": self.check,
            "detail": self.detail,
            "set": self.set,
            "side": self.side,
            "count": self.count,
            "of": self.of,
            "share": self.share,
            "told": self.told,
            "advice": CHECKS[self.check].advice,
            "examples": [vars(example) for example in self.examples],
        }


def worst(findings: list[Finding]) -> Severity | None:
    """The worst severity among findings; None when there are none."""
    return min((finding.severity for finding in findings), key=SEVERITIES.index, default=None)


def _cut(text: str) -> str:
    """The beginning of a text as a person may safely see it."""
    return quoted(text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…")


Key = tuple[str, SideName, str]  # check, side, detail


@dataclass
class FindingCounts:
    """Counts by check, side and detail, with the first few examples of each.

    of: what a share is taken of where that is not all pairs, by check and side; limit: examples kept of each
    """

    limit: int
    counts: Counter[Key] = field(default_factory=Counter)
    of: Counter[tuple[str, SideName]] = field(default_factory=Counter)
    examples: dict[Key, list[Example]] = field(default_factory=dict)

    def add(self, check: str, side: SideName, place: str, *texts: str, detail: str = "", times: int = 1) -> None:
        """Count one, or several at once. texts: what stands there, both sides of a pair."""
        key = check, side, detail
        self.counts[key] += times
        kept = self.examples.setdefault(key, [])
        if len(kept) < self.limit:
            kept.append(Example(place, " ||| ".join(map(_cut, texts))))

    def merge(self, later: "FindingCounts") -> None:
        """Add what was found after all that is here."""
        self.counts.update(later.counts)
        self.of.update(later.of)
        for key, examples in later.examples.items():
            kept = self.examples.setdefault(key, [])
            kept += examples[: self.limit - len(kept)]

    def findings(self, name: str, num_pairs: int) -> Iterator[Finding]:
        """What was found in the set `name`, in the order of CHECKS."""
        for check, side, detail in sorted(self.counts, key=lambda key: (list(CHECKS).index(key[0]), key[1:])):
            key = check, side, detail
            of = self.of.get((check, side), num_pairs)
            yield Finding(check, name, side, self.counts[key], of, detail, self.examples.get(key, []))
