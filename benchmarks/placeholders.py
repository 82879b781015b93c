"""Count the placeholders kept by `nmt translate --markup xml`, for sentences with placeholders of each family.

    python benchmarks/placeholders.py --model FOLDER --source test.en [--lines 500] [--other COMMAND ...]

A word of each line is replaced by a placeholder. For each family it prints how many translations have the placeholder once
and unchanged, how many texts were left untranslated and reported, and how many lost it silently; also how many the same model
keeps without any protection of placeholders. The command of another tool gets the same lines as XML, and writes one line for
each (see benchmarks/argos.py).
"""

import argparse
import shlex
import subprocess
from collections.abc import Sequence
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
    """A line with a placeholder in place of one of its words, except the last, to keep its full stop."""
    words = line.split()
    words[random.randrange(1, max(len(words) - 1, 2))] = placeholder
    return " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--other", nargs="*", default=[], metavar="COMMAND")
    given = parser.parse_args()
    lines, random = read_lines(given.source)[: given.lines], Random(1)
    translator = load(given.model, options=TranslatorOptions(markup="xml", replicas=1))
    plain = load(given.model, options=TranslatorOptions(replace_unk=True, replicas=1))
    for name, examples in FAMILIES.items():
        chosen = [random.choice(examples) for _ in lines]
        texts = [with_placeholder(line, example, random) for line, example in zip(lines, chosen, strict=True)]
        marked = [escape(text, quote=False) for text in texts]
        results = translator.translate(marked)
        reported = sum(UNCHANGED in result.warnings for result in results)
        kept = num_kept([unescape(result.text) for result in results], chosen) - reported
        alone = num_kept([row.text for row in plain.translate(texts)], chosen)
        lost = len(lines) - kept - reported
        others = [num_kept(translated_by(command, marked), chosen) for command in given.other]
        print(
            f"{name}: {kept} kept, {reported} left and reported, {lost} lost; alone {alone}; others {others}",
            flush=True,
        )


def num_kept(translations: Sequence[str], placeholders: Sequence[str]) -> int:
    """How many translations have their placeholder once."""
    return sum(text.count(own) == 1 for text, own in zip(translations, placeholders, strict=True))


def translated_by(command: str, lines: Sequence[str]) -> list[str]:
    """The translations of another tool."""
    run = subprocess.run(shlex.split(command), input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True)
    return [unescape(line) for line in run.stdout.splitlines()]


if __name__ == "__main__":
    main()
