"""Comparison of an imported model with the toolkit that it comes from, where that toolkit is installed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

import numpy as np
import torch

from nmt.errors import one_line
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide
from nmt.extensions.vocabularies.sentencepiece_model import LANGUAGE_TAG, UNUSED_NAME
from nmt.log import log
from nmt.models.base import Model
from nmt.signals import signal_at_end_of_parent
from nmt.symbols import SYMBOLS
from nmt.text.sentencepiece_file import SPACE_MARK
from nmt.translate.forced_decoding import force_decode

COMPARED_PAIRS: Final = 16
MAX_COMPARED_TOKENS: Final = 24
COMPARISON_SEED: Final = 1
MAX_ORACLE_SECONDS: Final = 120  # of another process
MAX_NATS_APART: Final = 1e-3  # nats, above which it is a warning


TRANSLATE_WITH_MARIAN: Final = """
import json, sys, pymarian
settings, lines = json.load(sys.stdin)
translator = pymarian.Translator(**settings)
json.dump(list(map(translator.translate, lines)), sys.stdout)
"""


@dataclass(frozen=True)
class ScoredPair:
    """A pair that another toolkit has scored.

    source, target: our ids, without EOS
    log_probs: of the tokens of the target, and of EOS unless the translation was cut off, in nats
    """

    source: list[int]
    target: list[int]
    log_probs: list[float]


def compare_with_toolkit(imported: ImportedModel, model: Model, format: str) -> None:
    """Log the largest difference of log-probabilities from those of the model's toolkit, if that is installed.

    model: made of `imported`; format: of its files
    """
    if format not in ORACLES or find_spec(ORACLES[format][0]) is None:
        return
    package, score = ORACLES[format]
    try:
        pairs = list(score(imported))
    except Exception as error:  # of code that is not ours; the model is written already
        log.warn(f"not compared with {package}: {type(error).__name__}: {one_line(str(error))}")
        return
    own = force_decode(model, [np.array(pair.source) for pair in pairs], [pair.target for pair in pairs])
    differences = [
        abs(found - expected)
        for decoding, pair in zip(own, pairs, strict=True)
        for found, expected in zip(decoding.log_probs, pair.log_probs, strict=False)
    ]
    nats = float(np.max(differences))  # `max` may skip a NaN
    tell = log.warn if not nats <= MAX_NATS_APART else log.info
    compared = f"{package} {version(package)}, {len(pairs)} sentences of random tokens"
    tell(f"largest difference of log-probabilities: {nats:.1e} nats ({compared})")


def _random_tokens(side: ImportedSide, chance: np.random.Generator) -> list[int]:
    """Our ids of tokens that a text can have."""
    names = map(side.side.piece, range(side.side.size))
    is_text = [not (name.startswith(UNUSED_NAME) or LANGUAGE_TAG.fullmatch(name.strip(SPACE_MARK))) for name in names]
    usable = np.flatnonzero(np.array(is_text) & ~side.is_copy)
    length = chance.integers(1, MAX_COMPARED_TOKENS + 1)
    tokens: list[int] = chance.choice(usable[usable >= len(SYMBOLS)], length).tolist()
    return tokens


def _transformers_scores(imported: ImportedModel) -> Iterator[ScoredPair]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.MarianMTModel.from_pretrained(imported.place, local_files_only=True).eval()
    chance, eos = np.random.default_rng(COMPARISON_SEED), model.config.eos_token_id
    for _ in range(COMPARED_PAIRS):
        source, target = _random_tokens(imported.source, chance), _random_tokens(imported.target, chance)
        labels = torch.tensor([[*imported.target.rows[target], eos]])
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*imported.source.rows[source], eos]]), labels=labels).logits
        yield ScoredPair(source, target, logits.log_softmax(-1).gather(2, labels[..., None]).flatten().tolist())


def _marian_scores(imported: ImportedModel) -> Iterator[ScoredPair]:
    """The translations of random sources, since pymarian scores no pairs; in a process of its own, which it may abort."""
    chance, target_side = np.random.default_rng(COMPARISON_SEED), imported.target.side
    sources = [_random_tokens(imported.source, chance) for _ in range(COMPARED_PAIRS)]
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
        timeout=MAX_ORACLE_SECONDS,
        preexec_fn=partial(signal_at_end_of_parent, signal.SIGKILL),
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().split("\n")[-1] or f"ended with {done.returncode}")
    ids = {target_side.piece(token): token for token in range(target_side.size)}
    # Marian searches a network with norms before its layers otherwise than it trains it, from the second token on.
    compared = 1 if imported.options.norm_position == "pre" else None
    for source, candidates in zip(sources, json.loads(done.stdout), strict=True):
        _, text, scores, *_ = candidates.split("\n")[0].split(" ||| ")
        log_probs = list(map(float, scores.split()[1:]))[:compared]
        yield ScoredPair(source, [ids[name] for name in text.split()], log_probs)


def _ctranslate2_scores(imported: ImportedModel) -> Iterator[ScoredPair]:
    import ctranslate2

    translator = ctranslate2.Translator(imported.place, compute_type="float32", intra_threads=1)
    chance, sides = np.random.default_rng(COMPARISON_SEED), (imported.source, imported.target)
    for _ in range(COMPARED_PAIRS):
        source, target = (_random_tokens(side, chance) for side in sides)
        names = ([list(map(side.side.piece, ids))] for side, ids in zip(sides, (source, target), strict=True))
        [scored] = translator.score_batch(*names)
        yield ScoredPair(source, target, scored.log_probs)


ORACLES: Final[Mapping[str, tuple[str, Callable[[ImportedModel], Iterator[ScoredPair]]]]] = {
    "huggingface": ("transformers", _transformers_scores),
    "marian": ("pymarian", _marian_scores),
    "ctranslate2": ("ctranslate2", _ctranslate2_scores),
}
"""By format: the package, and a function that scores pairs with it."""
