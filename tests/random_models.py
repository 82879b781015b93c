"""Untrained models with weights so large that any error in an export shows."""

from pathlib import Path

import torch
from conftest import WORDS

from nmt import registry
from nmt.checkpoint import save_model, weights_of
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.models.transformer import Transformer
from nmt.options import make
from nmt.symbols import BOS, EOS, PAD
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

LIKELY = 2.0  # nats
SMALL = {
    "transformer": {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "d_ff": 48, "heads": 4},
    "rnnsearch": {"embedding_size": 24, "hidden_size": 32, "attention_size": 28, "maxout_size": 20},
    "gnmt": {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 32, "attention_size": 28},
    "deep-att": {
        "encoder_layers": 2,
        "decoder_layers": 3,
        "embedding_size": 16,
        "hidden_size": 16,
        "memory_size": 20,
        "attention_size": 12,
    },
}


def side(language: str, words: list[str]) -> Side:
    return Side(SideSettings(language, "nfc", False, False, "none", "none"), WordVocabulary(words))


def make_model(
    folder: Path,
    name: str = "transformer",
    words: tuple[str, ...] = (),
    joint: bool | None = None,
    right_to_left: bool = False,
    **options: object,
) -> Path:
    """A small model with weights so large that any error shows. joint: one vocabulary; None: if all is tied"""
    torch.manual_seed(3)
    entry = registry.find("model", name)
    made = make(entry.options, {**SMALL.get(name, SMALL["transformer"]), **options})
    joint = getattr(made, "tie", None) == "all" if joint is None else joint
    source = side("en", [*WORDS, *words])
    target = source if joint else side("de", [word.upper() for word in WORDS[:-3]])
    vocabularies = Vocabularies(source.size, target.size, joint)
    model = entry.cls(made, vocabularies)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.3)
        if isinstance(model, Transformer):
            as_if_trained(model)
    pipeline = Pipeline(source, target, joint)
    pipeline = pipeline.right_to_left() if right_to_left else pipeline
    facts = ModelFacts.of(name, made, vocabularies)
    save_model(folder, weights_of(model), facts, pipeline, {})
    return folder


def as_if_trained(model: Transformer) -> None:
    """Make EOS likely at any word, by what the bias of the last norm adds to its logit, and PAD and BOS never the best."""
    norm = model.decoder_norm if model.options.norm_position == "pre" else model.decoder[-1].feed_forward_residual.norm
    if model.options.norm == "rms":  # has no bias
        model.output.weight[[PAD, BOS]] = 0
        return
    one_more = norm.bias / norm.bias.square().sum()
    model.output.weight[EOS] += LIKELY * one_more
    model.output.weight[[PAD, BOS]] = 0
