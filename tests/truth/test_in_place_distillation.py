"""In-place distillation against R-Drop's definition, and the sub-networks of a network."""

from dataclasses import replace

import pytest
import torch
from gradients import OPTIONS, PIPELINE, VOCABULARIES, sentences, transformer

from nmt import UserError, registry
from nmt.checkpoint import LoadedModel
from nmt.criteria.base import CriterionContext
from nmt.extensions.methods.criteria.in_place_distillation import InPlaceDistillation, sub_network
from nmt.extensions.methods.criteria.options import InPlaceDistillationOptions, RDropOptions
from nmt.extensions.methods.criteria.r_drop import RDrop
from nmt.extensions.toolkits.model_folder import first_layers
from nmt.models.saved import ModelFacts
from nmt.train.parallel import Objective

DEEP = replace(OPTIONS, encoder_layers=3, decoder_layers=2, norm_position="pre")


def criterion(update=1, seed=1, **options):
    return InPlaceDistillation(InPlaceDistillationOptions(**options), CriterionContext(PIPELINE, None, seed, update))


def shallow(model, encoder, decoder, options=DEEP):
    loaded = LoadedModel(model, PIPELINE, ModelFacts.of("transformer", options, VOCABULARIES), "model")
    return first_layers(loaded, encoder, decoder).model


@pytest.mark.parametrize("depths", [(1, 1), (2, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize("more", [{}, {"tie_layers": "all"}, {"decoder_autoregression": "ssru"}])
def test_a_sub_network_equals_the_exported_model_of_its_first_layers(depths, more):
    options = replace(DEEP, **more)
    model, batch = transformer(options).eval(), sentences(4, 6)
    with sub_network(model, *depths):
        inside = model(batch).features
    exported = shallow(model, *depths, options)
    torch.testing.assert_close(inside, exported(batch).features, rtol=0, atol=0)
    assert not torch.equal(inside, model(batch).features) and model.depths == (3, 2)
    log_probs, _ = exported.step(batch.target_input[:, 0], exported.start(batch.source))
    torch.testing.assert_close(log_probs, exported.log_probs(inside[:, 0]), rtol=1e-4, atol=1e-4)


def test_using_fewer_layers_warns_that_they_are_not_calibrated(capsys):
    facts = ModelFacts.of("transformer", DEEP, VOCABULARIES)
    loaded = LoadedModel(transformer(DEEP), PIPELINE, facts, "model", temperature=1.3)
    assert first_layers(loaded, 1, 1).temperature is None
    assert "nmt score --calibrate" in capsys.readouterr().err


def test_fewer_layers_than_options_allow_are_refused():
    options = replace(DEEP, ffn="moe", experts=2, active_experts=1)
    with pytest.raises(UserError, match="too small for model: --expert-every 2: must be at most 1"):
        shallow(transformer(options), 1, 2, options)


def test_the_loss_equals_r_drops_with_the_shallower_network_as_second_pass():
    model, batch = transformer(DEEP), sentences(4, 6)
    loss = criterion(divergence_weight=2.0)
    depths = loss._depths(model)
    with sub_network(model, *depths):
        second = model(batch).features
    both = torch.cat([model(batch).features, second]).flatten(0, 1)
    targets = batch.target_output.flatten()
    r_drop = RDrop(RDropOptions(divergence_weight=2.0), CriterionContext(PIPELINE, None))
    wanted = r_drop.of_both(*model.output(both).chunk(2), targets, r_drop.token_weights(model, batch))
    found = loss(model, batch)
    assert found.trained["loss"].total.item() == pytest.approx(wanted[0].item(), rel=1e-5)
    assert found.reported["divergence"].total.item() == pytest.approx(wanted[2].item(), rel=1e-4) and wanted[2] > 0


def test_updates_train_all_depths_in_a_reproducible_order():
    model = transformer(DEEP)
    drawn = [criterion(update)._depths(model) for update in range(1, 300)]
    assert set(drawn) == {(e, d) for e in (1, 2, 3) for d in (1, 2)} - {(3, 2)}
    assert drawn == [criterion(update)._depths(model) for update in range(1, 300)]
    assert drawn != [criterion(update, seed=2)._depths(model) for update in range(1, 300)]
    assert {criterion(0, seed)._depths(model) for seed in range(9)} == {(2, 2)}  # a probe: the most layers
    assert {criterion(update, min_encoder_layers=3)._depths(model) for update in range(9)} == {(3, 1)}
    assert criterion(min_encoder_layers=3, min_decoder_layers=2)._depths(model) == (3, 2)


def test_first_layers_without_experts_keep_the_expert_loss_of_the_others():
    """Every second layer has experts here, and the pass through the first layers alone has none."""
    model, batch = transformer(replace(DEEP, ffn="moe", experts=4, expert_every=2)), sentences(4, 6)
    for update in range(20):
        loss = Objective(model, criterion(update))(batch)
        assert {"loss", "importance_loss", "load_loss"} <= loss.trained.keys()


def test_the_counted_cost_is_that_of_both_networks():
    model, lengths = transformer(DEEP), (torch.tensor([5, 7]), torch.tensor([6, 4]))
    for update in range(9):
        loss = criterion(update)
        wanted = model.training_flops(*lengths) + shallow(model, *loss._depths(model)).training_flops(*lengths)
        assert loss.training_flops(model, *lengths) == wanted < 2 * model.training_flops(*lengths)


def test_a_model_without_depths_and_depths_it_does_not_have_are_refused():
    model, batch = transformer(DEEP), sentences(4, 6)
    with pytest.raises(UserError, match="the model has only 3 encoder and 2 decoder layers"):
        criterion(min_decoder_layers=3)(model, batch)
    with pytest.raises(UserError, match="--encoder-layers 4: model has only 3"):
        shallow(model, 4, None)
    recurrent = registry.build(registry.choose("model", "rnnsearch", {"hidden_size": 8}), VOCABULARIES)
    with pytest.raises(UserError, match="removable layers"):
        criterion()(recurrent.train(), batch)
