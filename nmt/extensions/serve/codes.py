"""Matches the language codes that clients send (`EN`, `pt_BR`, `deu`, `zh-Hant`) with those of the models."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import langcodes

MAX_CODE_CHARACTERS: Final = 40  # longer texts are not language codes
CLIENT_CODE: Final = re.compile(r"([A-Za-z0-9_-]+)(?:[.@][A-Za-z0-9@-]+)?")  # a code, or a locale such as `de_DE.UTF-8`
# Codes of Argos Translate and gettext that no standard knows.
CLIENT_ALIASES: Final = {"pb": "pt-BR", "zt": "zh-Hant"}
GETTEXT_SCRIPTS: Final = {"@latin": "-Latn", "@cyrillic": "-Cyrl"}
MACRO_LANGUAGES: Final = {"nb": "no", "nn": "no"}  # langcodes keeps these apart from Norwegian
OTHER_SCRIPT: Final = 50  # distance in langcodes at which readers of one language may be unable to read the other
CODES_AND_NAMES: Final = """
    af=Afrikaans am=Amharic ar=Arabic az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali bs=Bosnian ca=Catalan cs=Czech
    cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish
    fil=Filipino fr=French ga=Irish gl=Galician gu=Gujarati ha=Hausa he=Hebrew hi=Hindi hr=Croatian hu=Hungarian hy=Armenian
    id=Indonesian ig=Igbo is=Icelandic it=Italian ja=Japanese ka=Georgian kk=Kazakh km=Khmer kn=Kannada ko=Korean ku=Kurdish
    ky=Kyrgyz la=Latin lb=Luxembourgish lo=Lao lt=Lithuanian lv=Latvian mk=Macedonian ml=Malayalam mn=Mongolian mr=Marathi
    ms=Malay mt=Maltese my=Burmese nb=Norwegian ne=Nepali nl=Dutch nn=Norwegian no=Norwegian pa=Punjabi pl=Polish ps=Pashto
    pt=Portuguese ro=Romanian ru=Russian sk=Slovak sl=Slovenian so=Somali sq=Albanian sr=Serbian sv=Swedish sw=Swahili
    ta=Tamil te=Telugu tg=Tajik th=Thai tr=Turkish uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese yi=Yiddish yo=Yoruba
    yue=Cantonese zh=Chinese zu=Zulu
"""
NAMES: Final = dict(entry.split("=") for entry in CODES_AND_NAMES.split())


def standard_code(code: str) -> str:
    """A code in its standard form: `en` for `eng`, `pt-BR` for `PT_br`. Codes of unknown languages stay unchanged."""
    return _standard(code) or code


def language_name(code: str) -> str:
    """The English name of a language, or its code if the name is unknown."""
    return NAMES.get(_language(_standard(code)), code)


def code_distance(asked: str, own: str) -> int | None:
    """How much two language codes differ: 0 if equal, None if they name different languages or different scripts.

    Bokmål and Nynorsk each match Norwegian, but not each other. Likewise Traditional and Simplified Chinese each match
    Chinese, but not each other.
    """
    one, other = _standard(asked), _standard(own)
    if not (one and other):
        return 0 if asked.lower() == own.lower() else None
    if one == other:
        return 0
    is_other_norwegian = {_language(one), _language(other)} == {"nb", "nn"}
    if is_other_norwegian or _macro_language(one) != _macro_language(other):
        return None
    distance = langcodes.tag_distance(one, other)
    has_other_script = distance >= OTHER_SCRIPT and "-" in one and "-" in other
    return None if has_other_script else 1 + distance


def nearest_code(asked: str, known: Iterable[str]) -> str | None:
    """The known code closest to the requested one; None if no known code names the same language."""
    found = [(distance, code) for code in known if (distance := code_distance(asked, code)) is not None]
    return min(found, key=lambda row: row[0])[1] if found else None


@lru_cache(1 << 10)
def _standard(code: str) -> str:
    """Like `standard_code`, but empty if the code names no language."""
    code = CLIENT_ALIASES.get(code.lower(), code)
    for ending, script in GETTEXT_SCRIPTS.items():
        code = code.replace(ending, script)
    found = CLIENT_CODE.fullmatch(code) if len(code) <= MAX_CODE_CHARACTERS else None
    try:
        return langcodes.standardize_tag(found[1], macro=True) if found else ""
    except ValueError:
        return ""


def _language(code: str) -> str:
    return code.partition("-")[0]


def _macro_language(code: str) -> str:
    return MACRO_LANGUAGES.get(_language(code), _language(code))
