"""Options that make each built-in model small; a model that is not named is tested with its defaults."""

from typing import Any

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
    "language-model": {"layers": 2, "d_model": 32, "d_ff": 64, "heads": 4},
}
