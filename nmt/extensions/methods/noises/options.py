"""The options of the noises of this extension. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class WordDropoutOptions:
    source_word_dropout: float = opt(
        0.0,
        "probability that the model reads <unk> in place of a source token; 0.1 helps small data",
        aliases=("dropout-src",),
        minimum=0,
        below=1,
        must_stay=True,
    )
    target_word_dropout: float = opt(
        0.0,
        "the same of the target tokens before the one to predict",
        aliases=("dropout-trg",),
        minimum=0,
        below=1,
        must_stay=True,
    )


@options_class
class TextNoiseOptions:
    case_noise: float = opt(
        0.0,
        "probability that a source sentence is read in capitals, or with a capital at each word, half of them each",
        minimum=0,
        maximum=1,
        must_stay=True,
    )
    typo_noise: float = opt(
        0.0,
        "probability that a source word is read with two letters swapped, or one dropped or doubled",
        minimum=0,
        maximum=1,
        must_stay=True,
    )


@options_class
class SubwordSamplingOptions:
    subword_sampling: float = opt(
        0.0,
        "split the words of both sides differently in each epoch: probability to leave a merge out (bpe, subword-nmt), or alpha "
        "(unigram); 0.05 and 0.1 help small data, 0 is off",
        minimum=0,
        maximum=1,
        must_stay=True,
    )
