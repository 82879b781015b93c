"""A decoder: a plain beam search that adds a reward for each token, so that translations do not become too short.

    nmt translate --plugin my_decoder.py --decoder my-decoder --model RUN --input TEXT
    nmt evaluate --plugin my_decoder.py --decoder my-decoder --model RUN --source TEXT --reference REFERENCE

Dimensions: B sentences, W hypotheses of a sentence, N = B * W rows, V vocabulary, t tokens so far.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt import opt, options_class, register
from nmt.decoders.base import Constraints, Decoder, Hypothesis, SearchOptions
from nmt.decoders.filters import Filters, Prefixes
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS


@options_class
class MyDecoderOptions(SearchOptions):  # SearchOptions has the length limits, which Filters reads
    beam_size: int = opt(4, "hypotheses per sentence", minimum=1)
    token_reward: float = opt(0.5, "nats added to the score for each token", minimum=0)


@register("decoder", "my-decoder", MyDecoderOptions)
class MyDecoder(Decoder):
    """Beam search with a reward for each token."""

    def __init__(self, options: MyDecoderOptions) -> None:
        super().__init__(options)
        self.paths = options.beam_size  # hypotheses per sentence; batches are sized accordingly

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """Translate a batch. source: (B, S). Returns at least one hypothesis per sentence, best first."""
        filters = Filters(self.options, constraints, source, self.filters)  # for --prefix, --max-len-a, --no-unk
        B, W, device = len(source), self.options.beam_size, source.device
        sentences = torch.arange(B, device=device).repeat_interleave(W)  # N
        limits = torch.tensor(filters.limits, device=device)[sentences]
        state, tokens = scorer.start(source), torch.full_like(sentences, BOS)
        state.reorder(sentences)  # W hypotheses per sentence; at the start, only the first is possible
        totals = torch.tensor([0.0] + [-torch.inf] * (W - 1), device=device).repeat(B)
        prefixes, ended = torch.empty((B * W, 0), dtype=torch.int64, device=device), tokens == EOS
        for _ in range(max(filters.limits) + 1):
            log_probs, state = scorer.step(tokens, state)  # N V
            filters(log_probs, Prefixes(prefixes, sentences, limits, min(filters.limits)))
            log_probs[ended] = -torch.inf  # a hypothesis that has ended stays as it is
            log_probs[ended, EOS] = 0.0
            rewards = self.options.token_reward * (torch.arange(log_probs.shape[1], device=device) != EOS)
            scores = totals[:, None] + log_probs + rewards  # CHANGE: the scores that rank hypotheses
            totals, best = scores.view(B, -1).topk(W)  # B W
            rows = (best // log_probs.shape[1]).flatten() + W * sentences  # the hypotheses that these tokens extend
            totals, tokens = totals.flatten(), (best % log_probs.shape[1]).flatten()
            state.reorder(rows)
            prefixes, ended = torch.cat([prefixes[rows], tokens[:, None]], 1), ended[rows] | (tokens == EOS)
            if ended.all():
                break
        found = [
            self.hypothesis(row[: row.index(EOS)], total)
            for row, total in zip(prefixes.tolist(), totals.tolist(), strict=True)
        ]
        return [[found[sentence * W]] for sentence in range(B)]  # topk puts the best hypothesis first

    def hypothesis(self, tokens: list[int], score: float) -> Hypothesis:
        """A translation: its tokens without EOS, its log-probability in nats, and the score that ranks it."""
        return Hypothesis(tokens, score - self.options.token_reward * len(tokens), score)
