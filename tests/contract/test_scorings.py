"""Scorings: each comes in one file, and takes the place of the scores that `nmt score` prints."""

from nmt import registry
from nmt.cli.main import run

MEAN = '''
from nmt import opt, options_class, register
from nmt.scorings.base import Scoring, value_of


@options_class
class MeanOptions:
    mean: bool = opt(False, "print the mean of all scores")


@register("scoring", "mean", MeanOptions)
class Mean(Scoring):
    """The mean of all scores."""

    def texts(self, scorer):
        values = [value_of(self.options, pair) for _, pairs in scorer.windows(self.options.target) for pair in pairs]
        yield f"{sum(values) / len(values):.6f}\\n"
'''


def test_a_scoring_from_one_file_is_printed_when_its_option_is_set(trained, tmp_path, capfd):
    for name, text in (("mean.py", MEAN), ("source", "ban\nkit mus\n"), ("target", "BAN\nKIT MUS\n")):
        (tmp_path / name).write_text(text)
    words = [
        "score",
        f"--model={trained}",
        str(tmp_path / "source"),
        str(tmp_path / "target"),
        f"--plugin={tmp_path / 'mean.py'}",
    ]
    try:
        assert run(words) == 0
        first, second = map(float, capfd.readouterr().out.split())
        assert run([*words, "--mean"]) == 0
        assert abs(float(capfd.readouterr().out) - (first + second) / 2) < 1e-5
    finally:
        del registry._shelf.parts["scoring", "mean"]
