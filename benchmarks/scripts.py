"""Train toy models in about 25 scripts with default text settings, and count the lines restored character by character.

    python benchmarks/scripts.py --work runs/scripts [--only ko th] [--updates 400]

Each language has 384 sentences of a few words and marks that Unicode forms, vocabularies or metrics often change. A model
memorises them all, so that each difference comes from the text pipeline. Both engines and `nmt serve` translate them.
"""

import argparse
import itertools
import json
import subprocess
import tomllib
import unicodedata
import urllib.request
from pathlib import Path

import sacrebleu
from models import NMT
from serve import server

ENGLISH = (
    ["you", "we", "they", "I"],
    ["see", "like", "want", "know"],
    ["the water", "the house", "the book", "the tree", "the dog", "the river"],
)
ENDS = ".", "!", "( 10⁶ m² )", "and 2½ …"
LANGUAGES = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))
TRAINING = (
    "--threads 1 --encoder-layers 1 --decoder-layers 1 --d-model 64 --d-ff 128 --heads 2 --schedule constant --lr 3e-3 "
    "--warmup-updates 30 --batch-tokens 600 --max-tokens 1200 --dropout 0 --label-smoothing 0 --quiet"
)


def write_text(folder: Path, language: str) -> tuple[list[str], list[str]]:
    """Write and return the sentences of both sides."""
    known = LANGUAGES[language]
    own = [known[key].split("|") for key in ("subjects", "verbs", "objects", "ends")]
    sources = [" ".join(words) for words in itertools.product(*ENGLISH, ENDS)]
    targets = [known["space"].join(words[:3]) + words[3] for words in itertools.product(*own)]
    if "decomposed" in known["script"]:
        targets = [unicodedata.normalize("NFD", text) for text in targets]
    for side, lines in (("en", sources), (language, targets)):
        (folder / f"text.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return sources, targets


def nmt(*arguments: str) -> None:
    subprocess.run([*NMT, *arguments], check=True, stderr=subprocess.PIPE)


def served(model: Path, sources: list[str]) -> list[str]:
    with server(model, 1) as (_, port):
        body = json.dumps({"text": sources}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/translate", body)
        with urllib.request.urlopen(request) as answer:
            return [row["translation"] for row in json.load(answer)["translations"]]


def row(work: Path, language: str, updates: int) -> list[object]:
    """The figures for a language."""
    folder = work / language
    folder.mkdir(parents=True, exist_ok=True)
    sources, targets = write_text(folder, language)
    text, data, run = (str(folder / name) for name in ("text", "data", "run"))
    nmt("prepare", "--source-lang=en", f"--target-lang={language}", f"--train={text}", f"--valid={text}", "--vocab-size=300",
        f"--output={data}", "--overwrite", "--quiet")  # fmt: skip
    nmt("train", f"--data={data}", f"--output={run}", f"--max-updates={updates}", "--no-valid-bleu", *TRAINING.split())
    found = []
    for engine in ("torch", "ctranslate2"):
        output = folder / engine
        given = f"--input={text}.en", f"--output={output}", f"--engine={engine}"
        nmt("translate", f"--model={run}", *given, "--threads=1", "--quiet")
        found.append(output.read_text(encoding="utf-8").split("\n")[:-1])
    found.append(served(Path(run), sources))
    equal = [sum(a == b for a, b in zip(lines, targets, strict=True)) for lines in found]
    bleu = sacrebleu.corpus_bleu(found[0], [targets], tokenize="char").score
    return [language, LANGUAGES[language]["script"], len(targets), *equal, f"{bleu:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/scripts"))
    parser.add_argument("--only", nargs="+", choices=LANGUAGES, default=list(LANGUAGES), metavar="LANGUAGE")
    parser.add_argument("--updates", type=int, default=400)
    given = parser.parse_args()
    columns = "language", "script", "lines", "equal, torch", "CTranslate2", "nmt serve", "BLEU of characters"
    print(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|", flush=True)
    for language in given.only:
        print(f"| {' | '.join(map(str, row(given.work, language, given.updates)))} |", flush=True)


if __name__ == "__main__":
    main()
