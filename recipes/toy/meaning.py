"""Language-independent meanings of the toy task's sentences, and how they are drawn at random."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

from lexicon import (
    ADJECTIVES,
    BEFORE,
    KINDS,
    LATER,
    NAMES,
    NOUNS,
    NOW,
    NUMBERS,
    PLACES,
    POSSESSIVES,
    PRONOUNS,
    SPEECH,
    VERBS,
    Adjective,
    Noun,
    Pronoun,
    Verb,
)

Mode = Literal["present", "past", "want", "can"]
Join = Literal["simple", "because", "if", "when", "that", "but"]


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner: the, a, this, a possessive, a number, or name (none)."""

    noun: Noun
    determiner: str
    plural: bool = False
    adjective: Adjective | None = None
    relative: "Phrase | None" = None  # "who ...", with the noun as its subject

    @property
    def person(self) -> int:
        return 4 if self.plural else 2


Participant = NounPhrase | Pronoun


@dataclass(frozen=True)
class Phrase:
    """A clause without its subject: a verb with its objects, or (verb None) "to be" with an adjective."""

    verb: Verb | None
    mode: Mode = "present"
    negated: bool = False
    thing: Participant | None = None  # the object
    recipient: Participant | None = None
    place: list[str] | None = None  # in three languages, like times
    adjective: Adjective | None = None


@dataclass(frozen=True)
class Clause:
    subject: Participant
    phrase: Phrase
    time: list[str] | None = None
    time_first: bool = False


@dataclass(frozen=True)
class Sentence:
    """One clause or two. join: the conjunction, or simple for one clause; the clause of "if" and "when" comes first"""

    join: Join
    first: Clause
    second: Clause | None = None


WEIGHTS: Final[dict[Join, int]] = {"simple": 50, "because": 10, "if": 9, "when": 9, "that": 12, "but": 10}
PERSONS: Final = KINDS["person"]


def draw(rng: Random) -> Sentence:
    """A sentence at random."""
    join = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if join == "simple":
        subject, mode, verb = _start(rng, _mode(rng, past=0.3))
        if isinstance(subject, NounPhrase) and subject.determiner == "the" and rng.random() < 0.25:
            subject = replace(subject, relative=_relative(rng, subject))
        return Sentence(join, _clause(rng, subject, mode, verb))
    if join == "that":
        speech = Clause(_participant(rng, PERSONS), Phrase(rng.choice(SPEECH)))
        return Sentence(join, speech, _clause(rng, *_start(rng, _mode(rng, past=0.3)), may_front=False))
    past = join == "when" or (join != "if" and rng.random() < 0.3)  # one tense in both clauses
    first = _clause(rng, *_start(rng, _mode(rng, past)), may_have_time=join == "but")
    second = _clause(rng, *_start(rng, _mode(rng, past)), may_front=False)
    return Sentence(join, first, second)


def _mode(rng: Random, past: float) -> Mode:
    """A random mode and tense. past: probability of the past"""
    if rng.random() < past:
        return "past"
    return rng.choices(("present", "want", "can"), (5, 2, 2))[0]


def _start(rng: Random, mode: Mode) -> tuple[Participant, Mode, Verb | None]:
    """A subject, a mode and a verb; no verb means "to be", in the present or the past."""
    if rng.random() < 0.1:
        return _participant(rng, KINDS["any"]), "past" if mode == "past" else "present", None
    verb = rng.choice(VERBS)
    return _participant(rng, verb.subjects), mode, verb


def _clause(
    rng: Random,
    subject: Participant,
    mode: Mode,
    verb: Verb | None,
    may_have_time: bool = True,
    may_front: bool = True,
) -> Clause:
    """A clause with a subject and a verb. may_front: whether its time can come first"""
    phrase = _phrase(rng, verb, mode, subject)
    if not may_have_time or rng.random() < 0.5:
        return Clause(subject, phrase)
    times = {"past": BEFORE, "present": NOW}.get(mode, NOW + LATER)
    return Clause(subject, phrase, rng.choice(times), may_front and rng.random() < 0.5)


def _relative(rng: Random, subject: NounPhrase) -> Phrase | None:
    verbs = [verb for verb in VERBS if subject.noun.kind in verb.subjects]
    return _phrase(rng, rng.choice(verbs), rng.choice(("present", "past")), subject) if verbs else None


def _phrase(rng: Random, verb: Verb | None, mode: Mode, subject: Participant) -> Phrase:
    negated = rng.random() < 0.2
    if verb is None:
        kind = subject.noun.kind if isinstance(subject, NounPhrase) else "adult"
        return Phrase(None, mode, negated, adjective=rng.choice(_adjectives(kind)))
    thing = _participant(rng, verb.objects, subject) if verb.objects else None
    if isinstance(thing, NounPhrase) and thing.determiner in NUMBERS:
        negated = False  # "does not see two dogs" could mean that it sees one
    recipient = _participant(rng, PERSONS, subject) if verb.more == "recipient" else None
    if isinstance(recipient, NounPhrase) and (recipient.determiner == "a" or recipient.determiner in NUMBERS):
        recipient = replace(recipient, determiner="the")  # German would reverse the objects
    place = rng.choice(PLACES) if verb.more == "place" and rng.random() < 0.4 else None
    return Phrase(verb, mode, negated, thing, recipient, place)


def _participant(rng: Random, kinds: tuple[str, ...], subject: Participant | None = None) -> Participant:
    """A noun phrase or pronoun of the given kinds; an object differs from the subject."""
    chance = rng.random() if "adult" in kinds else 1.0
    if chance < 0.25:
        own = subject.person if isinstance(subject, Pronoun) else None
        clash = {0: (0, 3), 1: (1,), 3: (0, 3)}.get(own, ()) if own is not None else ()  # "I see us"
        return rng.choice([pronoun for pronoun in PRONOUNS if pronoun.person not in clash])
    nouns = NAMES if chance < 0.35 else [noun for noun in NOUNS if noun.kind in kinds]
    other = subject.noun if isinstance(subject, NounPhrase) else None
    noun = rng.choice([noun for noun in nouns if noun is not other])
    if noun in NAMES:
        return NounPhrase(noun, "name")
    kind = rng.choices(("the", "a", "this", "possessive", "number"), (45, 25, 8, 14, 8))[0]
    determiner = rng.choice(list({"possessive": POSSESSIVES, "number": NUMBERS}.get(kind, [kind])))
    plural = kind == "number" or rng.random() < 0.3
    adjective = rng.choice(_adjectives(noun.kind)) if rng.random() < 0.35 else None
    return NounPhrase(noun, determiner, plural, adjective)


def _adjectives(kind: str) -> list[Adjective]:
    return [adjective for adjective in ADJECTIVES if kind in adjective.kinds]
