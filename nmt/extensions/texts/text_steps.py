"""Translates any text: handles several sentences, tags and glossaries, and repairs failed translations.

A text is a sequence of passages, which a model translates, and the text between them. `text_steps` yields the passages to
translate next until the text is done. This way, the lines of a stream, or the requests to a server, share batches.
"""

import math
import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from nmt.errors import quoted
from nmt.extensions.texts.branches import written_out
from nmt.extensions.texts.faults import faults
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.losses import kept_in, ways_to_ask
from nmt.extensions.texts.markup import parse, plain_passage
from nmt.extensions.texts.messages import doubles_apostrophes
from nmt.extensions.texts.passages import Kept, Passage, escaped
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.projection import Weights, projected, source_units, unit_weights, units
from nmt.extensions.texts.sentences import MAX_CHARACTERS, Span, clauses, sentences
from nmt.extensions.texts.unseen import with_unseen_signs
from nmt.text.corpus import is_invisible, is_translatable
from nmt.text.languages import UNSPACED_LANGUAGES, base_language
from nmt.text.pipeline import Pipeline
from nmt.translate.requests import Request
from nmt.translate.results import BROKEN, REPAIRED, TRUNCATED_TEXT, UNCHANGED, Candidate, Translation

MAX_TEXT_CHARACTERS: Final = 1 << 20  # limit for lines that are split into sentences or have markup
BETWEEN_BREAKS: Final = re.compile(r"[^\t\v\f\x1c-\x1e\x85\u2028\u2029]+")  # text between breaks that are not line ends
DIAGONAL: Final = 10.0  # decay of weights with distance if there is no attention
MIN_CLAUSE: Final = 20  # minimum number of characters per part if a sentence is retried in parts


@dataclass(frozen=True)
class TextSettings:
    """What to do with a text in addition to translating it.

    split: translate each sentence separately
    markup: kind of tags in the text
    glossary: terms with their translations
    repair: retry failed translations
    check: check for lost placeholders and sentences; texts with tags, or split into sentences, are always checked
    """

    split: bool = False
    markup: MarkupName = "none"
    glossary: Glossary | None = None
    repair: bool = False
    check: bool = False

    @property
    def needs_attention(self) -> bool:
        return self.markup != "none"

    @property
    def write(self) -> Callable[[str], str]:
        """The function that formats text between tags."""
        return escaped if self.markup != "none" else str

    @property
    def checks(self) -> bool:
        return self.check or self.split or self.markup != "none"


class Round(NamedTuple):
    """The requests to translate next. is_repair: whether to use the search that retries failed translations"""

    requests: list[Request]
    is_repair: bool = False


Steps = Generator[Round, list[Translation], Translation]


def text_steps(request: Request, settings: TextSettings, pipeline: Pipeline) -> Steps:
    """Translate a text: yield rounds, receive their translations through `send`, and return the text's translation."""
    if request.error:
        return Translation(error=request.error)
    if settings.checks and doubles_apostrophes(request.text):
        single = replace(request, text=request.text.replace("''", "'"))
        found = yield from text_steps(single, settings, pipeline)
        doubled = [structs.replace(row, text=row.text.replace("'", "''")) for row in found.candidates]
        return structs.replace(found, candidates=doubled)
    is_cut = (settings.split or settings.markup != "none") and len(request.text) > MAX_TEXT_CHARACTERS
    if is_cut:
        request = replace(request, text=request.text[:MAX_TEXT_CHARACTERS])
    is_constrained = bool(request.prefix or request.phrases)
    layout = _layout(request.text, settings, settings.split and not is_constrained, pipeline)
    passages = [part for part in layout if isinstance(part, Passage)]
    if is_constrained and len(passages) > 1:
        return Translation(error="a text with a prefix or phrases must be a single block (split it at its tags)")
    work = _TextJob(request, settings, pipeline)
    translations = iter((yield from work.translated(passages)))
    parts = [part if isinstance(part, str) else next(translations) for part in layout]
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], Translation) else _joined(parts)
    return _warned(whole, TRUNCATED_TEXT, f"truncated to {MAX_TEXT_CHARACTERS:,} characters") if is_cut else whole


