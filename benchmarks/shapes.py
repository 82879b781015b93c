"""The model shapes of the benchmarks, as options of `transformer`."""

SHAPES = {
    "base": {"encoder_layers": 6, "decoder_layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8},
    "tiny": {"encoder_layers": 3, "decoder_layers": 3, "d_model": 256, "d_ff": 1024, "heads": 4},
}


def flags_of(shape: str) -> list[str]:
    """A shape as flags of `nmt train`."""
    return [f"--{name.replace('_', '-')}={number}" for name, number in SHAPES[shape].items()]
