"""The line between the core and the extensions: nothing outside `nmt/extensions/` imports from it."""

from modules import FILES, imported_modules, module_of

from nmt.registry import extension_of

ALLOWED = {  # between extensions, by the tree of docs/explanation/design.md
    ("ctranslate2", "searches"),
    ("ctranslate2", "toolkits"),
    ("doctor", "watch"),
    ("documents", "texts"),
    ("methods", "fast"),
    ("methods", "vocabularies"),
    ("searches", "methods"),
    ("serve", "doctor"),
    ("serve", "texts"),
    ("sweep", "watch"),
    ("toolkits", "vocabularies"),
    ("zoo", "variants"),
}


def imports() -> set[tuple[str, str]]:
    """Every import of a module of nmt by another: (importing, imported)."""
    return {(module_of(file), other) for file in FILES for other in imported_modules(file)}


def test_the_core_imports_no_extension():
    crossing = {(a, b) for a, b in imports() if extension_of(a) is None and extension_of(b) is not None}
    assert sorted(crossing) == []


def test_an_extension_imports_only_those_that_it_may():
    crossing = {(extension_of(a), extension_of(b)) for a, b in imports()}
    pairs = {(a, b) for a, b in crossing if a is not None and b is not None and a != b}
    assert sorted(pairs - ALLOWED) == sorted(ALLOWED - pairs) == []
