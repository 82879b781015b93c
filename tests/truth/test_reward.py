"""The criterion `reward`: its gradient against a sum over each sample, and how it treats rewards."""

import math
from dataclasses import replace

import pytest
import torch
from gradients import OPTIONS, PIPELINE, VOCABULARIES, data_of, gradient, sentences, transformer

from nmt import registry
from nmt.batch import Batch, pad_rows
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.decoders.hypothesis import Hypothesis
from nmt.extensions.searches.decoders.sampling import SamplingOptions
from nmt.models.transformer import Transformer
from nmt.options import Part
from nmt.symbols import BOS, PAD, UNK
from nmt.train.parallel import Objective

SHARPNESS = 0.3


class Float64Transformer(Transformer):
    """A Transformer whose log-probabilities stay float64."""

    def log_probs(self, features, output=None):
        return torch.log_softmax((output or self.output)(features), -1)


class Enumerated(CriterionContext):
    """A context whose search finds given translations, some of them twice, and the reference once."""

    def search(self, decoder, source):
        found = []
        for row in source.tolist():
            tokens = [token for token in row if token > 3]  # source and reference are the same here
            samples = [tokens, tokens[::-1], tokens[:1], tokens[:1], [4], [5, *tokens], [*tokens, 6, 6]]
            found.append([Hypothesis(sample, 0.0, 0.0) for sample in samples])
        return found


class WithoutReference(Enumerated):
    """A context whose search finds the same but for the reference, which is the first."""

    def search(self, decoder, source):
        return [hypotheses[1:] for hypotheses in Enumerated.search(self, decoder, source)]


def objective_of(model=None, context=Enumerated, **values):
    torch.manual_seed(7)
    model = model or Float64Transformer(OPTIONS, VOCABULARIES).double()
    criterion = registry.build(registry.choose("criterion", "reward", values), context(PIPELINE, model))
    return Objective(model, criterion).train()


@pytest.fixture
def batch():
    torch.manual_seed(5)
    return sentences(6, 7)


def log_prob(model, source, tokens):
    """log P(tokens and EOS | source), of one sentence alone."""
    pair = Batch(source, pad_rows([tokens], [BOS]))
    log_probs = model.output(model(pair).features).log_softmax(-1)
    return log_probs.gather(-1, pair.target_output[..., None]).sum()


def brute_force(objective, batch, weight, score, of_pair):
    """The mean over the pairs of weight * nll - of_pair(log-probabilities, rewards), sample by sample."""
    model, total = objective.model, 0.0
    for source, hypotheses in zip(batch.source, Enumerated.search(None, None, batch.source), strict=True):
        source = source[source != PAD][None]
        reference = source[0, :-1].tolist()
        log_probs = [log_prob(model, source, hypothesis.tokens) for hypothesis in hypotheses]
        rewards = [score(hypothesis.tokens, reference) for hypothesis in hypotheses]
        keys = [tuple(hypothesis.tokens) for hypothesis in hypotheses]
        total = total - weight * log_prob(model, source, reference) - of_pair(log_probs, rewards, keys)
    total = total / len(batch)
    return total.item(), torch.autograd.grad(total, list(model.parameters()))


def score_by(name):
    """The score of a sample against the reference by a metric that is built here, on the text."""
    metric = registry.build(Part("metric", name))
    text = PIPELINE.target.decode
    return lambda tokens, reference: metric.sentence_scores([text(tokens)], [[text(reference)]])[0]


def assert_gradient(objective, batch, found_loss, wanted):
    stats, found = gradient(objective, data_of(batch))
    assert stats.losses.loss == pytest.approx(found_loss, rel=1e-9)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "sign"), [("gleu", 1), ("bleu", 1), ("chrf", 1), ("ter", -1)])
def test_each_sample_s_gradient_is_weighted_by_its_reward_minus_the_mean(name, sign, batch):
    def of_pair(log_probs, rewards, keys):
        mean = sum(rewards) / len(rewards)
        weighted = sum((r - mean) * p for p, r in zip(log_probs, rewards, strict=True)) / len(rewards)
        return mean + weighted - weighted.detach()  # the value is the mean reward

    score = score_by(name)
    objective = objective_of(reward=name)
    expected = brute_force(objective, batch, 0.017, lambda *of: sign * score(*of) / 100, of_pair)
    assert_gradient(objective, batch, *expected)


@pytest.mark.parametrize("with_reference", [False, True])
def test_minimum_risk_is_the_expected_reward_under_the_models_own_distribution_over_different_samples(
    with_reference, batch
):
    def of_pair(log_probs, rewards, keys):
        different = list({key: i for i, key in enumerate(keys)}.values())
        shares = [torch.exp(SHARPNESS * log_probs[i]) for i in different]
        return sum(share * rewards[i] for share, i in zip(shares, different, strict=True)) / sum(shares)

    score = score_by("gleu")
    context = WithoutReference if with_reference else Enumerated
    values = {"sharpness": SHARPNESS, "likelihood_weight": 0, "with_reference": with_reference}
    objective = objective_of(context=context, objective="risk", **values)
    expected = brute_force(objective, batch, 0, lambda *of: score(*of) / 100, of_pair)
    assert_gradient(objective, batch, *expected)


