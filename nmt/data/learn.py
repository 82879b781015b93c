"""Learning a vocabulary from training text: words counted here, subwords by sentencepiece in a process of its own.

sentencepiece sees no signal while it learns, keeps its memory afterwards and ends the process when it runs out of it;
apart, it can be ended at once, gives its memory back, and its loss is an error like another.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Final

import msgspec

from nmt.errors import ResourceError, UserError
from nmt.signals import STOP_SIGNALS, Signals
from nmt.text.subword import SentencepieceVocabulary, SubwordSettings, learn_subwords

MOST_WORDS: Final = 5_000_000
LOOK_SECONDS: Final = 0.1
DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
LEARNT, REFUSED = b"M", b"E"


def count_words(counts: Iterable[Counter[str]]) -> Counter[str]:
    """The sum of the counts. Memory stays bounded: when there are too many words, those met once are forgotten."""
    total: Counter[str] = Counter()
    for found in counts:
        total.update(found)
        if len(total) > MOST_WORDS:
            total = Counter({word: count for word, count in total.items() if count > 1})
    return total


def learn_apart(texts: Iterable[list[str]], settings: SubwordSettings, signals: Signals) -> SentencepieceVocabulary:
    """`learn` in a process of its own. texts: some at a time.

    Raises Interrupted when a signal asked to stop, ResourceError when the process is lost, UserError when nothing can be
    learnt, and whatever reading the texts raises.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; from nmt.data.learn import _learn_from_stdin; _learn_from_stdin()"
    process = subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it is lost, which its exit code will say
            process.stdin.write(msgspec.json.encode(asdict(settings)) + b"\n")
            for some in texts:
                process.stdin.write("".join(text + "\n" for text in some).encode())
        answer = _answer(process, signals)
    finally:
        process.kill()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()
    if answer[:1] == REFUSED:
        raise UserError(answer[1:].decode())
    if answer[:1] != LEARNT:
        raise ResourceError(
            "the process that learns subwords was lost, for want of memory perhaps (a smaller --subword-sample)"
        )
    return SentencepieceVocabulary(answer[1:])


def _answer(process: "subprocess.Popen[bytes]", signals: Signals) -> bytes:
    while True:
        try:
            return process.communicate(timeout=LOOK_SECONDS)[0]  # closes its stdin first
        except subprocess.TimeoutExpired:
            signals.check()


def _learn_from_stdin() -> None:
    """The other process: settings and texts, a line each, from stdin; the model or an error message to stdout."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # it is its parent who is asked
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=SubwordSettings)
    texts = (line.removesuffix(b"\n").decode() for line in sys.stdin.buffer)
    try:
        answer = LEARNT + learn_subwords(texts, settings).to_bytes()
    except UserError as error:
        answer = REFUSED + str(error).encode()
    with os.fdopen(os.dup(1), "wb") as out:
        out.write(answer)
