"""Noises of training as tests build them, without a run."""

from types import SimpleNamespace

import numpy as np

from nmt.extensions.methods.noises.options import SubwordSamplingOptions, TextNoiseOptions, WordDropoutOptions
from nmt.extensions.methods.noises.subword_sampling import SubwordSampling
from nmt.extensions.methods.noises.text_noise import TextNoise
from nmt.extensions.methods.noises.word_dropout import WordDropout
from nmt.noises.base import NoiseContext
from nmt.rows import Rows
from nmt.text.pipeline import Pipeline

NO_LIMIT = 10**6


def word_dropout(source, target, seed=1, kept=((), ())) -> WordDropout:
    """kept: ids of source and target that are user symbols"""
    settings = (SimpleNamespace(user_symbols=map(str, ids)) for ids in kept)
    sides = (SimpleNamespace(settings=of_side, vocabulary=None, size=100, surface=str) for of_side in settings)
    pipeline = SimpleNamespace(**dict(zip(("source", "target"), sides, strict=True)))
    options = WordDropoutOptions(source_word_dropout=source, target_word_dropout=target)
    return WordDropout(options, NoiseContext(pipeline, seed, {}, 0))


def context_of(corpus, pipeline, seed=1) -> NoiseContext:
    kinds = {name: column.kind for name, column in corpus.columns.items()}
    return NoiseContext(pipeline, seed, kinds, max(int(corpus.source_lengths.max()), int(corpus.target_lengths.max())))


def subword_sampling(corpus, pipeline, rate, seed=1) -> SubwordSampling:
    return SubwordSampling(SubwordSamplingOptions(subword_sampling=rate), context_of(corpus, pipeline, seed))


def changed(noise, corpus, draws, epoch=1) -> tuple[Rows, Rows]:
    """Both sides of some pairs of a corpus after a noise. draws: their numbers, see nmt.data.batching.Plan"""
    draws = np.array(draws)
    pairs = draws % len(corpus.source_lengths)
    source = Rows(corpus.sources(pairs), corpus.source_lengths[pairs].astype(np.int64))
    target = Rows(corpus.targets(pairs), corpus.target_lengths[pairs].astype(np.int64))
    return noise.sentences(source, target, draws, epoch)


def text_noise(side, case, typos, seed=1, longest=NO_LIMIT, columns=()) -> TextNoise:
    """columns: (name, kind) of each"""
    options = TextNoiseOptions(case_noise=case, typo_noise=typos)
    return TextNoise(options, NoiseContext(Pipeline(side, side, True), seed, dict(columns), longest))
