"""Noises as a training uses them: one in a single plug-in file, and every built-in one; they differ in each epoch."""

import json
from itertools import chain

import pytest
from conftest import records_of, train_arguments, write_corpus
from plans import plan_of
from refusals import assert_refused

from nmt import registry
from nmt.cli.main import run
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.data.shards import PreparedData
from nmt.noises.base import NoiseContext
from nmt.options import make
from nmt.symbols import PAD
from nmt.train.options import TrainOptions

PLUGIN = '''
"""A noise in one file: the first source word of each pair becomes another one in each epoch."""
import json, os
from dataclasses import replace
from nmt import opt, options_class, register
from nmt.noises.base import Noise


@options_class
class EchoOptions:
    echo: int = opt(0, "the first id that a source may begin with", minimum=0, must_stay=True)


@register("noise", "echo", EchoOptions)
class Echo(Noise):
    """The first source word of a pair becomes another."""

    order = 9

    def __init__(self, options, context):
        self.first, self.log = options.echo, os.environ["ECHO_LOG"]

    def write(self, method, draws, epoch):
        with open(self.log, "a") as file:
            file.write(json.dumps([method, epoch, draws.tolist()]) + "\\n")

    def sentences(self, source, target, draws, epoch):
        self.write("sentences", draws, epoch)
        return source, target

    def read(self, batch, draws, epoch):
        self.write("read", draws, epoch)
        source = batch.source.clone()
        source[:, 0] = self.first + epoch
        return replace(batch, source=source, clean_source=batch.source)
'''
GIVEN = {  # by noise: options of its own
    "word-dropout": {"source_word_dropout": 0.3, "target_word_dropout": 0.3},
    "text-noise": {"case_noise": 0.5, "typo_noise": 0.5},
    "subword-sampling": {"subword_sampling": 0.5},
}


def test_a_noise_from_one_file_takes_effect_by_its_own_flag_in_every_epoch(data, tmp_path, call, monkeypatch):
    (tmp_path / "echo.py").write_text(PLUGIN)
    monkeypatch.setenv("ECHO_LOG", str(tmp_path / "log"))
    plugin = f"--plugin={tmp_path / 'echo.py'}"
    more = ("--max-epochs=3", "--valid-every=1e", "--save-every=1e", plugin)
    assert call(*train_arguments(data, tmp_path / "plain", 100, *more)).code == 0
    assert not (tmp_path / "log").exists()
    arguments = train_arguments(data, tmp_path / "run", 100, *more)
    assert call(*arguments, "--echo=5").code == 0
    read = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    for epoch in (1, 2, 3):  # each pair once, with the noise of its epoch
        for method in ("sentences", "read"):
            draws = chain(*(numbers for *call, numbers in read if call == [method, epoch]))
            assert sorted(draws) == list(range(300)), (method, epoch)
    plain, noisy = (records_of(tmp_path / name)[0]["loss"] for name in ("plain", "run"))
    assert plain != noisy
    assert_refused(call(*arguments, "--echo=6"), 2, "echo: 5 -> 6")
    assert "--echo" in call("train", plugin, "--help").out


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Prepared data of 200 pairs, cut into subwords."""
    folder = tmp_path_factory.mktemp("pieces")
    write_corpus(folder / "train", 200, 1)
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}", "--vocab-size=60"]
    assert run([*arguments, f"--output={folder / 'data'}", "--quiet"]) == 0
    return PreparedData(folder / "data")


@pytest.mark.parametrize("name", registry.names("noise"))
def test_a_noise_depends_on_seed_and_epoch_and_nothing_else(name, pieces):
    def read(epoch, seed=1, ranks=1):
        options = make(registry.options_class_of("noise", name), GIVEN[name])
        longest = max(int(lengths.max()) for lengths in (pieces.train.source_lengths, pieces.train.target_lengths))
        noise = registry.find("noise", name).cls(options, NoiseContext(pieces.pipeline, seed, {}, longest))
        loaders = [Loader(plan_of(pieces.train, 10**6, 1), 300, rank, ranks, noises=[noise]) for rank in range(ranks)]
        updates = [next(loader.updates(Position(epoch))) for loader in loaders]
        batches = [batch for data in updates for batch in data.batches[: len(data.batches) - data.idle]]
        rows = (zip(batch.source, batch.target_input, batch.target_output, strict=True) for batch in batches)
        pairs = ([[int(i) for i in side if i != PAD] for side in row] for row in chain(*rows))
        return sorted((source, given[: len(predicted)], predicted) for source, given, predicted in pairs)

    assert read(1) == read(1) == read(1, ranks=2)
    assert len(read(1)) == len(read(2)) and read(1) != read(2) != read(3) != read(1)
    assert read(1) != read(1, seed=2)


def test_no_noise_is_active_unless_one_of_its_options_is_set():
    assert registry.active("noise", TrainOptions(data="data", output="run")) == []
    for name, given in GIVEN.items():
        [entry] = registry.active("noise", make(TrainOptions, {"data": "data", "output": "run", **given}))
        assert entry.name == name
