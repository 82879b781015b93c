"""Preparations: what a component of one file changes in the data that `nmt prepare` makes, by its own flag."""

import json

import numpy as np
import pytest
from conftest import write_corpus

from nmt import registry
from nmt.cli.prepare import PrepareCommandOptions
from nmt.data.shards import PreparedData
from nmt.options import make

PLUGIN = '''
"""A preparation in one file: each pair has the number of its source tokens, and targets are read from their end."""

import numpy as np

from nmt import opt, options_class, register, signals
from nmt.preparations.base import Preparation
from nmt.rows import Rows


@options_class
class CountedOptions:
    counted: str = opt("", "name of a column with the source tokens of each pair")


@register("preparation", "counted", CountedOptions)
class Counted(Preparation):
    """A column with the source tokens of each pair."""

    def change(self, pipeline, count_words):
        assert sum(count_words({1: pipeline.target.prepare}).values()) == 3 * 40
        return pipeline.right_to_left()

    def columns(self, pairs, sizes):
        signals.check()
        values = pairs.lengths[:, 0].astype(np.float32)
        return {self.options.counted: ("pair", iter([Rows(values, np.ones(len(values), np.uint32))]))}
'''


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "counted.py").write_text(PLUGIN)
    yield f"--plugin={tmp_path / 'counted.py'}"
    registry._shelf.parts.pop(("preparation", "counted"), None)


def test_a_preparation_from_one_file_changes_the_pipeline_and_adds_a_column(tmp_path, call, plugin):
    for language in ("en", "de"):
        (tmp_path / f"text.{language}").write_text("ban det kis\n" * 20 + "mu lo ra\n" * 20)
    words = ["prepare", str(tmp_path / "text.en"), str(tmp_path / "text.de"), "--subword=none"]
    assert call(*words, "--output", tmp_path / "plain").code == 0
    done = call(*words, "--output", tmp_path / "data", plugin, "--counted=tokens")
    assert done.code == 0, done.err
    plain, data = (PreparedData(tmp_path / name) for name in ("plain", "data"))
    assert data.pipeline.hash == plain.pipeline.right_to_left().hash != plain.pipeline.hash
    assert data.train.columns["tokens"].take(np.arange(40)).values.tolist() == [3.0] * 40
    report = json.loads((tmp_path / "data/report.json").read_text())
    assert report["sets"][0]["columns"] == {"tokens": "pair"} and report["settings"]["counted"] == "tokens"
    assert "--counted" in call("prepare", plugin, "--help").out


def test_no_preparation_is_active_unless_an_option_enables_it(tmp_path):
    write_corpus(tmp_path / "t", 5, 1)
    given = {"source_lang": "en", "target_lang": "de", "train": (str(tmp_path / "t"),), "output": "data"}
    reused = {"vocabulary": "model", "context": 1}
    for more, wanted in (
        ({}, []),
        ({"context": 1}, []),
        ({"vocabulary": "model"}, ["lost-text"]),  # whose text may have a tokenizer
        (reused, ["extension", "lost-text"]),
        ({"vocabulary": "model", "extend": 3}, ["extension", "lost-text"]),
        ({"tokenizer": "moses"}, ["lost-text"]),
        ({"align": True}, ["align"]),
    ):
        options = make(PrepareCommandOptions, {**given, **more})
        assert [entry.name for entry in registry.active("preparation", options)] == wanted, more
