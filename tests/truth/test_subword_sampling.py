"""Subword sampling: its distribution by hand and by sentencepiece's sampler, the same text, and pure functions."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
from noises import changed, subword_sampling, word_dropout
from plans import plan_of

from nmt.data.batching import hashed
from nmt.data.learn import SubwordSettings, learn_subwords
from nmt.data.loader import Loader, regrouped
from nmt.data.plan import Position
from nmt.errors import UserError
from nmt.extensions.methods.noises import subword_sampling as module
from nmt.extensions.methods.noises.subword_sampling import SubwordSampler
from nmt.extensions.vocabularies.segmentations import segmentations_of
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.rows import Rows
from nmt.symbols import EOS, PAD, UNK
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import SentencepieceVocabulary, WordVocabulary

NO_LIMIT = 10**6
TEXT = "the banana bandana was beneath the tan bank and the antenna banned a band in an attic at the end of another inn"
WORDS = ["banana", "bandana", "antenna", "the", "beneath", "a"]
CODES = "#version: 0.2\na b\nab c</w>\nb c</w>\n"


def lines(repeats: int = 40) -> list[str]:
    words = TEXT.split()
    chance = np.random.default_rng(1)
    return [" ".join(chance.permutation(words)) for _ in range(repeats)]


@pytest.fixture(scope="module")
def bpe() -> SentencepieceVocabulary:
    return learn_subwords(iter(lines()), SubwordSettings("bpe", 316, 1.0, True))


@pytest.fixture(scope="module")
def unigram() -> SentencepieceVocabulary:
    return learn_subwords(iter(lines()), SubwordSettings("unigram", 306, 1.0, True))


@pytest.fixture(scope="module")
def codes() -> CodesVocabulary:
    return CodesVocabulary(CODES, ["abc", "ab@@", "c", "a@@", "bc", "b@@"])


def cut(vocabulary, texts, rate, seed=1, epoch=1, longest=NO_LIMIT) -> list[list[int]]:
    """The tokens of each text when its words are segmented at random."""
    encoded = vocabulary.encode_batch(texts)
    sampler = SubwordSampler(segmentations_of(vocabulary, rate), rate)
    keys = hashed(np.arange(len(texts)), seed, epoch, 3, 0)
    tokens, lengths = sampler(Rows(encoded.ids, encoded.lengths.astype(np.int64)), keys, longest)
    return [row.tolist() for row in np.split(tokens, np.cumsum(lengths)[:-1])]


def pieces(vocabulary, texts, rate, **more) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(vocabulary.piece, row)) for row in cut(vocabulary, texts, rate, **more))


def assert_fits(counts: Counter, expected: dict, total: int) -> None:
    """Pearson's chi-square: the counts are of a distribution. expected: probability of each outcome"""
    assert set(counts) <= set(expected)
    common = [outcome for outcome, share in expected.items() if share * total >= 5]
    rest = 1 - sum(expected[outcome] for outcome in common)
    rows = [(counts[outcome], expected[outcome] * total) for outcome in common]
    if rest * total >= 5:
        rows.append((total - sum(count for count, _ in rows), rest * total))
    statistic, degrees = sum((count - mean) ** 2 / mean for count, mean in rows), len(rows) - 1
    assert statistic < degrees + 4 * math.sqrt(2 * degrees) + 4, (statistic, degrees)


def assert_same_distribution(counts: Counter, others: Counter) -> None:
    """Pearson's chi-square of two samples of one size."""
    common = [outcome for outcome in counts | others if counts[outcome] + others[outcome] >= 10]
    rows = [(counts[outcome], others[outcome]) for outcome in common]
    rows.append((counts.total() - sum(a for a, _ in rows), others.total() - sum(b for _, b in rows)))
    statistic = sum((a - b) ** 2 / (a + b) for a, b in rows if a + b)
    degrees = len(rows) - 1
    assert statistic < degrees + 4 * math.sqrt(2 * degrees) + 4, (statistic, degrees)


