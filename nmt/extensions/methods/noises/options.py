"""Options of the kinds of noise in this extension. This module does not import torch, so that `--help` is fast."""

from nmt import opt, options_class


@options_class
class WordDropoutOptions:
    source_word_dropout: float = opt(
        0.0,
        "probability of replacing a source token with <unk>; 0.1 helps on small corpora",
        group="Regularization",
        aliases=("dropout-src",),
        minimum=0,
        below=1,
        must_stay=True,
    )
    target_word_dropout: float = opt(
        0.0,
        "probability of replacing a target token in the decoder's input with <unk>",
        group="Regularization",
        aliases=("dropout-trg",),
        minimum=0,
        below=1,
        must_stay=True,
    )


@options_class
class TextNoiseOptions:
    case_noise: float = opt(
        0.0,
        "probability of rewriting a source sentence in CAPITALS or in Title Case",
        group="Data",
        minimum=0,
        maximum=1,
        must_stay=True,
    )
    typo_noise: float = opt(
        0.0,
        "probability of adding a typing error to a source word: letters swapped, dropped or doubled",
        group="Data",
        minimum=0,
        maximum=1,
        must_stay=True,
    )


@options_class
class SubwordSamplingOptions:
    subword_sampling: float = opt(
        0.0,
        "rate of random subword splits (BPE-dropout probability or unigram alpha); 0.1 helps on small corpora",
        group="Regularization",
        minimum=0,
        maximum=1,
        must_stay=True,
    )
