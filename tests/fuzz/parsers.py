"""Everything that nmt reads: a parser for each format, and valid examples of it.

A parser returns, or raises a UserError with the exit status for input, settings or artefacts. Anything else is a bug.
"""

import atexit
import bz2
import contextlib
import functools
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from conftest import small_model, train_arguments, write_corpus

from nmt import registry
from nmt.artefact import Artefact
from nmt.checkpoint import load_model
from nmt.cli.main import run
from nmt.data.shards import PreparedData
from nmt.errors import UsageError, UserError
from nmt.extensions.archives.whole import check_whole
from nmt.extensions.details.alignment import read_dictionary
from nmt.extensions.doctor.doctor import DoctorOptions, doctor
from nmt.extensions.scores.metrics.bracket_f1 import read_tree
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.extensions.watch.history import read_bleu, read_records, read_run, read_stats
from nmt.report.run_status import read_status
from nmt.text.corpus import count_lines, decode_line, read_lines
from nmt.train.checkpointing import SavedState
from nmt.translate.requests import Form, read_request

PLACE: Final = "NMT_PARSERS"  # environment variable with the folder that another process has made
CODES: Final = (2, 3, 4)  # exit statuses of the errors of parsers
TEXT: Final = "Ein Mann.\n\r\n\ufeffZwei\u2028 Ma\u0308nner \u200b\r\n(S (NP XX )NP )S\n".encode()
SGM: Final = b'<refset setid="x">\n<doc>\n<seg id="1"> a &lt; b </seg>\n<seg id="2">\nc &#228;</seg></doc></refset>\n'


@dataclass(frozen=True)
class Parser:
    """read: raises UserError for content that it refuses; examples: content that it accepts"""

    read: Callable[[bytes], object]
    examples: Callable[[], list[bytes]]

    def check(self, content: bytes) -> int:
        """The exit status for the content. Anything other than 0 or a status in `CODES` is an AssertionError."""
        try:
            self.read(content)
        except UserError as error:
            assert error.code in CODES, f"code {error.code}: {error}"
            assert not any("\n" in message for message in error.messages), error
            return error.code
        return 0


