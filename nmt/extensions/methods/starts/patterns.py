"""Matches names of parameters with patterns."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from nmt.errors import unknown


def matching(patterns: Sequence[str], names: Collection[str], flag: str) -> Iterator[str]:
    """The names that match a pattern; `*` also matches dots. Raises UserError for a pattern without a match."""
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            parts = [name.split(".") for name in names]
            ends = {".".join([*part[:end], "*"]) for part in parts for end in range(1, len(part))}
            first = {f"{part[0]}.*" for part in parts if len(part) > 1}
            raise unknown(f"name for {flag}", pattern, {*first, *get_close_matches(pattern, [*ends, *names], n=3)})
        yield from matches
