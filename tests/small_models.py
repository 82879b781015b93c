"""Options that make each built-in model small, and what tests of models share.

A model that is not named is tested with its defaults.
"""

from typing import Any

import torch

SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "d_ff": 64, "heads": 4},
    "bytenet": {
        "hidden_size": 12,
        "encoder_layers": 4,
        "decoder_layers": 3,
        "max_dilation": 4,
        "unfold_factor": 1.5,
        "bucket": 2,
    },
    "convs2s": {
        "encoder_layers": "24k3,32k2,32k1",
        "decoder_layers": "24k3,32k2,28k1",
        "embedding_size": 20,
        "output_size": 16,
    },
    "rnnsearch": {"embedding_size": 24, "hidden_size": 32, "attention_size": 28, "maxout_size": 20},
    "gnmt": {"encoder_layers": 3, "decoder_layers": 3, "hidden_size": 32, "attention_size": 28, "init_range": 0.2},
    "deep-att": {
        "encoder_layers": 2,
        "decoder_layers": 3,
        "embedding_size": 16,
        "hidden_size": 32,
        "memory_size": 20,
        "attention_size": 12,
        "init_std": 0.2,
    },
    "moe": {
        "d_model": 24,
        "hidden_size": 36,
        "attention_size": 20,
        "expert_size": 28,
        "experts": 6,
        "active_experts": 2,
    },
    "neural-gpu": {"hidden_size": 16, "height": 2, "layers": 1, "memory_offset": 1},
    "language-model": {"layers": 2, "d_model": 32, "d_ff": 64, "heads": 4},
    "memory-network": {"hops": 3, "embedding_size": 32, "init_std": 0.2},
}


@torch.no_grad()
def perturb(model, scale):
    """Add N(0, scale^2) to each parameter, so that zeros and ones of the initialisation hide nothing."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=scale)
    return model


@torch.no_grad()
def assert_search_steps_equal_the_whole(model, batch):
    """The log-probabilities of a search along the targets are those of all positions at once, to a hundred thousandth."""
    expected = model.output(model(batch).features).log_softmax(-1)
    scorer = model.for_search()
    state = scorer.start(batch.source)
    for position, tokens in enumerate(batch.target_input.unbind(1)):
        log_probs, state = scorer.step(tokens, state)
        torch.testing.assert_close(log_probs, expected[:, position], atol=1e-5, rtol=0)
