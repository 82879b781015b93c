"""Measure `nmt clean` on real pairs with known noise: precision and recall by rule, and the loss of BLEU from the noise.

    python benchmarks/clean.py --corpus tatoeba/en-de/train --wrong tatoeba/en-fr/train --share 0.1 --work runs/clean
    python benchmarks/clean.py ... --train clean noisy cleaned --valid tatoeba/en-de/valid --test tatoeba/en-de/test

For each kind of noise, SHARE x PAIRS noisy pairs, made from other pairs of the same corpus, are added to PAIRS good
pairs, and all are shuffled (as in Khayrallah and Koehn, 2018). --train trains a small model on each of the three corpora
with the same settings and number of updates, and translates the test set.
"""

import argparse
import random
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nmt.text.corpus import text_lines

NMT = [sys.executable, "-m", "nmt"]
Pair = tuple[str, str]
GOOD = "good"
TRAINING = """\
preset = "transformer-tiny"
encoder_layers = 2
decoder_layers = 2
dropout = 0.1
norm_position = "pre"
schedule = "cosine"
lr = 0.003
warmup_updates = 300
clip_norm = 1.0
batch_tokens = 600
valid_every = "1000u"
save_every = "100u"
keep_last = 5
best_by = "loss"
valid_bleu = false
"""


def mojibake(text: str) -> str:
    """UTF-8 read as Latin-1."""
    return text.encode().decode("latin-1")


def truncated(text: str, chance: random.Random) -> str:
    """The first 20 to 60 % of the words."""
    words = text.split()
    return " ".join(words[: max(1, round(chance.uniform(0.2, 0.6) * len(words)))])


def noise(pairs: list[Pair], wrong: list[Pair], count: int, chance: random.Random) -> list[tuple[str, Pair]]:
    """`count` noisy pairs of each kind, made from `pairs`, which are not among the good ones.

    wrong: pairs with a target in a wrong language
    """
    others = iter(pairs)

    def take(make: Callable[[Pair], Pair], of: Callable[[Pair], bool] = lambda _: True) -> list[Pair]:
        taken: list[Pair] = []
        while len(taken) < count:
            if of(pair := next(others)):
                taken.append(make(pair))
        return taken

    mispaired = take(lambda pair: pair)
    kinds = {
        "swapped": take(lambda pair: (pair[1], pair[0])),
        "copied": take(lambda pair: (pair[0], pair[0])),
        "wrong language": chance.sample(wrong, count),
        "mojibake": take(lambda pair: (pair[0], mojibake(pair[1])), lambda pair: not pair[1].isascii()),
        "truncated": take(lambda pair: (pair[0], truncated(pair[1], chance)), lambda pair: len(pair[1].split()) > 2),
        "truncated, final mark kept": take(
            lambda pair: (pair[0], truncated(pair[1], chance) + pair[1][-1:]), lambda pair: len(pair[1].split()) > 2
        ),
        "mispaired": [(s, t) for (s, _), (_, t) in zip(mispaired, mispaired[1:] + mispaired[:1], strict=True)],
    }
    return [(kind, pair) for kind, made in kinds.items() for pair in made]


# The last two kinds are not in the training corpora: no rule can detect them without a model.
KINDS = (
    GOOD,
    "swapped",
    "copied",
    "wrong language",
    "mojibake",
    "truncated",
    "truncated, final mark kept",
    "mispaired",
)
TRAINED_ON = KINDS[1:6]


def read(prefix: str, languages: Pair) -> list[Pair]:
    """The pairs of a corpus, plain or compressed."""
    sides = []
    for language in languages:
        path = Path(f"{prefix}.{language}")
        sides.append(list(text_lines(path if path.exists() else Path(f"{path}.gz"))))
    return list(zip(*sides, strict=True))


def write(prefix: Path, pairs: list[Pair], languages: Pair) -> None:
    for side, language in enumerate(languages):
        Path(f"{prefix}.{language}").write_bytes(b"".join(f"{pair[side]}\n".encode() for pair in pairs))


def make_corpora(given: argparse.Namespace) -> None:
    """Write the corpora clean, noisy and all (including noise that no model is trained on), and the kind of each pair."""
    chance, languages = random.Random(given.seed), (given.source_lang, given.target_lang)
    # Each pair and each target is used once, so that no noisy pair repeats a good one.
    pairs = list({target: (source, target) for source, target in read(given.corpus, languages)}.values())
    wrong = list(dict.fromkeys(read(given.wrong, (given.source_lang, given.wrong_lang))))
    chance.shuffle(pairs)
    good = [(GOOD, pair) for pair in pairs[: given.pairs]]
    bad = noise(pairs[given.pairs :], wrong, round(given.share * given.pairs), chance)
    mixed = good + bad
    chance.shuffle(mixed)
    corpora = {
        "clean": [(kind, pair) for kind, pair in mixed if kind == GOOD],
        "noisy": [(kind, pair) for kind, pair in mixed if kind in (GOOD, *TRAINED_ON)],
        "all": mixed,
    }
    for name, rows in corpora.items():
        write(given.work / name, [pair for _, pair in rows], languages)
        (given.work / f"{name}.kinds").write_text("".join(f"{kind}\n" for kind, _ in rows))


