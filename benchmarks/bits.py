"""Compare two checkouts to the last bit: what they prepare, train, save, export, translate and score.

    python benchmarks/bits.py OLD [NEW] [--only WORDS]    # make bits OLD=FOLDER

OLD, NEW: folders of two checkouts; NEW defaults to the checkout of this script. Both run the same command lines on the same
generated text, with one thread each. The output of each command is hashed: losses of each update, weights, optimizer state,
settings, prepared data, translations with their scores. Exit status 1 if anything differs. A change that only moves code
must not change a bit. Hashes are not recorded, since they depend on the processor and on torch.
"""

import argparse
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
KINDS: Final = "model", "criterion", "optimizer", "schedule", "decoder"
WORDS: Final = [f"{a}{b}" for a in ("ba", "de", "ki", "lo", "mu") for b in ("n", "s", "t", "ra", "li")]
OF_THE_CLOCK: Final = "train.log", "status.json", ".lock"
CHECKSUMS: Final = ".sums"  # files in format 1 of prepared data but not in format 2
CHANGING_KEYS: Final = "minutes", "folder", "files", "made_of"
OF_THE_FORMAT: Final = "format", "valid_set_sha256", "data"  # versions and digests of prepared data
HASHED_SETTINGS: Final = "settings"  # the hash in a manifest of the settings in their order

SHAPE: Final = "--encoder-layers 2 --decoder-layers 2 --d-model 32 --d-ff 48 --heads 4 --dropout 0.1"
UPDATES: Final = "--max-updates 3 --valid-every 3u --save-every 3u --log-every 1u"
SCHEDULE: Final = "--schedule inverse-sqrt --lr 0.005 --warmup-updates 2"
TRAIN: Final = f"train DATA {SCHEDULE} --batch-tokens 120 --threads 1 --matmul torch {UPDATES} --output OUT"

