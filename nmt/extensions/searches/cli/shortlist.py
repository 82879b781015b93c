"""`nmt shortlist`: list the likely target words of each source word, for faster translation."""

import sys
from pathlib import Path

import numpy as np

from nmt import opt, options_class, signals
from nmt.artefact import MANIFEST
from nmt.cli.command import Command
from nmt.data.shards import PreparedData
from nmt.errors import UserError, quoted
from nmt.extensions.searches.shortlist_file import learn_shortlist, measure_coverage
from nmt.files import check_output_file, write_output
from nmt.log import log
from nmt.options import REQUIRED


@options_class
class ShortlistOptions:
    data: str = opt(REQUIRED, "prepared data that the model was trained on", aliases=("d",))
    output: str = opt(REQUIRED, "file to write, for nmt translate --shortlist", aliases=("o",))
    dictionary: str | None = opt(
        None,
        "file to write as well, of data of whole words: each source word and its likeliest translation, for nmt translate "
        "--unk-dictionary",
    )
    pairs: int = opt(100_000, "training pairs that are used, evenly spaced over the corpus", minimum=1)
    rounds: int = opt(4, "rounds of expectation and maximisation of IBM model 1", minimum=1, maximum=1000)
    of_each: int = opt(50, "target tokens of each source token, the likeliest", minimum=1)
    frequent: int = opt(500, "most frequent target tokens that are always allowed", minimum=1)
    overwrite: bool = opt(False, "replace a file that is there")


def run(options: ShortlistOptions) -> None:
    """Learn from prepared data which target tokens may translate each source token.

    nmt translate --shortlist searches among them alone, which is faster where the vocabulary is large. Prints how much of
    each development set the shortlist covers.
    """
    output, dictionary = Path(options.output), Path(options.dictionary) if options.dictionary else None
    for path in filter(None, (output, dictionary)):
        if path.exists() and not options.overwrite:
            raise UserError(f"{quoted(path)}: already there (name another file, or give --overwrite)")
        if (path.parent / MANIFEST).exists():
            raise UserError(f"{quoted(path)}: is in a folder that nmt wrote as a whole (name another file)")
        check_output_file(path)
    if dictionary is not None and output.resolve() == dictionary.resolve():
        raise UserError(f"{quoted(output)}: is named by --output and by --dictionary (name two files)")
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: has no training pairs (nmt prepare --train)")
    sizes, sides = data.pipeline.sizes, (data.pipeline.source, data.pipeline.target)
    if dictionary is not None and any(side.settings.subword != "none" for side in sides):
        raise UserError("--dictionary: the data have subwords, not words (nmt prepare --subword none makes such data)")
    limits = options.pairs, options.rounds, options.of_each, options.frequent
    with signals.Signals():
        shortlist = learn_shortlist(data.train, sizes, *limits)
    shortlist.save(output, data.pipeline.hash)
    log.info(f"{output}: {len(shortlist.tokens):,} likely translations of {sizes[0]:,} source tokens")
    if dictionary is not None:
        lines = [f"{sides[0].piece(source)} {sides[1].piece(target)}\n" for source, target in shortlist.likeliest()]
        write_output(dictionary, "".join(lines).encode())
        log.info(f"{dictionary}: a translation of each of {len(lines):,} words")
    for dev in data.valid.values():
        share, tokens = measure_coverage(shortlist, *dev.corpus.rows(np.arange(len(dev.corpus))))
        line = (
            f"{dev.name}: {share:.2%} of its target tokens are listed; "
            f"a sentence has {tokens:,.0f} of {sizes[1]:,} tokens to choose from\n"
        )
        sys.stdout.buffer.write(line.encode())


COMMAND = Command(
    "shortlist",
    ShortlistOptions,
    run,
    positional=("data",),
    group="export",
    examples=(
        "nmt shortlist data --output short.list",
        "nmt shortlist data --output short.list --pairs 1000000",
        "nmt shortlist words --output words.list --dictionary words.txt",
    ),
)
