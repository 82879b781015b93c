"""English realisation of a meaning."""

from typing import Final

from lexicon import Pronoun
from meaning import Clause, Participant, Phrase, Sentence
from words import Word, adverbial, expressing, supporting, within

BE: Final = {"present": ("am", "are", "is", "are", "are"), "past": ("was", "were", "was", "were", "were")}
CONJUNCTIONS: Final = {"because": ["because"], "if": ["if"], "when": ["when"], "that": ["that"], "but": [",", "but"]}


def realise(sentence: Sentence) -> list[str]:
    """The words and commas of a sentence."""
    first = within("first", _clause(sentence.first))
    if sentence.second is None:
        return first
    conjunction = expressing("join", *CONJUNCTIONS[sentence.join])
    second = within("second", _clause(sentence.second))
    if sentence.join in ("if", "when"):
        return [*conjunction, *first, ",", *second]
    return [*first, *conjunction, *second]


def _clause(clause: Clause) -> list[str]:
    time = adverbial("time", clause.time[0]) if clause.time else []
    words = [*within("subject", _participant(clause.subject, 0)), *_phrase(clause.phrase, clause.subject.person)]
    return [*time, *words] if clause.time_first else [*words, *time]


def _phrase(phrase: Phrase, person: int) -> list[str]:
    words = _verb(phrase, person)
    for name, who in (("recipient", phrase.recipient), ("thing", phrase.thing)):
        words += within(name, _participant(who, 1)) if who else []
    return [*words, *(adverbial("place", phrase.place[0]) if phrase.place else [])]


def _verb(phrase: Phrase, person: int) -> list[str]:
    """The verb with its auxiliaries, negation and preposition; for "to be", with its adjective."""
    negation = expressing("negation", "not") if phrase.negated else []
    if phrase.verb is None:
        assert phrase.adjective is not None
        return [*expressing("verb", BE[phrase.mode][person]), *negation, *expressing("adjective", phrase.adjective.en)]
    infinitive, third, past = phrase.verb.en
    he = person == 2
    do = "did" if phrase.mode == "past" else "does" if he else "do"
    if phrase.mode == "can":
        can = [Word("cannot", ["mode", "negation"])] if phrase.negated else expressing("mode", "can")
        words = [*can, *expressing("verb", infinitive)]
    elif phrase.mode == "want":
        want = expressing("mode", "wants" if he and not phrase.negated else "want")
        words = [*(supporting("mode", do) if phrase.negated else []), *negation, *want]
        words += [*supporting("verb", "to"), *expressing("verb", infinitive)]
    elif phrase.negated:
        words = [Word(do, ["auxiliary"], ["verb"]), *negation, *expressing("verb", infinitive)]
    else:
        words = expressing("verb", past if phrase.mode == "past" else third if he else infinitive)
    return [*words, *(Word(word, ["preposition"], ["verb"]) for word in phrase.verb.en_preposition.split())]


def _participant(who: Participant, case: int) -> list[str]:
    """A noun phrase or pronoun. case: 0 for the subject, 1 for an object"""
    if isinstance(who, Pronoun):
        return expressing("noun", who.en[case])
    adjective = expressing("adjective", who.adjective.en) if who.adjective else []
    words = [*adjective, *expressing("noun", who.noun.en[who.plural])]
    if who.determiner == "a":
        article = "" if who.plural else "an" if words[0][0] in "aeiou" else "a"
    elif who.determiner == "name":
        article = ""
    else:
        article = "these" if who.determiner == "this" and who.plural else who.determiner
    words = [*expressing("article", *article.split()), *words]
    if who.relative is None:
        return words
    pronoun = expressing("pronoun", "that" if who.noun.kind == "animal" else "who")
    return [*words, *within("relative", [*pronoun, *_phrase(who.relative, who.person)])]
