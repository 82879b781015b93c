"""The process of `commands`: it loads the device guard before torch is imported."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import guard


def main() -> None:
    guard.load()
    from commands import serve

    serve()


if __name__ == "__main__":
    main()
