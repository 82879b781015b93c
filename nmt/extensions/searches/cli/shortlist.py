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
from nmt.files import are_same, check_output_file, write_output
from nmt.log import log
from nmt.options import REQUIRED


@options_class
class ShortlistOptions:
    data: str = opt(
        REQUIRED,
        "data folder that the model was trained on",
        group="Input and output",
        common=True,
        aliases=("d",),
    )
    output: str = opt(
        REQUIRED,
        "file to write, for nmt translate --shortlist",
        group="Input and output",
        common=True,
        aliases=("o",),
        metavar="FILE",
    )
    dictionary: str | None = opt(
        None, "word list to write, for --unk-dictionary", group="Input and output", common=True, metavar="FILE"
    )
    pairs: int = opt(
        100_000,
        "training pairs to use, taken at even intervals",
        group="Word alignment",
        common=True,
        minimum=1,
    )
    rounds: int = opt(
        4,
        "EM iterations of IBM model 1",
        group="Word alignment",
        common=True,
        minimum=1,
        maximum=1000,
    )
    of_each: int = opt(
        50,
        "most likely target tokens per source token",
        group="Size of the shortlist",
        common=True,
        minimum=1,
    )
    frequent: int = opt(
        500,
        "how many frequent target tokens to always allow",
        group="Size of the shortlist",
        common=True,
        minimum=1,
    )
    overwrite: bool = opt(False, "replace existing files", group="Input and output", common=True)


def run(options: ShortlistOptions) -> None:
    """Learn from prepared data which target tokens may translate each source token.

    `nmt translate --shortlist` considers only these tokens, which is faster if the vocabulary is large. The command prints how
    much of each validation set the shortlist covers.
    """
    output, dictionary = Path(options.output), Path(options.dictionary) if options.dictionary else None
    for path in filter(None, (output, dictionary)):
        if path.exists() and not options.overwrite:
            raise UserError(f"{quoted(path)} already exists (name another file, or add --overwrite)")
        if (path.parent / MANIFEST).exists():
            raise UserError(f"{quoted(path)}: cannot add files to a folder that nmt wrote (name a file elsewhere)")
        check_output_file(path)
    if dictionary is not None and are_same(output, dictionary):
        raise UserError(f"--output and --dictionary name the same file, {quoted(output)} (use two different files)")
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: no training pairs to learn from (use nmt prepare --train)")
    sizes, sides = data.pipeline.sizes, (data.pipeline.source, data.pipeline.target)
    if dictionary is not None and any(side.settings.subword != "none" for side in sides):
        raise UserError("--dictionary needs data with whole words, not subwords (use nmt prepare --subword none)")
    limits = options.pairs, options.rounds, options.of_each, options.frequent
    with signals.Signals():
        shortlist = learn_shortlist(data.train, sizes, *limits)
    shortlist.save(output, data.pipeline.hash)
    log.info(f"{output}: {len(shortlist.tokens):,} likely translations of {sizes[0]:,} source tokens")
    if dictionary is not None:
        lines = [f"{sides[0].piece(source)} {sides[1].piece(target)}\n" for source, target in shortlist.likeliest()]
        write_output(dictionary, "".join(lines).encode())
        log.info(f"{dictionary}: the most likely translations of {len(lines):,} words")
    for dev in data.valid.values():
        share, tokens = measure_coverage(shortlist, *dev.corpus.rows(np.arange(len(dev.corpus))))
        line = (
            f"{dev.name}: the shortlist contains {share:.2%} of the target tokens; "
            f"on average {tokens:,.0f} of {sizes[1]:,} tokens are allowed per sentence\n"
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
