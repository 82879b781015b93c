"""Translate any text: in sentences, with tags, by a glossary, and again what came out broken.

A text is a sequence of passages, which a model translates, and of what stands between them. `text_steps` says which
passages are to be translated next, until the text is done; so the lines of a stream, and the requests of a server, go
through a model together.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise, takewhile
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from nmt.extensions.texts.faults import faults
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.markup import Passage, escaped, has_letters, parse, placeholders
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.projection import Weights, projected, unit_weights
from nmt.extensions.texts.sentences import MAX_CHARACTERS, Span, clauses, sentences
from nmt.text.corpus import is_invisible, is_translatable
from nmt.text.languages import UNSPACED_LANGUAGES, base_language
from nmt.text.pipeline import Pipeline
from nmt.translate.requests import Request
from nmt.translate.results import BROKEN, CUT_TEXT, REPAIRED, Candidate, Translation

MAX_TEXT_CHARACTERS: Final = 1 << 20  # of a line that is translated in sentences
MIN_CLAUSE: Final = 20  # characters of a part of a sentence that is translated again in parts


@dataclass(frozen=True)
class TextSettings:
    """What is done to a text besides its translation.

    split: translate each sentence on its own
    markup: tags that the text has
    glossary: terms and their translations
    repair: translate again what came out broken
    """

    split: bool = False
    markup: MarkupName = "none"
    glossary: Glossary | None = None
    repair: bool = False

    @property
    def needs_attention(self) -> bool:
        return self.markup != "none"


class Round(NamedTuple):
    """What is to be translated next. is_repair: by the search for what came out broken"""

    requests: list[Request]
    is_repair: bool = False


Steps = Generator[Round, list[Translation], Translation]


def text_steps(request: Request, settings: TextSettings, pipeline: Pipeline) -> Steps:
    """Translate a text: yields rounds, is sent their translations, and returns that of the text."""
    if request.error:
        return Translation(error=request.error)
    is_cut = (settings.split or settings.markup != "none") and len(request.text) > MAX_TEXT_CHARACTERS
    if is_cut:
        request = replace(request, text=request.text[:MAX_TEXT_CHARACTERS])
    is_constrained = bool(request.prefix or request.phrases)
    layout = _layout(request.text, settings, settings.split and not is_constrained, pipeline)
    passages = [part for part in layout if isinstance(part, Passage)]
    if is_constrained and len(passages) > 1:
        return Translation(error="a prefix or phrases need a text of one block (divide it at its tags)")
    work = _TextJob(request, settings, pipeline)
    translations = iter((yield from work.translated(passages)))
    parts = [part if isinstance(part, str) else next(translations) for part in layout]
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], Translation) else _joined(parts)
    return _warned(whole, CUT_TEXT, f"cut to {MAX_TEXT_CHARACTERS:,} characters") if is_cut else whole


def _layout(text: str, settings: TextSettings, split: bool, pipeline: Pipeline) -> list[str | Passage]:
    """The passages of a text that are translated each, and what stands between them. split: whether each is a sentence"""
    layout: list[str | Passage] = []
    for part in parse(text, settings.markup):
        if isinstance(part, Passage) and (split or (settings.markup != "none" and len(part.text) > MAX_CHARACTERS)):
            layout += _pieces(part, settings.markup, pipeline)
        else:
            layout.append(part)
    return layout


def advance(
    text: Steps, answer: list[Translation] | None, waiting: dict[int, Round], number: int
) -> Translation | None:
    """Go on with a text: its translation if that is done, else None, and its next round is in `waiting`.

    answer: the translations of its last round; None at first
    number: of the text in `waiting`
    """
    try:
        waiting[number] = next(text) if answer is None else text.send(answer)
        return None
    except StopIteration as stop:
        done: Translation = stop.value
        return done


def next_rounds(waiting: dict[int, Round]) -> tuple[bool, dict[int, Round]]:
    """Take the rounds of texts that can be translated together: whether by the search for repairs, and each by its text."""
    is_repair = all(step.is_repair for step in waiting.values())
    numbers = [number for number, step in waiting.items() if step.is_repair == is_repair]
    return is_repair, {number: waiting.pop(number) for number in numbers}


class _PassageTranslation(NamedTuple):
    """A passage, perhaps without its placeholders, and its plain translation."""

    passage: Passage
    translation: Translation


Context = tuple[str, ...]
Search = Generator[Round, list[Translation], list[_PassageTranslation]]


class _TextJob:
    """The translation of the passages of a text.

    tags: user symbols at its beginning, such as the target language, which hold for all passages without any
    """

    def __init__(self, request: Request, settings: TextSettings, pipeline: Pipeline) -> None:
        self.request, self.settings, self.pipeline = request, settings, pipeline
        self.languages = pipeline.source_lang, pipeline.target_lang
        self.tags = ""

    def translated(self, passages: Sequence[Passage]) -> Generator[Round, list[Translation], list[Translation]]:
        """The translation of each passage, as it is written."""
        self.tags = self._leading_tags(passages[0].text) if passages else ""
        contexts = self._contexts(passages, self._earlier())
        found = yield from self._search(passages, contexts)
        written = list(map(self._written, found))
        if not self.settings.repair:
            return written
        broken = {i: signs for i, row in enumerate(found) if (signs := self._faults(row))}
        is_constrained = self.request.prefix or self.request.phrases
        layouts = {i: [passages[i]] if is_constrained else _halves(passages[i], self.pipeline) for i in broken}
        parts = {i: [part for part in layout if isinstance(part, Passage)] for i, layout in layouts.items()}
        of_parts = [context for i, own in parts.items() for context in self._contexts(own, contexts[i])]
        again = [part for own in parts.values() for part in own]
        others = iter((yield from self._search(again, of_parts, is_repair=True)))
        for i, signs in broken.items():
            own = [part if isinstance(part, str) else next(others) for part in layouts[i]]
            written[i] = self._repaired_or_first(passages[i], written[i], signs, own)
        return written

    def _repaired_or_first(
        self, passage: Passage, first: Translation, signs: dict[str, str], parts: Sequence[str | _PassageTranslation]
    ) -> Translation:
        """Choose the first or the repeated translation of a broken passage by the number of faults, and add a warning.

        first: the first translation, with its tags; signs: its faults
        parts: the parts that were translated again, and the text between them
        """
        plain = _joined([part if isinstance(part, str) else part.translation for part in parts])
        left = self._faults(_PassageTranslation(passage, plain))
        for part in parts:  # a joined translation has no attention
            left |= {} if isinstance(part, str) else self._faults(part)
        message = "; ".join(signs.values())
        if plain.error or len(left) >= len(signs):
            return _warned(first, BROKEN, f"its translation looks broken: {message}")
        better = _joined([part if isinstance(part, str) else self._written(part) for part in parts])
        return _warned(better, REPAIRED, f"translated again, since of the first translation {message}")

    def _earlier(self) -> Context:
        """The sentences before the text: of the lines of its context, as they would be translated."""
        if not self.pipeline.context:
            return self.request.context or ()
        sentences: list[str] = []
        for line in self.request.context or ():
            layout = _layout(line[:MAX_TEXT_CHARACTERS], self.settings, self.settings.split, self.pipeline)
            texts = [part.text for part in layout if isinstance(part, Passage) and not is_invisible(part.text)]
            tags = self._leading_tags(texts[0]) if texts else ""
            sentences += [self._tagged(text, tags) for text in texts]
        return tuple(sentences)

    def _contexts(self, passages: Sequence[Passage], earlier: Context) -> list[Context]:
        """The context of each passage. earlier: the sentences before the first"""
        size, sentences, contexts = self.pipeline.context, list(earlier), list[Context]()
        for passage in passages:
            contexts.append(tuple(sentences[-size:]))
            if size and not is_invisible(passage.text):
                sentences.append(self._tagged(passage.text, self.tags))
        return contexts

    def _search(self, passages: Sequence[Passage], contexts: Sequence[Context], is_repair: bool = False) -> Search:
        """The plain translation of each passage; where a placeholder got lost, of the passage without it."""
        found = yield from self._plain(passages, contexts, is_repair)
        if self.settings.markup == "none":
            return found
        hidden = {
            i: passage.without_placeholders()
            for i, (passage, answer) in enumerate(found)
            if answer.candidates and _loses(passage, answer.text)
        }
        others = yield from self._plain(list(hidden.values()), [contexts[i] for i in hidden], is_repair)
        for i, other in zip(hidden, others, strict=True):
            found[i] = other
        return found

    def _plain(self, passages: Sequence[Passage], contexts: Sequence[Context], is_repair: bool) -> Search:
        """The plain translation of each passage; between tags, one without words stays."""
        is_sent = [self.settings.markup == "none" or has_letters(passage.text) for passage in passages]
        requests = list(map(self._request, compress(passages, is_sent), compress(contexts, is_sent)))
        answers = iter((yield Round(requests, is_repair)) if requests else ())
        return [
            _PassageTranslation(passage, next(answers) if sent else _untranslated(passage))
            for passage, sent in zip(passages, is_sent, strict=True)
        ]

    def _request(self, passage: Passage, context: Context) -> Request:
        terms = self.settings.glossary.phrases(passage.text) if self.settings.glossary else ()
        phrases = tuple(dict.fromkeys((*self.request.phrases, *terms)))
        text = self._tagged(passage.text, self.tags)
        return replace(self.request, text=text, phrases=phrases, others={}, context=context)

    def _leading_tags(self, text: str) -> str:
        """The tags at the beginning of a raw text, with a space between them."""
        tags = self.pipeline.source.prepare.tags
        return " ".join(takewhile(tags.__contains__, text.split())) if tags else ""

    def _tagged(self, text: str, tags: str) -> str:
        """A text that begins with tags, unless it has tags of its own."""
        return " ".join(filter(None, (self._added_tags(text, tags), text)))

    def _added_tags(self, text: str, tags: str) -> str:
        return "" if self._leading_tags(text) else tags

    def _written(self, found: _PassageTranslation) -> Translation:
        """A translation with the tags of its passage."""
        passage, translation = found
        if self.settings.markup == "none":
            return translation
        candidates = []
        for candidate in translation.candidates:
            text = escaped(candidate.text)
            if passage.is_marked:
                text = projected(passage, candidate.text, self._unit_weights(passage, candidate))
            candidates.append(structs.replace(candidate, text=text, weights=[]))
        return structs.replace(translation, candidates=candidates)

    def _unit_weights(self, passage: Passage, candidate: Candidate) -> Weights:
        if not candidate.tokens:  # a copy of the text, or nothing
            same = np.eye(len(candidate.text), len(passage.text))
            return unit_weights(passage, candidate.text, list(passage.text), list(candidate.text), same)
        source, target = self.pipeline.source, self.pipeline.target
        source_pieces = list(map(source.surface, source.encode(passage.text)))
        target_pieces = list(map(target.surface, candidate.tokens))
        weights = np.array(candidate.weights).reshape(len(target_pieces), -1)
        weights = weights[:, len(source.encode(self._added_tags(passage.text, self.tags))) :]
        return unit_weights(passage, candidate.text, source_pieces[: weights.shape[1]], target_pieces, weights)

    def _faults(self, found: _PassageTranslation) -> dict[str, str]:
        """The signs that a translation is broken."""
        if not found.translation.candidates:
            return {}
        best = found.translation.candidates[0]
        weights = np.array(best.weights) if best.weights and self.settings.needs_attention else None
        return faults(found.passage.text, best.text, self.languages, weights)


def _pieces(passage: Passage, markup: MarkupName, pipeline: Pipeline) -> list[str | Passage]:
    """The sentences of a passage, with the white space around and between them. Between tags a line break is a space."""
    if not passage.text.strip():
        return [passage]
    text = passage.text if markup == "none" else passage.text.replace("\n", " ")
    return _between(passage, sentences(text, pipeline.source_lang), pipeline.target_lang)


def _between(passage: Passage, spans: Sequence[Span], language: str) -> list[str | Passage]:
    """The parts of a passage, with the white space around them. language: of the translation, which may need none between"""
    text, usual = passage.text, "" if base_language(language) in UNSPACED_LANGUAGES else " "
    between = [text[: spans[0][0]]]
    for (begin, end), (next_begin, _) in pairwise(spans):
        gap = text[end:next_begin]
        between.append(
            usual if gap in ("", " ") and is_translatable(text[begin:end]) else gap
        )  # that of a list mark stays
    layout: list[str | Passage] = []
    for gap, part in zip(between, passage.parts(spans), strict=True):
        layout += [gap, part]
    return [part for part in [*layout, passage.text[spans[-1][1] :]] if part]


def _halves(passage: Passage, pipeline: Pipeline) -> list[str | Passage]:
    """A passage in its sentences; one of a single sentence in clauses, if it is long enough."""
    spans = sentences(passage.text, pipeline.source_lang)
    if len(spans) == 1:
        spans = clauses(passage.text, *spans[0], MIN_CLAUSE)
    return _between(passage, spans, pipeline.target_lang) if len(spans) > 1 else [passage]


def _loses(passage: Passage, translation: str) -> bool:
    """Whether a translation lacks a placeholder of its source, or has one of them too often."""
    wanted = placeholders(passage.text)
    return bool(wanted) and wanted != placeholders(translation)


def _untranslated(passage: Passage) -> Translation:
    """A text without words, which stays."""
    return Translation([Candidate(passage.text.strip(), [], 0.0, 0.0)])


def _warned(translation: Translation, kind: str, message: str) -> Translation:
    return structs.replace(translation, warnings={**translation.warnings, kind: message})


def _joined(parts: Sequence[str | Translation]) -> Translation:
    """The translation of a text from those of its parts, and what stands between them.

    Candidate k is made of the k-th of each part, or its last. It has the log-probabilities and scores of all of them together.
    There is one at least, because what stands between the parts stays.
    """
    own = [part for part in parts if isinstance(part, Translation)]
    error = next((part.error for part in own if part.error), "")
    warnings = {kind: message for part in reversed(own) for kind, message in part.warnings.items()}
    if error:
        return Translation([], error, warnings)
    candidates = []
    for k in range(max([1, *(len(part.candidates) for part in own)])):
        rows = [part if isinstance(part, str) else part.candidate(k) for part in parts]
        chosen = [row for row in rows if isinstance(row, Candidate)]
        candidates.append(
            Candidate(
                "".join(row if isinstance(row, str) else row.text for row in rows),
                [token for row in chosen for token in row.tokens],
                math.fsum(row.log_prob for row in chosen),
                math.fsum(row.score for row in chosen),
            )
        )
    return Translation(candidates, "", warnings)