def _layout(text: str, settings: TextSettings, split: bool, pipeline: Pipeline) -> list[str | Passage]:
    """Divide a text into passages and the text between them. split: whether passages are single sentences"""
    markup = settings.markup
    if not settings.checks:
        return parse(text, markup)
    if markup == "none":
        passage, tags = plain_passage(text), pipeline.source.prepare.tags
        parts: list[str | Passage] = [replace(passage, kept=tuple(k for k in passage.kept if k.raw not in tags))]
    else:
        parts = parse(text, markup)
    layout: list[str | Passage] = []
    for part in parts:
        if isinstance(part, str):
            layout.append(part)
            continue
        has_message = any(item.kind == "message" for item in part.kept)
        is_long = markup != "none" and len(part.text) > MAX_CHARACTERS
        for piece in _pieces(part, markup, pipeline, split or is_long or has_message):
            for own in written_out(piece, markup) if isinstance(piece, Passage) and has_message else [piece]:
                if markup != "none" and isinstance(own, Passage) and len(own.text) > MAX_CHARACTERS:
                    layout += _pieces(own, markup, pipeline, True)
                else:
                    layout.append(own)
    side = pipeline.source
    return [with_unseen_signs(part, side, settings.write) if isinstance(part, Passage) else part for part in layout]


def text_sentences(text: str, pipeline: Pipeline) -> list[str | Passage]:
    """Split a text without markup into its sentences, unchanged, and the white space between their translations."""
    return _pieces(plain_passage(text), "none", pipeline, split=True) if text.strip() else [text]


def leading_tags(text: str, pipeline: Pipeline) -> str:
    """The tags at the start of a raw text, such as the target language, separated by spaces."""
    tags = pipeline.source.prepare.tags
    return " ".join(takewhile(tags.__contains__, text.replace("<<", "<< ").split())) if tags else ""


def advance(
    text: Steps, answer: list[Translation] | None, waiting: dict[int, Round], number: int
) -> Translation | None:
    """Continue a text. Returns its translation if it is done; otherwise returns None and adds the next round to `waiting`.

    answer: translations of the text's last round; None for the first call
    number: index of the text in `waiting`
    """
    try:
        waiting[number] = next(text) if answer is None else text.send(answer)
        return None
    except StopIteration as stop:
        done: Translation = stop.value
        return done


def next_rounds(waiting: dict[int, Round]) -> tuple[bool, dict[int, Round]]:
    """Take the rounds that can be translated together. Returns whether they are repairs, and the rounds by index of the text."""
    is_repair = all(step.is_repair for step in waiting.values())
    numbers = [number for number, step in waiting.items() if step.is_repair == is_repair]
    return is_repair, {number: waiting.pop(number) for number in numbers}


class _PassageTranslation(NamedTuple):
    """A passage in the form given to the model, with its plain translation.

    problem: why the passage stays unchanged; empty if it was translated or has no words
    """

    passage: Passage
    translation: Translation | None
    problem: str = ""


Context = tuple[str, ...]
Search = Generator[Round, list[Translation], list[_PassageTranslation]]


