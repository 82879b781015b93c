"""What a refusal promises: its exit status, and the name of the option, file or value. Its wording may change."""

from typing import Any


def assert_refused(result: Any, status: int, *named: object) -> None:
    """Check that a command, in this process or its own, ended with a status, and named on stderr what it refused."""
    code, told = (result.code, result.err) if hasattr(result, "code") else (result.returncode, result.stderr)
    told, *names = (text.decode() if isinstance(text, bytes) else str(text) for text in (told, *named))
    assert code == status, told
    assert all(name in told for name in names), (names, told)
