"""The documents name what there is: every command of nmt, and pages and places that exist."""

import re
from pathlib import Path

import pytest

from nmt.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readmes_table_has_a_row_for_every_command():
    rows = re.findall(r"^\| `nmt ([\w-]+)` \|", (ROOT / "README.md").read_text(), re.M)
    assert sorted(rows) == sorted(COMMANDS)


def test_the_readme_links_every_page():
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
