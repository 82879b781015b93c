"""Learning a vocabulary from training text: words counted here, subwords by sentencepiece in a process of its own.

While sentencepiece learns it handles no signal, it keeps its memory afterwards, and it ends the process when memory runs out.
A process of its own can be ended at once, gives its memory back, and its loss is an ordinary error.
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

from nmt.data.workers import LOOK_SECONDS
from nmt.errors import ResourceError, UserError
from nmt.signals import STOP_SIGNALS, Signals
from nmt.text.subword import SentencepieceVocabulary, SubwordSettings, learn_subwords

MAX_COUNTED_WORDS: Final = 5_000_000
DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
LEARNT, REFUSED = b"M", b"E"


def count_words(counts: Iterable[Counter[str]]) -> Counter[str]:
    """The sum of the counts. Memory is bounded: beyond MAX_COUNTED_WORDS, words with a count of 1 are dropped."""
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
        if len(total) > MAX_COUNTED_WORDS:
            total = Counter({word: count for word, count in total.items() if count > 1})
    return total


def learn_apart(texts: Iterable[list[str]], settings: SubwordSettings, signals: Signals) -> SentencepieceVocabulary:
    """`learn_subwords` in a process of its own. texts: lists of prepared lines

    Raises Interrupted when a signal asked to stop, ResourceError when the process is lost, UserError when nothing can be
    learnt, and whatever reading the texts raises.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; from nmt.data.learn import _learn_from_stdin; _learn_from_stdin()"
    process = subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # the process is lost, and has no answer
            process.stdin.write(msgspec.json.encode(asdict(settings)) + b"\n")
            for lines in texts:
                process.stdin.write("".join(line + "\n" for line in lines).encode())
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
            "the process that learns subwords was lost, killed perhaps for want of memory (a smaller --subword-sample)"
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
        signal.signal(number, signal.SIG_IGN)  # the parent handles signals, and ends this process
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
