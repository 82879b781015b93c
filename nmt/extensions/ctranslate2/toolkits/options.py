"""Options of `nmt export --format ctranslate2`."""

from typing import Literal

from nmt.options import opt, options_class


@options_class
class CTranslate2Options:
    quantization: Literal[
        "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
    ] = opt("float32", "number format of CTranslate2's weights", group="Weights", common=True)
    check: str | None = opt(
        None,
        "file of source lines to check the export with; by default, lines of random tokens",
        group="Comparison",
        metavar="FILE",
    )
    check_lines: int = opt(
        100,
        "number of lines to translate with both engines to check the export",
        group="Comparison",
        minimum=1,
        maximum=1_000_000,
    )
    tune: tuple[str, ...] = opt(
        (),
        "SOURCE and REFERENCE files for choosing the length penalty that best matches nmt's search",
        group="Comparison",
        metavar="FILE",
    )
    json: bool = opt(False, "print the comparison as JSON", group="Comparison", common=True)

    def __post_init__(self) -> None:
        if len(self.tune) not in (0, 2):
            raise ValueError(f"--tune needs two files, SOURCE and REFERENCE, not {len(self.tune)}")
