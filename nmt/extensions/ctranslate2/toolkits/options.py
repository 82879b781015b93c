"""The options of `nmt export --format ctranslate2`."""

from typing import Literal

from nmt.options import opt, options_class


@options_class
class CTranslate2Options:
    quantization: Literal[
        "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
    ] = opt("float32", "type of the stored weights, by CTranslate2's names")
    check: str | None = opt(None, "file of source lines to translate both ways; none draws lines from the vocabulary")
    check_lines: int = opt(
        100,
        "lines to translate both ways; in float32 one of --check that differs is an error, or more than a tenth of drawn ones",
        minimum=1,
        maximum=1_000_000,
    )
    tune: tuple[str, ...] = opt(
        (), "SOURCE and REFERENCE files: take the length penalty that translates most like our search"
    )
    json: bool = opt(False, "print the comparison and the tuning as JSON")

    def __post_init__(self) -> None:
        if len(self.tune) not in (0, 2):
            raise ValueError(f"--tune: {len(self.tune)} files are named; must be two, SOURCE and REFERENCE")
