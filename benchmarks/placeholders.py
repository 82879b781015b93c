"""Count the placeholders that `nmt translate --markup xml` keeps: sentences with placeholders of each family.

    python benchmarks/placeholders.py --model FOLDER --source test.en [--lines 500]

A word of each line is replaced by a placeholder. For each family it prints how many translations have the placeholder once
and letter by letter, how many texts stayed as they were and were reported, and how many lost it silently; and how many the same
model keeps if it gets the lines as they are, as programs without a protection of placeholders give them to it.
"""

import argparse
from html import escape, unescape
from pathlib import Path
from random import Random

from nmt.text.corpus import read_lines
from nmt.translate.options import TranslatorOptions
from nmt.translate.results import UNCHANGED
from nmt.translators import load

FAMILIES = {
    "printf": ("%s", "%1$s", "%d"),
    "Python": ("%(name)s", "{x!r:>10}", "{0:N2}"),
    "Mustache, Angular": ("{{ userName }}", "{{ value | upper }}", "{{#if x}}"),
    "Jinja": ("{% user.name %}", "{# note #}", "{{ x|default('a') }}"),
    "ERB, PHP": ("<%= user.name %>", "<?php echo $user->name; ?>", "<%- x -%>"),
    "shell, Ruby": ("${ user.name }", "#{name}", "%{count}"),
    "ICU": ("{0, number}", "{today, date, short}", "{count}"),
    "Fluent, Vue, i18next": ("{ $partialSize }", "@:message.hello", "$t(key)"),
    "Laravel, Drupal, WebExtension": (":name", "@count", "__count__"),
    "Swift, Qt": ("%@", "\\(name)", "%L1"),
    "brackets": ("[name]", "[[name]]", "[USER_NAME]"),
    "addresses": ("https://example.org/a?b=c", "me@example.org", "www.example.org"),
}


def with_placeholder(line: str, placeholder: str, random: Random) -> str:
    """A line with a placeholder in place of one of its words, but for the last, whose full stop stays."""
    words = line.split()
    words[random.randrange(1, max(len(words) - 1, 2))] = placeholder
    return " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=500)
    given = parser.parse_args()
    lines, random = read_lines(given.source)[: given.lines], Random(1)
    translator = load(given.model, options=TranslatorOptions(markup="xml", replicas=1))
    plain = load(given.model, options=TranslatorOptions(replace_unk=True, replicas=1))
    for name, examples in FAMILIES.items():
        chosen = [random.choice(examples) for _ in lines]
        texts = [with_placeholder(line, example, random) for line, example in zip(lines, chosen, strict=True)]
        results = translator.translate([escape(text, quote=False) for text in texts])
        reported = sum(UNCHANGED in result.warnings for result in results)
        written = [unescape(result.text) for result in results]
        kept = sum(text.count(example) == 1 for text, example in zip(written, chosen, strict=True)) - reported
        alone = sum(row.text.count(example) == 1 for row, example in zip(plain.translate(texts), chosen, strict=True))
        lost = len(lines) - kept - reported
        print(f"{name}: {kept} kept, {reported} left and reported, {lost} lost; alone {alone}", flush=True)


if __name__ == "__main__":
    main()