class _TextJob:
    """Translates the passages of a text.

    tags: user symbols at the start of the text, such as the target language; used for passages without tags of their own
    """

    def __init__(self, request: Request, settings: TextSettings, pipeline: Pipeline) -> None:
        self.request, self.settings, self.pipeline = request, settings, pipeline
        self.languages = pipeline.source_lang, pipeline.target_lang
        self.is_spaced = base_language(pipeline.target_lang) not in UNSPACED_LANGUAGES
        self.tags = ""

    def translated(self, passages: Sequence[Passage]) -> Generator[Round, list[Translation], list[Translation]]:
        """Translate the passages, and return their translations with tags and placeholders."""
        self.tags = leading_tags(passages[0].text, self.pipeline) if passages else ""
        contexts = self._contexts(passages, self._earlier())
        found = yield from self._search(passages, contexts)
        written = list(map(self._written, found))
        short = {i for i, row in enumerate(found) if self._lacks_sentences(passages[i], row.translation)}
        for i, parts in (yield from self._in_parts(passages, short, contexts)).items():
            if self._num_sentences(_plain(parts)) > self._num_sentences(found[i].translation):
                written[i] = self._written_parts(parts)
                found[i] = _PassageTranslation(passages[i], _plain(parts))
        if not self.settings.repair:
            return written
        broken = {i: signs for i, row in enumerate(found) if (signs := self._faults(row))}
        for i, parts in (yield from self._in_parts(passages, broken, contexts, is_repair=True)).items():
            written[i] = self._repaired_or_first(passages[i], written[i], broken[i], parts)
        return written

    def _in_parts(
        self,
        passages: Sequence[Passage],
        numbers: Collection[int],
        contexts: Sequence[Context],
        is_repair: bool = False,
    ) -> Generator[Round, list[Translation], dict[int, list[str | _PassageTranslation]]]:
        """Split some passages into parts, translate each part separately, and return the results with the text between them."""
        is_constrained = self.request.prefix or self.request.phrases
        layouts = {i: [passages[i]] if is_constrained else _halves(passages[i], self.pipeline) for i in numbers}
        parts = {i: [part for part in layout if isinstance(part, Passage)] for i, layout in layouts.items()}
        part_contexts = [context for i, own in parts.items() for context in self._contexts(own, contexts[i])]
        again = [part for own in parts.values() for part in own]
        others = iter((yield from self._search(again, part_contexts, is_repair)))
        return {
            i: [part if isinstance(part, str) else next(others) for part in layout] for i, layout in layouts.items()
        }

    def _lacks_sentences(self, passage: Passage, translation: Translation | None) -> bool:
        """Whether a translation has fewer sentences than its passage."""
        if not self.settings.checks or self.request.prefix or self.request.phrases or not translation:
            return False
        wanted = len(sentences(passage.masked(), self.languages[0]))
        return wanted > 1 and bool(translation.text) and wanted > self._num_sentences(translation)

    def _num_sentences(self, translation: Translation | None) -> int:
        return len(sentences(plain_passage(translation.text).masked(), self.languages[1])) if translation else 0

    def _repaired_or_first(
        self, passage: Passage, first: Translation, signs: dict[str, str], parts: Sequence[str | _PassageTranslation]
    ) -> Translation:
        """Choose between the first translation of a passage and the retry, by the number of faults, and add a warning.

        first: the first translation, with its tags
        signs: faults of the first translation
        parts: the retried parts, and the text between them
        """
        plain = _plain(parts)
        left = self._faults(_PassageTranslation(passage, plain))
        for part in parts:  # checked one by one, because a joined translation has no attention
            left |= {} if isinstance(part, str) else self._faults(part)
        message = "; ".join(signs.values())
        if plain.error or len(left) >= len(signs):
            return _warned(first, BROKEN, f"the translation looks wrong: {message}")
        return _warned(
            self._written_parts(parts), REPAIRED, f"retried, because the first translation failed: {message}"
        )

    def _earlier(self) -> Context:
        """The sentences before the text: its context lines, split as they would be for translation."""
        if not self.pipeline.context:
            return self.request.context or ()
        sentences: list[str] = []
        for line in self.request.context or ():
            layout = _layout(line[:MAX_TEXT_CHARACTERS], self.settings, self.settings.split, self.pipeline)
            texts = [part.text for part in layout if isinstance(part, Passage) and not is_invisible(part.text)]
            tags = leading_tags(texts[0], self.pipeline) if texts else ""
            sentences += [self._tagged(text, tags) for text in texts]
        return tuple(sentences)

    def _contexts(self, passages: Sequence[Passage], earlier: Context) -> list[Context]:
        """The context of each passage. earlier: sentences before the first passage"""
        size, sentences, contexts = self.pipeline.context, list(earlier), list[Context]()
        for passage in passages:
            contexts.append(tuple(sentences[-size:]))
            if size and not is_invisible(passage.text):
                sentences.append(self._tagged(passage.text, self.tags))
        return contexts

    def _search(self, passages: Sequence[Passage], contexts: Sequence[Context], is_repair: bool = False) -> Search:
        """Translate each passage to plain text. If something is lost, try other forms of the passage."""
        found = [_PassageTranslation(passage, None) for passage in passages]
        ways: dict[int, list[Passage]] = {}
        for i, passage in enumerate(passages):
            problem = next((item.raw for item in passage.kept if item.kind == "problem"), "")
            if problem:
                found[i] = _PassageTranslation(passage, None, f"'{quoted(problem)}' cannot be parsed")
            elif not self.settings.checks:
                ways[i] = [passage]
            elif passage.has_words:
                ways[i] = ways_to_ask(passage, self.settings.needs_attention)
        asked = {i: own[:1] for i, own in ways.items()}
        while asked:
            rows = [(i, way) for i, own in asked.items() for way in own]
            requests = [self._request(way, contexts[i]) for i, way in rows]
            for (i, way), answer in zip(rows, (yield Round(requests, is_repair)), strict=True):
                if found[i].translation is None:
                    found[i] = self._checked(passages[i], way, answer)
            lost = [i for i, own in asked.items() if found[i].translation is None and own == ways[i][:1]]
            asked = {i: others for i in lost if (others := ways[i][1:])}
        return found

    def _checked(self, passage: Passage, way: Passage, answer: Translation) -> _PassageTranslation:
        """Drop the candidates that lost something. If the best one did, return the unchanged passage and the problem."""
        if answer.error or not self.settings.checks:
            return _PassageTranslation(way, answer)
        whole = [row for row in answer.candidates if kept_in(way, row.text, self.is_spaced) is not None]
        # The best candidate decides, because a worse one may keep a placeholder but lose other text.
        if whole and whole[0] is answer.candidates[0] and whole[0].text.strip():
            return _PassageTranslation(way, structs.replace(answer, candidates=whole))
        if not answer.text.strip():
            return _PassageTranslation(passage, None, "the translation is empty")
        names = ", ".join(dict.fromkeys(item.raw for item in passage.kept))
        return _PassageTranslation(passage, None, f"the translation lacks '{quoted(names)}'")

    def _request(self, passage: Passage, context: Context) -> Request:
        terms = self.settings.glossary.phrases(passage.text) if self.settings.glossary else ()
        phrases = tuple(dict.fromkeys((*self.request.phrases, *terms)))
        text = self._tagged(passage.text, self.tags)
        return replace(self.request, text=text, phrases=phrases, others={}, context=context)

    def _tagged(self, text: str, tags: str) -> str:
        """The text with the tags added at its start, unless it already has tags there."""
        return " ".join(filter(None, (self._added_tags(text, tags), text)))

    def _added_tags(self, text: str, tags: str) -> str:
        return "" if leading_tags(text, self.pipeline) else tags

    def _written(self, found: _PassageTranslation) -> Translation:
        """The translation with the tags and placeholders of its passage, or the unchanged passage if it has no translation."""
        passage, translation, problem = found
        write = self.settings.write
        if translation is None:
            same = Translation([Candidate(passage.written(write), [], 0.0, 0.0)])
            return _warned(same, UNCHANGED, f"left untranslated: {problem}") if problem else same
        if not self.settings.checks:
            return translation
        candidates = []
        for candidate in translation.candidates:
            text, kept = kept_in(passage, candidate.text, self.is_spaced) or (candidate.text, [])
            if passage.is_marked:
                weights = self._unit_weights(passage, candidate, text, kept)
                text = projected(passage, text, weights, kept, self.is_spaced, write)
            else:
                text = Passage(text, kept=tuple(kept)).written(write)
            candidates.append(structs.replace(candidate, text=text, weights=[]))
        return structs.replace(translation, candidates=candidates)

    def _written_parts(self, parts: Sequence[str | _PassageTranslation]) -> Translation:
        return _joined([part if isinstance(part, str) else self._written(part) for part in parts])

    def _unit_weights(self, passage: Passage, candidate: Candidate, text: str, kept: Sequence[Kept]) -> Weights:
        """The attention between the units of a passage and of its translation. text: the candidate's text, with spaces"""
        if not candidate.weights:  # without attention, markers keep their relative position
            rows, columns = (np.linspace(0, 1, len(side)) for side in (units(text, kept), source_units(passage)))
            weights: Weights = np.exp(-DIAGONAL * np.abs(rows[:, None] - columns))
            return weights
        source, target = self.pipeline.source, self.pipeline.target
        source_pieces = list(map(source.surface, source.encode(passage.text)))
        target_pieces = list(map(target.surface, candidate.tokens))
        weights = np.array(candidate.weights).reshape(len(target_pieces), -1)
        weights = weights[:, len(source.encode(self._added_tags(passage.text, self.tags))) :]
        return unit_weights(passage, text, source_pieces[: weights.shape[1]], target_pieces, weights, kept)

    def _faults(self, found: _PassageTranslation) -> dict[str, str]:
        """The signs that a translation has failed."""
        if found.translation is None or not found.translation.candidates:
            return {}
        best = found.translation.candidates[0]
        weights = np.array(best.weights) if best.weights and self.settings.needs_attention else None
        return faults(found.passage.text, best.text, self.languages, weights)