PREPARE: Final = {  # by case: options in addition to those that name the text
    "words": "--subword none --align --column weight:pair=weights",
    "bpe": "--vocab-size 60",
    "unigram": "--subword unigram --vocab-size 60 --no-joint-vocabulary",
    "char": "--subword char --vocab-size 40",
    "mixed": "--train extra=text/extra --subword none --deduplicate --hold-out 20 --max-ratio 3",
    "context": "--subword none --context 1",
    "moses": "--vocab-size 60 --tokenizer moses --truecase --normalize-punctuation",
    "reversed": "--subword none --right-to-left",
}
MODELS: Final = {
    "transformer": SHAPE,
    "transformer pre": f"{SHAPE} --norm-position pre --norm rms --activation gelu --ffn glu --attention-dropout 0.1",
    "transformer learned": f"{SHAPE} --positions learned --max-positions 8 --tie none --activation-dropout 0.1",
    "transformer t2t": f"{SHAPE} --positions t2t-sinusoidal --tie target --d-k 6 --d-v 10 --attention-bias --output-bias",
    "transformer relative": f"{SHAPE} --positions relative --relative-distance 2 --relative-heads separate",
    "transformer keys": f"{SHAPE} --positions relative --relative-distance 3 --no-relative-values",
    "transformer rotary": f"{SHAPE} --positions rotary --kv-heads 2 --no-source-eos",
    "transformer window": f"{SHAPE} --attention-window 3 --kv-heads 1 --activation swish",
    "transformer ssru": f"{SHAPE} --decoder-autoregression ssru --tie-layers decoder",
    "transformer average": f"{SHAPE} --decoder-autoregression average-attention --tie-layers encoder",
    "transformer moe": f"{SHAPE} --ffn moe --experts 4",
    "transformer groups": f"{SHAPE} --ffn moe --experts 4 --expert-groups 2 --active-experts 1 --expert-every 1",
    "transformer balanced": f"{SHAPE} --ffn moe --experts 4 --gates balanced --expert-every 1",
    "bytenet": "--hidden-size 12 --encoder-layers 4 --decoder-layers 3 --max-dilation 4 --unfold-factor 1.5 --bucket 2",
    "convs2s": "--encoder-layers 24k3,32k2,32k1 --decoder-layers 24k3,32k2,28k1 --embedding-size 20 --output-size 16",
    "rnnsearch": "--embedding-size 24 --hidden-size 32 --attention-size 28 --maxout-size 20",
    "gnmt": "--encoder-layers 3 --decoder-layers 3 --hidden-size 32 --attention-size 28",
    "deep-att": "--encoder-layers 2 --decoder-layers 3 --embedding-size 16 --hidden-size 16 --memory-size 20 --attention-size 12",
    "moe": "--d-model 24 --hidden-size 36 --attention-size 20 --expert-size 28 --experts 6 --active-experts 2",
    "neural-gpu": "--hidden-size 16 --height 2 --layers 1 --memory-offset 1",
    "language-model": "--layers 2 --d-model 32 --d-ff 48 --heads 4 --valid-metrics none",
    "memory-network": "--hops 3 --embedding-size 32 --valid-metrics none",
}
CRITERIA: Final = {
    "cross-entropy": "--label-smoothing 0.2 --smoothing-over all --z-loss 0.001 --loss-weights weight",
    "distillation": "--teacher averaged --temperature 2",
    "guided-alignment": "--alignment-weight 0.3",
    "in-place-distillation": "",
    "r-drop": "--norm-position pre",
    "reward": "--criterion.decoder.n-best 3 --init-from learnt",
    "reward risk": "--objective risk --with-reference --init-from learnt",
    "unlikelihood": "",
}
OPTIMIZERS: Final = {
    "adadelta": "--lr 1", "adafactor": "", "adam": "--weight-decay 0.01", "adam-sgd": "--adam-updates 2", "adamw": "",
    "muon": "", "schedule-free": "--schedule constant", "sgd": "--momentum 0.9",
}  # fmt: skip
SCHEDULES: Final = {
    "constant": "", "cosine": "", "inverse-sqrt": "", "linear": "", "noam": "--lr 1", "plateau": "--valid-every 1u",
}  # fmt: skip
METHODS: Final = {  # other options that change a training run
    "moving average": "--ema 0.9 --clip-norm 0.5",
    "micro-batches": "--max-tokens 60 --activation-checkpointing",
    "bf16": "--precision bf16",
    "word dropout": "--source-word-dropout 0.2 --target-word-dropout 0.2",
    "frozen": "--freeze encoder.*",
    "adapters": "--init-from averaged --lora-rank 2",
    "deeper": "--init-from shallow --deepen --norm-position pre",
    "fork": "--init-from learnt --init-state schedule --max-updates 203",
}
DATA_METHODS: Final = {
    "sampling": "bpe --subword-sampling 0.3 --case-noise 0.3 --typo-noise 0.3",
    "mixture": "mixed --data-weights temperature=5",
    "context": "context",
    "reversed": "reversed",
    "unigram": "unigram --subword-sampling 0.3 --tie none",
    "foreign": "bpe --positions t2t-sinusoidal --attention-bias --output-bias",
}  # fmt: skip
DECODERS: Final = {
    "beam": "", "beam gnmt": "--coverage-penalty 0.2 --prune 3 --alpha 1 --no-repeat-ngram 2 --no-unk",
    "beam full": "--stop full --length-penalty average --min-length 2", "greedy": "",
    "diverse-beam": "--groups 2", "sampling": "--top-k 5 --temperature 0.8", "mbr": "",
    "constrained-beam": "--input-form phrases --input phrases", "alternatives": "",
}  # fmt: skip
TRANSLATIONS: Final = {  # for the trained Transformer, with any decoder
    "ensemble": "--model shallow --ensemble probabilities", "rerank": "--rerank shallow --rerank-candidates 4",
    "int8": "--precision int8", "bf16": "--precision bf16", "split": "--split", "markup": "--markup html --input markup",
    "glossary": "--glossary glossary", "avoid": "--avoid avoid", "repair": "--repair", "shortlist": "--shortlist shortlist",
    "prefix": "--input-form prefix --input phrases --n-best 1", "small batches": "--batch-tokens 12 --buffer-size 7",
    "ctranslate2": "--engine ctranslate2", "raw": "--raw-tokens",
}  # fmt: skip


