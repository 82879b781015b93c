"""Toolkits: each comes in one file, which `nmt import` and `nmt export` find by its name or by the names of its files."""

import numpy as np
import pytest
from conftest import WORDS, small_model

from nmt import registry
from nmt.checkpoint import load_model, weights_of
from nmt.cli.main import run
from nmt.extensions.toolkits.comparison import compare_with_toolkit
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.translate.forced_decoding import force_decode

BOX = '''
import json
from pathlib import Path
import numpy as np
from nmt import opt, options_class, register, signals
from nmt.artefact import new_folder
from nmt.extensions.toolkits.layout import network_options
from nmt.extensions.toolkits.toolkit import Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, arrays_of, check_exportable


@options_class
class BoxOptions:
    box_title: str = opt("none", "title of the box")


@register("toolkit", "box", BoxOptions)
class Box(Toolkit):
    """Weights by our names in weights.npz, with their settings in box.json."""

    @classmethod
    def recognizes(cls, path):
        return (path / "box.json").is_file()

    def read(self, path, files):
        box = json.loads((path / "box.json").read_text())
        source, target = files.named_languages(None, None)
        weights = dict(np.load(path / "weights.npz"))
        ids = {word: number for number, word in enumerate(["</s>", "<unk>", *box["words"]])}
        side = ImportedSide.of(source, ids, len(ids), 1, 0, None, files.tokenizer, path)
        return ImportedModel(network_options(box["options"], path), weights, side, side, True, str(path))

    def write(self, loaded, output):
        check_exportable(loaded, "Box")
        side = loaded.pipeline.source
        words = [side.piece(token) for token in range(4, side.size)]
        with new_folder(output, "box", {}) as folder:
            np.savez(folder / "weights.npz", **arrays_of(loaded))
            box = {"title": self.options.box_title, "options": loaded.facts.options, "words": words}
            (folder / "box.json").write_text(json.dumps(box))
            signals.check()
        return "written\\n"
'''


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "box.py").write_text(BOX)
    yield f"--plugin={tmp_path / 'box.py'}"
    del registry._shelf.parts["toolkit", "box"]


def test_a_toolkit_from_one_file_is_written_recognized_and_read(plugin, tmp_path, capfd):
    model = small_model(tmp_path / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    box, back = str(tmp_path / "box"), str(tmp_path / "back")
    languages = ["--source-lang=en", "--target-lang=en"]
    assert run(["export", f"--model={model}", "--format=box", "--box-title=mine", f"--output={box}", plugin]) == 0
    assert capfd.readouterr().out == "written\n" and '"title": "mine"' in (tmp_path / "box/box.json").read_text()
    assert run(["import", box, f"--output={back}", *languages, plugin]) == 0
    written, read = (load_model(tmp_path / name, "cpu") for name in ("m", "back"))
    assert all((value == weights_of(read.model)[name]).all() for name, value in weights_of(written.model).items())
    line = " ".join(WORDS[:3])
    assert read.pipeline.source.encode(line) == written.pipeline.source.encode(line)
    refused = ["export", f"--model={model}", "--format=model", "--box-title=mine", f"--output={box}2", plugin]
    assert run(refused) == 2 and "--box-title" in capfd.readouterr().err


@pytest.mark.parametrize(("nats", "is_warned"), [(0.0, False), (0.01, True), (float("nan"), True)])
def test_a_large_difference_from_the_toolkit_causes_a_warning(nats, is_warned, tmp_path, capfd):
    model = small_model(tmp_path / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    own, source, target = load_model(model, "cpu").model, [5, 6], [7]
    [decoding] = force_decode(own, [np.array(source)], [target])

    class Compared(Toolkit):
        package = "numpy"

        def scores(self, imported):
            yield ScoredPair(source, target, [decoding.log_probs[0] + nats, decoding.log_probs[1]])

    compare_with_toolkit(Compared(None), None, own)
    told = capfd.readouterr().err
    assert "largest difference in log-probabilities" in told and ("nmt: warning: " in told) == is_warned


def test_only_capable_toolkits_are_values_of_the_flag(capfd):
    for command, lacks in (("import", "int8"), ("export", "fairseq")):
        assert run([command, "model", f"--format={lacks}", "--output=x"]) == 2
        assert lacks not in capfd.readouterr().err.partition("must be")[2]
