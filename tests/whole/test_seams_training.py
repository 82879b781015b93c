"""What plug-ins add to training: auxiliary losses, parameter groups, criteria with several losses, searches."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import records_of, train_arguments, write_corpus
from gradients import OPTIONS, VOCABULARIES, assert_close, data_of, gradient, sentences, transformer
from refusals import assert_refused
from safetensors.torch import load_file

from nmt import registry
from nmt.batch import Batch, Column, dummy_batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.data.loader import to_batch
from nmt.data.shards import PreparedData
from nmt.errors import UserError
from nmt.models.base import ParameterGroup, Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.optimizers.base import parameter_groups
from nmt.options import make
from nmt.positions.sinusoidal import INITIAL_POSITIONS
from nmt.train.options import TrainOptions
from nmt.train.parallel import Objective
from nmt.train.setup import open_data, try_criterion
from nmt.train.validation import Validation


def plugin_part(tmp_path: Path, kind: str, name: str, text: str) -> registry.Entry:
    (tmp_path / f"{name}.py").write_text(text)
    registry.load_plugin(str(tmp_path / f"{name}.py"))
    return registry.find(kind, name)


def cross_entropy_of(model: Transformer) -> Objective:
    return Objective(model, CrossEntropy(CrossEntropyOptions(), CriterionContext(None, model))).train()


BALANCED = '''
"""A Transformer with a gate between two experts, and a loss that keeps their use even over a batch."""
import torch
from torch import nn
from nmt import opt, options_class, register
from nmt.models.base import Output, Term
from nmt.models.transformer import Transformer, TransformerOptions

@options_class
class BalancedOptions(TransformerOptions):
    balance: float = opt(0.1, "weight of the balance loss", minimum=0)

@register("model", "balanced", BalancedOptions)
class Balanced(Transformer):
    """A Transformer with a balance loss."""
    def __init__(self, options, vocabularies):
        super().__init__(options, vocabularies)
        self.gate = nn.Linear(options.d_model, 2)
    def forward(self, batch):
        features = super().forward(batch).features
        real = (batch.target_output != 0)[..., None]
        shares = self.gate(features).float().softmax(-1) * real
        count = batch.num_target_tokens
        mean = shares.sum((0, 1)) / count
        balance = self.options.balance * 2 * mean.square().sum() * count
        return Output(features + shares[..., :1] * features, {"balance": Term(balance, count)})
    def extra_counts(self, batch):
        return {"balance": batch.num_target_tokens}
'''


def test_a_models_balance_loss_is_added_once_and_recorded_by_name(data, tmp_path, call):
    (tmp_path / "balanced.py").write_text(BALANCED)
    arguments = [*train_arguments(data, tmp_path / "run", 20), f"--plugin={tmp_path / 'balanced.py'}"]
    trained = call(*arguments, "--model=balanced", "--no-valid-bleu", "--best-by=balance", "--no-quiet")
    assert trained.code == 0, trained.err
    *_, update, validation = records_of(tmp_path / "run")
    keys = [
        "update",
        "epoch",
        "loss",
        "main_loss",
        "balance",
        "nll",
        "target_tokens",
        "eflop",
        "lr",
        "gradient_norm",
        "skipped",
    ]
    assert list(update) == keys
    assert update["loss"] == pytest.approx(update["main_loss"] + update["balance"], rel=1e-12)
    assert 0.1 <= update["balance"] <= 0.2  # 2 (p^2 + (1 - p)^2) is at least 1, at most 2
    parts = ["loss", "ppl", "bleu", "nll", "main_loss", "balance"]
    assert list(validation) == ["update", *(f"valid_{name}" for name in parts)]
    assert f"balance {validation['valid_balance']:.4f}" in trained.err
    assert f"(balance {validation['valid_balance']:.4f})" in trained.err  # the best checkpoint's score


def test_splitting_a_batch_increases_a_batch_loss_at_most_to_that_of_single_tokens(tmp_path):
    """A convex loss of a mean is at most the mean of the losses: whole <= split <= one token at a time."""
    entry = plugin_part(tmp_path, "model", "balanced", BALANCED)
    torch.manual_seed(5)
    batch = sentences(12, 9)

    def updated(*batches: Batch):
        torch.manual_seed(7)
        model = entry.cls(make(entry.options, {**vars(OPTIONS), "balance": 1.0}), VOCABULARIES)
        return gradient(cross_entropy_of(model), data_of(*batches))

    whole, wanted = updated(batch)
    cut, found = updated(*batch.split(20))
    assert cut.losses.mean("loss") == pytest.approx(whole.losses.mean("loss"), rel=1e-6)
    balance, growth = whole.losses.mean("balance"), cut.losses.mean("balance") - whole.losses.mean("balance")
    assert 0 <= growth <= 0.05 * balance
    assert_close(found, wanted, 0.2)


def test_a_criterion_that_reads_the_model_twice_trains_the_mean_of_its_auxiliary_losses(tmp_path):
    entry = plugin_part(tmp_path, "model", "balanced", BALANCED)
    batch = sentences(6, 5)

    class Twice(CrossEntropy):
        """Cross entropy after an unused forward pass."""

        def __call__(self, model, batch):
            model(batch)
            return super().__call__(model, batch)

    stats = []
    for criterion in (CrossEntropy, Twice):
        torch.manual_seed(7)
        model = entry.cls(make(entry.options, vars(OPTIONS)), VOCABULARIES)
        objective = Objective(model, criterion(CrossEntropyOptions(), CriterionContext(None, model)))
        stats.append(gradient(objective.train(), data_of(batch))[0].losses.means())
    assert stats[0] == pytest.approx(stats[1], rel=1e-6)


PARTLY = '''
"""A Transformer whose encoder is frozen and whose output learns at another rate."""
from nmt import opt, options_class, register
from nmt.models.base import ParameterGroup
from nmt.models.transformer import Transformer, TransformerOptions

@options_class
class PartlyOptions(TransformerOptions):
    decoder_lr: float = opt(1.0, "factor of the decoder's learning rate", minimum=0)

@register("model", "partly", PartlyOptions)
class Partly(Transformer):
    """A Transformer, partly trained."""
    def __init__(self, options, vocabularies):
        super().__init__(options, vocabularies)
        self.encoder.requires_grad_(False)
    def parameter_groups(self):
        decoder = list(self.decoder.parameters())
        ids = {id(parameter) for parameter in decoder}
        others = [parameter for parameter in self.parameters() if id(parameter) not in ids]
        return [ParameterGroup("others", others), ParameterGroup("decoder", decoder, self.options.decoder_lr)]
'''


def test_a_frozen_module_keeps_its_bits_and_a_group_learns_at_its_factor(data, tmp_path, call):
    (tmp_path / "partly.py").write_text(PARTLY)
    weights = {}
    for factor in (0, 0.25, 1):
        arguments = train_arguments(data, tmp_path / f"run{factor}", 1, "--model=partly", f"--decoder-lr={factor}")
        plain = ["--optimizer=sgd", f"--plugin={tmp_path / 'partly.py'}", "--no-valid-bleu", "--best-by=loss"]
        assert call(*arguments, *plain).code == 0
        weights[factor] = load_file(tmp_path / f"run{factor}/checkpoints/update-1/model.safetensors")
    for name, start in weights[0].items():
        quarter, full = weights[0.25][name], weights[1][name]
        if name.startswith("decoder."):
            assert not torch.equal(full, start)
            torch.testing.assert_close(4 * (quarter - start), full - start, rtol=1e-2, atol=1e-6)
        else:
            assert torch.equal(quarter, full) and torch.equal(start, full)
    resumed = train_arguments(data, tmp_path / "run1", 3, "--model=partly", "--decoder-lr=1")
    assert call(*resumed, *plain).code == 0
    later = load_file(tmp_path / "run1/checkpoints/update-3/model.safetensors")
    for name, tensor in later.items():
        assert torch.equal(tensor, weights[1][name]) == name.startswith("encoder.")


UNUSED = '''
"""A Transformer with weights of which one is not used, and one from update 13 on."""
import torch
from torch import nn
from nmt import register
from nmt.models.transformer import Transformer, TransformerOptions

@register("model", "unused", TransformerOptions)
class Unused(Transformer):
    """A Transformer."""
    def __init__(self, options, vocabularies):
        super().__init__(options, vocabularies)
        self.number, self.never, self.late = 0, nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(1))
    def begin_update(self, number):
        self.number = number
    def forward(self, batch):
        output = super().forward(batch)
        return output._replace(features=output.features * self.late) if self.number > 12 else output
'''


@pytest.mark.parametrize("optimizer", ["adam", "muon", "schedule-free"])
def test_a_run_with_weights_without_gradients_resumes_bit_for_bit(optimizer, data, tmp_path, call):
    (tmp_path / "unused.py").write_text(UNUSED)
    more = (f"--plugin={tmp_path / 'unused.py'}", "--model=unused", f"--optimizer={optimizer}", "--no-valid-bleu")
    more += ("--valid-every=10u",)
    assert call(*train_arguments(data, tmp_path / "whole", 20, *more)).code == 0
    for updates in (10, 20):
        went_on = call(*train_arguments(data, tmp_path / "run", updates, *more))
        assert went_on.code == 0, went_on.err
    whole, run = (tmp_path / name / "checkpoints/update-20/training.safetensors" for name in ("whole", "run"))
    assert whole.read_bytes() == run.read_bytes()
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "run/metrics.jsonl").read_bytes()


def test_a_parameter_outside_all_groups_is_reported_by_name():
    class Forgetful(Transformer):
        def parameter_groups(self):
            return [ParameterGroup("decoder", list(self.decoder.parameters()))]

    with pytest.raises(UserError, match=r"source_embedding\.weight' must be in exactly one parameter group"):
        parameter_groups(Forgetful(OPTIONS, VOCABULARIES))


GUIDED = '''
"""Cross entropy with guided alignment (Chen et al., 2016): cross-attention is trained on given links."""
import torch
from nmt import opt, options_class, register
from nmt.criteria.base import Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions

@options_class
class GuidedOptions(CrossEntropyOptions):
    link_weight: float = opt(0.5, "weight of the negative log-attention of a link", minimum=0)
    count_factor: int = opt(1, "factor of the number of links that is announced")
    dev_links: bool = opt(True, "read links in validation too")

@register("criterion", "guided", GuidedOptions)
class Guided(CrossEntropy):
    """Cross entropy, and the negative log-attention of the links, in nats a link."""
    def counts(self, batch):
        links = (batch["alignment"][..., 0] >= 0).sum()
        return {**super().counts(batch), "links": self.options.count_factor * links}
    def __call__(self, model, batch):
        loss = super().__call__(model, batch)
        if not self.options.dev_links and "alignment" not in batch:
            return loss
        links = batch["alignment"]
        weights = model.attentions(batch)["cross"][model.alignment_layer].mean(1)  # B T S
        sources, targets = links.clamp(min=0).unbind(-1)
        rows = torch.arange(len(links), device=links.device)[:, None]
        real = links[..., 0] >= 0
        total = -(weights[rows, targets, sources].clamp(min=1e-9).log() * real).sum()
        part = Term(self.options.link_weight * total, real.sum())
        return Loss({**loss.trained, "links": part}, loss.reported)
'''


def linked(rows: int, longest: int, links: int) -> Batch:
    """Random pairs with the first `links` words of source and target linked."""
    batch = sentences(rows, longest)
    pairs = torch.full((rows, max(links, 1), 2), -1)
    for row in range(rows):
        length = min(links, int((batch.source[row] != 0).sum()) - 1)
        pairs[row, :length] = torch.arange(length)[:, None]
    return Batch(batch.source, batch.target, {"alignment": Column(pairs, "links")})


def guided_objective(tmp_path: Path) -> Objective:
    entry, model = plugin_part(tmp_path, "criterion", "guided", GUIDED), transformer()
    return Objective(model, entry.cls(make(entry.options, {}), CriterionContext(None, model))).train()


def test_each_loss_of_a_criterion_is_divided_by_its_own_count_however_the_batch_is_split(tmp_path):
    torch.manual_seed(5)
    batch = linked(12, 9, 3)
    whole, wanted = gradient(guided_objective(tmp_path), data_of(batch))
    cut, found = gradient(guided_objective(tmp_path), data_of(*batch.split(30)))
    assert_close(found, wanted, 1e-5)
    assert cut.losses.means() == pytest.approx(whole.losses.means(), rel=1e-5)
    assert whole.losses.counts["links"] == int((batch["alignment"][..., 0] >= 0).sum()) < whole.tokens
    objective = guided_objective(tmp_path)
    trained, _ = objective(batch)
    sum(term.total / term.count for term in trained.values()).backward()
    assert_close([parameter.grad for parameter in objective.parameters()], wanted, 1e-5)


def test_a_loss_with_a_zero_count_adds_nothing_to_an_update(tmp_path):
    torch.manual_seed(5)
    batch = linked(6, 5, 0)
    stats, found = gradient(guided_objective(tmp_path), data_of(batch))
    plain, wanted = gradient(cross_entropy_of(transformer()), data_of(Batch(batch.source, batch.target)))
    assert stats.applied and stats.losses.mean("links") == 0.0
    assert stats.losses.loss == pytest.approx(plain.losses.loss, rel=1e-6)
    assert_close(found, wanted, 1e-5)


def test_losses_without_a_count_are_rejected():
    class Uncounted(CrossEntropy):
        """Cross entropy under another name."""

        def __call__(self, model, batch):
            loss = super().__call__(model, batch)
            return loss._replace(trained={"other": loss.trained["loss"]})

    model = transformer()
    objective = Objective(model, Uncounted(CrossEntropyOptions(), CriterionContext(None, model)))
    with pytest.raises(UserError, match=r"\['other'\].*\['loss'\].*Criterion.counts"):
        gradient(objective, data_of(sentences(3, 4)))


def test_guided_alignment_trains_on_the_links_read_by_prepare(tmp_path, call):
    write_corpus(tmp_path / "train", 300, 1)
    lengths = [len(line.split()) for line in (tmp_path / "train.en").read_text().splitlines()]
    links = (" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths)  # the target is in reverse
    (tmp_path / "train.links").write_text("".join(f"{line}\n" for line in links))
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'train'}", "--subword=none"]
    column = f"--column=alignment:links={tmp_path / 'train.links'}"
    assert call(*prepare, column, "--hold-out=20", f"--output={tmp_path / 'data'}", "--quiet").code == 0
    (tmp_path / "guided.py").write_text(GUIDED)
    guided = [f"--plugin={tmp_path / 'guided.py'}", "--criterion=guided", "--no-valid-bleu", "--best-by=links"]
    trained = call(*train_arguments(tmp_path / "data", tmp_path / "run", 80, *guided, "--link-weight=1"))
    assert trained.code == 0, trained.err
    first, *_, last = [record["valid_links"] for record in records_of(tmp_path / "run") if "valid_links" in record]
    assert first > last and last < 0.9  # e^-0.9 = 0.4 of the attention; uniform attention would be 0.2


MIN_RISK = '''
"""Minimum risk training (Shen et al., 2016): the expected risk of candidates that a search draws."""
import torch
from nmt import Part, opt, options_class, part, register
from nmt.batch import Batch
from nmt.criteria.base import Criterion, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions

@options_class
class MinRiskOptions:
    decoder: Part = part("decoder", "sampling", "search that draws the candidates")
    sharpness: float = opt(1.0, "power of the probabilities of the candidates", above=0)

@register("criterion", "min-risk", MinRiskOptions)
class MinRisk(Criterion):
    """The expected share of wrong tokens over the candidates of each sentence."""
    def __init__(self, options, context):
        self.options, self.context = options, context
        self.decoder = context.build(options.decoder)
    def counts(self, batch):
        return {"risk": torch.tensor(len(batch), device=batch.source.device)}
    def __call__(self, model, batch):
        risks, log_probs, nll = [], [], torch.zeros((), device=batch.source.device)
        for i, hypotheses in enumerate(self.context.search(self.decoder, batch.source)):
            reference = [token for token in batch.target_output[i].tolist() if token > 2]
            for hypothesis in hypotheses:
                known = sum(token in reference for token in hypothesis.tokens)
                risks.append(1 - known / max(len(hypothesis.tokens), len(reference), 1))
                target = torch.tensor([[1, *hypothesis.tokens, 2]], device=batch.source.device)
                pair = Batch(batch.source[i : i + 1], target)
                logits = model.output(model(pair).features).float().log_softmax(-1)
                log_probs.append(logits.gather(-1, pair.target_output[..., None]).sum())
        shape = len(batch), -1
        share = (self.options.sharpness * torch.stack(log_probs).view(shape)).softmax(-1)
        total = (share * share.new_tensor(risks).view(shape)).sum()
        update = torch.tensor(self.context.update, device=total.device)
        one = torch.ones((), device=total.device)
        return Loss({"risk": Term(total, self.counts(batch)["risk"])}, {"at_update": Term(update * one, one)})
'''


def test_a_criterion_can_search_with_its_own_decoder_options_and_know_the_update(data, tmp_path, call):
    (tmp_path / "min_risk.py").write_text(MIN_RISK)
    arguments = [*train_arguments(data, tmp_path / "run", 2), f"--plugin={tmp_path / 'min_risk.py'}"]
    part = ["--criterion=min-risk", "--criterion.decoder=sampling", "--criterion.decoder.n-best=3"]
    part += ["--criterion.decoder.max-len-b=2", "--criterion.decoder.temperature=0.8"]
    trained = call(*arguments, *part, "--no-valid-bleu", "--best-by=risk", "--max-tokens=200", "--no-quiet")
    assert trained.code == 0, trained.err
    assert "loss 0." in trained.err and "ppl" not in trained.err and "nats" not in trained.err
    first, second, validation = records_of(tmp_path / "run")
    assert 0 < first["loss"] < 1 and first["loss"] == first["risk"]
    assert (first["at_update"], second["at_update"], validation["valid_at_update"]) == (1, 2, 2)
    assert "nll" not in first and validation["valid_loss"] == validation["valid_risk"]
    again = call(*arguments, *part, "--no-valid-bleu", "--best-by=risk", "--criterion.decoder.temperature=1.5")
    assert_refused(again, 2, "temperature: 0.8 -> 1.5")
    plain = call(*train_arguments(data, tmp_path / "run", 2, "--no-valid-bleu", "--best-by=loss"))
    listed = plain.err.count(" -> ")
    assert plain.code == 2 and listed == 5 and re.search(r" and \d+ more\); use the run's", plain.err)


def test_validation_metrics_are_chosen_by_name_and_one_selects_the_best_checkpoint(data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "run", 20, "--valid-metrics=bleu,ter", "--best-by=ter", "--no-quiet")
    trained = call(*arguments)
    assert trained.code == 0, trained.err
    validation = records_of(tmp_path / "run")[-1]
    assert list(validation) == ["update", "valid_loss", "valid_ppl", "valid_bleu", "valid_ter", "valid_nll"]
    assert f"TER {validation['valid_ter']:.2f} (" in trained.err
    shown = re.search(r"loss (\S+) : nll (\S+) nats/token \(ppl (\S+)\) : BLEU", trained.err)
    assert shown and shown[1] == f"{validation['valid_loss']:.4f}" and shown[3] == f"{validation['valid_ppl']:.3f}"
    assert math.exp(float(shown[2])) == pytest.approx(validation["valid_ppl"], rel=1e-3)
    state = json.loads((tmp_path / "run/checkpoints/update-20/training.json").read_text())
    assert state["progress"]["score"] == -validation["valid_ter"]  # lower is better
    judged = call(*train_arguments(data, tmp_path / "nll", 20, "--best-by=nll", "--json"))
    shown = call("status", tmp_path / "nll", "--json").json
    assert judged.json["best_by"] == shown["best_by"] == "nll" and judged.json["score"] == shown["best_score"] > 0
    assert_refused(call(*train_arguments(data, tmp_path / "other", 20, "--best-by=lukc")), 2, "lukc", "loss")
    for criterion in ("r-drop", "cross-entropy"):  # validations have no divergence
        reported = call(
            *train_arguments(data, tmp_path / "other", 20, f"--criterion={criterion}", "--best-by=divergence")
        )
        assert_refused(reported, 2, "divergence", "nll")
    missing = call(*train_arguments(data, tmp_path / "other", 20, "--valid-metrics=chrf", "--best-by=bleu"))
    assert_refused(missing, 2, "--best-by")


def test_a_column_missing_from_the_validation_set_and_a_wrong_count_are_reported_at_set_up(tmp_path, call):
    for name, count in (("train", 60), ("dev", 10)):
        write_corpus(tmp_path / name, count, count)
    (tmp_path / "links").write_text("0-0\n" * 60)
    (tmp_path / "guided.py").write_text(GUIDED)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", "--subword=none", f"--train={tmp_path / 'train'}"]
    column, dev = f"--column=alignment:links={tmp_path / 'links'}", f"--valid={tmp_path / 'dev'}"
    assert call(*prepare, column, dev, f"--output={tmp_path / 'data'}", "--quiet").code == 0
    assert call(*prepare, dev, f"--output={tmp_path / 'without'}", "--quiet").code == 0
    guided = [f"--plugin={tmp_path / 'guided.py'}", "--criterion=guided", "--no-valid-bleu", "--best-by=loss"]
    arguments = train_arguments(tmp_path / "data", tmp_path / "run", 2, *guided)
    wanted = "has no column 'alignment' (test `\"alignment\" in batch` in the criterion, or use nmt prepare --hold-out)"
    for more in ([], ["--dry-run"]):
        assert_refused(call(*arguments, *more), 2, "validation set 'dev' " + wanted)
        assert not (tmp_path / "run/checkpoints").exists()
    untrained = call(*train_arguments(tmp_path / "without", tmp_path / "other", 2, *guided))
    assert_refused(untrained, 2, "'alignment'", "--column")
    counted = call(*arguments, "--no-dev-links", "--count-factor=2")
    found, given = re.search(r"part 'links' has the count (\d+), but counts\(\) returns (\d+)", counted.err).groups()
    assert counted.code == 2 and int(given) == 2 * int(found)
    assert call(*arguments, "--no-dev-links").code == 0


def test_the_trial_of_the_criterion_changes_neither_random_state_nor_buffers(data):
    prepared = PreparedData(data)
    size = prepared.pipeline.source.size
    options = TransformerOptions(**{**vars(OPTIONS), "dropout": 0.5})
    model = Transformer(options, Vocabularies(size, size, True))
    model.register_buffer("calls", torch.zeros(()))
    model.register_forward_hook(lambda *_: model.calls.add_(1) and None)
    dev = next(iter(prepared.valid.values()))
    criterion = CrossEntropy(CrossEntropyOptions(), CriterionContext(None, model))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    pairs = to_batch(prepared.train, np.arange(2))
    assert try_criterion(model, criterion, pairs, Validation(dev), "fp32") == {"loss", "nll"}
    assert torch.equal(torch.get_rng_state(), before) and model.calls == 0 and model.training
    longer = dummy_batch(
        2, INITIAL_POSITIONS + 1, INITIAL_POSITIONS + 1, {}
    )  # the position table grows for this length
    assert try_criterion(model, criterion, longer, None, "fp32") == {"loss", "nll"}


def test_best_by_adds_its_metric_and_only_bleu_has_the_tokenizer(data, tmp_path):
    plugin_part(
        tmp_path,
        "metric",
        "own-words",
        """
from nmt import opt, options_class, register
from nmt.metrics.base import Metric

@options_class
class OwnWordsOptions:
    tokenize: str = opt("spaces", "where words end")

@register("metric", "own-words", OwnWordsOptions)
class OwnWords(Metric):
    '''Shares of words.'''
    def __init__(self, options):
        self.options = options
    def __call__(self, hypotheses, references, sources):
        raise NotImplementedError
""",
    )
    given = {"data": str(data), "output": str(tmp_path / "run"), "best_by": "own-words", "bleu_tokenize": "intl"}
    options = TrainOptions(**given)
    assert options.metrics == ["bleu", "own-words"]
    _, validation = open_data(options)
    assert validation.metrics["own-words"].options.tokenize == "spaces"
    assert validation.metrics["bleu"].options.tokenize == "intl"
    assert TrainOptions(data="d", output="o", best_by="loss").metrics == ["bleu"]
