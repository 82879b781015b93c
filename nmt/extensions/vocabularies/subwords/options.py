"""The options of subword methods. Imports no torch, so that `--help` is fast."""

from typing import Any

from nmt import opt, options_class


@options_class
class SubwordNmtOptions:
    codes: tuple[str, ...] = opt(
        (),
        "merges for --subword subword-nmt: one file for both languages, or SOURCE and TARGET",
        group="Subwords and vocabulary",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        options: Any = self
        if bool(self.codes) != ("subword-nmt" in options.subwords):
            raise ValueError("--codes and --subword subword-nmt belong together (use both, or neither)")
        if len(self.codes) > (1 if options.joint_vocabulary else 2):
            files = "one or, with --no-joint-vocabulary, SOURCE and TARGET"
            raise ValueError(f"--codes names {len(self.codes)} files, but takes {files}")