def test_bpe_dropout_on_three_merges_matches_a_computation_by_hand(codes):
    total = 20000
    found = pieces(codes, ["abc"] * total, 0.3)
    assert_fits(found, {("abc",): 0.49, ("ab@@", "c"): 0.21, ("a@@", "bc"): 0.21, ("a@@", "b@@", "c"): 0.09}, total)


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("word", WORDS)
def test_bpe_dropout_has_the_distribution_of_sentencepiece(word, rate, bpe):
    total = 8000
    sentencepiece.set_random_generator_seed(7)
    model = sentencepiece.SentencePieceProcessor(model_proto=bpe.to_bytes())
    sampled = Counter(
        tuple(model.encode(word, out_type=str, enable_sampling=True, alpha=rate, nbest_size=-1)) for _ in range(total)
    )
    assert_same_distribution(pieces(bpe, [word] * total, rate), sampled)
    assert len(sampled) > 1 or len(word) == 1


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("word", WORDS)
def test_unigram_sampling_is_proportional_to_each_segmentations_probability(word, alpha, unigram):
    model = sentencepiece.SentencePieceProcessor(model_proto=unigram.to_bytes())
    scores = {model.id_to_piece(i): model.get_score(i) for i in range(4, unigram.size) if not model.is_byte(i)}
    marked, ways = f"\u2581{word}", {}
    for inner in itertools.product((False, True), repeat=len(marked) - 1):
        cuts = [0, *(i for i, is_cut in enumerate(inner, 1) if is_cut), len(marked)]
        parts = tuple(marked[begin:end] for begin, end in itertools.pairwise(cuts))
        if all(part in scores for part in parts):
            ways[parts] = math.exp(alpha * sum(scores[part] for part in parts))
    total = 8000
    found = pieces(unigram, [word] * total, alpha)
    assert_fits(found, {way: share / sum(ways.values()) for way, share in ways.items()}, total)
    sentencepiece.set_random_generator_seed(3)
    sampled = Counter(
        tuple(model.encode(word, out_type=str, enable_sampling=True, alpha=alpha, nbest_size=-1)) for _ in range(total)
    )
    assert_same_distribution(found, sampled)


def test_words_of_a_sentence_are_segmented_independently(codes):
    """Also equal words."""
    rows = cut(codes, ["abc abc"] * 20000, 0.3)
    whole = codes.encode_batch(["abc"]).ids.tolist()
    both = Counter((row[:1] == whole, row[-1:] == whole) for row in rows)
    share = {True: 0.49, False: 0.51}
    assert_fits(
        both, {outcome: share[outcome[0]] * share[outcome[1]] for outcome in itertools.product(share, share)}, 20000
    )


@pytest.mark.parametrize("name", ["bpe", "unigram", "codes"])
def test_sampling_keeps_the_text_unknown_words_and_bytes(name, request):
    vocabulary = request.getfixturevalue(name)
    texts = ["abc abc", "xabc abcy z abc"] if name == "codes" else [*lines(30), "banané \u4e2d\u6587banana", "\u4e2d"]
    prepared = [row.tolist() for row in vocabulary.encode_batch(texts).rows()]
    for rate in (0.3, 1.0):
        rows = cut(vocabulary, texts, rate)
        assert [vocabulary.decode(row) for row in rows] == [vocabulary.decode(row) for row in prepared]
        assert [row.count(UNK) for row in rows] == [row.count(UNK) for row in prepared]
        assert rows != prepared


def test_the_largest_random_number_still_selects_a_valid_segmentation(unigram, monkeypatch):
    """Added to a large place it rounds up to the next one."""
    monkeypatch.setattr(module._Draws, "__call__", lambda self, word, *places: np.full(len(word), 1 - 2.0**-53))
    texts = lines(200)
    assert [unigram.decode(row) for row in cut(unigram, texts, 0.3)] == texts


def test_all_merges_make_the_prepared_tokens_and_none_makes_characters(bpe, codes):
    for vocabulary, texts in ((bpe, lines()), (codes, ["abc xabc abc"])):
        assert cut(vocabulary, texts, 1e-12) == [row.tolist() for row in vocabulary.encode_batch(texts).rows()]
    assert cut(bpe, ["bandana"], 1.0) == [[bpe._model.piece_to_id(c) for c in "\u2581bandana"]]


