"""Compares the log-probabilities of a converted model with those of the other toolkit, if it is installed."""

from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from nmt.checkpoint import LoadedModel
from nmt.errors import one_line
from nmt.extensions.toolkits.toolkit import Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, TextFiles
from nmt.extensions.vocabularies.sentencepiece_model import LANGUAGE_TAG, UNUSED_NAME
from nmt.log import log
from nmt.models.base import Model
from nmt.symbols import SPACE_MARK, SYMBOLS
from nmt.translate.forced_decoding import force_decode

COMPARED_PAIRS: Final = 16
MAX_COMPARED_TOKENS: Final = 24
COMPARISON_SEED: Final = 1
MAX_NATS_APART: Final = 1e-3  # in nats; a larger difference causes a warning


def compare_export(toolkit: Toolkit, loaded: LoadedModel, output: Path) -> None:
    """Read an exported model back, and compare its log-probabilities with the toolkit's."""
    log.info(f"exported {toolkit.options.model[0]} to {output} for {toolkit.part_name}")
    imported = toolkit.read(output, TextFiles((loaded.pipeline.source_lang, loaded.pipeline.target_lang)))
    compare_with_toolkit(toolkit, imported, imported.build())


def compare_with_toolkit(toolkit: Toolkit, imported: ImportedModel, model: Model) -> None:
    """Log the largest difference between our log-probabilities and the toolkit's, if the toolkit is installed.

    model: model made from `imported`
    """
    if not toolkit.package or find_spec(toolkit.package) is None:
        return
    try:
        pairs = list(toolkit.scores(imported))
    except Exception as error:  # the other toolkit may raise any exception, and the model has already been written
        log.warn(f"comparison with {toolkit.package} failed: {type(error).__name__}: {one_line(str(error))}")
        return
    own = force_decode(model, [np.array(pair.source) for pair in pairs], [pair.target for pair in pairs])
    differences = [
        abs(found - expected)
        for decoding, pair in zip(own, pairs, strict=True)
        for found, expected in zip(decoding.log_probs, pair.log_probs, strict=False)
    ]
    nats = float(np.max(differences))  # Python's `max` may ignore a NaN
    log_line = log.warn if not nats <= MAX_NATS_APART else log.info
    compared = f"{toolkit.package} {version(toolkit.package)}, {len(pairs)} sentences of random tokens"
    log_line(f"largest difference in log-probabilities: {nats:.1e} nats ({compared})")


def random_lines(*sides: ImportedSide) -> Iterator[list[list[int]]]:
    """Yield COMPARED_PAIRS pairs of lines of random nmt ids, the same pairs in every run."""
    chance = np.random.default_rng(COMPARISON_SEED)
    for _ in range(COMPARED_PAIRS):
        yield [_random_tokens(side, chance) for side in sides]


def _random_tokens(side: ImportedSide, chance: np.random.Generator) -> list[int]:
    """Random nmt ids of tokens that a text can contain."""
    names = map(side.side.piece, range(side.side.size))
    is_text = [not (name.startswith(UNUSED_NAME) or LANGUAGE_TAG.fullmatch(name.strip(SPACE_MARK))) for name in names]
    usable = np.flatnonzero(np.array(is_text) & ~side.is_copy)
    length = chance.integers(1, MAX_COMPARED_TOKENS + 1)
    tokens: list[int] = chance.choice(usable[usable >= len(SYMBOLS)], length).tolist()
    return tokens
