"""Beam search that forces given phrases into the translations (after Post and Vilar, 2018).

At each step, the candidates are the best continuations of all, the best of each hypothesis, and all that extend a phrase.
Hypotheses with the same number of phrase tokens left form a *bank*. The W places of the beam go to the banks in turn, starting
with the bank that has the fewest tokens left. Each bank fills its places with its best candidates.

No hypothesis ends before it contains all its phrases. If the remaining length is only just enough for the phrases, only their
tokens may follow. Phrases must be whole words: a phrase becomes unmet again if the next token continues its last word, as
`kelle` does after `Herr`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import register
from nmt.decoders.beam import Beam, Beams, Continuations
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.extensions.searches.decoders.options import ConstrainedBeamOptions
from nmt.models.base import Scorer
from nmt.symbols import EOS, UNK
from nmt.text.languages import UNSPACED_LANGUAGES, base_language
from nmt.text.pipeline import Pipeline, Side

ATTACHED_LANGUAGES: Final = UNSPACED_LANGUAGES | {"ko"}  # languages in which words may end without a space
Phrase = tuple[int, ...]
Continuation = tuple[float, int, int]
"""Log-probability of the whole hypothesis (nats), index of the hypothesis that it continues, and its last token."""


@dataclass(frozen=True)
class WordParts:
    """The tokens that may be parts of words.

    continuing: tokens that continue the preceding word
    ending: tokens that end with a letter or digit
    """

    continuing: frozenset[int] = frozenset()
    ending: frozenset[int] = frozenset()

    @classmethod
    def of(cls, target: Side) -> "WordParts":
        """Classify a side's tokens. Both sets are empty if its words need not end at spaces or are written from right to left."""
        if target.settings.right_to_left or base_language(target.settings.language) in ATTACHED_LANGUAGES:
            return cls()
        surfaces = [(token, target.surface(token)) for token in range(UNK + 1, target.size)]
        continuing = frozenset(token for token, text in surfaces if text[:1].isalnum())
        return cls(continuing, frozenset(token for token, text in surfaces if text[-1:].isalnum()))


@dataclass(frozen=True)
class WordConstraints(Constraints):
    """Constraints whose phrases must be matched as whole words. parts: tokens that may be parts of words"""

    parts: WordParts = field(default_factory=WordParts)


@dataclass(frozen=True)
class PhraseProgress:
    """Tracks which phrases a hypothesis contains so far.

    unmet: phrases that it does not contain yet
    started: its last tokens, if they start an unmet phrase
    ended: phrases that its last token completed, unless the next token continues their last word
    words: tokens that may be parts of words
    """

    unmet: frozenset[Phrase]
    started: Phrase = ()
    ended: frozenset[Phrase] = frozenset()
    words: WordParts = field(default_factory=WordParts, compare=False)

    @classmethod
    def towards(cls, phrases: Sequence[Phrase], words: WordParts | None = None) -> "PhraseProgress":
        """The progress of an empty hypothesis. Drops each phrase contained in another, because that one satisfies both."""
        words = words or WordParts()
        parts = {part for part in phrases for phrase in phrases if part != phrase and _contains(phrase, part, words)}
        return cls(frozenset(phrases) - parts, words=words)

    @property
    def remaining(self) -> int:
        """Number of phrase tokens left to emit."""
        return sum(map(len, self.unmet)) - len(self.started)

    def next_tokens(self) -> set[int]:
        """The tokens that continue a phrase."""
        n = len(self.started)
        return {phrase[n] for phrase in self.unmet if phrase[:n] == self.started}

    def after(self, token: int) -> "PhraseProgress":
        """The progress after one more token.

        Phrases may overlap: the last tokens of a complete or partial phrase may start another one.
        """
        tokens = (*self.started, token)
        ends = [tokens[start:] for start in range(len(tokens))]  # the longest first
        before = self.unmet | self.ended if token in self.words.continuing else self.unmet
        unmet = before.difference(ends)
        started = next((end for end in ends if any(phrase[: len(end)] == end for phrase in unmet)), ())
        ended = frozenset(phrase for phrase in before - unmet if phrase[-1] in self.words.ending)
        return PhraseProgress(unmet, started, ended, self.words)


def _contains(phrase: Phrase, part: Phrase, words: WordParts) -> bool:
    """Whether a phrase contains another phrase as whole words."""
    for i in range(len(phrase) - len(part) + 1):
        after = phrase[i + len(part) :]
        is_inside = after and part[-1] in words.ending and after[0] in words.continuing
        if phrase[i : i + len(part)] == part and not is_inside:
            return True
    return False


