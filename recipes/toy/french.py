"""French realisation of a meaning: gender and number, elision, contractions, pronouns before the verb, ne ... pas."""

from typing import Final

from lexicon import NUMBERS, POSSESSIVES, Pronoun
from meaning import Clause, NounPhrase, Participant, Phrase, Sentence

FINITE: Final = {  # je, tu, il, nous, ils
    "avoir": ("ai", "as", "a", "avons", "ont"),
    "être": ("suis", "es", "est", "sommes", "sont"),
    "était": ("étais", "étais", "était", "étions", "étaient"),
    "want": ("veux", "veux", "veut", "voulons", "veulent"),
    "can": ("peux", "peux", "peut", "pouvons", "peuvent"),
}
CONJUNCTIONS: Final = {
    "because": ["parce", "que"],
    "if": ["si"],
    "when": ["quand"],
    "that": ["que"],
    "but": [",", "mais"],
}
ELIDED: Final = {"je", "me", "te", "le", "la", "ne", "de", "que"}
CONTRACTED: Final = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}


def realise(sentence: Sentence) -> list[str]:
    """The words and commas of a sentence."""
    first = _clause(sentence.first)
    if sentence.second is None:
        return _joined(first)
    conjunction, second = CONJUNCTIONS[sentence.join], _clause(sentence.second)
    if sentence.join in ("if", "when"):
        return _joined([*conjunction, *first, ",", *second])
    return _joined([*first, *conjunction, *second])


def _joined(words: list[str]) -> list[str]:
    """Elisions, then contractions: je ai -> j'ai, de le oncle -> de l'oncle, de le chien -> du chien."""
    elided: list[str] = []
    for word in words:
        before = elided[-1] if elided else ""
        if (before in ELIDED and _vowel(word)) or (before == "si" and word in ("il", "ils")):
            elided[-1] = before[:-1] + "'" + word
        else:
            elided.append(word)
    joined: list[str] = []
    for word in elided:
        if joined and (joined[-1], word) in CONTRACTED:
            joined[-1] = CONTRACTED[joined[-1], word]
        else:
            joined.append(word)
    return joined


def _vowel(word: str) -> bool:
    """Whether a word begins with a vowel sound; no word here has an aspirated h."""
    return word[0].lower() in "aeiouhéèêâîôœ"


def _clause(clause: Clause) -> list[str]:
    time = clause.time[2:] if clause.time else []
    front, back = ([*time, ","], []) if clause.time_first else ([], time)
    return [*front, *_participant(clause.subject, "subject"), *_phrase(clause.phrase, clause.subject, back)]


def _phrase(phrase: Phrase, subject: Participant, time: list[str]) -> list[str]:
    """The verb, its objects, time and place. subject: the verb agrees with it"""
    ne, pas = (["ne"], ["pas"]) if phrase.negated else ([], [])
    if phrase.verb is None:
        assert phrase.adjective is not None
        to_be = FINITE["était" if phrase.mode == "past" else "être"][subject.person]
        return [*ne, to_be, *pas, agree(phrase.adjective.fr, subject), *time]
    clitics, objects = _objects(phrase)
    infinitive, *present, participle = phrase.verb.fr
    if phrase.mode == "present":
        words = [*ne, *clitics, present[subject.person], *pas]
    elif phrase.mode == "past":
        auxiliary = FINITE["être" if phrase.verb.fr_etre else "avoir"][subject.person]
        before = isinstance(phrase.thing, Pronoun) and phrase.verb.fr_object == "direct"
        master = subject if phrase.verb.fr_etre else phrase.thing if before else None
        agreed = agree((participle, participle + "e"), master) if master else participle
        words = [*ne, *clitics, auxiliary, *pas, agreed]
    else:
        words = [*ne, FINITE[phrase.mode][subject.person], *pas, *clitics, infinitive]
    return [*words, *objects, *time, *(phrase.place[2:] if phrase.place else [])]


def _objects(phrase: Phrase) -> tuple[list[str], list[str]]:
    """The pronouns before the verb, and the objects after it."""
    clitics: list[str] = []
    objects: list[str] = []
    thing, frame = phrase.thing, phrase.verb.fr_object if phrase.verb else "direct"
    if isinstance(thing, Pronoun) and frame in ("direct", "à"):
        clitics = [thing.fr[frame]]
    elif thing is not None and frame == "direct":
        objects = _participant(thing, negated=phrase.negated)
    elif thing is not None:
        preposition = frame.removesuffix("-lui")
        objects = [preposition, *_participant(thing, after_de=preposition == "de")]
    if isinstance(phrase.recipient, Pronoun):
        return [*clitics, phrase.recipient.fr["à"]], objects
    return clitics, [*objects, "à", *_participant(phrase.recipient)] if phrase.recipient else objects


def agree(forms: tuple[str, ...], who: Participant) -> str:
    """The form of an adjective or participle for the gender and number of its noun. forms: masculine, feminine, ..."""
    plural = who.person >= 3
    gender = who.fr_gender if isinstance(who, Pronoun) else who.noun.fr_gender
    form = forms[1 if gender == "f" else 0]
    if not plural or form[-1] in "sx":
        return form
    return form + ("x" if form.endswith("eau") else "s")


def _participant(who: Participant, role: str = "strong", negated: bool = False, after_de: bool = False) -> list[str]:
    """A noun phrase or pronoun.

    role: the form of a pronoun: subject, direct, à, strong
    negated: "pas de" for "pas un"
    after_de: "de" and "des" become "de"
    """
    if isinstance(who, Pronoun):
        return [who.fr[role]]
    words = _noun(who)
    article = _article(who, words[0], negated, after_de)
    if who.relative is None:
        return [*article, *words]
    return [*article, *words, "qui", *_phrase(who.relative, who, [])]


def _noun(who: NounPhrase) -> list[str]:
    noun = who.noun.fr[who.plural]
    if who.adjective is None:
        return [noun]
    if not who.adjective.fr_before:
        return [noun, agree(who.adjective.fr, who)]
    bel = who.noun.fr_gender == "m" and not who.plural and _vowel(noun)
    return [who.adjective.fr[2] if bel else agree(who.adjective.fr, who), noun]


def _article(who: NounPhrase, following: str, negated: bool, after_de: bool) -> list[str]:
    kind, feminine = who.determiner, who.noun.fr_gender == "f"
    if kind == "name":
        return []
    if kind in NUMBERS:
        return [NUMBERS[kind][1]]
    if kind == "the":
        return ["les" if who.plural else "la" if feminine else "le"]
    if kind == "this":
        return ["ces" if who.plural else "cette" if feminine else "cet" if _vowel(following) else "ce"]
    if kind in POSSESSIVES:
        return [POSSESSIVES[kind][1] + ("es" if who.plural else "a" if feminine and not _vowel(following) else "on")]
    if negated:
        return ["de"]
    if not who.plural:
        return ["une" if feminine else "un"]
    before = who.adjective is not None and who.adjective.fr_before
    return [] if after_de else ["de" if before else "des"]
