"""Reporters as a training uses them: one in a single plug-in file, and which are in use."""

import json

from conftest import records_of, train_arguments

from nmt import registry
from nmt.log import log
from nmt.options import make
from nmt.train.options import TrainOptions

PLUGIN = '''
"""A reporter in one file: it writes everything that it receives."""
import json
from nmt import opt, options_class, register
from nmt.reporters.base import Reporter


@options_class
class DiaryOptions:
    diary: str = opt("", "name of a file in the run folder that gets all reports")


@register("reporter", "diary", DiaryOptions)
class Diary(Reporter):
    """All reports as lines of JSON."""

    def __init__(self, options, folder):
        self.path = folder / options.diary

    def start(self):
        self.file = self.path.open("a")

    def write(self, *report):
        self.file.write(json.dumps(report) + "\\n")

    def line(self, text, on_screen):
        self.write("line", text)

    def record(self, values):
        self.write("record", values)

    def numbers(self, update, values):
        self.write("numbers", update, values)

    def examples(self, examples):
        self.write("examples", examples)

    def close(self):
        self.write("close")
        self.file.close()
'''


def test_a_reporter_from_one_file_receives_the_reports_of_a_training_by_its_own_flag(data, tmp_path, call):
    (tmp_path / "diary.py").write_text(PLUGIN)
    plugin = f"--plugin={tmp_path / 'diary.py'}"
    assert call(*train_arguments(data, tmp_path / "plain", 20, plugin)).code == 0
    arguments = train_arguments(data, tmp_path / "run", 20, plugin, "--diary=diary.jsonl")
    assert call(*arguments).code == 0
    assert not (tmp_path / "plain/diary.jsonl").exists()
    reports = [json.loads(line) for line in (tmp_path / "run/diary.jsonl").read_text().splitlines()]
    assert [given for kind, *given in reports if kind == "record"] == [[of] for of in records_of(tmp_path / "run")]
    lines = [text for kind, *rest in reports if kind == "line" for text in rest]
    assert lines == (tmp_path / "run/train.log").read_text().splitlines()
    updates = [rest[0] for kind, *rest in reports if kind == "numbers"]
    assert updates == sorted(updates) and updates.count(20) == 2  # of its log line and of its validation
    valid = next(rest[1] for kind, *rest in reports if kind == "numbers" and "valid/bleu" in rest[1])
    assert valid["valid/loss"] == records_of(tmp_path / "run")[-1]["valid_loss"]
    assert [kind for kind, *_ in reports].count("examples") == 1 and reports[-1] == ["close"]
    for name in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):  # a reporter changes nothing
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_log_lines_are_always_written_and_the_display_only_on_a_terminal(monkeypatch):
    def names(**given):
        options = make(TrainOptions, {"data": "data", "output": "run", **given})
        return [entry.name for entry in registry.active("reporter", options)]

    assert names() == ["estimate", "log-lines"]
    assert names(tensorboard=True) == ["estimate", "log-lines", "tensorboard"]
    monkeypatch.setattr(type(log), "live", True)
    assert names() == ["estimate", "log-lines", "display"]
