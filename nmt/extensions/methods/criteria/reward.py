"""Training with the reward of sampled translations.

The objective is either the expected reward with a baseline, plus a weighted likelihood (Wu et al., 2016, section 5), or minimum
risk training, which uses the model's distribution over the samples (Shen et al., 2016).
Dimensions: B pairs, T target positions, C distinct candidates of all pairs.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nmt import register, registry
from nmt.batch import Batch, pad_rows
from nmt.criteria.base import Criterion, CriterionContext, Loss, Term
from nmt.criteria.chunks import chunk_rows
from nmt.extensions.methods.criteria.options import RewardOptions
from nmt.models.base import Model
from nmt.options import Part
from nmt.symbols import BOS, EOS, PAD

MIN_PASS_TOKENS: Final = (
    1024  # candidate tokens per pass, including padding; smaller passes are slower and save little memory
)


@dataclass(frozen=True)
class _Candidates:
    """The distinct candidate translations of a batch. The candidates of a pair are adjacent.

    batch: each source paired with each of its candidates
    pairs: (C,) index of the pair that each candidate belongs to
    counts: (C,) how often each candidate was drawn; 0 for a reference that was not drawn
    rewards: (C,) reward of each candidate, usually 0 to 1
    """

    batch: Batch
    pairs: Tensor
    counts: Tensor
    rewards: Tensor

    def mean(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean (B,) of values (C,) over the candidates of each pair. weights: (C,)"""
        sums = [
            values.new_zeros(int(self.pairs.max()) + 1).index_add(0, self.pairs, of)
            for of in (values * weights, weights)
        ]
        return sums[0] / sums[1]


@register("criterion", "reward", RewardOptions)
class Reward(Criterion):
    """The expected reward of sampled translations plus the weighted log-likelihood, averaged over sentence pairs."""

    needs_trained_model: ClassVar[bool] = True

    def __init__(self, options: RewardOptions, context: CriterionContext) -> None:
        self.options, self.context = options, context
        self.decoder, self.metric = context.build(options.decoder), context.build(options.reward)
        self.decoder_of_one = context.build(
            _of_one_sample(options.decoder)
        )  # for validation; one sample per pair is enough

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. The loss is likelihood_weight * nll - reward; its gradient is estimated from the candidates."""
        size = self.context.pipeline.target.size
        nll = -_log_probs(model, batch, size)  # B
        candidates = self._candidates(batch, self.decoder if model.training else self.decoder_of_one)
        # Passes are about as large as the batch, and are recomputed for their gradients, so they need little additional memory.
        passes = candidates.batch.split(max(batch.cells, MIN_PASS_TOKENS))
        sums = [checkpoint(_log_probs, model, rows, size, use_reentrant=False) for rows in passes]
        log_probs = torch.cat(sums).double()  # C
        if self.options.objective == "risk":
            value = self._under_the_model(candidates, log_probs)
        else:
            value = self._with_baseline(candidates, log_probs)
        total = self.options.likelihood_weight * nll.sum() - value.sum()
        reward = candidates.mean(candidates.rewards, candidates.counts)  # B
        count = self.counts(batch)["loss"]
        reported = {"nll": Term(nll.detach().sum(), batch.num_target_tokens), "reward": Term(reward.sum(), count)}
        return Loss({"loss": Term(total, count)}, reported)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": torch.tensor(len(batch), device=batch.source.device)}

    def _with_baseline(self, candidates: _Candidates, log_probs: Tensor) -> Tensor:
        """The mean reward (B,). Its gradient is the mean over samples of (reward - mean reward) grad log P."""
        rewards, counts = candidates.rewards, candidates.counts
        reward = candidates.mean(rewards, counts)  # B
        advantages = rewards - reward[candidates.pairs]  # C
        surrogate = candidates.mean(advantages * log_probs, counts)  # B
        return reward + (surrogate - surrogate.detach())

    def _under_the_model(self, candidates: _Candidates, log_probs: Tensor) -> Tensor:
        """The expected reward (B,) under the distribution P ** sharpness, normalized over the candidates of each pair."""
        scaled, pairs = self.options.sharpness * log_probs, candidates.pairs
        largest = scaled.new_full((int(pairs.max()) + 1,), -torch.inf).scatter_reduce(0, pairs, scaled.detach(), "amax")
        return candidates.mean(candidates.rewards, (scaled - largest[pairs]).exp())

    def _candidates(self, batch: Batch, decoder: Any) -> _Candidates:
        """Draw samples for each pair and compute their rewards."""
        pairs: list[int] = []
        targets: list[tuple[int, ...]] = []
        counts: list[int] = []
        rewards: list[float] = []
        samples = self.context.search(decoder, batch.source)
        sources = batch.without_noise.source.tolist()  # metrics need the text without noise
        for pair, (hypotheses, target) in enumerate(zip(samples, batch.target_output.tolist(), strict=True)):
            reference = tuple(target[: target.index(EOS)])
            drawn = Counter(tuple(hypothesis.tokens) for hypothesis in hypotheses)
            if self.options.with_reference:
                drawn.setdefault(reference, 0)
            pairs += [pair] * len(drawn)
            targets += drawn
            counts += drawn.values()
            rewards += self._rewards(sources[pair], reference, list(drawn))
        device = batch.source.device
        of_pairs = torch.tensor(pairs, device=device)
        numbers = (torch.tensor(values, dtype=torch.float64, device=device) for values in (counts, rewards))
        return _Candidates(Batch(batch.source[of_pairs], pad_rows(targets, [BOS]).to(device)), of_pairs, *numbers)

    def _rewards(self, source: list[int], reference: tuple[int, ...], candidates: list[tuple[int, ...]]) -> list[float]:
        """The reward of each candidate of a pair: the metric / 100, negated if lower values are better."""
        pipeline, count = self.context.pipeline, len(candidates)
        texts = [pipeline.target.decode(tokens) for tokens in candidates]
        references, sources = [pipeline.target.decode(reference)] * count, [pipeline.source.decode_line(source)] * count
        scores = self.metric.sentence_scores(texts, [references], sources)
        return [(score if self.metric.higher_is_better else -score) / 100 for score in scores]


def _of_one_sample(decoder: Part) -> Part:
    """The same decoder and options, but with one hypothesis per sentence."""
    values = decoder.values if decoder.options is None else vars(decoder.options)
    return registry.choose(
        decoder.kind, decoder.name, {**values, "n_best": 1}
    )  # `choose` ignores options that the decoder does not have


def _log_probs(model: Model, batch: Batch, size: int) -> Tensor:
    """The log-probability of each target sentence including EOS, in nats: (B,). size: V"""
    features, targets = model(batch).features.flatten(0, 1), batch.target_output.flatten()  # N D, N
    rows = chunk_rows(features, size)

    def of_chunk(features: Tensor, targets: Tensor) -> Tensor:
        return model.log_probs(features).gather(1, targets[:, None]).squeeze(1)

    chunks = zip(features.split(rows), targets.split(rows), strict=True)
    log_probs = torch.cat([checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks])  # N
    return (log_probs * (targets != PAD)).view_as(batch.target_output).sum(1)
