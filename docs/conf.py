"""Settings of the documentation site, which `make docs` builds with Sphinx from the Markdown files of the checkout.

The sources are the files as they stand, also those outside docs/, so that a link works the same on the site, in an editor and on
GitHub. The navigation is made from the tables of docs/README.md: a page that is listed there is on the site. The site
loads nothing from other hosts: the theme uses the fonts of the system, and the search runs in the browser.
"""

import ast
import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README"  # the page whose tables are the navigation
HOME = "README"


def version_of_nmt() -> str:
    """The version, read without importing nmt, so that the site needs no torch."""
    assignment = ast.parse((ROOT / "nmt/version.py").read_text()).body[-1]
    assert isinstance(assignment, ast.AnnAssign) and isinstance(assignment.value, ast.Constant)
    return str(assignment.value.value)


project = "nmt"
author = "the authors of nmt"
release = version_of_nmt()
extensions = ["myst_parser"]
root_doc = HOME
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**.md", "recipes/**.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "runs",
    "nmt",
    "tests",
    "benchmarks",
    "deploy",
]  # not searched
myst_heading_anchors = 6  # the anchors that GitHub gives to headings
language = "en"
html_theme = "furo"
html_title = f"nmt {release}"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_permalinks_icon = "#"


def navigation(index: str) -> str:
    """One hidden table of contents per section of the index page, with the pages that the section links to, in order."""
    _, *sections = re.split(r"^## (.+)$", index, flags=re.M)
    trees = [f"```{{toctree}}\n:hidden:\n\n/{INDEX}\n```"]
    for caption, text in zip(sections[::2], sections[1::2], strict=True):
        links = dict.fromkeys(re.findall(r"\]\(([^)#:]+)\.md\)", text))
        pages = [f"/{(ROOT / 'docs' / link).resolve().relative_to(ROOT)}" for link in links]
        if pages:
            trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]))
    return "\n\n".join(trees)


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the navigation to the home page, so that the Markdown files need no markup of Sphinx."""
    if page == HOME:
        index = (ROOT / INDEX).with_suffix(".md")
        app.env.note_dependency(str(index))
        source[0] += f"\n{navigation(index.read_text())}"


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Let the site's root lead to the home page, which is named after README.md."""
    if error is None and app.builder.format == "html":
        link = f'<meta http-equiv="refresh" content="0; url={HOME}.html">'
        (Path(app.outdir) / "index.html").write_text(f"<!doctype html>\n<title>nmt</title>\n{link}\n")


def setup(app: Sphinx) -> None:
    """Connect the two functions to Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_index)
