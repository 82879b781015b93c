"""The documentation site (`make docs`) builds without a broken link, has every page, and loads nothing from other hosts."""

import importlib.util
import re
import subprocess
import sys

import pytest
from pages import DOCUMENTS, PAGES, ROOT

GENERATOR = ("sphinx", "myst_parser", "furo")
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]*)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if missing := [name for name in GENERATOR if not importlib.util.find_spec(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-c", DOCUMENTS]
    built = subprocess.run(
        [*command, "-d", folder / "doctrees", ROOT, folder / "html"], cwd=folder, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


def test_the_site_has_every_page_and_its_root_leads_to_the_first(site):
    missing = [page for page in PAGES if not (site / page.relative_to(ROOT).with_suffix(".html")).exists()]
    assert missing == []
    assert (site / re.findall(r"url=([\w/.]+)", (site / "index.html").read_text())[0]).exists()


def test_each_page_has_a_search_and_the_navigation_of_the_index(site):
    page = (site / "docs/how-to/train.html").read_text()
    index = (DOCUMENTS / "README.md").read_text()
    captions = re.findall(r'class="caption-text">([^<]*)<', page)
    assert captions == [section for section in re.findall(r"^## (.+)$", index, re.M) if section != "Glossary"]
    assert 'action="../../search.html"' in page and (site / "searchindex.js").exists()


def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [(page.name, found) for page in pages if (found := LOADED.findall(page.read_text()))] == []
    assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", "".join(css.read_text() for css in site.rglob("*.css")))
