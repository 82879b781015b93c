"""Guided alignment against its definition (Chen et al., 2016, section 3.1) in float64."""

from dataclasses import replace

import pytest
import torch
from gradients import PIPELINE, sentences, transformer

from nmt import UserError
from nmt.batch import Column
from nmt.criteria.base import CriterionContext
from nmt.extensions.fast.training_speedups.recompute import recompute
from nmt.extensions.methods.columns.links import NO_LINK
from nmt.extensions.methods.criteria.guided_alignment import GuidedAlignment, watched_pass
from nmt.extensions.methods.criteria.options import GuidedAlignmentOptions
from nmt.symbols import PAD

LINKS = [[(0, 0), (2, 0), (2, 0), (1, 3)], [(4, 1)], []]  # (source, target) of each row; one link is there twice


def batch_of(links):
    torch.manual_seed(2)
    most = max(map(len, links))
    rows = [[*row, *[(NO_LINK, NO_LINK)] * (most - len(row))] for row in links]
    return replace(sentences(3, 8), columns={"alignment": Column(torch.tensor(rows), "links")})


def criterion(model, **options):
    return GuidedAlignment(GuidedAlignmentOptions(**options), CriterionContext(PIPELINE, model))


def by_definition(attention, links):
    """The cross entropy of attention (B, T, S) given equal shares for the links of each target token; and its count."""
    total, count = 0.0, 0
    for weights, row in zip(attention.double(), map(set, links), strict=True):
        for position in {target for _, target in row}:
            linked = [source for source, target in row if target == position]
            total -= sum(weights[position, source].log() for source in linked) / len(linked)
            count += 1
    return total, count


def test_loss_and_gradient_follow_the_definition():
    model, batch = transformer(), batch_of(LINKS)
    term = criterion(model, alignment_weight=0.3)(model, batch).trained["alignment"]
    attention = watched_pass(model, batch).attention
    wanted, count = by_definition(attention, LINKS)
    assert (term.total.item(), int(term.count)) == (pytest.approx(0.3 * wanted.item()), count)
    parameters = [p for name, p in model.named_parameters() if name.startswith(("encoder", "decoder.0"))]
    found = torch.autograd.grad(term.total, parameters)
    for gradient, other in zip(found, torch.autograd.grad(0.3 * wanted, parameters), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)


def test_the_encoder_term_is_the_cross_entropy_of_linked_tokens_given_the_encoders_output():
    model, batch = transformer(), batch_of(LINKS)
    loss = criterion(model, encoder_weight=0.3, label_smoothing=0.0)
    term = loss(model, batch).trained["encoder"]
    logits = model.output(model(batch).memory).double()  # B S V
    wanted = 0.0
    for row, links in enumerate(map(set, LINKS)):
        for source, target in links:
            shared = sum(other == target for _, other in links)
            wanted -= logits[row, source].log_softmax(-1)[batch.target_output[row, target]] / shared
    assert term.total.item() == pytest.approx(0.3 * wanted.item(), rel=1e-5)
    assert int(term.count) == int(loss.counts(batch)["encoder"]) == 3
    parameters = [p for name, p in model.named_parameters() if name.startswith(("encoder", "output", "source"))]
    found = torch.autograd.grad(term.total, parameters, allow_unused=True)
    for gradient, other in zip(found, torch.autograd.grad(0.3 * wanted, parameters, allow_unused=True), strict=True):
        torch.testing.assert_close(gradient, other.float(), rtol=1e-4, atol=1e-6)
    assert loss(model, batch_of([[(NO_LINK, NO_LINK)], [], []])).trained["encoder"].total == 0


def test_a_model_without_an_encoders_output_cannot_have_an_encoder_term():
    model, batch = transformer(), batch_of(LINKS)
    output = watched_pass(model, batch)._replace(memory=None)
    model.forward = lambda batch: output
    with pytest.raises(UserError, match="--encoder-weight: the model provides no encoder output"):
        criterion(model, encoder_weight=0.3)(model, batch)


def test_guided_alignment_leaves_the_cross_entropy_unchanged():
    model, batch = transformer(), batch_of(LINKS)
    guided, plain = criterion(model)(model, batch), criterion(model)(model.eval(), replace(batch, columns={}))
    assert "alignment" not in plain.trained
    assert guided.trained["loss"].total.item() == pytest.approx(plain.trained["loss"].total.item(), rel=1e-6)


def test_training_moves_attention_to_the_links():
    model = transformer()
    batch = batch_of([[(0, 1), (3, 2)], [(2, 0), (1, 4)], [(0, 0), (1, 1)]])
    optimizer, loss = torch.optim.Adam(model.parameters(), 1e-2), criterion(model, alignment_weight=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        sum(term.total for term in loss(model, batch).trained.values()).backward()
        optimizer.step()
    links = batch["alignment"]
    attention = watched_pass(model, batch).attention
    linked = [attention[row, t, s].item() for row in range(3) for s, t in links[row].tolist() if s != NO_LINK]
    assert min(linked) > 0.8
    assert not model.watched


def test_attention_that_underflows_still_has_a_finite_loss_and_gradient():
    model, batch = transformer(), batch_of(LINKS)
    with torch.no_grad():
        model.decoder[-1].cross_attention.queries.weight.mul_(1e4)
    total = criterion(model)(model, batch).trained["alignment"].total
    total.backward()
    assert total.isfinite()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_recomputed_layers_have_the_same_gradient(monkeypatch):
    monkeypatch.setattr("nmt.nn.attention.MAX_PLAIN_SCORES", 0)  # fused kernels but where weights are recorded
    gradients = []
    for prepare in (lambda model: None, recompute):
        model = transformer()
        prepare(model)
        total = criterion(model)(model, batch_of(LINKS)).trained["alignment"].total
        total.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_weights_scale_the_alignment_loss_of_each_token():
    model, batch = transformer(), batch_of(LINKS)
    values = torch.zeros(batch.target_output.shape)
    values[0, 3] = 2.0
    weighted = replace(batch, columns={**batch.columns, "quality": Column(values, "target")})
    total = criterion(model, alignment_weight=1.0, loss_weights="quality")(model, weighted).trained["alignment"].total
    expected = -2 * watched_pass(model, batch).attention[0, 3, 1].log()
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_data_without_the_column_and_a_column_of_numbers_are_refused():
    model, batch = transformer(), batch_of(LINKS)
    with pytest.raises(UserError, match=r"no column 'links' \(add it with nmt prepare --column links:links=FILE"):
        criterion(model, alignment_column="links")(model, batch)
    numbers = Column((batch.target_output != PAD).float(), "target")
    with pytest.raises(UserError, match="--alignment-column alignment: the column contains numbers"):
        criterion(model)(model, replace(batch, columns={"alignment": numbers}))


def test_compiled_layers_have_no_attention_to_train(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    model = transformer()
    with pytest.raises(UserError, match="drop --compile"):
        criterion(model)(model, batch_of(LINKS))
