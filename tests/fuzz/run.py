"""`make fuzz`: every parser of nmt reads content made by libFuzzer, which looks for new paths through the code; prints a table.

python tests/fuzz/run.py [--seconds 600] [--parsers PREFIX...] [--output runs/fuzz]

What a parser must not do ends its turn, and stands in the table with the file that leads to it. New paths found earlier, in
the folder of output, are where the next call begins. Needs the package atheris.
"""

import argparse
import os
import re
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).resolve().parents[1]
TURN: Final = TESTS / "fuzz/turn.py"
MAX_SECONDS: Final = 10  # for one input
MAX_MEMORY_MB: Final = 3000  # torch and the examples take a fifth
MAX_BYTES: Final = 1 << 16
WORDS: Final = (  # put into inputs by libFuzzer
    *("null", "true", "NaN", "Infinity", "-1", "0", "1e999", "18446744073709551616", "4611686018427387904", "1" * 60),
    *('""', "{}", "[]", "[[[[[[[[", '{"":', '\\"', "..", "/", "../x", "=", "[[", '"""', "|||", "<seg", "</seg>", "&#"),
    *(r"\x00", r"\xff", r"\xed\xa0\x80", r"\xef\xbb\xbf", r"\xe2\x80\xa8", r"\x0d\x0a", r"\x1f\x8b", r"PK\x03\x04"),
)
DONE: Final = re.compile(r"^#(\d+)\s+\w+.*?cov: (\d+)", re.MULTILINE)


class Row(NamedTuple):
    """A parser's turn. inputs: that were tried; paths: of the code that they took; bug: the file that leads to it, or empty"""

    parser: str
    inputs: int
    paths: int
    bug: str
    error: str


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=int, default=600, help="in all")
    arguments.add_argument("--parsers", nargs="*", default=[""], help="beginnings of their names")
    arguments.add_argument("--output", type=Path, default=Path("runs/fuzz"))
    given = arguments.parse_args()
    sys.path.insert(0, str(TESTS))
    from fuzz.parsers import PARSERS, PLACE, place

    os.environ[PLACE] = str(place())

    names = [name for name in PARSERS if name.startswith(tuple(given.parsers))]
    given.output.mkdir(parents=True, exist_ok=True)
    words = given.output / "words.dict"
    words.write_text("".join('"{}"\n'.format(word.replace('"', r"\"")) for word in WORDS))
    rows = []
    print(f"{'parser':30}{'inputs':>12}{'paths':>8}  bug")
    for name in names:
        folder = given.output / re.sub(r"\W+", "-", name)
        folder.mkdir(exist_ok=True)
        for number, example in enumerate(PARSERS[name].examples()):
            (folder / f"example-{number}").write_bytes(example)
        rows.append(turn(name, folder, words, max(1, given.seconds // len(names))))
        print("{:30}{:>12,}{:>8,}  {} {}".format(*rows[-1]), flush=True)
    sys.exit(any(row.bug for row in rows))


def turn(name: str, folder: Path, words: Path, seconds: int) -> Row:
    """Fuzz a parser in a process of its own. folder: inputs to begin with, to which new ones are added"""
    flags = {"max_total_time": seconds, "timeout": MAX_SECONDS, "rss_limit_mb": MAX_MEMORY_MB, "max_len": MAX_BYTES}
    options = [f"-{key}={value}" for key, value in flags.items()]
    command = [sys.executable, str(TURN), name, f"-dict={words}", f"-artifact_prefix={folder}-", *options]
    ended = run([*command, str(folder)], stdout=PIPE, stderr=STDOUT, text=True, errors="replace")
    done = DONE.findall(ended.stdout) or [(0, 0)]
    if not ended.returncode:
        return Row(name, *map(int, done[-1]), "", "")
    (folder.parent / f"{folder.name}.log").write_text(ended.stdout)
    unit = re.search(r"Test unit written to (\S+)", ended.stdout)
    error = re.search(r"(?<=Uncaught Python exception: ===\n).{1,100}|ERROR: libFuzzer: .*", ended.stdout)
    return Row(name, *map(int, done[-1]), unit[1] if unit else f"{folder}.log", error[0] if error else "")


if __name__ == "__main__":
    main()
