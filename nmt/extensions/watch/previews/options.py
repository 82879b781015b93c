"""The options of this extension's previews. Imports no torch, so that `--help` is fast."""

from nmt import opt, options_class


@options_class
class DryRunOptions:
    dry_run: bool = opt(False, "only estimate time, memory and cost", group="Length of the run", common=True)
