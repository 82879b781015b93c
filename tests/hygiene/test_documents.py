"""The documents name what exists, are easy to read, and are current."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from pages import BLOCK, DOCUMENTS, PAGES, ROOT, code_blocks

from nmt.cli.commands import commands

PROSE = [*PAGES, *sorted((ROOT / "recipes").rglob("*.md"))]
MAX_README_LINES = 120
MAX_MEAN_WORDS, MAX_WORDS = 18, 40  # of a sentence


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sentences(text: str) -> list[str]:
    """The sentences of a page's prose: no code blocks, tables, headings and link targets. Code within a line is a word."""
    text = re.sub(r"<!--.*?-->", "", BLOCK.sub("", text), flags=re.S)
    text = re.sub(r"^(#|\|).*$", "", text, flags=re.M)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.M)  # an item of a list is a paragraph
    text = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    parts = [
        part for paragraph in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.!?])[\"')*\]]*\s", paragraph)
    ]
    return [" ".join(part.split()) for part in parts if re.search(r"\w", part)]


def test_the_table_in_the_readme_names_every_command():
    rows = re.findall(r"^\|.*$", (ROOT / "README.md").read_text(), re.M)
    assert sorted(set(re.findall(r"`nmt ([\w-]+)`", "\n".join(rows)))) == sorted(commands())


def test_the_readme_is_short_and_names_the_first_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < MAX_README_LINES
    assert "make demo" in text and "make test" in text and "docs/README.md" in text


def test_the_documentation_index_links_every_page():
    text = (DOCUMENTS / "README.md").read_text()
    names = [page.relative_to(DOCUMENTS) for page in DOCUMENTS.rglob("*.md")]
    assert [str(name) for name in names if name != Path("README.md") and f"]({name})" not in text] == []


def leads_nowhere(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


def test_every_link_leads_to_an_existing_file_and_heading():
    pages = [*PROSE, ROOT / "CHANGELOG.md"]
    found = [(page, re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text()))) for page in pages]
    links = [(page, link) for page, named in found for link in named if not link.startswith("http")]
    assert [(page, link) for page, link in links if leads_nowhere(page, link)] == [] != links


def test_sentences_are_short():
    counts = {page: [(len(one.split()), one) for one in sentences(page.read_text())] for page in PROSE}
    assert [one for found in counts.values() for one in found if one[0] > MAX_WORDS] == []
    totals = {page: sum(count for count, _ in found) for page, found in counts.items()}
    assert [page for page, found in counts.items() if totals[page] >= MAX_MEAN_WORDS * len(found)] == []


def test_sentence_lengths_exclude_tables_code_and_link_targets():
    text = "# A\n\nTwo words. See [the\nlist](a/b.md#c)\n`nmt a b c`:\n\n- one item\n  goes on\n- two\n\n| a |\n\n```\nx\n```\n"
    assert sentences(text) == ["Two words.", "See [the list] code:", "one item goes on", "two"]


def test_a_page_made_from_code_is_current(monkeypatch):
    monkeypatch.syspath_prepend(DOCUMENTS)  # as for the script
    specification = importlib.util.spec_from_file_location("generate", DOCUMENTS / "generate.py")
    assert specification and specification.loader
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    for path, text in generate.pages().items():
        assert path.read_text() == text, f"run `make docs`: {path.name} is not current"


def test_the_scripts_and_targets_of_a_page_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    blocks = "\n".join(block for page in PROSE for block in code_blocks(page.read_text()))
    named = re.findall(r"(?<![\w/.])(?:bash|python) ([\w/.-]+\.\w+)", blocks)
    assert [script for script in named if not (ROOT / script).exists()] == []
    assert set(re.findall(r"^make ([\w-]+)", blocks, re.M)) - targets == set()


def test_no_text_says_to_install_an_unpublished_package():
    name = "nmt-" + "toolkit"
    search = ["git", "grep", "-l", "-E", f"install.*{name}", "--", "*.md", "*.py", "*.toml", "Makefile"]
    found = subprocess.run(search, cwd=ROOT, capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip("not a checkout of git")
    assert found.stdout == ""
