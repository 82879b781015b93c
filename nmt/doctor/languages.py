"""Which script and which language a line is in, told from letters and function words alone: no model, nothing downloaded.

A language is told by its most frequent function words and by letters that few languages write; what it cannot see is in
docs/doctor.md. Cavnar and Trenkle (1994) count all n-grams for the same end; a table of words can be read and mended.
"""

import re
import struct
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Final

# The commonest words without meaning of their own. A word of several languages counts for each, and for each the less.
FUNCTION_WORDS: Final[Mapping[str, str]] = {
    "en": "the of and to in is that it was for on are with as be at this have from or by not but what all were when we "
    "there can an your which their if will each about how up out them then she many some these would other into has her i "
    "you he we they my me do did does don know get got who why want could should been just like no so had him us our",
    "de": "der die und das den von zu ist mit des sich dem nicht ein eine auf für im es auch als dass daß werden aus er "
    "hat wir nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr "
    "durch man sein wurde sei ich hatte kann gegen vom wenn unter sie uns diese dieser",
    "fr": "le de la les et des en un une du que est pour qui dans par plus pas au sur ne se il ce sont avec mais nous "
    "vous je c j n qu cette ces aux ou leur être ont elle été même son sa ses comme tout fait on aussi si entre sans deux où",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este sí "
    "porque esta entre cuando muy sin sobre también me hasta hay donde han quien desde todo nos durante uno ni ese eso",
    "it": "di che è e la il un a per in una mi sono ho non lo ma ha le si ti i con cosa se da io come ci no questo qui "
    "più del della dei delle nel nella alla al gli anche degli sul dalla loro questa perché essere stato",
    "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à seu sua "
    "ou ser quando muito há nos já está também só pelo pela até isso ela entre era depois sem mesmo aos são você",
    "nl": "de en van ik te dat die in een hij het niet zijn is was op aan met als voor had er maar om hem dan zou of wat "
    "mijn men dit zo door over ze zich bij ook tot je mij uit der daar haar naar heb hoe heeft hebben deze worden wij",
    "da": "og i jeg det at en den til er som på de med han af for ikke der var mig sig men et har om vi min havde ham "
    "hun nu over da fra du ud sin dem os op man hans hvor eller hvad skal selv her alle vil blev kunne ind når være efter",
    "sv": "och det att i en jag hon som han på den med var sig för så till är men ett om hade de av icke mig du henne då "
    "sin nu har inte hans honom skulle hennes där min ej vid kunde något från ut när efter upp vi dem vara vad över än",
    "fi": "ja on ei se että oli hän en ole mutta niin kun ovat myös joka kuin ne sen mukaan ovat hänen tämä jos mitä "
    "sitä tai sekä mikä ollut vain minä sinä olen olet tämän kanssa hyvin nyt voi siitä häntä siellä jo olisi "
    "kaikki heidän heille häneen niitä",
    "pl": "i w na z do to się nie że jest o jak po co tak za od ale dla przez był czy tylko jego jej być może są które "
    "który która oraz lub przy już także tym tego ten ta te bardzo ich było mnie mam gdy sobie aby",
    "cs": "a v na je se že z do to o i k pro za ale jsem jsou po od byl bylo jako aby jak co tak když už které "
    "který která jeho nebo ze při než tom má jen podle této také není může být mezi více však jsme",
    "ro": "de și în a la cu pe nu o că din un este să se pentru care mai fi au sau prin dar ca sunt al ale lui după "
    "fost despre când această acest cel cea le dacă foarte fără între avea ei noi",
    "hu": "a az és hogy nem is egy ez volt meg azt de csak már van ha még mint el vagy ki fel lesz mert ezt minden után "
    "azonban között pedig olyan amely sem kell nagyon majd szerint lehet ezek itt most",
}
# Letters that few of these languages write; one counts as a word does, however often it stands in the line.
LETTERS: Final[Mapping[str, str]] = {
    "ß": "de", "ä": "de sv fi", "ö": "de sv fi hu", "ü": "de hu", "œ": "fr", "ê": "fr pt", "ç": "fr pt", "è": "fr it",
    "ù": "fr it", "ì": "it", "ò": "it", "ñ": "es", "¿": "es", "¡": "es", "ã": "pt", "õ": "pt", "å": "sv da", "æ": "da",
    "ø": "da", "ą": "pl", "ę": "pl", "ł": "pl", "ś": "pl", "ż": "pl", "ź": "pl", "ř": "cs", "ě": "cs", "ů": "cs",
    "š": "cs", "č": "cs", "ž": "cs", "ă": "ro", "ș": "ro", "ț": "ro", "ş": "ro", "ţ": "ro", "ő": "hu", "ű": "hu",
}  # fmt: skip

# Two words of no other language, or more that are shared: one word alone may be a name or a title.
LEAST_SCORE: Final = 2.0
# The best must stand out: neighbours (da and sv, es and pt) share words, and a quotation brings a second language.
LEAST_LEAD: Final = 2.0

WORD: Final = re.compile(r"[^\W\d_]+")
_AROUND_WORDS: Final = "'’.,?!"  # the apostrophe is within: l'eau is two words
_MARKS: Final = re.compile(f"[{''.join(LETTERS)}]")

