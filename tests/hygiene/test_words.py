"""The English of every text a person reads: patterns that a regular expression finds, and the size of each help."""

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from modules import FILES, ROOT
from pages import PAGES

from nmt import registry
from nmt.cli import main
from nmt.cli.commands import commands
from nmt.options import options_of

TOP = ROOT.parent
PATTERNS = {
    "a verb without its subject after a colon": r"[^`\s(]: (?:is|has|takes|needs|are|was|gives) (?!not needed)",
    "'goes on' for resumes or continues": r"\b(?:go|goes|going|gone|went) on\b(?! [a-z]+ly)",
    "'anew' for again or from scratch": r"\banew\b",
    "'beside' for next to or besides": r"\bbeside\b",
    "'mend' for fix": r"\bmend(?:s|ed)?\b",
    "'of before', 'of earlier days'": r"\bof (?:before|earlier days)\b",
    "'begun' and 'begins with'": r"\b(?:begun|begins? with|beginning with)\b",
    "'that is there' for existing": r"\b(?:that|which) (?:is|are) (?:already )?there\b",
    "'leave out' for drop": r"\bleav(?:e|ing) (?:it|them|--[\w-]+|one) out\b",
    "'exit code' for exit status": r"\b(?:exit|with) code \d|\bexit codes?\b",
    "'in vain'": r"\bin vain\b",
}
MAX_SHORT_LINES = 45
MAX_OPTIONS = 12  # under one heading
MAX_WORDS = 15  # of a sentence of an option's help


def texts_of(file: Path) -> Iterator[tuple[int, str]]:
    """The string literals with a space in them, and the comments, of a Python file, each with its line."""
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, " ".join("".join(map(str, parts)).split())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def all_texts() -> list[tuple[str, str]]:
    """Every text of the program and of the pages, with its place."""
    found = [(f"{file.relative_to(TOP)}:{line}", text) for file in FILES for line, text in texts_of(file)]
    return found + [
        (f"{page.relative_to(TOP)}:{number}", line)
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    ]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return all_texts()


@pytest.mark.parametrize("name", PATTERNS)
def test_no_text_has_a_pattern_of_another_language(name, texts):
    found = [f"{place} {text}" for place, text in texts if re.search(PATTERNS[name], text)]
    assert found == []


def help_of(arguments: list[str], capsys, monkeypatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(arguments) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", list(commands()))
def test_the_short_help_fits_a_screen_with_a_line_for_each_flag(command, capsys, monkeypatch):
    lines = help_of([command, "-h"], capsys, monkeypatch)
    assert len(lines) <= MAX_SHORT_LINES and max(map(len, lines)) <= 80
    flags = lines[lines.index("Examples") + 5 : -2]
    continued = [line for line in flags if line.startswith("   ")]
    assert continued == []


@pytest.mark.parametrize("command", list(commands()))
def test_a_heading_of_the_help_has_few_flags_and_every_flag_has_one(command, capsys, monkeypatch):
    lines, counts = help_of([command, "--help"], capsys, monkeypatch), dict[str, int]()
    heading = ""
    for line in lines[lines.index("Examples") + 4 :]:
        if re.match(r"[A-Z][a-z]", line):
            heading = line
        elif re.match(r"  [-A-Z]", line):
            counts[heading] = counts.get(heading, 0) + 1
    assert max(counts.values()) <= MAX_OPTIONS and "Options" not in counts, counts


def test_a_sentence_of_an_option_s_help_is_short():
    classes = [importlib.import_module(file.module).COMMAND.options for file in commands().values()]
    classes += [registry.find(kind, name).options for kind in registry.FOLDERS for name in registry.names(kind)]
    helps = {option.help for each in classes for option in options_of(each)}
    long = [text for text in helps for part in re.split(r"[.;:] ", text) if len(part.split()) > MAX_WORDS]
    assert long == []
