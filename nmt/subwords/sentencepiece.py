"""Subwords and characters with sentencepiece (Kudo and Richardson, 2018)."""

from nmt import register
from nmt.options import NoOptions
from nmt.subwords.base import Subword, TrainingText
from nmt.text.vocabulary import SentencepieceVocabulary, Vocabulary


class _Sentencepiece(Subword):
    vocabulary = SentencepieceVocabulary
    model_type: str

    def learn(self, text: TrainingText) -> Vocabulary:
        return text.learn_sentencepiece(self.model_type)


@register("subword", "bpe", NoOptions)
class BytePairs(_Sentencepiece):
    """Byte-pair encoding (Sennrich et al., 2016), with sentencepiece."""

    model_type = "bpe"


@register("subword", "unigram", NoOptions)
class Unigrams(_Sentencepiece):
    """Unigram segmentation, which takes the most probable pieces (Kudo, 2018), with sentencepiece."""

    model_type = "unigram"


@register("subword", "char", NoOptions)
class Characters(_Sentencepiece):
    """Single characters, with sentencepiece."""

    model_type = "char"
