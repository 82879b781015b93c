"""Scores that `nmt evaluate --json` printed, read from their file."""

from pathlib import Path
from typing import Final

import msgspec

from nmt.errors import ArtefactError, UserError, quoted

PREFERRED_METRICS: Final = ("paper", "bleu")  # the paper's own BLEU, then sacreBLEU's


class SavedScore(msgspec.Struct):
    """A row of `nmt evaluate --json`."""

    metric: str
    value: float
    signature: str
    system: str = ""


def read_bleu(path: Path) -> SavedScore:
    """The BLEU in a file of scores.

    Raises UserError if the file cannot be read or has no BLEU of one system, ArtefactError if it holds something else.
    """
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[SavedScore])
    except OSError as error:
        raise UserError(f"{quoted(path)}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{quoted(path)}: not the output of `nmt evaluate --json`: {quoted(error)}") from None
    if len({row.system for row in rows}) > 1:
        raise UserError(f"{quoted(path)}: has scores of several systems (name a file with those of this run alone)")
    ranked = [row for metric in PREFERRED_METRICS for row in rows if row.metric == metric]
    if not ranked:
        raise UserError(f"{quoted(path)}: has no BLEU (nmt evaluate --json --metrics bleu, or --paper)")
    return ranked[0]
