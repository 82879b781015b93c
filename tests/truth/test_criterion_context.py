"""A criterion's context: searches with the model in evaluation mode, and components that are ready to use."""

import pytest
import torch
from conftest import small_model

from nmt import Part, UserError, registry
from nmt.checkpoint import load_model
from nmt.criteria.base import CriterionContext
from nmt.symbols import EOS


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 16, "heads": 2, "dropout": 0.5}
    loaded = load_model(small_model(tmp_path_factory.mktemp("model") / "model", **sizes), torch.device("cpu"))
    return CriterionContext(loaded.pipeline, loaded.model.train(), update=1)


SOURCE = torch.tensor([[4, 5, 6, EOS], [7, 8, 9, EOS]])


def test_an_inner_search_runs_without_dropout_and_leaves_the_model_in_training_mode(context):
    greedy = context.build(Part("decoder", "greedy"))
    first, second = (context.search(greedy, SOURCE) for _ in range(2))
    assert first == second
    assert context.scorer.training


def test_samples_differ_by_seed_and_update_and_are_repeatable_within_an_update(context):
    sampling = context.build(registry.choose("decoder", "sampling", {"n_best": 4}))

    def tokens(update, seed=1):
        context.update, context.seed = update, seed
        return [hypothesis.tokens for row in context.search(sampling, SOURCE) for hypothesis in row]

    assert tokens(1) == tokens(1) != tokens(2)
    assert tokens(1) != tokens(1, seed=2) != tokens(2, seed=1)


def test_an_inner_search_reads_its_tokens_as_text(context):
    mbr = context.build(Part("decoder", "mbr"))
    assert mbr.target is not None and mbr.source_text is not None
    assert mbr.target.decode([4]) == context.pipeline.target.decode([4])


def test_an_unusable_inner_metric_is_refused_when_it_is_built(context):
    with pytest.raises(UserError):
        context.build(Part("metric", "comet"))


def test_a_search_with_sharded_weights_is_refused(context):
    first = next(context.scorer.parameters())
    first.full_tensor = lambda: first  # as FSDP's have
    try:
        with pytest.raises(UserError, match=r"--engine fsdp: .* \(use --engine ddp\)"):
            context.search(context.build(Part("decoder", "greedy")), SOURCE)
    finally:
        del first.full_tensor
