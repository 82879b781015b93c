"""Presets: plain sets of options of published systems. A preset is only a shorter way of writing flags."""

from typing import Any, Final

from nmt.registry import preset

BASE: Final[dict[str, Any]] = {
    "model": "transformer",
    "encoder_layers": 6,
    "decoder_layers": 6,
    "d_model": 512,
    "d_ff": 2048,
    "heads": 8,
    "dropout": 0.1,
    "criterion": "cross-entropy",
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "adam_betas": (0.9, 0.98),
    "adam_eps": 1e-9,
    "schedule": "noam",
    "lr": 1.0,
    "warmup_updates": 4000,
    "batch_tokens": 25000,
    "max_updates": 100_000,
}
BIG: Final[dict[str, Any]] = {**BASE, "d_model": 1024, "d_ff": 4096, "heads": 16, "max_updates": 300_000}

preset("transformer-base", "the paper's base model, 65M parameters, 100k updates (Table 3)", **BASE)
preset(
    "transformer-big", "the paper's big model for En-De: dropout 0.3, 300k updates (Table 3)", **{**BIG, "dropout": 0.3}
)
preset("transformer-big-en-fr", "the paper's big model for En-Fr: dropout 0.1, 300k updates (section 6.1)", **BIG)

# Table 3 of the paper: what each row changes of the base model. Perplexity and BLEU are those of newstest2013.
TABLE_3: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "a-h1": ("(A) one head of 512; ppl 5.29, BLEU 24.9", {"heads": 1, "d_k": 512, "d_v": 512}),
    "a-h4": ("(A) 4 heads of 128; ppl 5.00, BLEU 25.5", {"heads": 4, "d_k": 128, "d_v": 128}),
    "a-h16": ("(A) 16 heads of 32; ppl 4.91, BLEU 25.8", {"heads": 16, "d_k": 32, "d_v": 32}),
    "a-h32": ("(A) 32 heads of 16; ppl 5.01, BLEU 25.4", {"heads": 32, "d_k": 16, "d_v": 16}),
    "b-dk16": ("(B) d_k 16; 58M, ppl 5.16, BLEU 25.1", {"d_k": 16}),
    "b-dk32": ("(B) d_k 32; 60M, ppl 5.01, BLEU 25.4", {"d_k": 32}),
    "c-n2": ("(C) 2 layers; 36M, ppl 6.11, BLEU 23.7", {"encoder_layers": 2, "decoder_layers": 2}),
    "c-n4": ("(C) 4 layers; 50M, ppl 5.19, BLEU 25.3", {"encoder_layers": 4, "decoder_layers": 4}),
    "c-n8": ("(C) 8 layers; 80M, ppl 4.88, BLEU 25.5", {"encoder_layers": 8, "decoder_layers": 8}),
    "c-d256": ("(C) d_model 256; 28M, ppl 5.75, BLEU 24.5", {"d_model": 256, "d_k": 32, "d_v": 32}),
    "c-d1024": ("(C) d_model 1024; 168M, ppl 4.66, BLEU 26.0", {"d_model": 1024, "d_k": 128, "d_v": 128}),
    "c-ff1024": ("(C) d_ff 1024; 53M, ppl 5.12, BLEU 25.4", {"d_ff": 1024}),
    "c-ff4096": ("(C) d_ff 4096; 90M, ppl 4.75, BLEU 26.2", {"d_ff": 4096}),
    "d-dropout0": ("(D) no dropout; ppl 5.77, BLEU 24.6", {"dropout": 0.0}),
    "d-dropout2": ("(D) dropout 0.2; ppl 4.95, BLEU 25.5", {"dropout": 0.2}),
    "d-smoothing0": ("(D) no label smoothing; ppl 4.67, BLEU 25.3", {"label_smoothing": 0.0}),
    "d-smoothing2": ("(D) label smoothing 0.2; ppl 5.47, BLEU 25.7", {"label_smoothing": 0.2}),
    "e-learned": ("(E) learned positions; ppl 4.92, BLEU 25.7", {"positions": "learned"}),
}
for row, (told, change) in TABLE_3.items():
    preset(f"table3-{row}", f"Table 3 {told}", **{**BASE, **change})

preset(
    "transformer-iwslt",
    "the field's model for 160k pairs (IWSLT14): 512/1024, 4 heads, dropout 0.3",
    **{
        **BASE,
        "d_ff": 1024,
        "heads": 4,
        "dropout": 0.3,
        "tie": "target",
        "schedule": "inverse-sqrt",
        "lr": 5e-4,
        "batch_tokens": 4096,
        "max_updates": 50_000,
    },
)
preset(
    "transformer-tiny",
    "the field's model for 29k pairs (Multi30k, Wu et al., 2021): 4+4 layers, 128/256, 4 heads, dropout 0.3",
    **{
        **BASE,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "heads": 4,
        "attention_bias": True,
        "positions": "t2t-sinusoidal",
        "dropout": 0.3,
        "schedule": "inverse-sqrt",
        "lr": 5e-3,
        "warmup_updates": 2000,
        "batch_tokens": 8192,
        "max_updates": 8000,
    },
)

preset(
    "language-model",
    "a language model of the target side, as wide and deep as the paper's base decoder; best by loss",
    **{
        **{key: value for key, value in BASE.items() if key not in ("encoder_layers", "decoder_layers")},
        "model": "language-model",
        "layers": 6,
        "label_smoothing": 0.0,
        "valid_bleu": False,
        "best_by": "loss",
    },
)

RNNSEARCH: Final[dict[str, Any]] = {
    "model": "rnnsearch",
    "criterion": "cross-entropy",
    "label_smoothing": 0.0,
    "optimizer": "adam",
    "adam_betas": (0.9, 0.999),
    "adam_eps": 1e-8,
    "schedule": "inverse-sqrt",
    "lr": 1e-3,
    "warmup_updates": 1000,
    "clip_norm": 1.0,
}
preset(
    "rnnsearch",
    "RNNsearch-50 of Bahdanau, Cho and Bengio (2014) in its sizes and batches; Adam in place of Adadelta",
    **{**RNNSEARCH, "embedding_size": 620, "hidden_size": 1000, "batch_tokens": 2000, "max_updates": 250_000},
)
preset(
    "rnnsearch-small",
    "RNNsearch for 30k to 200k pairs (Multi30k): 256 everywhere, dropout 0.3, label smoothing 0.1",
    **{
        **RNNSEARCH,
        "embedding_size": 256,
        "hidden_size": 256,
        "attention_size": 256,
        "maxout_size": 256,
        "dropout": 0.3,
        "label_smoothing": 0.1,
        "batch_tokens": 2000,
        "max_updates": 8000,
    },
)