def test_learnt_merges_of_subword_nmt_make_the_prepared_tokens():
    corpus = lines(5)
    words = Counter(word for line in corpus for word in line.split())
    merges = []
    symbols = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    for _ in range(40):  # Sennrich et al., 2016, algorithm 1
        pairs = Counter[tuple[str, str]]()
        for word, parts in symbols.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(" ".join(best))
        for parts in symbols.values():
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = ["".join(best)]
                i += 1
    vocabulary = CodesVocabulary.learn("\n".join(["#version: 0.2", *merges]), words, 0)
    prepared = [row.tolist() for row in vocabulary.encode_batch(corpus).rows()]
    assert cut(vocabulary, corpus, 1e-12) == prepared
    for row, text in zip(cut(vocabulary, corpus, 0.3), corpus, strict=True):  # a part without an entry never remains
        assert vocabulary.decode(row) == text and UNK not in row
    parts = {part for merge in merges for part in (*merge.split(), merge.replace(" ", ""))}
    entries = [part.removesuffix("</w>") if part.endswith("</w>") else f"{part}@@" for part in sorted(parts)]
    characters = [f"{character}{mark}" for character in set(TEXT) - {" "} for mark in ("", "@@")]
    full = CodesVocabulary("\n".join(["#version: 0.2", *merges]), sorted({*entries, *characters}))
    rows = cut(full, corpus, 0.3)
    assert [full.decode(row) for row in rows] == corpus
    assert sum(map(len, rows)) > 2 * sum(map(len, prepared))


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_segmentation_depends_on_epoch_seed_and_side_but_not_on_other_sentences(name, request):
    vocabulary, texts = request.getfixturevalue(name), lines()
    encoded = vocabulary.encode_batch(texts)
    ids, lengths = encoded.rows(), encoded.lengths.astype(np.int64)
    sampler = SubwordSampler(segmentations_of(vocabulary, 0.3), 0.3)
    some = np.array([31, 4, 4, 17])
    whole = cut(vocabulary, texts, 0.3)
    tokens, found = sampler(
        Rows(np.concatenate([ids[i] for i in some]), lengths[some]), hashed(some, 1, 1, 3, 0), NO_LIMIT
    )
    assert np.split(tokens, np.cumsum(found)[:-1])[2].tolist() == whole[4]
    assert tokens.tolist() == list(itertools.chain.from_iterable(whole[i] for i in some))
    assert cut(vocabulary, texts, 0.3, epoch=2) != whole != cut(vocabulary, texts, 0.3, seed=2)
    other, _ = sampler(Rows(encoded.ids, lengths), hashed(np.arange(len(texts)), 1, 1, 3, 1), NO_LIMIT)
    assert other.tolist() != list(itertools.chain.from_iterable(whole))


def test_only_a_sentence_that_would_be_too_long_stays_as_prepared(bpe):
    texts = ["the", "banana bandana antenna"]
    prepared = [row.tolist() for row in bpe.encode_batch(texts).rows()]
    limited = cut(bpe, texts, 1.0, longest=len("\u2581the"))
    assert len(limited[0]) == 4 and limited[1] == prepared[1]


def test_the_word_cache_is_cleared_when_it_grows_too_large(bpe, monkeypatch):
    texts = lines()
    kept = cut(bpe, texts, 0.2)
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", 400)
    encoded = bpe.encode_batch(texts)
    sampler, lengths = SubwordSampler(segmentations_of(bpe, 0.2), 0.2), encoded.lengths.astype(np.int64)
    for _ in range(3):
        tokens, _ = sampler(Rows(encoded.ids, lengths), hashed(np.arange(len(texts)), 1, 1, 3, 0), NO_LIMIT)
        assert tokens.tolist() == list(itertools.chain.from_iterable(kept))


class Corpus:
    """Sentences of a pipeline, as the loader reads them."""

    def __init__(self, pipeline, texts, columns=()):
        self.rows = [side.encode_batch(texts).rows() for side in (pipeline.source, pipeline.target)]
        self.source_lengths, self.target_lengths = (np.array(list(map(len, rows)), np.uint32) for rows in self.rows)
        self.columns = dict(columns)

    def __len__(self):
        return len(self.source_lengths)

    def sources(self, indices):
        return np.concatenate([self.rows[0][i] for i in indices])

    def targets(self, indices):
        return np.concatenate([self.rows[1][i] for i in indices])


def pipeline_of(vocabulary, right_to_left=False, subword="bpe") -> Pipeline:
    side = Side(SideSettings("en", "nfc", False, False, "none", subword), vocabulary)
    pipeline = Pipeline(side, side, True)
    return pipeline.right_to_left() if right_to_left else pipeline


@pytest.fixture(scope="module")
def corpus(bpe):
    chance = np.random.default_rng(5)
    texts = [" ".join(chance.choice(TEXT.split(), chance.integers(1, 12))) for _ in range(300)]
    return SimpleNamespace(texts=texts, pipeline=pipeline_of(bpe), pairs=Corpus(pipeline_of(bpe), texts))


def read(batches) -> list[tuple[list[int], list[int], list[int]]]:
    """What the model reads and predicts of each pair."""
    pairs = []
    for batch in batches:
        for rows in zip(batch.source, batch.target_input, batch.target_output, strict=True):
            source, given, predicted = ([int(token) for token in row if token != PAD] for row in rows)
            pairs.append((source, given[: len(predicted)], predicted))
    return sorted(pairs)


def loader(corpus, rank=0, ranks=1, max_tokens=60, noise=None, **more) -> Loader:
    sampling = subword_sampling(corpus.pairs, corpus.pipeline, 0.2, 3)
    noises = [sampling] if noise is None else [sampling, noise]
    return Loader(plan_of(corpus.pairs, 800, 3), max_tokens, rank, ranks, noises=noises)


