"""Whole words as tokens."""

from nmt import register
from nmt.options import NoOptions
from nmt.subwords.base import Subword, TrainingText
from nmt.text.vocabulary import WordVocabulary


@register("subword", "none", NoOptions)
class Words(Subword):
    """Unchanged words, separated by spaces."""

    vocabulary = WordVocabulary
    takes_all = True

    def learn(self, text: TrainingText) -> WordVocabulary:
        options = self.options
        return WordVocabulary.learn(text.word_counts(), options.vocab_size, options.min_frequency, options.symbols)
