"""Compare the speed of `nmt translate` with CTranslate2 and eole: the same model, sentences, search and threads, alternately.

    python benchmarks/translate.py --train-source train.en --train-target train.de [--shape tiny base] [--vocabulary 8000]
    python benchmarks/translate.py --model FOLDER --source test.en --reference test.de [--data DATA]
    ... --bench FOLDER --work WORK         # also eole; FOLDER: scripts for eole; WORK: where its setup.sh was run

Without --model it makes random models of the given shapes, with a vocabulary learnt from the parallel text; each
translation is then 15 tokens long (--length; nmt's last token is the end symbol, which the others need not generate).
eole has different random weights. A shortlist is learnt from the text, or from --data; for CTranslate2 it becomes a
vocabulary map.

Each round runs each system once, one after the other, each in a separate process that gets its input through pipes:
the first line, timed from the start of the process; a tenth of the text to warm up; the whole text, for the speed;
single sentences, for the latency. A system's figure is the median of its rounds, its ratio the median of the ratios
within a round. Processor time is summed over all threads; on a busy machine it varies less than wall-clock time. nmt and
CTranslate2 have as many workers as threads, with one thread each, so that a single sentence uses one thread; eole, which
has no workers, uses all threads. `nmt translate` is the command as a user types it, with its default search except for
the beam size. nmt-ctranslate2 is `--engine ctranslate2`, which cannot force lengths: it runs only with trained models.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from models import NMT, exported, learnt_shortlist, of_eole, prepared, random_model, with_map
from prepare import memory_of_tree
from shapes import SHAPES

from nmt.artefact import Artefact
from nmt.runs import find_model
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline

ENGINE = Path(__file__).with_name("engine.py")
COMMAND = "nmt translate"
SYSTEMS = (
    COMMAND,
    "nmt fp32",
    "nmt int8",
    "nmt int8 + shortlist",
    "nmt-ctranslate2 fp32",
    "nmt-ctranslate2 int8",
    "nmt-ctranslate2 int8 + shortlist",
    "eole fp32",
    "ctranslate2 float32",
    "ctranslate2 int8",
    "ctranslate2 int8 + vmap",
)
REFERENCES = ("eole fp32", "ctranslate2 float32", "ctranslate2 int8")
PROCESS_CLOCK = 2  # the clock of a process by its id (CPUCLOCK_SCHED in Linux)
RANDOM_LENGTH = 15  # tokens, the length of a caption


@dataclass(frozen=True)
class System:
    """A system's command.

    counted: whether it is sent the number of lines first
    in_pieces: whether its lines are in subwords
    """

    command: list[str]
    counted: bool = True
    in_pieces: bool = False


@dataclass(frozen=True)
class Speed:
    """first: seconds from the start of the process to the first line; median, p99: milliseconds of one sentence alone

    sentences: per second; memory: bytes of its processes after the text, shared memory counted once
    processor, processor_alone: milliseconds of processor time per sentence of the text, and for one sentence alone
    """

    first: float
    sentences: float
    median: float
    p99: float
    memory: float
    processor: float
    processor_alone: float
    lines: list[str]


Ask = Callable[[Sequence[str]], tuple[float, list[str]]]
"""lines -> (seconds, translations)"""


@contextmanager
def running(system: System, threads: int) -> Iterator[tuple[Ask, int]]:
    """A running system, and the id of its process."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(system.command, env=environment, stderr=errors, **pipes) as it,
    ):
        questions, answers = cast(BinaryIO, it.stdin), cast(BinaryIO, it.stdout)

        def write(text: bytes) -> None:
            with suppress(BrokenPipeError):  # its stderr gives the reason
                questions.write(text)
                questions.flush()

        def ask(lines: Sequence[str]) -> tuple[float, list[str]]:
            text = "".join(line + "\n" for line in lines)
            text = f"{len(lines)}\n{text}" if system.counted else text
            began = time.perf_counter()
            writer = threading.Thread(target=write, args=(text.encode(),))  # it can answer before it has read all lines
            writer.start()
            found = [answers.readline() for _ in lines]
            seconds = time.perf_counter() - began
            writer.join()
            if not found[-1]:
                errors.seek(0)
                raise SystemExit(f"failed: {' '.join(system.command)}\n{errors.read().decode()}")
            return seconds, [line.decode().removesuffix("\n") for line in found]

        yield ask, it.pid


