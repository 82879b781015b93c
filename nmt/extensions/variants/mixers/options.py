"""The options of variants of self-attention. Without torch, so that `--help` answers at once."""

from typing import ClassVar

from nmt import options_class
from nmt.models.options import TransformerOptions
from nmt.options import size_opt


@options_class
class AttentionVariantOptions:
    stands_for: ClassVar[str] = "self-attention"

    kv_heads: int | None = size_opt(
        None,
        "heads of keys and values in the decoder, each of which several heads of queries share; none is heads, 1 is "
        "multi-query attention (Ainslie et al., 2023)",
    )
    attention_window: int | None = size_opt(
        None,
        "self-attention sees this many positions, r in section 4 of the paper: around its own in the encoder, up to its "
        "own in the decoder; none sees all",
    )

    def is_active(self) -> bool:
        """Whether self-attention is not the paper's, by these options or by positions that it has to know."""
        by_positions = isinstance(self, TransformerOptions) and self.positions in ("relative", "rotary")
        return by_positions or self.kv_heads is not None or self.attention_window is not None

    def __post_init__(self) -> None:
        if not isinstance(self, TransformerOptions):
            return
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"--kv-heads {self.kv_heads}: must divide --heads {self.heads}")
        if self.positions == "rotary" and (width := self.d_k or self.d_model // self.heads) % 2:
            raise ValueError(f"--positions rotary: heads must have an even width, not {width} (give --d-k or --heads)")
