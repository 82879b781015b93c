"""Two tokens per word, for the words and for the tree: a form in which a parser cannot lose its place.

The tree is written in order (Kitaev and Klein, 2020, "Tetra-Tagging"). It becomes binary: of a constituent with children a, b and
c, a becomes the left child, and a nameless constituent of b and c the right child. Between two consecutive words lies exactly one
such constituent, which joins what is to its left with what is to its right. So there is one token for each word, and one for each
place between two words:

    >NN  a word with the tag NN, a left child or the root    >(NP  a constituent that is a left child or the root
    <NN  a word that is a right child                        <(NP  a constituent that is a right child; <( is a nameless one

`^` adds constituents with a single child: `>NN^NP` is (NP (NN ...)), and `>(S^VP` is an S whose only child is a VP. A sequence
of such tokens is a tree if every right child has an open place; the search pair-beam (tree_beam.py) ensures that.

    pairs.py write PREFIX NEW         from PREFIX.words and .tree, writes NEW.words, .tree and .align; .tree may be missing
    pairs.py read PAIRS BRACKETS      from linearised trees in pairs to trees in brackets, as trees.py writes them
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from trees import write_lines

from nmt.text.corpus import read_lines

LEFT: Final = ">"
RIGHT: Final = "<"
ABOVE: Final = "^"  # before the name of a constituent with a single child
PLAIN: Final = re.compile("[A-Z]?[a-z]+")
KINDS: Final = ((re.compile("[A-Z]+"), "A"), (re.compile("[a-z]+"), "a"), (re.compile("[0-9]+"), "0"))


class Node(NamedTuple):
    """A constituent, or a word. names: of a constituent, those of its parents of which it is the only child come first;
    of a word, its tag comes last. Without names, its children belong to its parent. children: of a word, none"""

    names: list[str]
    children: list["Node"]


def described(word: str) -> tuple[str, str]:
    """A word and a token for when it is rare: its last letters, or its shape (`Brn3c`: `=Aa0a`)."""
    if PLAIN.fullmatch(word):
        return word, ("=A" if word[0].isupper() else "=") + word[-3:].lower()
    shape = word
    for kind, sign in KINDS:
        shape = kind.sub(sign, shape)
    return word, f"={shape}"


def tree_of(brackets: Sequence[str]) -> Node:
    """The tree of `(NP DT NN )NP`. A constituent with a single child is merged with it. Several trees get a nameless root."""
    root = Node([], [])
    opened = [root]
    for token in brackets:
        if token[0] == ")":
            node = opened.pop()
            if len(node.children) == 1:
                (only,) = node.children
                opened[-1].children[-1] = Node(node.names + only.names, only.children)
        else:
            node = Node([token.removeprefix("(")], [])
            opened[-1].children.append(node)
            if token[0] == "(":
                opened.append(node)
    return root.children[0] if len(root.children) == 1 else root


def pairs_of(node: Node, side: str = LEFT) -> Iterator[str]:
    """The tokens of a tree, which is a child on this side of its parent."""
    if not node.children:
        *above, tag = node.names
        yield side + ABOVE.join((tag, *above))
        return
    *others, last = node.children
    name = ABOVE.join(node.names)
    for child in others:
        yield from pairs_of(child, LEFT)
        yield f"{side}({name}"
        side, name = RIGHT, ""
    yield from pairs_of(last, RIGHT)


def tree_of_pairs(pairs: Sequence[str]) -> Node:
    """The tree of `>DT >(NP <NN`. Raises IndexError for a right child without an open place, ValueError if a place stays open."""
    places: list[tuple[Node, Node]] = []  # a tree, and the constituent in it that lacks its right child
    done = Node([], [])
    for token in pairs:
        is_join, names = token[1:2] == "(", token[1:].removeprefix("(").split(ABOVE)
        new = Node(list(filter(None, names)), [done]) if is_join else Node([*names[1:], names[0]], [])
        tree = new
        if token[0] == RIGHT:
            tree, place = places.pop()
            place.children.append(new)
        if is_join:
            places.append((tree, new))
        else:
            done = tree
    if places or not pairs:
        raise ValueError("a constituent has no right child")
    return done


def brackets_of(node: Node) -> Iterator[str]:
    """The tokens of a tree in brackets."""
    *above, last = node.names or [""]
    yield from (f"({name}" for name in above)
    if node.children:
        yield from (f"({last}",) * bool(last)
        for child in node.children:
            yield from brackets_of(child)
        yield from (f"){last}",) * bool(last)
    else:
        yield last
    yield from (f"){name}" for name in reversed(above))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "read"))
    parser.add_argument("input")
    parser.add_argument("output")
    given = parser.parse_args(arguments)
    sys.setrecursionlimit(10_000)
    if given.command == "read":
        lines = [line.split() for line in read_lines(Path(given.input))]
        write_lines(Path(given.output), [" ".join(brackets_of(tree_of_pairs(line)) if line else ()) for line in lines])
        return
    words = [line.split() for line in read_lines(Path(f"{given.input}.words"))]
    write_lines(
        Path(f"{given.output}.words"), [" ".join(token for word in line for token in described(word)) for line in words]
    )
    if Path(f"{given.input}.tree").exists():
        trees = [line.split() for line in read_lines(Path(f"{given.input}.tree"))]
        pairs = [list(pairs_of(tree_of(tree))) if tree else [] for tree in trees]
        write_lines(Path(f"{given.output}.tree"), [" ".join(line) for line in pairs])
        write_lines(Path(f"{given.output}.align"), [" ".join(f"{i}-{i}" for i in range(len(line))) for line in pairs])


if __name__ == "__main__":
    main()
