"""Marian (https://marian-nmt.github.io), also OPUS-MT's files: read, written, and compared by the package pymarian."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from nmt import register
from nmt.checkpoint import LoadedModel
from nmt.extensions.toolkits.comparison import compare_export, random_lines
from nmt.extensions.toolkits.marian_reader import read_marian
from nmt.extensions.toolkits.marian_writer import write_marian
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles
from nmt.options import NoOptions
from nmt.signals import signal_at_end_of_parent

MAX_MARIAN_SECONDS: Final = 120  # of the other process
TRANSLATE_WITH_MARIAN: Final = """
import json, sys, pymarian
settings, lines = json.load(sys.stdin)
translator = pymarian.Translator(**settings)
json.dump(list(map(translator.translate, lines)), sys.stdout)
"""


@register("toolkit", "marian", NoOptions)
class Marian(Toolkit):
    """Marian's Transformers, and those of OPUS-MT: a model.npz with its vocabularies."""

    package: ClassVar[str] = "pymarian"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return path.suffix == ".npz" or any(path.glob("*.npz"))

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        return read_marian(path, files)

    def write(self, loaded: LoadedModel, output: Path) -> str:
        write_marian(loaded, output)
        compare_export(self, loaded, output)
        return ""

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        """The translations of random sources, since pymarian scores no pairs; in a process of its own, which it may abort."""
        sources = [source for [source] in random_lines(imported.source)]
        settings = {
            "models": imported.place,
            "vocabs": list(map(str, imported.vocabularies)),
            "beam_size": 1,
            "n_best": True,
            "word_scores": True,
            "no_spm_encode": True,
            "no_spm_decode": True,
            "allow_unk": True,
            "max_length_factor": 1.0,
            "cpu_threads": 1,
            "quiet": True,
        }
        lines = [" ".join(map(imported.source.side.piece, source)) for source in sources]
        done = subprocess.run(
            [sys.executable, "-c", TRANSLATE_WITH_MARIAN],
            input=json.dumps([settings, lines]),
            capture_output=True,
            text=True,
            timeout=MAX_MARIAN_SECONDS,
            preexec_fn=partial(signal_at_end_of_parent, signal.SIGKILL),
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().split("\n")[-1] or f"ended with {done.returncode}")
        target_side = imported.target.side
        ids = {target_side.piece(token): token for token in range(target_side.size)}
        # Marian searches a network with norms before its layers otherwise than it trains it, from the second token on.
        compared = 1 if imported.options.norm_position == "pre" else None
        for source, candidates in zip(sources, json.loads(done.stdout), strict=True):
            _, text, scores, *_ = candidates.split("\n")[0].split(" ||| ")
            log_probs = list(map(float, scores.split()[1:]))[:compared]
            yield ScoredPair(source, [ids[name] for name in text.split()], log_probs)