@pytest.mark.parametrize("draws_reference", [False, True])
def test_the_reported_reward_is_the_mean_of_the_samples_alone(draws_reference, batch):
    context = Enumerated if draws_reference else WithoutReference
    objective = objective_of(context=context, objective="risk", with_reference=True)
    score = score_by("gleu")
    rewards = [
        sum(score(hypothesis.tokens, [token for token in row if token > 3]) / 100 for hypothesis in found) / len(found)
        for row, found in zip(batch.source.tolist(), context.search(context, None, batch.source), strict=True)
    ]
    assert objective(batch).reported["reward"].total.item() == pytest.approx(sum(rewards))


def test_with_equal_rewards_only_the_likelihood_gradient_remains(batch):
    objective = objective_of()
    objective.criterion.metric.sentence_scores = lambda texts, *_: [37.0] * len(texts)
    _, wanted = brute_force(objective, batch, 0.017, lambda *_: 0.0, lambda *_: 0.0)
    _, found = gradient(objective, data_of(batch))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_metric_reads_the_source_without_noise(batch):
    objective, read = objective_of(), []
    objective.criterion.metric.sentence_scores = lambda texts, _, sources: read.extend(sources) or [1.0] * len(texts)
    noisy = replace(batch, source=batch.source.where(batch.source <= UNK, UNK), clean_source=batch.source)
    gradient(objective, data_of(noisy))
    assert set(read) == {PIPELINE.source.decode_line(row) for row in batch.source.tolist()}


def test_a_reward_that_is_not_finite_skips_the_update(batch):
    objective = objective_of()
    assert gradient(objective, data_of(batch))[0].applied
    objective.criterion.metric.sentence_scores = lambda texts, *_: [math.nan] * len(texts)
    stats, gradients = gradient(objective, data_of(batch))
    assert not stats.applied and not gradients


def test_the_mean_of_many_samples_approaches_the_expected_reward(batch):
    """Of 400 samples of one short sentence, against the sum over all translations of at most two words."""
    few = {"decoder.n_best": 400, "decoder.max_len_a": 0.0, "decoder.max_len_b": 2}
    objective = objective_of(transformer(), CriterionContext, **few)
    pair, score = batch.rows(slice(5, 6)), score_by("gleu")
    reference, model = pair.source[0, :-1].tolist(), objective.model
    words = [token for token in range(VOCABULARIES.target) if token > 2]  # no PAD, BOS or EOS
    with torch.no_grad():
        first = model.output(model(Batch(pair.source, torch.tensor([[BOS, 0]]))).features)[0, 0].double()
        first[[0, 1, 2]] = -torch.inf  # a translation has a word
        starts, expected = first.softmax(0), 0.0
        for word in words:
            second = model.output(model(Batch(pair.source, torch.tensor([[BOS, word, 0]]))).features)[0, 1].double()
            second[[0, 1]] = -torch.inf
            for token, share in enumerate(second.softmax(0).tolist()):
                tokens = [word] if token == 2 else [word, token]
                expected += float(starts[word]) * share * score(tokens, reference) / 100 if share else 0.0
        reported = objective(pair).reported["reward"].total.item()
    assert reported == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(400))


def test_validation_draws_one_sample_per_pair(batch):
    class Counting(CriterionContext):
        drawn = ()

        def search(self, decoder, source):
            found = super().search(decoder, source)
            self.drawn = [len(hypotheses) for hypotheses in found]
            return found

    for values, wanted in (({}, 15), ({"n_best": 4}, 4)):
        decoder = {"decoder": Part("decoder", "sampling", SamplingOptions(**values))} if values else {}
        objective = objective_of(Transformer(OPTIONS, VOCABULARIES), Counting, **decoder)
        for training, count in ((True, wanted), (False, 1)):
            objective.train(training)(batch)
            assert objective.criterion.context.drawn == [count] * len(batch)


def test_training_on_the_reward_alone_increases_it():
    """A copying task of 12 sentences, after a little training by cross entropy."""
    torch.manual_seed(5)
    pairs, model = sentences(12, 5), transformer()
    few = {"decoder.n_best": 15, "decoder.max_len_b": 2}
    by_reward = objective_of(model, CriterionContext, likelihood_weight=0, **few).criterion
    cross_entropy = CrossEntropy(CrossEntropyOptions(), by_reward.context)

    def losses(criterion, updates, lr):
        optimizer = torch.optim.Adam(model.parameters(), lr)
        for number in range(1, updates + 1):
            by_reward.context.update = number
            trained, reported = criterion(model, pairs)
            optimizer.zero_grad()
            (trained["loss"].total / trained["loss"].count).backward()
            optimizer.step()
            yield reported

    list(losses(cross_entropy, 20, 0.01))
    rewards = [float(loss["reward"].total) / len(pairs) for loss in losses(by_reward, 40, 0.003)]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1
