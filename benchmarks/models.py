"""Make the models that benchmarks/translate.py compares: random ones from a parallel text, in the format of each engine.

An existing model folder is reused.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from shapes import SHAPES

from nmt import registry
from nmt.artefact import MANIFEST
from nmt.checkpoint import save_model, weights_of
from nmt.data.shards import PreparedData
from nmt.extensions.ctranslate2.engine import MAP_FILE
from nmt.extensions.ctranslate2.export import vocabulary_map
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline

NMT = [sys.executable, "-m", "nmt"]
EOLES_OWN = 8000  # vocabulary size in the settings for eole in the scripts of --bench
EOLES_PAIRS = 2000  # learning rate of its only update


def prepared(folder: Path, sources: Sequence[str], targets: Sequence[str], vocabulary: int) -> Path:
    """Make prepared data from parallel text, with a vocabulary learnt from it."""
    asked = ["prepare", "--source-lang=xx", "--target-lang=yy", f"--vocab-size={vocabulary}", f"--output={folder}"]
    asked += ["--normalization=nfkc", *(f"--source={name}" for name in sources)] + [
        f"--target={name}" for name in targets
    ]
    if not (folder / MANIFEST).exists():
        subprocess.run([*NMT, *asked, f"--workers={os.cpu_count()}", "--quiet"], check=True)
    return folder


def random_model(folder: Path, data: Path, shape: str) -> Path:
    """Make a Transformer with initial weights."""
    if not (folder / MANIFEST).exists():
        pipeline = PreparedData(data).pipeline
        vocabularies = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
        torch.manual_seed(1)
        model = registry.build(registry.choose("model", "transformer", SHAPES[shape]), vocabularies)
        facts = ModelFacts.of("transformer", model.options, vocabularies)
        save_model(folder, weights_of(model), facts, pipeline, {})
    return folder


def learnt_shortlist(path: Path, data: Path) -> Path:
    """The shortlist of `nmt shortlist` with its default settings."""
    if not path.exists():
        asked = [*NMT, "shortlist", f"--data={data}", f"--output={path}", "--quiet"]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
    return path


def exported(folder: Path, model: Path, quantization: str) -> Path:
    """Export the model for CTranslate2 and compare a few lines; the tests of `nmt export` compare more."""
    if not (folder / MANIFEST).exists():
        asked = ["export", f"--model={model}", "--format=ctranslate2", f"--quantization={quantization}"]
        command = [*NMT, *asked, f"--output={folder}", "--check-lines=2", "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def with_map(folder: Path, export: Path, path: Path, pipeline: Pipeline) -> Path:
    """An exported model with nmt's shortlist as CTranslate2's vocabulary map."""
    if not folder.exists():
        shortlist = Shortlist.load(path, pipeline.hash, pipeline.sizes)
        shutil.copytree(export, folder, copy_function=os.link)
        (folder / MAP_FILE).write_text(vocabulary_map(shortlist, pipeline), encoding="utf-8", newline="\n")
    return folder


def of_eole(folder: Path, bench: Path, programs: Path, shape: str, pipeline: Pipeline, texts: tuple[str, str]) -> Path:
    """An eole model after one update with the settings of the scripts of --bench, and with the vocabulary of nmt.

    bench: folder of the scripts; programs: folder of its virtual environment's programs; texts: training files
    """
    model = folder / "model"
    if not (model / "config.json").exists():
        (folder / "bpe").mkdir(parents=True, exist_ok=True)  # the names are those of the scripts
        for name, file, side in zip(("en", "de"), texts, (pipeline.source, pipeline.target), strict=True):
            lines = read_lines(Path(file))[:EOLES_PAIRS]
            pieces = "".join(" ".join(side.pieces(line)) + "\n" for line in lines)
            (folder / f"bpe/train.{name}").write_text(pieces, encoding="utf-8")
        words = {
            side.piece(token): None for side in (pipeline.source, pipeline.target) for token in range(4, side.size)
        }
        counts = "".join(f"{word}\t1\n" for word in words)
        (folder / "bpe/vocab.count.tsv").write_text(counts, encoding="utf-8")
        asked = [sys.executable, str(bench / "eole_config.py"), "eole", shape, "1", "."]
        settings = subprocess.check_output(asked, text=True).replace(str(EOLES_OWN), str(len(words)))
        (folder / "eole.yaml").write_text(settings)
        command = [str(programs / "eole"), "train", "-config", "eole.yaml"]
        with (folder / "eole.log").open("w") as log:
            subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=log)
    return model
