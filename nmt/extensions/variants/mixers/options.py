"""The options of variants of self-attention. Imports no torch, so that `--help` is fast."""

from typing import ClassVar

from nmt import options_class
from nmt.extensions.variants.positions.options import ROTARY
from nmt.models.options import TransformerOptions
from nmt.options import size_opt


@options_class
class AttentionVariantOptions:
    stands_for: ClassVar[str] = "self-attention"

    kv_heads: int | None = size_opt(
        None,
        "number of key/value heads in the decoder, shared by query heads (Ainslie et al., 2023)",
    )
    attention_window: int | None = size_opt(
        None,
        "number of neighbouring positions that self-attention sees, r in the paper; by default, all",
    )

    def is_active(self) -> bool:
        """Whether these options, or positions inside self-attention, require a mixer other than the paper's."""
        by_positions = isinstance(self, TransformerOptions) and self.positions in ("relative", *ROTARY)
        return by_positions or self.kv_heads is not None or self.attention_window is not None

    def __post_init__(self) -> None:
        if not isinstance(self, TransformerOptions):
            return
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"--kv-heads {self.kv_heads}: must divide --heads {self.heads}")
        if self.positions in ROTARY and (width := self.d_k or self.d_model // self.heads) % 2:
            raise ValueError(
                f"--positions {self.positions}: heads must have an even width, not {width} (change --d-k or --heads)"
            )
