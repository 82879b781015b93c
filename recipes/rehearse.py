"""Make a mirror of archives with WMT14's names and layouts from any parallel text, to try a recipe offline.

    python rehearse.py --output MIRROR --target-lang de --train PREFIX [PREFIX ...] --valid PREFIX --test PREFIX

The training pairs are distributed to the corpora in turn. Texts can be plain or compressed (PREFIX.en, PREFIX.en.gz).
Run the recipe with MIRROR=MIRROR and a separate WORK, so that a real run does not use these archives.
"""

import argparse
import gzip
import io
import tarfile
from collections.abc import Iterator
from html import escape
from itertools import islice
from pathlib import Path

from nmt.storages.base import text_exists
from nmt.text.corpus import raw_lines

# Archive -> the name of its members without the languages; the second table is for French, in addition to the first.
TRAINING = {
    "wmt13/training-parallel-europarl-v7.tgz": "training/europarl-v7",
    "wmt13/training-parallel-commoncrawl.tgz": "commoncrawl",
    "wmt14/training-parallel-nc-v9.tgz": "training/news-commentary-v9",
}
FRENCH = {
    "wmt13/training-parallel-un.tgz": "un/undoc.2000.fr-en",
    "wmt10/training-giga-fren.tar": "giga-fren.release2.fixed",
}
Pairs = list[tuple[bytes, bytes]]


def pairs_of(prefixes: list[str], lang: str) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of all prefixes, each line without its LF."""
    for prefix in prefixes:
        sides = [raw_lines(text_file(prefix, language)) for language in ("en", lang)]
        for source, target in zip(*sides, strict=True):
            yield source.rstrip(b"\r\n"), target.rstrip(b"\r\n")


def text_file(prefix: str, language: str) -> Path:
    """The file of a prefix, compressed or not."""
    path = Path(f"{prefix}.{language}")
    return path if text_exists(path) else Path(f"{path}.gz")


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a regular file to an archive, without time and owner, so that the bytes are reproducible."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def as_sgm(lines: list[bytes], kind: str, name: str) -> bytes:
    """A test set in WMT's form. kind: src or ref"""
    segments = "".join(f'<seg id="{i}">{escape(line.decode(), quote=False)}</seg>\n' for i, line in enumerate(lines, 1))
    head = f'<{kind}set setid="{name}" srclang="any" trglang="any">\n<doc sysid="ref" docid="d" genre="news">\n<p>\n'
    return f"{head}{segments}</p>\n</doc>\n</{kind}set>\n".encode()


def training(output: Path, lang: str, pairs: Pairs) -> None:
    """Write the archives of the training texts, with the pairs distributed in turn."""
    archives = {name: f"{stem}.{lang}-en" for name, stem in TRAINING.items()} | (FRENCH if lang == "fr" else {})
    for number, (name, stem) in enumerate(archives.items()):
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as archive:
            for language, side in (("en", 0), (lang, 1)):
                text = b"".join(pair[side] + b"\n" for pair in islice(pairs, number, None, len(archives)))
                compressed = name.endswith(".tar")
                content = gzip.compress(text, mtime=0) if compressed else text
                add(archive, f"{stem}.{language}{'.gz' if compressed else ''}", content)


def evaluation(output: Path, lang: str, archive: str, stem: str, pairs: Pairs) -> None:
    """Write the archive of an evaluation set in sgm."""
    path = output / archive
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as file:
        for language, kind, side in (("en", "src", 0), (lang, "ref", 1)):
            lines = [pair[side] for pair in pairs]
            add(file, f"{stem}-{kind}.{language}.sgm", as_sgm(lines, kind, Path(stem).name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--target-lang", choices=("de", "fr"), default="de")
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--valid", required=True)
    parser.add_argument("--test", required=True)
    given = parser.parse_args()
    lang = given.target_lang
    training(given.output, lang, list(pairs_of(given.train, lang)))
    pair = "deen" if lang == "de" else "fren"
    evaluation(given.output, lang, "wmt14/dev.tgz", "dev/newstest2013", list(pairs_of([given.valid], lang)))
    test = list(pairs_of([given.test], lang))
    evaluation(given.output, lang, "wmt14/test-full.tgz", f"test-full/newstest2014-{pair}", test)


if __name__ == "__main__":
    main()