def clean(name: str, given: argparse.Namespace) -> tuple[dict[int, str], float]:
    """Clean a corpus of the work folder; returns the rule of each removed pair by number, from 0, and CPU seconds."""
    prefix, rejected = given.work / name, given.work / f"{name}.rejected.tsv"
    start = cpu_seconds()
    call(
        "clean", str(prefix), "--source-lang", given.source_lang, "--target-lang", given.target_lang,
        "--output", str(given.work / ("cleaned" if name == "noisy" else f"{name}.cleaned")), "--rejected", str(rejected),
    )  # fmt: skip
    rows = [line.split("\t") for line in text_rows(rejected)]
    return {int(place.rpartition(":")[2]) - 1: rule for rule, place, *_ in rows}, cpu_seconds() - start


def cpu_seconds() -> float:
    """The CPU time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def text_rows(path: Path) -> list[str]:
    """The lines of a file, with control characters kept."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def print_tables(removed: dict[int, str], kinds: list[str]) -> None:
    """The recall of each kind of noise, and the precision of each rule."""
    counts, found = Counter(kinds), Counter((kinds[i], rule) for i, rule in removed.items())
    print("| pairs | number | removed | % | by the rules |", "|---|---|---|---|---|", sep="\n")
    for kind in dict.fromkeys([GOOD, *sorted(counts, key=list(KINDS).index)]):
        rules = {rule: count for (of, rule), count in found.most_common() if of == kind}
        listed = ", ".join(f"{rule} {count:,}" for rule, count in rules.items())
        total = sum(rules.values())
        print(f"| {kind} | {counts[kind]:,} | {total:,} | {100 * total / counts[kind]:.2f} | {listed} |")
    print("\n| rule | removed | good pairs among them | precision, % |", "|---|---|---|---|", sep="\n")
    for rule, total in Counter(removed.values()).most_common():
        good = found[GOOD, rule]
        print(f"| {rule} | {total:,} | {good:,} | {100 * (1 - good / total):.2f} |")


def train(name: str, given: argparse.Namespace) -> str:
    """Train on a corpus of the work folder, unless already done; returns sacreBLEU on the test set."""
    folder, config = given.work / f"train-{name}", given.work / "training.toml"
    config.write_text(TRAINING)
    folder.mkdir(exist_ok=True)
    languages = ["--source-lang", given.source_lang, "--target-lang", given.target_lang]
    flags = ["--valid", given.valid, "--vocab-size", "2000", "--output", str(folder / "data")]
    if not (folder / "data").exists():
        call("prepare", *languages, "--train", str(given.work / name), *flags)
    call(
        "train", "--data", str(folder / "data"), "--output", str(folder / "run"), "--config", str(config),
        "--max-updates", str(given.updates), "--threads", "1",
    )  # fmt: skip
    model, output = folder / "model", folder / "test.out"
    if not model.exists():
        call("average", "--run", str(folder / "run"), "--last", "5", "--output", str(model))
    source, target = (f"{given.test}.{language}" for language in languages[1::2])
    source, target = (path if Path(path).exists() else f"{path}.gz" for path in (source, target))
    call("translate", "--model", str(model), "--input", source, "--output", str(output), "--threads", "1")
    return call("evaluate", "--hypothesis", str(output), "--reference", target, "--metrics", "bleu", "chrf")


def call(*words: str) -> str:
    return subprocess.run([*NMT, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="prefix of the good pairs")
    parser.add_argument("--wrong", required=True, help="prefix of pairs with a target in a wrong language")
    parser.add_argument("--source-lang", default="en")
    parser.add_argument("--target-lang", default="de")
    parser.add_argument("--wrong-lang", default="fr")
    parser.add_argument("--pairs", type=int, default=40_000, help="number of good pairs")
    parser.add_argument(
        "--share", type=float, default=0.1, help="noisy pairs of each kind, as a share of the good ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, required=True, help="folder for all output")
    parser.add_argument("--train", nargs="+", default=(), choices=("clean", "noisy", "cleaned"))
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--valid", help="prefix of the validation set")
    parser.add_argument("--test", help="prefix of the test set")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    make_corpora(given)
    for name in ("all", "noisy"):
        removed, seconds = clean(name, given)
        kinds = text_rows(given.work / f"{name}.kinds")
        print(f"{name}: {len(kinds):,} pairs, {len(kinds) / seconds:,.0f} per CPU second", flush=True)
        if name == "all":
            print_tables(removed, kinds)
    for name in given.train:
        print(name, train(name, given), sep="\n", flush=True)
