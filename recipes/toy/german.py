"""German realisation of a meaning: cases, genders, adjective endings, the verb second or last, separable verbs."""

from dataclasses import dataclass
from typing import Final

from lexicon import NUMBERS, POSSESSIVES, Pronoun, Verb
from meaning import Clause, NounPhrase, Participant, Phrase, Sentence
from words import Word, adverbial, expressing, expressing_also, within

Endings = dict[str, dict[str, str]]  # by case, then by gender or p for the plural


def _endings(table: str) -> Endings:
    rows = [[ending.strip("-") for ending in row.split()] for row in table.split("|")]
    return {case: dict(zip("mfnp", row, strict=True)) for case, row in zip(("nom", "acc", "dat"), rows, strict=True)}


DER: Final = _endings("er ie as ie | en ie as ie | em er em en")
DIESER: Final = _endings("er e es e | en e es e | em er em en")
EIN: Final = _endings("- e - e | en e - e | em er em en")  # and kein, mein
WEAK: Final = _endings("e e e en | en e e en | en en en en")  # adjectives after der, dieser
MIXED: Final = _endings("er e es en | en e es en | en en en en")  # after ein, kein, mein
STRONG: Final = _endings("er e es e | en e es e | em er em en")  # after nothing or a number

FINITE: Final = {  # ich, du, er, wir, sie
    "haben": ("habe", "hast", "hat", "haben", "haben"),
    "sein": ("bin", "bist", "ist", "sind", "sind"),
    "war": ("war", "warst", "war", "waren", "waren"),
    "want": ("will", "willst", "will", "wollen", "wollen"),
    "can": ("kann", "kannst", "kann", "können", "können"),
}
CONJUNCTIONS: Final = {"because": "weil", "that": "dass", "but": "aber", "if": "wenn", "when": "als"}


@dataclass(frozen=True)
class Verbs:
    """The parts of a verb.

    finite: the word that is second in a main clause
    particle, rest: the words at the end
    modal: whether finite is a modal verb
    """

    finite: str
    particle: str = ""
    rest: str = ""
    modal: bool = False

    @property
    def moved(self) -> list[str]:
        """The finite verb of a main clause; an auxiliary if there is a participle."""
        if self.modal:
            return expressing("mode", self.finite)
        return [Word(self.finite, ["auxiliary"], ["verb"])] if self.rest else expressing("verb", self.finite)

    @property
    def last(self) -> list[str]:
        """All words at the end of a subordinate clause."""
        if self.rest:
            return [*expressing("verb", self.rest), *self.moved]
        return expressing("verb", self.particle + self.finite)

    @property
    def bracket(self) -> list[str]:
        """The words at the end of a main clause."""
        return expressing("verb", *filter(None, (self.rest, self.particle)))


def realise(sentence: Sentence) -> list[str]:
    """The words and commas of a sentence."""
    first, second = sentence.first, sentence.second
    if second is None:
        return within("first", _main(first))
    conjunction = expressing("join", CONJUNCTIONS[sentence.join])
    if sentence.join in ("if", "when"):
        return [*conjunction, *within("first", _subordinate(first)), ",", *within("second", _verb_second([], second))]
    rest = _main(second) if sentence.join == "but" else _subordinate(second)
    return [*within("first", _main(first)), ",", *conjunction, *within("second", rest)]


def _main(clause: Clause) -> list[str]:
    if clause.time_first and clause.time:
        return _verb_second(adverbial("time", clause.time[1]), clause)
    verbs, middle = _predicate(clause.phrase, clause.subject.person, clause.time)
    return [*_subject(clause), *verbs.moved, *middle, *verbs.bracket]


def _verb_second(front: list[str], clause: Clause) -> list[str]:
    """A main clause with other words than its subject in front."""
    verbs, middle = _predicate(clause.phrase, clause.subject.person, None if front else clause.time)
    return [*front, *verbs.moved, *_subject(clause), *middle, *verbs.bracket]


