"""The options of drawings. Without torch, so that `--help` answers at once."""

from typing import ClassVar

from nmt import opt, options_class


@options_class
class DrawingOptions:
    written: ClassVar[tuple[str, ...]] = ("attention", "beam_graph")

    attention: str | None = opt(
        None,
        "draw the attention: as a page (FILE.html); of the first line, as a picture (.svg, .png); or `terminal`, a map of "
        "each line on stderr",
    )
    beam_graph: str | None = opt(
        None, "write the hypotheses of the beam at each step: as a page (FILE.html), or for programs (FILE.json)"
    )
    attention_lines: int = opt(100, "with --attention or --beam-graph: lines that are drawn at most", minimum=1)

    def __post_init__(self) -> None:
        """Check what a drawing needs of the other options of `nmt translate`."""
        devices = getattr(self, "devices", 1)
        if self.attention is not None and devices > 1:
            raise ValueError(f"--attention: is drawn on one device, and --devices is {devices} (leave one of them out)")
        if self.beam_graph is not None and (devices > 1 or getattr(self, "shortlist", None) is not None):
            raise ValueError(
                "--beam-graph: needs one device and a search without --shortlist (leave --devices and --shortlist out)"
            )
        if self.is_drawn and getattr(self, "format", "text") != "text":
            raise ValueError("--attention, --beam-graph: are of lines of text (leave them out with --format)")
        if self.is_drawn and getattr(self, "engine", None) == "ctranslate2":
            raise ValueError("--attention, --beam-graph: are drawn by our own engine (leave --engine out)")

    @property
    def is_drawn(self) -> bool:
        return self.attention is not None or self.beam_graph is not None
