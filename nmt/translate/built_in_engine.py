"""The built-in engine, which runs any Scorer and any decoder in torch."""

import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import cast

from nmt import registry
from nmt.batch import pad_rows
from nmt.decoders.base import Decoder
from nmt.device import CAST_TO, Memory, Precision, autocast, default_threads, device_of
from nmt.log import log
from nmt.models.base import Model
from nmt.nn.matmul import Products, using
from nmt.search_speedups.base import SearchSpeedup
from nmt.text.pipeline import Pipeline
from nmt.translate.batch_size import auto_batch_tokens
from nmt.translate.engine import BatchOutcome, EncodedLine, SearchEngine
from nmt.translate.ensemble import Ensemble
from nmt.translate.options import TranslatorOptions
from nmt.translate.replicas import Replicas
from nmt.translate.results import NOT_FINITE, Candidate, Failure, PairScore, retry_split
from nmt.translate.wrapper import BatchSearch, SearchWrapper


class BuiltInEngine(SearchEngine):
    """Translates lines with a Scorer and a decoder.

    scorer: a model or an ensemble, on its device
    options: the translator's options; None means 1 for `replicas`, and torch's setting for `threads`
    ranks: number of ranks that translate together on this machine
    Raises UserError if the options do not fit the models or the decoder.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        scorer: Model | Ensemble,
        options: TranslatorOptions,
        decoder: Decoder,
        ranks: int = 1,
    ) -> None:
        self.pipeline, self.scorer, device = pipeline, scorer, device_of(scorer)
        self.device, self.max_source_length = str(device), options.max_source_length
        self.precision: Precision = cast(Precision, options.precision if options.precision in CAST_TO else "fp32")
        self.products = Products()
        self.speedups: list[SearchSpeedup] = [e.cls(options) for e in registry.active("search-speedup", options)]
        for speedup in self.speedups:
            speedup.begin(self, decoder)
        self.decoder = copy(decoder)  # because the decoder is bound to this pipeline below
        self.wrappers: list[SearchWrapper] = [
            e.cls(options, pipeline, scorer) for e in registry.active("wrapper", options)
        ]
        for wrapper in self.wrappers:
            self.decoder = wrapper.decoder(self.decoder)
        self.decoder.use_pipeline(pipeline)
        self._decode: BatchSearch = self.decoder.search
        for wrapper in self.wrappers:
            self._decode = wrapper.around(self._decode)
        self.signature, self.takes_phrases = self.decoder.signature, self.decoder.takes_phrases
        self.replicas, size = options.replicas or 1, options.batch_tokens
        if size == "auto":
            sharing = ranks if device.type == "cpu" else 1  # ranks on a CPU share its memory
            size = auto_batch_tokens(scorer, Memory(device), self.decoder.paths, self.replicas * sharing)
        self.batch_tokens, self.n_best = size, decoder.n_best
        threads = max(1, (options.threads or default_threads()) // self.replicas)
        self._replicas = Replicas(self._search_batch, self.replicas, device, threads, self._prepare_weights)

    def search(self, batches: Sequence[list[EncodedLine]]) -> Iterator[BatchOutcome]:
        return self._replicas.in_order(batches)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        from nmt.translate.pair_scores import score

        limits = self.batch_tokens, self.max_source_length
        with (
            using(self.products),
            autocast(device_of(self.scorer), self.precision),
            log.progress("scoring", len(sources), "pairs") as bar,
        ):
            return score(self.scorer, self.pipeline, sources, targets, *limits, bar.advance)

    def _search_batch(self, lines: list[EncodedLine]) -> BatchOutcome:
        with using(self.products):
            outcomes, warning = retry_split(lambda part: self._candidates(lines[part]), len(lines))
            for wrapper in self.wrappers:
                outcomes, wrapper_warning = wrapper.ranked(lines, outcomes, self.batch_tokens)
                warning = warning or wrapper_warning
        return BatchOutcome(outcomes, warning)

    def _candidates(self, lines: list[EncodedLine]) -> list[list[Candidate] | Failure]:
        """Search for the candidates of each line, best first."""
        constraints, device = [line.constraints for line in lines], device_of(self.scorer)
        with autocast(device, self.precision):
            source = pad_rows([line.source for line in lines]).to(device)
            hypotheses = self._decode(self.scorer, source, constraints)
        finite = [[hypothesis for hypothesis in row if math.isfinite(hypothesis.score)] for row in hypotheses]
        return [[Candidate.of(hypothesis, self.pipeline.target) for hypothesis in row] or NOT_FINITE for row in finite]

    def _prepare_weights(self) -> None:
        """Prepare the models on a CPU for many searches. Done once for all replicas."""
        models = [self.scorer, *(model for wrapper in self.wrappers for model in wrapper.models)]
        for model in models if self.device == "cpu" else ():
            for speedup in self.speedups:
                speedup.prepare(self, model)
