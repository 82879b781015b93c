"""Measure the speed and memory of `nmt prepare`, and the time to the first training update on its output.

    python benchmarks/prepare.py --source europarl.en.gz --target europarl.fr.gz --pairs 400000 4000000 36000000

The corpus is the given text, repeated: nine of ten repeated pairs get a unique number, so that deduplication
removes the rest. Rows of the table are comparable only within one call. --fairseq COMMAND (a command that runs
fairseq-preprocess) adds a table of fairseq's steps: sentencepiece splits the text into subwords, fairseq-preprocess
converts them to ids. For comparison, nmt prepare runs from raw text with the same vocabulary.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from nmt.text.corpus import raw_lines

NMT = [sys.executable, "-m", "nmt"]
LOOK_SECONDS = 0.25


def repeated(source: Path, target: Path, pairs: int) -> Iterator[tuple[bytes, bytes]]:
    """`count` pairs of real text; the text is repeated as needed."""
    texts = list(zip(raw_lines(source), raw_lines(target), strict=True))
    for i in range(pairs):
        one, other = texts[i % len(texts)]
        turn = i // len(texts)
        if turn and i % 10:
            mark = b"%d " % (turn * 1_000_003 + i % 9973)
            one, other = mark + one, mark + other
        yield one, other


def write_corpus(prefix: Path, given: argparse.Namespace, pairs: int) -> None:
    with Path(f"{prefix}.xx").open("wb") as one, Path(f"{prefix}.yy").open("wb") as other:
        for source, target in repeated(given.source, given.target, pairs):
            one.write(source)
            other.write(target)


def memory_of_tree(pid: int) -> int:
    """Memory of a process and its children in bytes, shared memory counted once (Pss of Linux)."""
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += 1024 * int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(memory_of_tree(int(child)) for child in (task / "children").read_text().split())
    except (OSError, StopIteration, ValueError):  # the process has ended
        pass
    return total


def measured(command: list[str]) -> tuple[float, int]:
    """(seconds, peak bytes of the process tree) of a command."""
    started, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, memory_of_tree(process.pid))
            time.sleep(LOOK_SECONDS)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.perf_counter() - started, peak


def first_update(data: Path, work: Path) -> tuple[float, int]:
    """(seconds, peak bytes) from the start of `nmt train` to the end of the first update of a very small model."""
    tiny = ["--encoder-layers=1", "--decoder-layers=1", "--d-model=16", "--d-ff=16", "--heads=2", "--no-valid-bleu"]
    asked = ["train", f"--data={data}", f"--output={work / 'run'}", *tiny, "--best-by=loss", "--max-updates=1"]
    return measured([*NMT, *asked, "--batch-tokens=4000"])


SPLIT = """
import sys, sentencepiece
model, threads, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
processor = sentencepiece.SentencePieceProcessor(model_file=model)
for name, output in zip(files[::2], files[1::2]):
    with open(name, encoding="utf-8", newline="\\n") as text, open(output, "w", encoding="utf-8") as split:
        while lines := text.readlines(1 << 24):
            pieces = processor.encode(lines, out_type=str, num_threads=threads)
            split.writelines(" ".join(line) + "\\n" for line in pieces)
"""


def compare(given: argparse.Namespace, pairs: int, workers: int) -> None:
    """Print a row for each way from raw text to ids with a given vocabulary. Needs prepared data in WORK/data."""
    work, model = given.work, given.work / "data/pipeline/joint.model"
    names = [f"{work}/{stem}.{side}" for side in ("xx", "yy") for stem in ("text", "split")]
    asked = ["--source-lang=xx", "--target-lang=yy"]
    (work / "dict.txt").write_text(subprocess.check_output([sys.executable, "-c", PIECES, model], text=True))
    fairseq = [*shlex.split(given.fairseq), *asked, f"--trainpref={work}/split", f"--destdir={work}/fairseq"]
    fairseq += [f"--srcdict={work}/dict.txt", "--joined-dictionary", f"--workers={workers}"]
    ours = [*NMT, "prepare", *asked, f"--train={work}/text", f"--vocabulary={work}/data", f"--output={work}/again"]
    ours += [f"--workers={workers}", "--max-length=0", "--overwrite"]
    split = measured([sys.executable, "-c", SPLIT, str(model), str(workers), *names])
    preprocess, prepare = measured(fairseq), measured(ours)
    both = split[0] + preprocess[0], max(split[1], preprocess[1])
    ways = {"sentencepiece": split, "fairseq-preprocess": preprocess, "both": both, "nmt prepare": prepare}
    for way, (seconds, peak) in ways.items():
        times = both[0] / seconds
        print(
            f"| {way} | {workers} | {pairs / seconds:,.0f} | {seconds:,.0f} | {peak / 1e6:,.0f} | {times:.2f} |",
            flush=True,
        )
    shutil.rmtree(work / "fairseq")


PIECES = """
import sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for token in range(4, processor.vocab_size()):
    print(processor.id_to_piece(token), 1)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[400_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--fairseq", default="", help="command of fairseq-preprocess, for the second table")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-prepare"))
    given = parser.parse_args()
    print(
        "| pairs | workers | pairs/s | s | peak MB | kept | to the first update, s | its peak MB |\n" + "|---" * 8 + "|"
    )
    for pairs in given.pairs:
        shutil.rmtree(given.work, ignore_errors=True)
        given.work.mkdir(parents=True)
        write_corpus(given.work / "text", given, pairs)
        for workers in given.workers:
            data = given.work / "data"
            asked = [
                "prepare",
                "--source-lang=xx",
                "--target-lang=yy",
                f"--train={given.work / 'text'}",
                "--deduplicate",
                "--normalization=nfkc",
            ]
            seconds, peak = measured([*NMT, *asked, f"--output={data}", f"--workers={workers}", "--overwrite"])
            kept = json.loads((data / "report.json").read_bytes())["sets"][0]["kept"]
            started, needed = first_update(data, given.work)
            shutil.rmtree(given.work / "run")
            print(
                f"| {pairs:,} | {workers} | {pairs / seconds:,.0f} | {seconds:,.0f} | {peak / 1e6:,.0f} | {kept:,} "
                f"| {started:.1f} | {needed / 1e6:,.0f} |",
                flush=True,
            )
    if given.fairseq:
        print(
            "\n| from raw text to ids | workers | pairs/s | s | peak MB | times as fast as both |\n" + "|---" * 6 + "|"
        )
        for workers in given.workers:
            compare(given, given.pairs[-1], workers)
    shutil.rmtree(given.work)


if __name__ == "__main__":
    main()