def write_text(folder: Path) -> None:
    """Write the corpora (the target is the source reversed, in capitals) and files for options."""
    chance = random.Random(1)
    for name, pairs in (("train", 400), ("extra", 90), ("valid", 20), ("test", 12)):
        sources = [[chance.choice(WORDS) for _ in range(chance.randint(1, 6))] for _ in range(pairs)]
        for language, lines in (("en", sources), ("de", [[word.upper() for word in line[::-1]] for line in sources])):
            (folder / "text" / f"{name}.{language}").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    (folder / "weights").write_text("".join(f"{chance.random():.3f}\n" for _ in range(400)))
    (folder / "phrases").write_text("ban det ||| DET\nkis loli ban ||| BAN\n")
    (folder / "markup").write_text("<b>ban</b> det\nkis <i>loli <b>ban</b></i> mut\n")
    (folder / "glossary").write_text("ban\tMULI\n")
    (folder / "avoid").write_text("BAN\n")


def cases() -> Iterator[tuple[str, str]]:
    """(name, command lines after `nmt`, separated by newlines) in the order in which they run. OUT is a new folder."""
    text = (
        "prepare --source-lang en --target-lang de --train text/train --valid text/valid --test text/test --output OUT"
        " --normalization nfkc"
    )
    for name, options in PREPARE.items():
        yield f"prepare {name}", f"{text} {options}"
    words, small = (
        TRAIN.replace("DATA", "prepare-words"),
        f"{SHAPE} --max-updates 200 --save-every 200u --valid-every 200u",
    )
    yield "learnt", f"{words} {small}"
    yield "averaged", "average --run learnt --last 1 --output OUT"
    yield "shallow", f"{words} {small} --norm-position pre --encoder-layers 1 --decoder-layers 1"
    for name, options in MODELS.items():
        data = "prepare-char" if name == "bytenet" else "prepare-words"
        yield f"model {name}", f"{TRAIN.replace('DATA', data)} --model {name.split()[0]} {options}"
        if name not in ("language-model", "memory-network"):
            run = (
                f"--model model-{name.replace(' ', '-')} --input text/test.en --engine torch --threads 1 --matmul torch"
            )
            yield f"model {name} translates", f"translate {run} --n-best 2 --beam-size 3 --max-len-b 4"
    tables = ("criterion", CRITERIA), ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)
    for kind, table in tables:
        for name, options in table.items():
            yield f"{kind} {name}", f"{words} {SHAPE} --{kind} {name.split()[0]} {options}"
    for name, options in METHODS.items():
        yield f"method {name}", f"{words} {SHAPE} {options}"
    for name, options in DATA_METHODS.items():
        data, _, rest = options.partition(" ")
        yield f"data {name}", f"{TRAIN.replace('DATA', f'prepare-{data}')} {SHAPE} {rest}"
    yield "method resumed", f"{words} {SHAPE}\n{words} {SHAPE} --max-updates 6"
    yield "method averaged", "average --run method-resumed --last 2 --output OUT"
    yield "shortlist", "shortlist prepare-words --output OUT"
    translate = "translate --model learnt --input text/test.en --threads 1"
    for name, options in DECODERS.items():
        yield (
            f"decoder {name}",
            f"{translate} --engine torch --matmul torch --decoder {name.split()[0]} {options} --json",
        )
    for name, options in TRANSLATIONS.items():
        yield (
            f"translate {name}",
            f"{translate} {'' if '--engine' in options else '--engine torch --matmul torch'} {options}",
        )
    yield "score", "score --model learnt text/test.en text/test.de --per-token --threads 1"
    yield "evaluate", "evaluate text/test.de text/test.de --metrics bleu,chrf,ter,gleu --json"
    for name in ("ctranslate2", "model", "int8"):
        yield f"export {name}", f"export --model learnt --format {name} --output OUT"
    yield "export huggingface", "export --model data-foreign --format huggingface --output OUT"
    yield "import", "import --model export-huggingface --output OUT"
    yield "clean", "clean text/train.en text/train.de --dry-run --json"
    yield "doctor", "doctor text/train.en text/train.de --json"


