"""Runs the command `nmt` for `python -m nmt`."""

from nmt.cli.main import main

if __name__ == "__main__":
    main()
