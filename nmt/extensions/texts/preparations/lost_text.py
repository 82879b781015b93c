"""Reports lines that cannot be restored after tokenizing or truecasing: no translation can produce such lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nmt import register, registry
from nmt.errors import quoted
from nmt.extensions.texts.preparations.options import LostTextOptions
from nmt.extensions.texts.tokenizers.moses import MosesTokenizer, missing_rules
from nmt.log import log
from nmt.preparations.base import CountWords, Preparation
from nmt.text.pipeline import Pipeline, Side, TextPreparer

LINE: Final = "line"  # the word under which lines are counted
HARD_SPACE, ARROW = "\u00a0", "\u2192"  # in examples, the first replaces a space, and the second precedes each text
MAX_EXAMPLE: Final = 200  # maximum number of characters to show


@register("preparation", "lost-text", LostTextOptions)
class LostText(Preparation):
    """Counts the lines that cannot be restored after tokenizing and truecasing, and warns about them."""

    def change(self, pipeline: Pipeline, count_words: CountWords) -> Pipeline:
        """See Preparation. The pipeline stays unchanged."""
        for number, side in enumerate((pipeline.source, pipeline.target)):
            settings = side.settings
            if settings.tokenizer != "none":
                steps = {"--tokenizer": TextPreparer(replace(settings, truecase=False))}
                if settings.truecase and number == 1:  # the source's casing is never restored
                    steps["--truecase"] = TextPreparer(settings, side.prepare.truecaser)
                self._report(side, count_words({number: LostLines(steps)}))
        return pipeline

    def _report(self, side: Side, counts: Mapping[str, int]) -> None:
        """Warn about a side's lost lines. counts: counts of the words that LostLines returns"""
        language, name = side.settings.language, side.settings.tokenizer
        tokenizer = registry.find("tokenizer", name).cls(language)
        if isinstance(tokenizer, MosesTokenizer) and (missing := missing_rules(language)):
            log.warn(f"--tokenizer {name}: {missing} (drop --tokenizer, which subwords do not need)")
        can_reverse = not side.settings.reversible and tokenizer.reversible() is not tokenizer
        ways = {
            "--tokenizer": "drop --no-reversible" if can_reverse else "drop --tokenizer",
            "--truecase": "sentences get an initial capital; drop --truecase to avoid that",
        }
        if (vocabulary := self.options.vocabulary) is not None:
            ways = dict.fromkeys(ways, f"because {quoted(vocabulary)} processes text this way")
        for option, way in ways.items():
            if count := counts.get(option, 0):
                share = f"{count:,} of {counts[LINE]:,} lines ({count / counts[LINE]:.1%}) of language {language}"
                shown = next(word for word in counts if word.startswith(option + ARROW))
                text, given = map(quoted, shown.replace(HARD_SPACE, " ").split(ARROW)[1:])
                log.warn(f"{option}: {share} cannot be restored exactly: '{text}' becomes '{given}' ({way})")


@dataclass(frozen=True)
class LostLines:
    """Maps each text to words to count: LINE, the first option that alters the text (if any), and an example of such a text.

    steps: the text steps up to each option
    """

    steps: Mapping[str, TextPreparer]

    def __call__(self, texts: Sequence[str]) -> list[str]:
        words = [LINE] * len(texts)
        for option, prepare in self.steps.items():
            given = map(_with_single_spaces, map(prepare.undo, prepare(texts)))
            wanted = map(prepare.as_written, prepare.normalize(texts))
            pairs = zip(map(_with_single_spaces, wanted), given, strict=True)
            lost = [(i, *pair) for i, pair in enumerate(pairs) if pair[0] != pair[1] and words[i] == LINE]
            for i, *pair in lost:
                words[i] += f" {option}"
                if i == lost[0][0]:
                    shown = (text[:MAX_EXAMPLE].replace(" ", HARD_SPACE).replace(ARROW, "") for text in pair)
                    words[i] += f" {option}{ARROW}{ARROW.join(shown)}"
        return words


def _with_single_spaces(text: str) -> str:
    return " ".join(filter(None, text.split(" ")))
