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
        metavar="FILE",
    )
    beam_graph: str | None = opt(
        None,
        "write the hypotheses of the beam at each step: as a page (FILE.html), or for programs (FILE.json)",
        metavar="FILE",
    )
    attention_lines: int = opt(100, "with --attention or --beam-graph: draw at most this many lines", minimum=1)

    def __post_init__(self) -> None:
        """Check the other options of `nmt translate` that drawings depend on."""
        devices = getattr(self, "devices", 1)
        if self.attention is not None and devices > 1:
            raise ValueError(f"--attention works on one device only, but --devices is {devices} (drop one of them)")
        if self.beam_graph is not None and (devices > 1 or getattr(self, "shortlist", None) is not None):
            raise ValueError(
                "--beam-graph: needs one device and a search without --shortlist (leave --devices and --shortlist out)"
            )
        if self.is_drawn and getattr(self, "format", "text") != "text":
            raise ValueError("--attention and --beam-graph work only on lines of text (drop them, or --format)")
        if self.is_drawn and getattr(self, "engine", None) == "ctranslate2":
            raise ValueError("--attention and --beam-graph need the built-in search (drop --engine)")

    @property
    def is_drawn(self) -> bool:
        return self.attention is not None or self.beam_graph is not None
