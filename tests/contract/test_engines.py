"""Engines: one comes in one file, `--engine` names it, and `auto` asks it in its order."""

import pytest

from nmt import registry
from nmt.cli.main import run

MEMORY = '''
from nmt import register, signals
from nmt.artefact import Artefact
from nmt.engines.base import Engine
from nmt.options import NoOptions
from nmt.text.pipeline import Pipeline
from nmt.translate.engine import BatchOutcome, SearchEngine
from nmt.translate.results import Candidate


class MemorySearch(SearchEngine):
    device, signature, n_best, takes_phrases, batch_tokens, replicas = "cpu", "memory", 1, False, 100, 1

    def __init__(self, pipeline):
        self.pipeline = pipeline

    def search(self, batches):
        for batch in batches:
            signals.check()
            texts = [" ".join(reversed(line.text.split())) for line in batch]
            yield BatchOutcome([[Candidate(text, [], 0.0, 0.0)] for text in texts], "")

    def score(self, sources, targets):
        raise NotImplementedError


@register("engine", "memory", NoOptions)
class Memory(Engine):
    """A translation memory of sentences that read backwards."""

    title, order = "the memory", 1

    def refusal(self, request):
        return "it has one answer" if request.search.name == "sampling" else ""

    def open(self, request):
        return MemorySearch(Pipeline.load(Artefact(request.folders[0])))
'''


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "memory.py").write_text(MEMORY)
    (tmp_path / "lines").write_text("ban kit mus\nlora ban\n")
    yield f"--plugin={tmp_path / 'memory.py'}"
    registry._shelf.parts.pop(("engine", "memory"), None)


def test_an_engine_from_one_file_searches_if_named_or_first_able_to(plugin, trained, tmp_path, capfd):
    asked = ["translate", f"--model={trained}", f"--input={tmp_path / 'lines'}", plugin]
    for named in (["--engine=memory"], []):
        assert run([*asked, *named]) == 0 and capfd.readouterr().out == "mus kit ban\nban lora\n"
    assert run([*asked, "--engine=torch"]) == 0 and capfd.readouterr().out != "mus kit ban\nban lora\n"


def test_a_refusal_by_an_engine_falls_to_the_next_or_is_an_error_if_named(plugin, trained, tmp_path, capfd):
    asked = ["translate", f"--model={trained}", f"--input={tmp_path / 'lines'}", plugin, "--decoder=sampling"]
    assert run(asked) == 0 and capfd.readouterr().out != "mus kit ban\nban lora\n"
    assert run([*asked, "--engine=memory"]) == 2
    told = capfd.readouterr().err
    assert "--engine memory" in told and "it has one answer" in told


def test_a_deprecated_name_works_and_names_the_new_one(trained, nmt):
    command = ["translate", "--model", trained, "--threads", 1, "--engine"]
    new, old = (nmt(*command, name, input=b"ban dif\n") for name in ("torch", "own"))
    assert old.returncode == new.returncode == 0 and old.stdout == new.stdout
    assert b"--engine own" not in new.stderr
    assert old.stderr.count(b"--engine own is deprecated (use --engine torch)") == 1
