"""The process of `commands`: it loads the device guard before torch is imported."""

import sys
from pathlib import Path

import guard


def main() -> None:
    guard.load()
    sys.path.append(str(Path(__file__).parent.parent))
    from commands import serve

    serve()


if __name__ == "__main__":
    main()