def _subordinate(clause: Clause) -> list[str]:
    verbs, middle = _predicate(clause.phrase, clause.subject.person, clause.time)
    return [*_subject(clause), *middle, *verbs.last]


def _subject(clause: Clause) -> list[str]:
    return within("subject", _participant(clause.subject, "nom"))


def _predicate(phrase: Phrase, person: int, time: list[str] | None) -> tuple[Verbs, list[str]]:
    """The verbs, and the words between them in the order: definite objects, time, nicht, the rest."""
    nicht = expressing("negation", "nicht") if phrase.negated else []
    when = adverbial("time", time[1]) if time else []
    if phrase.verb is None:
        assert phrase.adjective is not None
        forms = FINITE["war" if phrase.mode == "past" else "sein"]
        return Verbs(forms[person]), [*when, *nicht, *expressing("adjective", phrase.adjective.de[1])]
    known = within("recipient", _participant(phrase.recipient, "dat")) if phrase.recipient else []
    new: list[str] = []
    case, thing = phrase.verb.de_object, phrase.thing
    if thing is not None and case not in ("acc", "dat"):
        new = [*nicht, Word(case, ["preposition"], ["verb"]), *within("thing", _participant(thing, "acc"))]
    elif isinstance(thing, NounPhrase) and (thing.determiner == "a" or thing.determiner in NUMBERS):
        new = within("thing", _participant(thing, case, negated=phrase.negated))
        new = [expressing_also("negation", new[0]), *new[1:]] if phrase.negated else new
    else:
        known += within("thing", _participant(thing, case)) if thing else []
        new = nicht
    place = adverbial("place", phrase.place[1]) if phrase.place else []
    return _verbs(phrase, phrase.verb, person), [*known, *when, *new, *place]


def _verbs(phrase: Phrase, verb: Verb, person: int) -> Verbs:
    infinitive, du, er, participle = verb.de
    if phrase.mode == "present":
        forms = (infinitive.removesuffix("n"), du, er, infinitive, infinitive)
        return Verbs(forms[person], particle=verb.de_particle)
    if phrase.mode == "past":
        return Verbs(FINITE["sein" if verb.de_sein else "haben"][person], rest=verb.de_particle + participle)
    return Verbs(FINITE[phrase.mode][person], rest=verb.de_particle + infinitive, modal=True)


def _participant(who: Participant, case: str, negated: bool = False) -> list[str]:
    """A noun phrase or pronoun. negated: whether kein replaces ein"""
    if isinstance(who, Pronoun):
        return expressing("noun", who.de[case])
    gender = "p" if who.plural else who.noun.de_gender
    article, endings = _article(who, case, gender, negated)
    adjective = expressing("adjective", who.adjective.de[0] + endings[case][gender]) if who.adjective else []
    words = [*expressing("article", *article), *adjective, *expressing("noun", _noun(who, case))]
    if who.relative is None:
        return words
    verbs, middle = _predicate(who.relative, who.person, None)
    relative = [*expressing("pronoun", "d" + DER["nom"][gender]), *middle, *verbs.last]
    return [*words, ",", *within("relative", relative), ","]


def _article(who: NounPhrase, case: str, gender: str, negated: bool) -> tuple[list[str], Endings]:
    """The article, and the endings that an adjective takes after it."""
    kind = who.determiner
    if kind == "the":
        return ["d" + DER[case][gender]], WEAK
    if kind == "this":
        return ["dies" + DIESER[case][gender]], WEAK
    if kind in POSSESSIVES:
        return [POSSESSIVES[kind][0] + EIN[case][gender]], MIXED
    if kind == "a" and (negated or not who.plural):
        return [("kein" if negated else "ein") + EIN[case][gender]], MIXED
    return [NUMBERS[kind][0]] if kind in NUMBERS else [], STRONG


def _noun(who: NounPhrase, case: str) -> str:
    singular, oblique, plural = who.noun.de
    if who.plural:
        return plural + "n" if case == "dat" and plural[-1] not in "ns" else plural
    return singular if case == "nom" else oblique
