"""Evaluations: each comes by one file, and takes the place of a score for each metric."""

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


def test_an_evaluation_of_one_file_is_printed_when_its_option_is_given(tmp_path, capfd):
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
