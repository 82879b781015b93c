"""Evaluations: each comes in one file, and takes the place of a score for each metric."""

import pytest

from nmt import registry
from nmt.cli.main import run

LENGTHS = '''
from nmt import opt, options_class, register
from nmt.evaluations.base import Evaluation


@options_class
class LengthOptions:
    count_words: bool = opt(False, "print how many words each system has")


@register("evaluation", "lengths", LengthOptions)
class Lengths(Evaluation):
    """The words of each system."""

    uses_metrics = False

    def text(self, systems, references, sources, metrics):
        assert metrics == [] and len(references[0]) == len(systems[0].lines)
        return "".join(f"{sum(len(line.split()) for line in system.lines)}\\n" for system in systems)
'''


CHECK = '''
from nmt import opt, options_class, register
from nmt.evaluations.base import TextCheck


@options_class
class CaseOptions:
    compare_capitals: bool = opt(False, "compare all text in capitals")


@register("text-check", "capitals", CaseOptions)
class Capitals(TextCheck):
    """Compares in capitals."""

    def examine(self, systems, references):
        assert [text.name[-1] for text in (*systems, *references)] == ["a", "b"]

    def doubts(self, metrics, references):
        yield f"{len(metrics)} metrics doubted"

    def lines(self, lines):
        return [line.upper() for line in lines] if self.options.compare_capitals else lines

    def signature(self):
        return "all:capitals" if self.options.compare_capitals else ""
'''


def test_a_check_from_one_file_examines_and_changes_the_scored_text(tmp_path, call):
    for name, text in (("check.py", CHECK), ("a", "ONE TWO THREE FOUR\n"), ("b", "one two three four\n")):
        (tmp_path / name).write_text(text)
    words = [
        "evaluate",
        f"--plugin={tmp_path / 'check.py'}",
        tmp_path / "a",
        tmp_path / "b",
        "--metrics=bleu,chrf",
        "--json",
    ]
    try:
        for more, value, end in (([], 0, "version:2"), (["--compare-capitals"], 100, "|all:capitals")):
            done = call(*words, *more)
            assert done.code == 0 and "2 metrics doubted" in done.err
            assert done.json[0]["value"] == pytest.approx(value) and end in done.json[0]["signature"]
    finally:
        del registry._shelf.parts["text-check", "capitals"]


def test_an_evaluation_from_one_file_is_printed_when_its_option_is_set(tmp_path, capfd):
    for name, text in (("lengths.py", LENGTHS), ("a", "one two\nthree\n"), ("b", "one\ntwo\n"), ("ref", "x\ny\n")):
        (tmp_path / name).write_text(text)
    words = ["evaluate", f"--plugin={tmp_path / 'lengths.py'}", f"--reference={tmp_path / 'ref'}"]
    words += [f"--hypothesis={tmp_path / name}" for name in "ab"]
    try:
        assert run([*words, "--count-words"]) == 0
        assert capfd.readouterr().out == "3\n2\n"
        assert run([*words, "--metrics=bleu"]) == 0
        assert "bleu" in capfd.readouterr().out
    finally:
        del registry._shelf.parts["evaluation", "lengths"]
