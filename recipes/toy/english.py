"""A meaning said in English."""

from typing import Final

from lexicon import Pronoun
from meaning import Clause, Participant, Phrase, Sentence

BE: Final = {"present": ("am", "are", "is", "are", "are"), "past": ("was", "were", "was", "were", "were")}
CONJUNCTIONS: Final = {"because": ["because"], "if": ["if"], "when": ["when"], "that": ["that"], "but": [",", "but"]}


def say(sentence: Sentence) -> list[str]:
    """The words of a sentence, punctuation among them."""
    first = _clause(sentence.first)
    if sentence.second is None:
        return first
    conjunction, second = CONJUNCTIONS[sentence.join], _clause(sentence.second)
    if sentence.join in ("if", "when"):
        return [*conjunction, *first, ",", *second]
    return [*first, *conjunction, *second]


def _clause(clause: Clause) -> list[str]:
    time = clause.time[0:1] if clause.time else []
    words = [*_participant(clause.subject, 0), *_phrase(clause.phrase, clause.subject.person)]
    return [*time, *words] if clause.time_first else [*words, *time]


def _phrase(phrase: Phrase, person: int) -> list[str]:
    words = _verb(phrase, person)
    for who in (phrase.recipient, phrase.thing):
        words += _participant(who, 1) if who else []
    return [*words, *(phrase.place[0:1] if phrase.place else [])]


def _verb(phrase: Phrase, person: int) -> list[str]:
    """The verb with its auxiliaries, negation and preposition; of "to be", with its adjective."""
    if phrase.verb is None:
        assert phrase.adjective is not None
        return [BE[phrase.mode][person], *(["not"] if phrase.negated else []), phrase.adjective.en]
    infinitive, third, past = phrase.verb.en
    he = person == 2
    do = "did" if phrase.mode == "past" else "does" if he else "do"
    if phrase.mode == "can":
        words = ["cannot" if phrase.negated else "can", infinitive]
    elif phrase.mode == "want":
        words = [*([do, "not", "want"] if phrase.negated else ["wants" if he else "want"]), "to", infinitive]
    elif phrase.negated:
        words = [do, "not", infinitive]
    else:
        words = [past if phrase.mode == "past" else third if he else infinitive]
    return [*words, *phrase.verb.en_preposition.split()]


def _participant(who: Participant, case: int) -> list[str]:
    """case: 0 the subject, 1 an object"""
    if isinstance(who, Pronoun):
        return [who.en[case]]
    words = [*([who.adjective.en] if who.adjective else []), who.noun.en[who.plural]]
    if who.determiner == "a":
        article = [] if who.plural else ["an" if words[0][0] in "aeiou" else "a"]
    elif who.determiner == "name":
        article = []
    else:
        article = ["these" if who.determiner == "this" and who.plural else who.determiner]
    if who.relative is None:
        return [*article, *words]
    return [*article, *words, "that" if who.noun.kind == "animal" else "who", *_phrase(who.relative, who.person)]