class _Banks(Beams):
    """Beams that track the phrases in their hypotheses. progress: for each beam, one entry per hypothesis"""

    def begin(self, constraints: Sequence[Constraints]) -> None:
        self.progress = [
            [PhraseProgress.towards(row.phrases, row.parts if isinstance(row, WordConstraints) else None)]
            for row in constraints
        ]

    def continuations(self, log_probs: Tensor) -> Continuations:
        """See Beams. Sentences are processed one by one."""
        rows = [self._sentence_continuations(sentence, log_probs[sentence]) for sentence in range(len(log_probs))]
        return Continuations(*(torch.stack(parts) for parts in zip(*rows, strict=True)))

    def keep(self, kept: Tensor) -> None:
        super().keep(kept)
        self.progress = [self.progress[number] for number in kept.tolist()]

    def _sentence_continuations(self, sentence: int, log_probs: Tensor) -> Continuations:
        """The continuations of one sentence, each tensor of shape (W,). log_probs: (W, V)"""
        size, progress = self.scores.shape[1], self.progress[sentence]
        tokens_left = int(self.limits[sentence]) - self.tokens.shape[2]
        for row, hypothesis_progress in zip(log_probs, progress, strict=True):
            _restrict(row, hypothesis_progress, tokens_left)
            if self.options.prune is not None:
                _prune(row, hypothesis_progress, self.options.prune)
        scores = log_probs + self.totals[sentence, :, None]  # W V
        ended, ended_from = _ended(scores, progress, size)
        scores[:, EOS] = -math.inf
        chosen = _deal_by_banks(_candidates(scores, progress, size), progress, size)
        chosen += [(-math.inf, 0, EOS)] * (size - len(chosen))
        self.progress[sentence] = [progress[parent].after(token) for _, parent, token in chosen]
        totals, parents, tokens = (torch.tensor(column, device=scores.device) for column in zip(*chosen, strict=True))
        return Continuations(ended, ended_from, totals, parents, tokens)


def _ended(scores: Tensor, progress: Sequence[PhraseProgress], size: int) -> tuple[Tensor, Tensor]:
    """The scores (size,) and parents (size,) of complete hypotheses for which EOS is among the best continuations."""
    V = scores.shape[1]
    complete = torch.tensor(
        [not hypothesis_progress.remaining for hypothesis_progress in progress], device=scores.device
    )
    values, indices = scores.masked_fill(~complete[:, None], -math.inf).flatten().topk(min(size, scores.numel()))
    missing = size - len(values)
    ended = values.masked_fill(indices % V != EOS, -math.inf)
    return pad(ended, (0, missing), value=-math.inf), pad(indices // V, (0, missing))


def _restrict(log_probs: Tensor, progress: PhraseProgress, tokens_left: int) -> None:
    """Forbid EOS until all phrases are met, and allow only phrase tokens if the phrases need the whole remaining length."""
    remaining = progress.remaining
    if remaining:
        log_probs[EOS] = -math.inf
    if remaining and tokens_left <= remaining:
        phrase_tokens = torch.tensor(sorted(progress.next_tokens()), device=log_probs.device)
        kept = log_probs[phrase_tokens]
        log_probs.fill_(-math.inf)
        log_probs[phrase_tokens] = kept
    needed = remaining + len(progress.started) + sum(map(len, progress.ended))
    if progress.ended and tokens_left <= needed:  # too few tokens are left to emit the ended phrases again
        log_probs[sorted(progress.words.continuing - progress.next_tokens())] = -math.inf


def _prune(log_probs: Tensor, progress: PhraseProgress, prune: float) -> None:
    """Drop tokens that are more than `prune` nats below the best one, except those that continue a phrase."""
    dropped = log_probs < log_probs.max() - prune
    dropped[sorted(progress.next_tokens())] = False
    log_probs.masked_fill_(dropped, -math.inf)


def _candidates(scores: Tensor, progress: Sequence[PhraseProgress], size: int) -> list[Continuation]:
    """The best `size` continuations, the best one of each hypothesis, and all that continue or end a phrase, best first."""
    V = scores.shape[1]
    indices = set(scores.flatten().topk(min(size, scores.numel())).indices.tolist())
    indices |= {parent * V + token for parent, token in enumerate(scores.argmax(1).tolist())}
    for parent, hypothesis_progress in enumerate(progress):
        indices |= {parent * V + token for token in hypothesis_progress.next_tokens()}
        if hypothesis_progress.ended:  # the best token that does not continue the word
            after_word = scores[parent].clone()
            after_word[sorted(hypothesis_progress.words.continuing)] = -math.inf
            indices.add(parent * V + int(after_word.argmax()))
    order = sorted(indices)
    totals = scores.flatten()[torch.tensor(order, device=scores.device)].tolist()
    candidates = [(total, *divmod(index, V)) for total, index in zip(totals, order, strict=True) if total > -math.inf]
    return sorted(candidates, key=lambda candidate: -candidate[0])


def _deal_by_banks(
    candidates: Sequence[Continuation], progress: Sequence[PhraseProgress], size: int
) -> list[Continuation]:
    """Take `size` candidates from the banks in turn, starting with the bank with the fewest tokens left. The best come first."""
    banks: dict[int, list[Continuation]] = defaultdict(list)
    for candidate in candidates:
        _, parent, token = candidate
        banks[progress[parent].after(token).remaining].append(candidate)
    rounds = zip_longest(*(banks[remaining] for remaining in sorted(banks)))
    in_turn = [candidate for round_candidates in rounds for candidate in round_candidates if candidate is not None]
    return sorted(in_turn[:size], key=lambda candidate: -candidate[0])


@register("decoder", "constrained-beam", ConstrainedBeamOptions)
class ConstrainedBeam(Beam):
    """Beam search that forces given phrases into the translations, as whole words."""

    beams = _Banks
    parts = WordParts()

    def use_pipeline(self, pipeline: Pipeline) -> None:
        super().use_pipeline(pipeline)
        self.parts = WordParts.of(pipeline.target)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        rows = [WordConstraints(row.prefix, row.phrases, row.filters, self.parts) for row in constraints]
        return super().decode(scorer, source, rows)
