"""The pages of the documentation, and their code blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCUMENTS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def code_blocks(text: str, language: str = "") -> list[str]:
    """The code blocks of a language; those without one are commands."""
    return [block for name, block in BLOCK.findall(text) if name == language]
