"""The line between the core and the extensions: nothing outside `nmt/extensions/` imports from it.

OPEN lists the imports that still cross the line. It may only shrink.
"""

from modules import FILES, imported_modules, module_of

from nmt.registry import extension_of

OPEN = """
nmt.cli.translate -> nmt.extensions.watch.drawings
nmt.data.prepare -> nmt.extensions.vocabularies.extension
nmt.decoders.base -> nmt.extensions.searches.avoid
nmt.decoders.filters -> nmt.extensions.searches.avoid
nmt.translate.own_engine -> nmt.extensions.searches.rerank
nmt.translate.own_engine -> nmt.extensions.searches.shortlist
nmt.translate.own_engine -> nmt.extensions.searches.shortlist_file
"""
ALLOWED = {  # between extensions, by the tree of docs/explanation/design.md
    ("ctranslate2", "searches"),
    ("ctranslate2", "toolkits"),
    ("doctor", "watch"),
    ("documents", "texts"),
    ("methods", "fast"),
    ("methods", "vocabularies"),
    ("serve", "doctor"),
    ("serve", "texts"),
    ("sweep", "watch"),
    ("toolkits", "ctranslate2"),
    ("zoo", "variants"),
}


def imports() -> set[tuple[str, str]]:
    """Every import of a module of nmt by another: (importing, imported)."""
    return {(module_of(file), other) for file in FILES for other in imported_modules(file)}


def test_the_core_imports_no_extension_but_as_listed():
    crossing = {(a, b) for a, b in imports() if extension_of(a) is None and extension_of(b) is not None}
    listed = {tuple(line.split(" -> ")) for line in OPEN.strip().splitlines()}
    assert sorted(crossing - listed) == [], "new imports that cross the line"
    assert sorted(listed - crossing) == [], "these no longer cross the line: take them off the list"


def test_an_extension_imports_only_those_that_it_may():
    crossing = {(extension_of(a), extension_of(b)) for a, b in imports()}
    pairs = {(a, b) for a, b in crossing if a is not None and b is not None and a != b}
    assert sorted(pairs - ALLOWED) == sorted(ALLOWED - pairs) == []
