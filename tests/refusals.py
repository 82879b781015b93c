"""What a command that refuses promises: its exit status, and the name of the option, file or value. The wording is no promise."""

from typing import Any


def assert_refused(result: Any, status: int, *named: object) -> None:
    """Check that a command, in this process or its own, ended with a status, and named on stderr what it refused."""
    code, told = (result.code, result.err) if hasattr(result, "code") else (result.returncode, result.stderr)
    text = told.decode() if isinstance(told, bytes) else told
    assert code == status, text
    assert all(str(name) in text for name in named), (named, text)
