"""The options of the previews of this extension. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class DryRunOptions:
    dry_run: bool = opt(False, "only estimate time, memory and cost", group="Length of the run", common=True)
