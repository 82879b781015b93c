"""Previews as `nmt train` shows them: one in a single plug-in file, by its own flag."""

from conftest import train_arguments

PLUGIN = '''
"""A preview in one file: the number of pairs."""
from pathlib import Path
from nmt import opt, options_class, register
from nmt.data.shards import PreparedData
from nmt.previews.base import Preview


@options_class
class PairsOptions:
    count_pairs: bool = opt(False, "print the number of training pairs, and train nothing")


@register("preview", "pairs", PairsOptions)
class Pairs(Preview):
    """The number of training pairs."""

    def __init__(self, options, parts):
        self.pairs = len(PreparedData(Path(options.data)).train)

    def values(self):
        return {"pairs": self.pairs}

    def lines(self):
        yield f"{self.pairs} pairs"
'''


def test_a_preview_from_one_file_replaces_a_training_and_is_not_saved_as_a_setting(data, tmp_path, call):
    (tmp_path / "pairs.py").write_text(PLUGIN)
    arguments = train_arguments(data, tmp_path / "run", 10, f"--plugin={tmp_path / 'pairs.py'}")
    assert call(*arguments, "--count-pairs").out == "300 pairs\n"
    assert call(*arguments, "--count-pairs", "--json").json == {"pairs": 300}
    assert not (tmp_path / "run").exists()
    assert call(*arguments).code == 0
    settings = (tmp_path / "run/settings.toml").read_text()
    assert "seed" in settings and "count_pairs" not in settings and "dry_run" not in settings
