"""The messages of our own protocol: the body of a request, answers, errors. `GET /openapi.json` describes these types."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from nmt.extensions.texts.passes.options import MarkupName

MAX_CANDIDATES: Final = 100


class Text(Struct, forbid_unknown_fields=True):
    """A line with constraints."""

    text: Annotated[str, Meta(description="the line; line breaks in it are spaces, unless split or markup keeps them")]
    prefix: Annotated[str, Meta(description="beginning of the translation")] = ""
    phrases: Annotated[list[str], Meta(description="texts that the translation contains")] = []
    avoid: Annotated[list[str], Meta(description="texts that the translation does not contain as whole words")] = []
    context: Annotated[
        list[str] | None,
        Meta(description="the sentences before the line, for a model that reads them; without it the texts before it"),
    ] = None


class TranslateRequest(Struct, forbid_unknown_fields=True):
    """Lines to translate, and the details that are wanted."""

    text: Annotated[
        str | Text | list[str | Text], Meta(description="a line or, with split or markup, any text; or a list")
    ]
    model: Annotated[str | None, Meta(description="name of the model; without one the first of the direction")] = None
    source: Annotated[str | None, Meta(description="code of the source language")] = None
    target: Annotated[str | None, Meta(description="code of the target language")] = None
    split: Annotated[
        bool, Meta(description="whether each sentence of a text is translated on its own; line breaks stay then")
    ] = False
    markup: Annotated[
        MarkupName,
        Meta(description="tags that the texts have; each comes back around the words that translate its own"),
    ] = "none"
    glossary: Annotated[
        dict[str, str], Meta(description="terms and the translations that they must have; an empty one keeps the term")
    ] = {}
    repair: Annotated[
        bool, Meta(description="whether what repeats itself or lacks a part is translated again; a warning tells")
    ] = False
    n_best: Annotated[
        int, Meta(ge=1, le=MAX_CANDIDATES, description="candidates of each line, up to the beam size")
    ] = 1
    word_scores: Annotated[bool, Meta(description="whether candidates have the log-probabilities of their words")] = (
        False
    )
    alignment: Annotated[bool, Meta(description="whether candidates have their alignment")] = False
    stream: Annotated[bool, Meta(description="whether each line is sent as soon as it is translated, as an event")] = (
        False
    )
    api_key: Annotated[str | None, Meta(description="the key, unless a header gives it")] = None


class CandidateRow(Struct):
    """A candidate of a line."""

    text: Annotated[str, Meta(description="the translation")]
    score: Annotated[float, Meta(description="value that the search ranks by; higher is better")]
    log_prob: Annotated[float, Meta(description="log-probability of all tokens and of the end, in nats")]
    word_scores: Annotated[
        list[float] | UnsetType, Meta(description="log-probability of each word, and of the end, in nats; if requested")
    ] = UNSET
    alignment: Annotated[
        list[list[float]] | UnsetType,
        Meta(
            description="for each word of the translation, the weight of each word of the source, from 0 to 1; if requested"
        ),
    ] = UNSET


class TranslationRow(Struct):
    """The translation of a line."""

    translation: Annotated[
        str, Meta(description="the best candidate; empty for a blank line and for one with an error")
    ]
    error: Annotated[str | UnsetType, Meta(description="why the line was not translated; absent if it was")] = UNSET
    warnings: Annotated[
        list[str] | UnsetType, Meta(description="what `nmt translate` warns of; absent without a warning")
    ] = UNSET
    candidates: Annotated[
        list[CandidateRow] | UnsetType, Meta(description="best first; if n_best, word_scores or alignment is requested")
    ] = UNSET


class _Answer(Struct):
    """What translated."""

    model: Annotated[str, Meta(description="name of the model that translated")]
    source: Annotated[str, Meta(description="code of its source language")]
    target: Annotated[str, Meta(description="code of its target language")]


class TranslateAnswer(_Answer):
    """The translations of a request."""

    translations: Annotated[list[TranslationRow], Meta(description="one for each line, in their order")]


class TranslationEvent(TranslationRow, kw_only=True):
    """The translation of a line of a stream. Lines come in any order."""

    index: Annotated[int, Meta(ge=0, description="number of the line in the request, from 0")]


class EndEvent(_Answer):
    """The end of a stream whose lines are all translated."""

    lines: Annotated[int, Meta(ge=0, description="number of lines that were sent")]


class Direction(Struct):
    """A model and what it translates."""

    model: Annotated[str, Meta(description="name of the model")]
    source: Annotated[str, Meta(description="code of its source language")]
    target: Annotated[str, Meta(description="code of its target language")]
    loaded: Annotated[bool, Meta(description="whether it is in memory; else the first request loads it")]


class DirectionsAnswer(Struct):
    """The models of the server, in their order."""

    directions: list[Direction]


class HealthAnswer(Struct):
    """The server runs."""

    status: Literal["ok"] = "ok"


class Problem(Struct):
    """What went wrong."""

    status: Annotated[int, Meta(description="status of HTTP")]
    message: Annotated[str, Meta(description="for people")]


class ErrorAnswer(Struct):
    """The answer to a request that failed."""

    error: Problem


def error_answer(status: int, message: str) -> ErrorAnswer:
    """The answer to a request that failed. status: of HTTP"""
    return ErrorAnswer(Problem(status, message))
