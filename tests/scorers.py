"""Small random scorers for tests of searches: the whole interface, without training."""

import math

import torch

from nmt.filters.base import TargetFilters
from nmt.models.base import State
from nmt.symbols import EOS, PAD, UNK


class RandomScorer:
    """A random recurrent network: the next word depends on the sentence and on the whole prefix, nothing else.

    Where it is watched it looks at a random place of the source. size: of its vocabulary
    """

    def __init__(self, seed, size, sharpness=3.0):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randn(size, 8, generator=generator)
        self.recurrence = torch.randn(8, 8, generator=generator)
        self.output = torch.randn(8, size, generator=generator) * sharpness

    def start(self, source):
        padding = (source == PAD)[:, :, None]
        keys = torch.where(padding, 0.0, self.words[source % len(self.words)])  # B S 8
        vectors = keys.sum(1)
        sentences = {"keys": keys, "padding": padding, "bias": vectors @ self.output / 8}
        return State(sentences, {"hidden": torch.tanh(vectors)})

    def step(self, tokens, state):
        hidden = torch.tanh(self.words[tokens] + state.hypotheses["hidden"] @ self.recurrence)
        keys, bias = state.sentences["keys"], state.sentences["bias"]  # bias: B V, for the W rows of each sentence
        logits = ((hidden @ self.output).view(len(bias), -1, bias.shape[1]) + bias[:, None]).flatten(0, 1)
        attention = None
        if state.watched:
            energies = keys @ hidden.view(len(bias), -1, 8).transpose(1, 2)  # B S W
            energies = energies.masked_fill(state.sentences["padding"], -math.inf)
            attention = energies.softmax(1).transpose(1, 2).flatten(0, 1)
        return logits.log_softmax(-1), state.after(state.sentences, {"hidden": hidden}, attention)


def random_sources(seed, count, size):
    """Rows of 1 to 4 words of a vocabulary of `size`, EOS and padding."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(UNK, size, (count, 5), generator=generator)
    for i, row in enumerate(rows):
        length = 1 + (i + seed) % 4
        row[length] = EOS
        row[length + 1 :] = PAD
    return rows


class TokenTexts:
    """A target side that knows only what each token adds to a text."""

    def __init__(self, texts):
        self.texts, self.size = texts, len(texts)

    def decode(self, tokens):
        return "".join(self.texts[token] for token in tokens)

    def spelling(self, token):
        given = self.texts[token]
        return given if isinstance(given, bytes) else given.encode()


def with_texts(decoder, texts):
    """A search that reads its tokens as these texts."""
    decoder.target = TokenTexts(texts)
    decoder.filters = TargetFilters(decoder.target)
    return decoder
