"""The options of pictures of translations. Imports no torch, so that `--help` is fast."""

from typing import ClassVar

from nmt import opt, options_class


@options_class
class DrawingOptions:
    written: ClassVar[tuple[str, ...]] = ("attention", "beam_graph")

    attention: str | None = opt(
        None,
        "draw attention maps to a .html, .svg or .png file, or to the terminal",
        group="Details of the output",
        metavar="FILE",
    )
    beam_graph: str | None = opt(
        None,
        "write all hypotheses of the beam search to a .html or .json file",
        group="Details of the output",
        metavar="FILE",
    )
    attention_lines: int = opt(
        100, "maximum number of lines that --attention and --beam-graph draw", minimum=1, group="Details of the output"
    )

    def __post_init__(self) -> None:
        """Check the other options of `nmt translate` that pictures depend on."""
        devices = getattr(self, "devices", 1)
        if self.attention is not None and devices > 1:
            raise ValueError(f"--attention works only on one device, but --devices is {devices} (drop one of them)")
        if self.beam_graph is not None and (devices > 1 or getattr(self, "shortlist", None) is not None):
            raise ValueError(
                "--beam-graph works only on one device and without a shortlist (drop --devices and --shortlist)"
            )
        if self.is_drawn and getattr(self, "format", "text") != "text":
            raise ValueError("--attention and --beam-graph work only on lines of text (drop them, or --format)")
        if self.is_drawn and getattr(self, "engine", None) == "ctranslate2":
            raise ValueError("--attention and --beam-graph need the built-in search (drop --engine)")

    @property
    def is_drawn(self) -> bool:
        return self.attention is not None or self.beam_graph is not None
