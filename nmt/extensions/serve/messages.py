"""The messages of nmt's own protocol: requests, responses and errors. `GET /openapi.json` describes these types."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from nmt.extensions.texts.passes.options import MarkupName

MAX_CANDIDATES: Final = 100


class Text(Struct, forbid_unknown_fields=True):
    """A line with constraints."""

    text: Annotated[str, Meta(description="the line; line breaks count as spaces, unless split or markup keeps them")]
    prefix: Annotated[str, Meta(description="text that the translation starts with")] = ""
    phrases: Annotated[list[str], Meta(description="phrases that the translation must contain")] = []
    avoid: Annotated[list[str], Meta(description="words and phrases that the translation must not contain")] = []
    context: Annotated[
        list[str] | None,
        Meta(
            description="preceding sentences, for models that read context; by default, the preceding texts of the request"
        ),
    ] = None


class TranslateRequest(Struct, forbid_unknown_fields=True):
    """Lines to translate, and the details to return."""

    text: Annotated[
        str | Text | list[str | Text],
        Meta(description="a line or a list of lines; with split or markup, a text or a list of texts"),
    ]
    model: Annotated[
        str | None, Meta(description="name of the model; by default, the first model of the direction")
    ] = None
    source: Annotated[str | None, Meta(description="code of the source language")] = None
    target: Annotated[str | None, Meta(description="code of the target language")] = None
    split: Annotated[
        bool, Meta(description="whether to translate each sentence of a text separately, which keeps line breaks")
    ] = False
    markup: Annotated[
        MarkupName,
        Meta(
            description="markup of the texts; each tag is placed around the translation of the words that it encloses"
        ),
    ] = "none"
    glossary: Annotated[
        dict[str, str],
        Meta(description="terms with their required translations; an empty translation keeps the term as it is"),
    ] = {}
    repair: Annotated[
        bool,
        Meta(description="whether to retry translations that repeat themselves or lose text, with a warning for each"),
    ] = False
    check: Annotated[
        bool | None,
        Meta(
            description="whether to check for lost placeholders and sentences, and retry; by default, if a text has placeholders"
        ),
    ] = None
    n_best: Annotated[
        int, Meta(ge=1, le=MAX_CANDIDATES, description="number of candidates per line, up to the beam size")
    ] = 1
    alternatives: Annotated[
        bool, Meta(description="whether the candidates are those for the most probable words after the prefix")
    ] = False
    word_scores: Annotated[bool, Meta(description="whether to return the log-probability of each word")] = False
    alignment: Annotated[bool, Meta(description="whether to return the alignment of each candidate")] = False
    stream: Annotated[bool, Meta(description="whether to send each line as an event as soon as it is translated")] = (
        False
    )
    api_key: Annotated[str | None, Meta(description="API key, unless a header contains it")] = None


class CandidateRow(Struct):
    """A candidate of a line."""

    text: Annotated[str, Meta(description="the translation")]
    score: Annotated[float, Meta(description="value by which the search ranks candidates; higher is better")]
    log_prob: Annotated[float, Meta(description="log-probability of all tokens, including the end symbol, in nats")]
    word_scores: Annotated[
        list[float] | UnsetType,
        Meta(description="log-probability of each word and of the end symbol, in nats, if requested"),
    ] = UNSET
    alignment: Annotated[
        list[list[float]] | UnsetType,
        Meta(
            description="for each word of the translation, the weights of the source words, from 0 to 1, if requested"
        ),
    ] = UNSET


class TranslationRow(Struct):
    """The translation of a line."""

    translation: Annotated[str, Meta(description="the best candidate; empty for a blank line or a line with an error")]
    error: Annotated[
        str | UnsetType, Meta(description="why the line was not translated; absent if it was translated")
    ] = UNSET
    warnings: Annotated[
        list[str] | UnsetType, Meta(description="the warnings that `nmt translate` reports; absent if there are none")
    ] = UNSET
    candidates: Annotated[
        list[CandidateRow] | UnsetType,
        Meta(description="candidates, best first, if n_best, word_scores or alignment asks for them"),
    ] = UNSET


class _Answer(Struct):
    """The model that was used, and its direction."""

    model: Annotated[str, Meta(description="name of the model that translated")]
    source: Annotated[str, Meta(description="code of its source language")]
    target: Annotated[str, Meta(description="code of its target language")]


class TranslateAnswer(_Answer):
    """The translations of a request."""

    translations: Annotated[
        list[TranslationRow], Meta(description="one translation per line, in the order of the lines")
    ]


class TranslationEvent(TranslationRow, kw_only=True):
    """The translation of one line of a stream. Lines arrive in any order."""

    index: Annotated[int, Meta(ge=0, description="index of the line in the request, from 0")]


class EndEvent(_Answer):
    """The end of a stream, after all lines have been sent."""

    lines: Annotated[int, Meta(ge=0, description="number of lines that were sent")]


class Direction(Struct):
    """A model and its translation direction."""

    model: Annotated[str, Meta(description="name of the model")]
    source: Annotated[str, Meta(description="code of its source language")]
    target: Annotated[str, Meta(description="code of its target language")]
    loaded: Annotated[bool, Meta(description="whether the model is in memory; if not, the next request loads it")]


class DirectionsAnswer(Struct):
    """The server's models, in the order of the command line."""

    directions: list[Direction]


class HealthAnswer(Struct):
    """Says that the server is running."""

    status: Literal["ok"] = "ok"


class ReadyAnswer(Struct):
    """Says that the server can translate."""

    status: Literal["ready"] = "ready"


class Problem(Struct):
    """The status and the message of an error."""

    status: Annotated[int, Meta(description="HTTP status")]
    message: Annotated[str, Meta(description="human-readable error message")]


class ErrorAnswer(Struct):
    """The response to a request that failed."""

    error: Problem


def error_answer(status: int, message: str) -> ErrorAnswer:
    """Make the response to a request that failed. status: HTTP status"""
    return ErrorAnswer(Problem(status, message))
