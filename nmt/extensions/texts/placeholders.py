"""Finds placeholders of programs, templates and translation tools in a text, using a table of families."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

RAISED_SIGNS: Final = "¹²³⁰⁴-⁹†‡®™©℠"
EMOJI: Final = "\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff"
# A translation must contain each placeholder unchanged. At each position, the first matching family wins.
FAMILIES: Final[Mapping[str, str]] = {
    "address": r"(?:https?://|www\.)[^\s<>\"]{0,2000}[^\s<>\".,;:!?)\]}'…»”。]"
    r"|(?<![\w.+-])[\w.+-]{1,100}+@[\w-]{1,100}\.[\w.-]{0,100}\w",
    "mustache {{ x | f }}": r"\{\{\{?(?:[^{}]|\{[^{}]{0,100}\}){0,300}\}?\}\}",
    "tag {% x %}, {# x #}": r"\{%(?:[^%{}]|%(?!\})){0,300}%\}|\{\#\s[^{}]{0,300}\#\}",
    "ERB, EJS <%= x %>, PHP <?= x ?>": r"<%(?:[^%<]|%(?!>)){0,300}%>|<\?(?:[^?<]|\?(?!>)){0,300}\?>",
    "quoted '{x}'": r"'\{[^'{}\n]{0,100}\}'|'[{}]{1,9}'",
    "shell ${x}, Ruby #{x}, %{x}": r"[$\#%@]\{[^{}]{0,200}\}",
    "call $t(x), \\(x)": r"\$\w{0,20}\([^()\n]{1,200}\)|\\\([^()\n]{1,100}\)",
    "variable $x": r"\$[A-Za-z_]\w{0,60}+",
    "LaTeX \\x{y}": r"\\[A-Za-z]{2,40}\*?(?:\[[^\[\]\n]{0,100}\])?(?:\{[^{}\n]{0,200}\}){1,3}",
    "Svelte {#if x}": r"\{[\#@:/][^{}\n]{0,200}\}",
    "braces {x}, {0:N2}, {x!r:>10}, { $x }, {x, date, short}": r"""\{\s{0,9}(?:
        [$*&^!.%-]{0,3}[\w$][\w.$-]{0,100}(?:\s{0,9}[\[(!:|,=?+*\\/][^{}\n]{0,200})?
        | "[^"{}\n]{0,100}" | [:!][^{}\n]{0,100} )?\s{0,9}\}""",
    "Python %(x)s": r"%\([^()\s]{1,100}\)[-+\#0]{0,5}+\d{0,4}(?:\.\d{1,4})?[A-Za-z]",
    "Windows %X%": r"%%\w{1,60}%%|%\w{1,60}%",
    "printf %s, %1$s, %-5.2f, %@": r"""(?<!\d)%(?!L\d)(?:\d{1,4}\$)?[-+\#0]{0,5}+(?:\d{1,4}|\*)?(?:\.(?:\d{1,4}|\*))?
        (?:hh|ll|[hlLqjzt])?[a-zA-Z@](?![a-z])""",
    "Qt %1, %L1": r"(?<!\d)%L?\d{1,4}|%%",
    "Drupal %x, @x": r"(?<![\w%])(?<!\d\s)%[A-Za-z_]\w{1,60}|(?<![\w.@])@[A-Za-z_]\w{0,60}(?:-\w{1,60}){0,5}",
    "Vue @:x": r"(?<![\w@])@(?:\.\w{1,20})?:\w{1,60}(?:\.\w{1,60}){0,9}",
    "Laravel :x": r"(?<![\w:/.)\]]):[a-z]\w{1,60}:?(?!\w)",
    "underlined __x__": r"(?<!\w)__[A-Za-z0-9]{1,60}(?:_[A-Za-z0-9]{1,60}){0,9}__(?!\w)",
    "number signs #x#": r"(?<![\w\#&])\#{1,2}[A-Za-z_]\w{0,60}\#{1,2}(?!\w)",
    "Mailchimp *|X|*": r"\*\|[^|\n]{1,60}\|\*",
    "code `x`": r"(?<![\w`])`[^`\n]{1,200}`(?![\w`])",
    "brackets [[x]], [x y=z]": r"""\[\[[^\[\]\n]{1,200}\]\]
        | \[/?[a-z][\w-]{0,60}(?:\s{1,5}[\w-]{1,60}=(?:"[^"\]\n]{0,200}"|'[^'\]\n]{0,200}'|[^\s\]"']{1,100})){1,20}\s?/?\]""",
    "note [1], [^x]": r"(?<=[\w.,;:!?)\]\"'”’])\[\d{1,4}\]|\[\^[\w-]{1,60}\]",
    # Brackets around a whole text do not count: [music].
    "bracket [x]": r"(?:(?<=.)\[|\[(?=[^\[\]]{1,60}\].))[a-z][\w.-]{0,60}\]|\[[A-Za-z]\w{0,40}[_.\d-][\w.-]{0,60}\]",
    "tag <x>": r"""</?[A-Za-z][\w:-]{0,60}
        (?:\s{1,5}[\w:-]{1,60}=(?:"[^"<>]{0,500}"|'[^'<>]{0,500}'|[^\s"'<>]{1,200})){0,20}\s?/?>""",
    "entity &x;": r"&(?:[A-Za-z]\w{0,31}|\#\d{1,7}|\#x[0-9A-Fa-f]{1,6});",
    "power 10², m³": r"(?<!\w)(?:\d{1,9}|[a-zA-Zµ]{1,2})[¹²³⁰⁴-⁹⁻]{1,4}(?!\w)",
    "sign after a word": rf"(?<=[^\W_])[{RAISED_SIGNS}]{{1,5}}",
    "emoji": rf"[{EMOJI}][{EMOJI}\u200d\ufe0f\U000e0020-\U000e007f]{{0,20}}",
}
EMOJI_SIGN: Final = re.compile(f"[{EMOJI}]")
PLACEHOLDER: Final = re.compile("|".join(f"(?:{pattern})" for pattern in FAMILIES.values()), re.VERBOSE | re.DOTALL)
# Signs and notes, which may be anywhere in a sentence.
LOOSE: Final = re.compile(rf"[{RAISED_SIGNS}]+ | [{EMOJI}].* | \[\^?\d+\] | \[\^.*", re.VERBOSE)
STATEMENTS: Final = (
    "if|elif|else|elsif|unless|for|block|set|with|include|extends|import|case|when|assign|load|end|plural|raw"
)
# Placeholders that represent no word: statements, tags and signs.
WIDTHLESS: Final = re.compile(
    rf"""\{{\{{?[\#/^!:][^{{}}]*\}}?\}} | \{{%-?\s*(?:{STATEMENTS})\w*\b.* | \{{\#.*
    | <%(?![=-]).* | <\?(?!=|php\s+(?:echo|print)\b).* | </?[A-Za-z].* | <!.*
    | {LOOSE.pattern} | \[/?[a-z][\w-]*\s.*""",
    re.VERBOSE | re.DOTALL,
)


def placeholders(text: str) -> list[str]:
    """The placeholders of a text, sorted."""
    return sorted(found[0] for found in PLACEHOLDER.finditer(text))


def has_placeholders(text: str) -> bool:
    return PLACEHOLDER.search(text) is not None


def found_placeholders(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each placeholder in a text."""
    return (found.span() for found in PLACEHOLDER.finditer(text))


def has_letters(text: str) -> bool:
    """Whether there is anything to translate besides placeholders, digits and punctuation."""
    return any(map(str.isalpha, PLACEHOLDER.sub("", text)))