@functools.cache
def place() -> Path:
    """A folder in memory with prepared data, a run and a model, deleted when the process that made it ends."""
    if made := os.environ.get(PLACE):
        return Path(made)
    folder = tempfile.TemporaryDirectory(prefix="nmt-parsers-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    atexit.register(folder.cleanup)
    root = Path(folder.name)
    write_corpus(root / "train", 40, 1)
    write_corpus(root / "dev", 5, 2)
    (root / "w").write_text("1.5\n" * 40)
    arguments = [
        "prepare",
        "--source-lang=en",
        "--target-lang=de",
        f"--train={root / 'train'}",
        "--truecase",
        "--tokenizer=moses",
    ]
    arguments += [f"--valid={root / 'dev'}", f"--column=weight:pair={root / 'w'}", "--workers=1", "--quiet"]
    for name, kind in (("words", "none"), ("pieces", "bpe")):
        assert run([*arguments, f"--subword={kind}", f"--output={root / name}", "--vocab-size=80"]) == 0
    assert run(train_arguments(root / "words", root / "run", 2, "--save-every=1u")) == 0
    small_model(root / "model", d_model=8, d_ff=8, heads=1, encoder_layers=1, decoder_layers=1)
    return root


def file(read: Callable[[Path], object], *examples: bytes, name: str = "content") -> Parser:
    """A parser of a file."""

    def read_file(content: bytes) -> object:
        path = place() / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return read(path)

    return Parser(read_file, lambda: list(examples))


@functools.cache
def copy_of(artefact: str, name: str) -> Path:
    """A copy of an artefact in which the named file will be changed."""
    copy = place() / "copies" / str(os.getpid()) / name.replace("/", "-") / artefact
    shutil.copytree(place() / artefact, copy)
    return copy


def inner(artefact: str, name: str, read: Callable[[Path], object], within: str = "") -> Parser:
    """A parser of a file in an artefact; the manifest always matches the content of the file.

    within: the folder below the artefact that has the manifest
    """

    def read_inner(content: bytes) -> object:
        folder = copy_of(artefact, name)
        manifest = json.loads((place() / artefact / within / "manifest.json").read_bytes())
        (folder / within / name).unlink()  # the previous file may still be mapped into memory
        (folder / within / name).write_bytes(content)
        manifest["files"][name] = {"size": len(content), "sha256": sha256(content).hexdigest()}
        (folder / within / "manifest.json").write_text(json.dumps(manifest))
        return read(folder)

    return Parser(read_inner, lambda: [(place() / artefact / within / name).read_bytes()])


def manifest(artefact: str, read: Callable[[Path], object]) -> Parser:
    """A parser of the manifest of an artefact."""

    def read_manifest(content: bytes) -> object:
        folder = copy_of(artefact, "manifest.json")
        (folder / "manifest.json").write_bytes(content)
        return read(folder)

    return Parser(read_manifest, lambda: [(place() / artefact / "manifest.json").read_bytes()])


def read_data(folder: Path) -> None:
    """Read all of prepared data."""
    data = PreparedData(folder)
    if len(data.train):
        data.train.rows(np.arange(len(data.train)))
        for column in data.train.columns.values():
            column.take(np.arange(len(data.train)))
    for name in data.valid:
        data.valid[name].check()
    data.pipeline.source.encode_batch(["ban bas", "bara \u2581x"])
    data.pipeline.target.decode([token for token in range(data.pipeline.target.size)])


def read_model(folder: Path) -> None:
    """Load a model, and search with it."""
    loaded = load_model(folder, torch.device("cpu"))
    greedy = registry.build(registry.choose("decoder", "greedy", {"max_len_a": 0, "max_len_b": 3}))
    greedy.search(loaded.model.for_search(), torch.tensor([[4, 5, 2]]))


def read_checkpoint(folder: Path) -> None:
    """Read a run's newest checkpoint as `nmt status` and a resumed run do."""
    SavedState.read(Artefact(folder / "checkpoints/update-2", "checkpoint"))
    read_run(folder)


def read_report(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        doctor(DoctorOptions(data=str(folder)))


def read_settings(path: Path) -> None:
    """Read a settings file as `nmt train --config FILE` does."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        code = run(["train", f"--config={path}", "--dump-config"])
    if code:
        assert code == 2, errors.getvalue()
        raise UsageError(errors.getvalue().splitlines())


def read_shortlist(path: Path) -> None:
    Shortlist.load(path, "vocabulary", (6, 6))


def shortlist() -> bytes:
    path = place() / "shortlist"
    Shortlist(np.array([0, 0, 0, 0, 0, 1, 3]), np.array([4, 4, 5]), np.array([4])).save(path, "vocabulary")
    return path.read_bytes()


def request(form: Form) -> Callable[[bytes], object]:
    return lambda content: [read_request(decode_line(line).text, form) for line in content.split(b"\n")]


def archive(pack: Callable[[io.BytesIO], Any]) -> bytes:
    """An archive, written by `pack`."""
    stream = io.BytesIO()
    pack(stream)
    return stream.getvalue()


def _tar(mode: str) -> Callable[[io.BytesIO], None]:
    def pack(stream: io.BytesIO) -> None:
        with tarfile.open(fileobj=stream, mode=mode) as packed:  # type: ignore[call-overload]
            for name, content in (("a/text.en", TEXT), ("a/" + "long" * 40, SGM)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                packed.addfile(member, io.BytesIO(content))

    return pack


def _zip(stream: io.BytesIO) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/text.en", TEXT)
        packed.writestr("b.en", SGM)


def read_text(path: Path) -> None:
    read_lines(path)
    assert count_lines(path) == len(read_lines(path))


def read_member(path: Path) -> None:
    """Read a member of an archive, and then all of it."""
    with contextlib.suppress(UserError):
        read_lines(path / "a/text.en")
    check_whole(path, "a.tar")


SETTINGS: Final = b"""preset = "transformer-tiny"\nmax-updates = 100\nlr = 5e-4\nsave_every = "10m"
[decoder]\nname = "beam"\nbeam_size = 4\n[criterion]\nlabel_smoothing = 0.1\n"""
SCORES: Final = b'[{"metric": "bleu", "value": 27.5, "signature": "nrefs:1|case:mixed", "system": "x"}]'
RECORDS: Final = (
    b'{"update": 1, "epoch": 1, "loss": 9.1, "eflop": 1e-09, "lr": 0.001}\n',
    b'{"update": 2, "valid_loss": 8.5, "valid_bleu": 0.5}\n',
)
REQUESTS: Final = (
    b'{"source": "a b", "target_prefix": "c", "constraints": ["d"], "avoid": ["e"], "id": {"x": [1, null, 2.5]}}\n',
    b"a b ||| c d ||| e\n",
)


def _parsers() -> dict[str, Parser]:
    checkpoint = "checkpoints/update-2"
    return {
        "text": file(read_text, TEXT, gzip.compress(TEXT), bz2.compress(TEXT), lzma.compress(TEXT)),
        "sgm": file(read_text, SGM, name="text.sgm"),
        "archive": file(read_member, archive(_tar("w")), archive(_tar("w:gz")), archive(_zip), name="archive"),
        "settings": file(read_settings, SETTINGS),
        "requests: json": Parser(request("json"), lambda: list(REQUESTS)),
        "requests: prefix": Parser(request("prefix"), lambda: list(REQUESTS)),
        "requests: phrases": Parser(request("phrases"), lambda: list(REQUESTS)),
        "trees": Parser(lambda content: read_tree(content.decode(errors="replace")), lambda: [b"(S (NP XX )NP . )S"]),
        "dictionary": file(read_dictionary, b"ein a\nMann man\n"),
        "shortlist": Parser(file(read_shortlist).read, lambda: [shortlist()]),
        "scores": file(read_bleu, SCORES),
        "translation stats": file(read_stats, b'{"lines": 3, "seconds": 0.5, "lines_per_second": 6.0}'),
        "status.json": Parser(file(read_status).read, lambda: [(place() / "run/status.json").read_bytes()]),
        "metrics.jsonl": file(lambda path: read_records(path.parent), *RECORDS, name="metrics.jsonl"),
        "prepared data: manifest": manifest("words", read_data),
        "prepared data: data.json": inner("words", "data.json", read_data),
        "prepared data: report.json": inner("words", "report.json", read_report),
        "prepared data: lengths": inner("words", "train.lengths.bin", read_data),
        "prepared data: ids": inner("words", "train.source.bin", read_data),
        "prepared data: column": inner("words", "train.weight.bin", read_data),
        "pipeline.json": inner("words", "pipeline/pipeline.json", read_data),
        "word list": inner("words", "pipeline/joint.words", read_data),
        "truecaser": inner("words", "pipeline/source.case", read_data),
        "sentencepiece model": inner("pieces", "pipeline/joint.model", read_data),
        "model: manifest": manifest("model", read_model),
        "model: options.json": inner("model", "options.json", read_model),
        "model: weights": inner("model", "model.safetensors", read_model),
        "checkpoint: training.json": inner("run", "training.json", read_checkpoint, within=checkpoint),
    }


PARSERS: Final = _parsers()