def record(only: str) -> None:
    """Run the cases with the nmt that this Python imports, in the working directory; print a JSON line for each."""
    import torch

    import nmt.cli.main  # noqa: F401  imported once; each case is a fork
    from nmt import registry

    torch.set_num_threads(1)
    write_text(Path.cwd())
    table = list(cases())
    for kind in KINDS:
        if missing := {*registry.names(kind)} - {name.split()[1] for name, _ in table if name.split()[0] == kind}:
            print(json.dumps([f"{kind} without a case", f"failed: {', '.join(sorted(missing))}"]), flush=True)
    for name, commands in table:
        if only in name or name.split()[0] in ("prepare", "learnt", "averaged", "shallow", "shortlist"):
            print(json.dumps([name, run_case(name, commands)]), flush=True)


def run_case(name: str, commands: str) -> str:
    """Run a case in a separate process. Returns the hash of its output and files, or the reason of its failure."""
    output = Path(name.replace(" ", "-"))
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            try:
                pipe.write(_hash_of_commands(commands, output))
            except BaseException:
                pipe.write(f"failed: {traceback.format_exc()}")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def _hash_of_commands(commands: str, output: Path) -> str:
    from nmt.cli.main import run

    digest = hashlib.sha256()
    for line in commands.split("\n"):
        printed, errors = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(errors):
            code = run([str(output) if word == "OUT" else word for word in line.split()])
        if code:
            return f"failed: exit status {code}: {errors.getvalue().strip().splitlines()[-1:]}"
        digest.update(printed.buffer.getvalue())
    for file in sorted([output] if output.is_file() else output.rglob("*")):
        if file.is_file() and file.name not in OF_THE_CLOCK and file.suffix != CHECKSUMS:
            digest.update(f"\0{file}\0".encode() + _content(file))
    return digest.hexdigest()


def _content(file: Path) -> bytes:
    """The content of a file; a JSON object without times, absolute paths, and hashes of files that contain such values.

    The order of settings has no meaning, so their hash has none either.
    """
    if file.suffix == ".toml":
        return b"\n".join(sorted(file.read_bytes().splitlines()))
    if file.suffix != ".json" or not isinstance(content := json.loads(file.read_bytes()), dict):
        return file.read_bytes()
    kept = _lasting(content)
    if isinstance(settings := kept.pop(HASHED_SETTINGS, ""), dict):
        kept[HASHED_SETTINGS] = _lasting(settings)
    return json.dumps(kept, sort_keys=True).encode()


def _lasting(content: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in content.items() if key not in CHANGING_KEYS + OF_THE_FORMAT}


def compare(old: Path, new: Path, only: str) -> int:
    """Run both checkouts at the same time, and print the differences. Returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="nmt-bits-") as place:
        processes = []
        for name, checkout in (("old", old), ("new", new)):
            folder = Path(place, name)
            (folder / "text").mkdir(parents=True)
            environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "XDG_CACHE_HOME": str(folder / "cache")}
            environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            command = [sys.executable, __file__, "--record", "--only", only]
            processes.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True))
        before, after = (dict(map(json.loads, process.communicate()[0].splitlines())) for process in processes)
    differing = [name for name in before | after if before.get(name) != after.get(name)]
    failed = [name for name in before if before[name].startswith("failed") and name not in differing]
    for name in differing:
        print(f"{name}: differs\n  old {before.get(name, 'missing')}\n  new {after.get(name, 'missing')}")
    for name in failed:
        print(f"{name}: {before[name]}")
    print(f"{len(before | after)} cases: {len(differing)} differ, {len(failed)} failed in both")
    return 1 if differing or failed or any(process.returncode for process in processes) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="folder of a checkout")
    parser.add_argument(
        "new", type=Path, nargs="?", default=ROOT, help="folder of the other checkout (default: this one)"
    )
    parser.add_argument("--only", default="", help="run only cases with this in their name")
    parser.add_argument("--record", action="store_true", help="run the cases here and print their hashes")
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.only)
        return 0
    if arguments.old is None:
        parser.error("name the folder of another checkout")
    return compare(arguments.old, arguments.new, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
