"""A meaning said in English."""

from typing import Final

from lexicon import Pronoun
from meaning import Clause, Participant, Phrase, Sentence
from words import Word, adverb, helping, saying, under

BE: Final = {"present": ("am", "are", "is", "are", "are"), "past": ("was", "were", "was", "were", "were")}
CONJUNCTIONS: Final = {"because": ["because"], "if": ["if"], "when": ["when"], "that": ["that"], "but": [",", "but"]}


def say(sentence: Sentence) -> list[str]:
    """The words of a sentence, punctuation among them."""
    first = under("first", _clause(sentence.first))
    if sentence.second is None:
        return first
    conjunction = saying("join", *CONJUNCTIONS[sentence.join])
    second = under("second", _clause(sentence.second))
    if sentence.join in ("if", "when"):
        return [*conjunction, *first, ",", *second]
    return [*first, *conjunction, *second]


def _clause(clause: Clause) -> list[str]:
    time = adverb("time", clause.time[0]) if clause.time else []
    words = [*under("subject", _participant(clause.subject, 0)), *_phrase(clause.phrase, clause.subject.person)]
    return [*time, *words] if clause.time_first else [*words, *time]


def _phrase(phrase: Phrase, person: int) -> list[str]:
    words = _verb(phrase, person)
    for name, who in (("recipient", phrase.recipient), ("thing", phrase.thing)):
        words += under(name, _participant(who, 1)) if who else []
    return [*words, *(adverb("place", phrase.place[0]) if phrase.place else [])]


def _verb(phrase: Phrase, person: int) -> list[str]:
    """The verb with its auxiliaries, negation and preposition; of "to be", with its adjective."""
    negation = saying("negation", "not") if phrase.negated else []
    if phrase.verb is None:
        assert phrase.adjective is not None
        return [*saying("verb", BE[phrase.mode][person]), *negation, *saying("adjective", phrase.adjective.en)]
    infinitive, third, past = phrase.verb.en
    he = person == 2
    do = "did" if phrase.mode == "past" else "does" if he else "do"
    if phrase.mode == "can":
        can = [Word("cannot", ["mode", "negation"])] if phrase.negated else saying("mode", "can")
        words = [*can, *saying("verb", infinitive)]
    elif phrase.mode == "want":
        want = saying("mode", "wants" if he and not phrase.negated else "want")
        words = [*(helping("mode", do) if phrase.negated else []), *negation, *want]
        words += [*helping("verb", "to"), *saying("verb", infinitive)]
    elif phrase.negated:
        words = [Word(do, ["auxiliary"], ["verb"]), *negation, *saying("verb", infinitive)]
    else:
        words = saying("verb", past if phrase.mode == "past" else third if he else infinitive)
    return [*words, *(Word(word, ["preposition"], ["verb"]) for word in phrase.verb.en_preposition.split())]


def _participant(who: Participant, case: int) -> list[str]:
    """case: 0 the subject, 1 an object"""
    if isinstance(who, Pronoun):
        return saying("noun", who.en[case])
    adjective = saying("adjective", who.adjective.en) if who.adjective else []
    words = [*adjective, *saying("noun", who.noun.en[who.plural])]
    if who.determiner == "a":
        article = "" if who.plural else "an" if words[0][0] in "aeiou" else "a"
    elif who.determiner == "name":
        article = ""
    else:
        article = "these" if who.determiner == "this" and who.plural else who.determiner
    words = [*saying("article", *article.split()), *words]
    if who.relative is None:
        return words
    pronoun = saying("pronoun", "that" if who.noun.kind == "animal" else "who")
    return [*words, *under("relative", [*pronoun, *_phrase(who.relative, who.person)])]
