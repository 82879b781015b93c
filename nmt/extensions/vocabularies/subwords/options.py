"""The options of ways to split text into tokens. Without torch, so that `--help` answers at once."""

from typing import Any

from nmt import opt, options_class


@options_class
class SubwordNmtOptions:
    codes: tuple[str, ...] = opt(
        (), "with --subword subword-nmt: its file of merges, for both languages, or one per language, SOURCE TARGET"
    )

    def __post_init__(self) -> None:
        options: Any = self
        if bool(self.codes) != ("subword-nmt" in options.subwords):
            raise ValueError("--codes and --subword subword-nmt belong together (give both, or neither)")
        if len(self.codes) > (1 if options.joint_vocabulary else 2):
            files = "one with a joint vocabulary, or two with --no-joint-vocabulary, SOURCE and TARGET"
            raise ValueError(f"--codes: {len(self.codes)} files are named; must be {files}")