def test_each_epoch_has_each_text_once_with_new_segmentation_and_correct_lengths(corpus):
    epochs: dict[int, list] = {1: [], 2: []}
    for update in loader(corpus).updates(Position()):
        epoch = update.after.epoch - update.ends_epoch
        if epoch == 3:
            break
        pairs = read(update.batches)
        assert update.tokens == sum(len(predicted) for _, _, predicted in pairs) == update.target_lengths.sum()
        assert update.source_lengths.sum() == sum(len(source) for source, _, _ in pairs)
        assert all(batch.cells <= 60 or len(batch) == 1 for batch in update.batches)
        epochs[epoch] += pairs
    decode = corpus.pipeline.source.decode
    for pairs in epochs.values():
        assert sorted(decode(source[:-1]) for source, _, _ in pairs) == sorted(corpus.texts)
        assert all(
            predicted[-1] == EOS and decode(predicted[:-1]) == decode(source[:-1]) for source, _, predicted in pairs
        )
    assert sorted(epochs[1]) != sorted(epochs[2])
    assert sum(source[:-1] != predicted[:-1] for source, _, predicted in epochs[1]) > 100  # the sides by themselves


def test_pairs_of_an_update_are_grouped_by_their_sampled_lengths():
    chance = np.random.default_rng(2)
    source, target = chance.integers(1, 60, (2, 100))
    planned = np.split(np.arange(100), [10, 60, 80])
    groups = regrouped(planned, source, target)
    assert sorted(np.concatenate(groups).tolist()) == list(range(100))
    assert [len(group) for group in groups] == [50, 20, 20, 10]
    longer = [np.maximum(source, target)[group] for group in groups]
    assert all(short.max() <= long.min() for short, long in itertools.pairwise(longer))


def test_ranks_micro_batches_and_resumed_loaders_read_the_same_as_one_loader(corpus):
    noise = word_dropout(0.2, 0.2, seed=5)
    updates = loader(corpus, noise=noise).updates(Position())
    first, second = next(updates), next(updates)
    assert read(next(loader(corpus, noise=noise).updates(first.after)).batches) == read(second.batches)
    assert read(next(loader(corpus, max_tokens=20, noise=noise).updates(Position())).batches) == read(first.batches)
    shares = [next(loader(corpus, rank, 3, noise=noise).updates(Position())) for rank in range(3)]
    counted = [batch for share in shares for batch in share.batches[: len(share.batches) - share.idle]]
    assert read(counted) == read(first.batches)
    assert len({len(share.batches) for share in shares}) == 1
    assert {share.tokens for share in shares} == {first.tokens}


def test_a_right_to_left_target_is_segmented_like_its_text(bpe, corpus):
    pipeline = pipeline_of(bpe, right_to_left=True)
    pairs = Corpus(pipeline, corpus.texts)
    reversed_order = changed(subword_sampling(pairs, pipeline, 0.2, 3), pairs, range(300))
    plain = changed(subword_sampling(corpus.pairs, corpus.pipeline, 0.2, 3), corpus.pairs, range(300))
    for i in range(300):
        assert reversed_order[1].take(np.array([i])).tolist()[::-1] == plain[1].take(np.array([i])).tolist()


def test_a_column_of_pairs_stays_with_its_pair(corpus):
    values = np.arange(300, dtype=np.float32)
    column = SimpleNamespace(kind="pair", take=lambda indices: Rows(values[indices], np.ones(len(indices))))
    pairs = Corpus(corpus.pipeline, corpus.texts, {"weight": column})
    found = next(loader(SimpleNamespace(pairs=pairs, pipeline=corpus.pipeline)).updates(Position()))
    for batch in found.batches:
        for row, weight in zip(batch.source.tolist(), batch["weight"].tolist(), strict=True):
            assert corpus.pipeline.source.decode([t for t in row if t not in (PAD, EOS)]) == corpus.texts[int(weight)]


@pytest.mark.parametrize("kind", ["target", "links"])
def test_columns_of_tokens_are_refused(kind, corpus):
    pairs = Corpus(corpus.pipeline, corpus.texts, {"weights": SimpleNamespace(kind=kind)})
    with pytest.raises(UserError, match="column 'weights' cannot be combined"):
        subword_sampling(pairs, corpus.pipeline, 0.1, 1)


def test_vocabularies_without_alternative_segmentations_are_refused(corpus):
    characters = learn_subwords(iter(lines()), SubwordSettings("char", 60, 1.0, False))
    old = CodesVocabulary("a b\nab </w>\n", ["ab", "a@@", "b"])
    for vocabulary, message in (
        (WordVocabulary(["a"]), "words and characters can be split in only one way"),
        (characters, "words and characters can be split in only one way"),
        (old, "subword-nmt 0.1"),
    ):
        with pytest.raises(UserError, match=f"--subword-sampling: language en: .*{message}"):
            subword_sampling(corpus.pairs, pipeline_of(vocabulary), 0.1, 1)
