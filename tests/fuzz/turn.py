"""Run one parser of nmt under libFuzzer until the time is over or an input triggers a bug.

python tests/fuzz/turn.py PARSER FLAGS... FOLDER    flags of libFuzzer; the folder has initial inputs
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
with atheris.instrument_imports(include=["nmt"]):
    from fuzz.parsers import PARSERS


def main() -> None:
    check = PARSERS[sys.argv[1]].check
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda content: check(content) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