def measured(system: System, lines: list[str], singles: int, threads: int) -> Speed:
    """Measure one system once."""
    began = time.perf_counter()
    with running(system, threads) as (ask, pid):
        ask(lines[:1])
        first = time.perf_counter() - began
        ask(lines[: max(1, len(lines) // 10)])
        clock = [processor_seconds(pid)]
        seconds, found = ask(lines)
        clock.append(processor_seconds(pid))
        memory = memory_of_tree(pid)
        each = sorted(1000 * ask([line])[0] for line in some(lines, singles)) or [0.0]
        clock.append(processor_seconds(pid))
    p99 = each[int(0.99 * (len(each) - 1))]
    processor, alone = 1000 * (clock[1] - clock[0]) / len(lines), 1000 * (clock[2] - clock[1]) / len(each)
    return Speed(first, len(lines) / seconds, statistics.median(each), p99, memory, processor, alone, found)


def processor_seconds(pid: int) -> float:
    """Processor time of a process, its threads and its children so far."""
    seconds = time.clock_gettime(~pid << 3 | PROCESS_CLOCK)
    for task in Path(f"/proc/{pid}/task").iterdir():
        seconds += sum(processor_seconds(int(child)) for child in (task / "children").read_text().split())
    return seconds


def some(lines: list[str], most: int) -> list[str]:
    """`count` of the lines, evenly spaced."""
    return [lines[i] for i in np.linspace(0, len(lines) - 1, min(most, len(lines))).astype(int)]


@dataclass(frozen=True)
class Model:
    """A model to translate with.

    shape: shape of an untrained model; empty for a trained one
    folder: model folder; work: folder for files made from it; data: prepared data to learn a shortlist from, if any
    """

    name: str
    shape: str
    folder: Path
    work: Path
    data: Path | None
    pipeline: Pipeline


def trained(given: argparse.Namespace) -> Model:
    folder = find_model(given.model)
    work = given.work / "trained"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return Model(str(given.model), "", folder, work, given.data, Pipeline.load(Artefact(folder, "model", "checkpoint")))


def untrained(given: argparse.Namespace, shape: str) -> Model:
    work = given.work / f"{shape}-{given.vocabulary}"
    work.mkdir(parents=True, exist_ok=True)
    data = prepared(
        given.work / f"prepared-{given.vocabulary}", given.train_source, given.train_target, given.vocabulary
    )
    pipeline = Pipeline.load(Artefact(data, "prepared-data"))
    return Model(f"{shape}, untrained", shape, random_model(work / "model", data, shape), work, data, pipeline)


def system_of(name: str, given: argparse.Namespace, model: Model, beam: int) -> System | None:
    """The command of a system for a model; None for a system that cannot be run."""
    engine, weights, *more = name.split()
    if (engine == "eole" and not (model.shape and given.bench)) or (more and model.data is None):
        return None
    if engine == "nmt-ctranslate2" and given.length:
        return None
    if name == COMMAND:
        length = given.length - 1
        forced = [f"--min-length={length}", "--max-len-a=0", f"--max-len-b={length}"] if given.length else []
        command = [*NMT, "translate", f"--model={model.folder}", f"--beam-size={beam}", "--quiet", *forced]
        return System(command, counted=False)
    shortlist = learnt_shortlist(model.work / "shortlist", model.data) if more and model.data else None
    python, folder, batch = sys.executable, model.folder, given.batch_tokens
    if engine == "ctranslate2":
        folder, batch = exported(model.work / f"ctranslate2-{weights}", model.folder, weights), given.batch_sentences
        if shortlist is not None:
            folder = with_map(model.work / "ctranslate2-map", folder, shortlist, model.pipeline)
    elif engine == "eole":
        programs, texts = given.work / "venvs/eole/bin", (given.train_source[0], given.train_target[0])
        folder = of_eole(model.work / "eole", given.bench, programs, model.shape, model.pipeline, texts)
        python, batch = str(programs / "python"), given.eole_sentences
    job = {"engine": engine, "weights": weights, "model": str(folder), "batch": batch, "beam": beam}
    job |= {"length": given.length, "threads": given.threads, "replicas": given.replicas or given.threads}
    job["shortlist"] = str(shortlist) if shortlist else ""
    return System([python, str(ENGINE), json.dumps(job)], in_pieces=engine == "eole")


def compare(given: argparse.Namespace, model: Model, beam: int) -> None:
    """Print a table with a row for each system."""
    lines = some(read_lines(Path(given.source or given.train_source[0])), given.sentences)
    pieces = [" ".join(model.pipeline.source.pieces(line)) for line in lines]
    systems = {name: system_of(name, given, model, beam) for name in given.systems}
    called = {name: system for name, system in systems.items() if system is not None}
    rounds: list[dict[str, Speed]] = [
        {
            name: measured(system, pieces if system.in_pieces else lines, given.singles, given.threads)
            for name, system in called.items()
        }
        for _ in range(given.rounds)
    ]
    references = [name for name in REFERENCES if name in called]
    forced = f", {given.length} tokens each" if given.length else ""
    print(
        f"\n{model.name}: {model.pipeline.target.size:,} target entries; beam {beam}{forced}, {len(lines):,} sentences, "
        f"{given.threads} threads, {given.rounds} rounds in turn"
    )
    heads = ["system", "sentences/s (each round)", *(f"times {name}" for name in references), "BLEU"]
    heads += ["one sentence alone: median, p99, ms", "processor time: in the text, alone, ms", "to the first, s", "MB"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name in called:
        ones = [found[name] for found in rounds]
        cells = [name, f"{middle(ones, 'sentences'):.1f} ({', '.join(f'{one.sentences:.1f}' for one in ones)})"]
        for reference in references:
            ratios = [found[name].sentences / found[reference].sentences for found in rounds]
            cells.append(f"{statistics.median(ratios):.2f}")
        cells += [bleu_of(ones[0].lines, given), f"{middle(ones, 'median'):.1f}, {middle(ones, 'p99'):.1f}"]
        cells += [f"{middle(ones, 'processor'):.3f}, {middle(ones, 'processor_alone'):.3f}"]
        cells += [f"{middle(ones, 'first'):.2f}", f"{middle(ones, 'memory') / 1e6:,.0f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def middle(ones: Sequence[Speed], name: str) -> float:
    """The median of several runs."""
    return statistics.median(getattr(one, name) for one in ones)


def bleu_of(lines: list[str], given: argparse.Namespace) -> str:
    if given.reference is None:
        return ""
    import sacrebleu

    references = [some(read_lines(given.reference), given.sentences)]
    return f"{sacrebleu.corpus_bleu(lines, references, tokenize=given.tokenize, force=True).score:.2f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a trained model (default: random ones)")
    parser.add_argument("--data", type=Path, help="prepared data for the shortlist of --model")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["tiny", "base"], help="shapes of random models")
    parser.add_argument("--train-source", nargs="+", help="parallel text for the vocabulary of random models")
    parser.add_argument("--train-target", nargs="+")
    parser.add_argument("--vocabulary", type=int, default=8000, help="vocabulary size of random models")
    parser.add_argument("--source", type=Path, help="text to translate (default for random models: --train-source)")
    parser.add_argument("--reference", type=Path, help="reference translation for BLEU")
    parser.add_argument("--tokenize", default="13a", help="BLEU's tokenizer; none if the text is tokenised")
    parser.add_argument("--sentences", type=int, default=1000, help="maximum number of lines, evenly spaced")
    parser.add_argument("--singles", type=int, default=100, help="sentences to translate one by one")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="systems to compare (default: all that can run)"
    )
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--length", type=int, help="tokens per translation; 0 lets the model end them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--replicas", type=int, help="replicas of nmt (default: the number of threads)")
    parser.add_argument("--batch-tokens", type=int, help="batch size of nmt in tokens (default: automatic)")
    parser.add_argument("--batch-sentences", type=int, default=32, help="batch size of CTranslate2 in sentences")
    parser.add_argument("--eole-sentences", type=int, default=64, help="batch size of eole in sentences")
    parser.add_argument("--bench", type=Path, help="folder of scripts for eole")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-translate"))
    given = parser.parse_args()
    if given.model is None and not (given.train_source and given.train_target):
        parser.error("there is nothing to translate with: give --model, or --train-source and --train-target")
    if given.model is not None and given.source is None:
        parser.error("--model wants a --source to translate")
    if given.length is None:
        given.length = 0 if given.model else RANDOM_LENGTH
    given.work = given.work.resolve()  # eole's program runs in a different folder
    return given


def main() -> None:
    given = arguments()
    for shape in [""] if given.model else given.shape:
        model = untrained(given, shape) if shape else trained(given)
        for beam in given.beam:
            compare(given, model, beam)


if __name__ == "__main__":
    main()