# Ranges of the letters of a script (Unicode, Scripts.txt, its blocks).
SCRIPTS: Final[Mapping[str, str]] = {
    "latin": "A-Za-zªºÀ-ɏɐ-ʯḀ-ỿⱠ-ⱿꜢ-ꟿﬀ-ﬆＡ-Ｚａ-ｚ",
    "greek": "Ͱ-Ͽἀ-῿",
    "cyrillic": "Ѐ-ԯᲀ-ᲈⷠ-ⷿꙀ-ꚟ",
    "armenian": "Ա-֏",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "devanagari": "\u0900-\u097f",
    "bengali": "\u0980-\u09ff",
    "gurmukhi": "\u0a00-\u0a7f",
    "gujarati": "\u0a80-\u0aff",
    "tamil": "\u0b80-\u0bff",
    "telugu": "\u0c00-\u0c7f",
    "kannada": "\u0c80-\u0cff",
    "malayalam": "\u0d00-\u0d7f",
    "sinhala": "\u0d80-\u0dff",
    "thai": "\u0e00-\u0e7f",
    "lao": "\u0e80-\u0eff",
    "burmese": "\u1000-\u109f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf",
    "ethiopic": "\u1200-\u139f",
    "khmer": "\u1780-\u17ff",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "han": "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
}
LANGUAGES_OF_SCRIPTS: Final[Mapping[str, str]] = {
    "latin": "af az bs ca cs cy da de en eo es et eu fi fr ga gl ha hr hu id is it lb lt lv ms mt nb nl nn no oc om pl pt "
    "ro sk sl so sq sv sw tl tr uz vi xh yo zu",
    "latin cyrillic": "sr",
    "greek": "el",
    "cyrillic": "be bg kk ky mk mn ru tg tt uk",
    "armenian": "hy",
    "hebrew": "he iw yi",
    "arabic": "ar ckb fa ps sd ug ur",
    "devanagari": "hi mr ne sa",
    "bengali": "as bn",
    "gurmukhi": "pa",
    "gujarati": "gu",
    "tamil": "ta",
    "telugu": "te",
    "kannada": "kn",
    "malayalam": "ml",
    "sinhala": "si",
    "thai": "th",
    "lao": "lo",
    "burmese": "my",
    "georgian": "ka",
    "ethiopic": "am ti",
    "khmer": "km",
    "hangul han": "ko",
    "kana han": "ja",
    "han": "zh yue",
}
# Latin letters that one character says about as much as, by the sizes of translations.
CHARACTER_WORTH: Final[Mapping[str, float]] = {"zh": 3.5, "yue": 3.5, "ja": 2.3, "ko": 2.0}
# Below this many letters a line is a name, a unit or a chemical symbol rather than text of a script.
LEAST_LETTERS: Final = 4
_BEYOND_LATIN: Final = re.compile(
    r"[\u0370-\u1dff\u2c80-\ua71f\ua800-\ufaff\ufb07-\uff20\uff5b-\uffef\U00010000-\U0010ffff]"
)


# What a word or letter says is 1, shared among its languages. All of them are in one number, 32 bits for each language, so
# that the scores of a line are one sum: a guess takes some microseconds, and there are 72 million lines.
_ONE: Final = 1 << 12
_SCORES: Final = struct.Struct(f"<{len(FUNCTION_WORDS)}I")


def _weights() -> dict[str, int]:
    languages: defaultdict[str, set[str]] = defaultdict(set)
    for language, words in FUNCTION_WORDS.items():
        for word in words.split():
            languages[word].add(language)
    for letter, names in LETTERS.items():
        languages[letter] |= set(names.split())
    place = {language: 32 * i for i, language in enumerate(FUNCTION_WORDS)}
    return {word: sum(_ONE // len(names) << place[name] for name in names) for word, names in languages.items()}


_WEIGHTS: Final = _weights()
_KNOWN: Final = frozenset(_WEIGHTS)
_LANGUAGES: Final = tuple(FUNCTION_WORDS)


@cache
def base_language(code: str) -> str:
    """The language of a code with region or script: pt_BR and pt-BR are pt."""
    return re.split("[-_]", code.lower())[0]


@cache
def is_profiled(language: str) -> bool:
    """Whether its function words are in the table."""
    return base_language(language) in FUNCTION_WORDS


def guess_language(text: str) -> str | None:
    """The language of the table that text is plainly in; None where that cannot be said, as of most short lines."""
    lower = text.lower()
    for mark in _AROUND_WORDS:
        lower = lower.replace(mark, " ")
    found = _KNOWN.intersection(lower.split())
    if not lower.isascii():
        found = found.union(_MARKS.findall(lower))
    scores = _SCORES.unpack(sum(map(_WEIGHTS.__getitem__, found)).to_bytes(_SCORES.size, "little"))
    second, best = sorted(scores)[-2:]
    plain = best >= LEAST_SCORE * _ONE and best >= LEAST_LEAD * second
    return _LANGUAGES[scores.index(best)] if plain else None


@cache
def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts that a language is written in; empty for a language that is not in the table."""
    code = base_language(language)
    return next((tuple(names.split()) for names, codes in LANGUAGES_OF_SCRIPTS.items() if code in codes.split()), ())


@cache
def _letters_of(scripts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(SCRIPTS[name] for name in scripts)}]")


def foreign_script(text: str, scripts: tuple[str, ...]) -> str | None:
    """The script of text whose letters are mostly of none of `scripts`, as "cyrillic"; None where they are."""
    if (
        not scripts
        or (scripts[0] == "latin" and text.isascii())
        or (scripts == ("latin",) and not _BEYOND_LATIN.search(text))
    ):
        return None
    letters = [letter for word in WORD.findall(text) for letter in word]
    if len(letters) < LEAST_LETTERS:
        return None
    foreign = _letters_of(scripts).sub("", "".join(letters))
    return script_of(foreign[0]) if 2 * len(foreign) > len(letters) else None


def script_of(letter: str) -> str:
    """The script of a letter by its name in Unicode, as "latin"; "cjk" is Han."""
    return unicodedata.name(letter, "unknown").split()[0].lower()