def _pieces(passage: Passage, markup: MarkupName, pipeline: Pipeline, split: bool) -> list[str | Passage]:
    """Split a passage into sentences and the white space around them. In marked-up text, a line break counts as a space.

    split: False keeps the passage whole
    """
    if not passage.text.strip():
        return [passage]
    text = passage.masked() if markup == "none" else passage.masked().replace("\n", " ")
    spans = [(len(text) - len(text.lstrip()), len(text.rstrip()))]
    if split:
        parts = [found.span() for found in BETWEEN_BREAKS.finditer(text)] if markup == "none" else [(0, len(text))]
        spans = [
            (start + first, start + last)
            for start, end in parts
            for first, last in sentences(text[start:end], pipeline.source_lang)
        ]
    return _between(passage, spans, pipeline.target_lang)


def _between(passage: Passage, spans: Sequence[Span], language: str) -> list[str | Passage]:
    """Split a passage into parts and the white space around them.

    language: language of the translation, which may need no space between sentences
    """
    text, usual = passage.text, "" if base_language(language) in UNSPACED_LANGUAGES else " "
    spans = passage.whole(spans)
    places = [marker.position for marker in passage.markers] or [spans[0][0]]  # including those at the ends
    spans = [(min(spans[0][0], places[0]), spans[0][1]), *spans[1:]]
    spans = [*spans[:-1], (spans[-1][0], max(spans[-1][1], places[-1]))]
    between = [text[: spans[0][0]]]
    for (begin, end), (next_begin, _) in pairwise(spans):
        gap = text[end:next_begin]  # the space after a list mark stays
        between.append(usual if gap in ("", " ") and is_translatable(text[begin:end]) else gap)
    layout: list[str | Passage] = []
    for gap, part in zip(between, passage.parts(spans), strict=True):
        layout += [gap, part]
    return [part for part in [*layout, passage.text[spans[-1][1] :]] if part]


def _halves(passage: Passage, pipeline: Pipeline) -> list[str | Passage]:
    """Split a passage into sentences, or a single long sentence into clauses."""
    spans = sentences(passage.masked(), pipeline.source_lang)
    if len(spans) == 1:
        spans = clauses(passage.text, *spans[0], MIN_CLAUSE)
    return _between(passage, spans, pipeline.target_lang) if len(spans) > 1 else [passage]


def _plain(parts: Sequence[str | _PassageTranslation]) -> Translation:
    """The plain translation of the parts. Parts without a translation keep their text."""
    return _joined(
        [
            part if isinstance(part, str) else part.passage.text if part.translation is None else part.translation
            for part in parts
        ]
    )


def _warned(translation: Translation, kind: str, message: str) -> Translation:
    return structs.replace(translation, warnings={**translation.warnings, kind: message})


def _joined(parts: Sequence[str | Translation]) -> Translation:
    """Join the translations of a text's parts, and the text between them.

    Candidate k consists of the k-th (or last) candidate of each part, and has the sum of their log-probabilities and scores.
    There is always at least one candidate, because the text between the parts stays.
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
