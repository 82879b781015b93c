"""Names of languages by their codes of ISO 639-1, for menus."""

from typing import Final

from nmt.text.languages import base_language

CODES_AND_NAMES: Final = """
    af=Afrikaans ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech da=Danish de=German el=Greek en=English eo=Esperanto
    es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician he=Hebrew hi=Hindi hr=Croatian
    hu=Hungarian hy=Armenian id=Indonesian is=Icelandic it=Italian ja=Japanese ka=Georgian kk=Kazakh ko=Korean lt=Lithuanian
    lv=Latvian mk=Macedonian ms=Malay mt=Maltese nb=Norwegian nl=Dutch nn=Norwegian no=Norwegian pl=Polish pt=Portuguese
    ro=Romanian ru=Russian sk=Slovak sl=Slovenian sq=Albanian sr=Serbian sv=Swedish sw=Swahili ta=Tamil te=Telugu th=Thai
    tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu vi=Vietnamese zh=Chinese
"""
NAMES: Final = dict(entry.split("=") for entry in CODES_AND_NAMES.split())


def language_name(code: str) -> str:
    """The English name of a language; its code if it is not known."""
    return NAMES.get(base_language(code), code)
