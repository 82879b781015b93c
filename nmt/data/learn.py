"""Learning a vocabulary from training text: words counted here, subwords by sentencepiece in a process of its own.

While sentencepiece learns it handles no signal, it keeps its memory afterwards, and it ends the process when memory runs out.
A process of its own can be ended at once, gives its memory back, and its loss is an ordinary error.
"""

import io
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import sentencepiece

from nmt.data.workers import LOOK_SECONDS, Heartbeat
from nmt.errors import InputError, ResourceError, UserError, quoted
from nmt.log import log
from nmt.signals import STOP_SIGNALS, signal_at_end_of_parent
from nmt.symbols import BOS, EOS, PAD, SYMBOLS, UNK
from nmt.text.vocabulary import SPACE_MARK, SentencepieceVocabulary

MAX_COUNTED_WORDS: Final = 5_000_000
KEPT_SHARE: Final = 0.9  # of them, at most, when the rarest are dropped
# sentencepiece cuts its control pieces out of the text it learns from. Their names in the model begin with a control
# character, which no cleaned text holds.
CONTROL_PIECES: Final = tuple(f"\x01{symbol}" for symbol in SYMBOLS)

# sentencepiece skips lines of more bytes, and lines with its mark for unknown characters.
MAX_LEARNT_BYTES: Final = 4192
UNKNOWN_MARK: Final = "\u2585"


@dataclass(frozen=True)
class SubwordSettings:
    """The settings that a sentencepiece model is learnt with.

    name: bpe, unigram or char
    vocab_size: entries, the control symbols counted
    character_coverage: share of the characters of the text that get an entry
    byte_fallback: whether other characters are spelled in bytes
    user_symbols: words that are an entry each
    """

    name: str
    vocab_size: int
    character_coverage: float
    byte_fallback: bool
    user_symbols: tuple[str, ...] = ()


def sum_counts(counts: Generator[Counter[str]]) -> Counter[str]:
    """The sum of the counts. Memory is bounded: beyond MAX_COUNTED_WORDS words, the rarest are dropped."""
    total: Counter[str] = Counter()
    with closing(counts):
        for part in counts:
            total.update(part)
            if len(total) > MAX_COUNTED_WORDS:
                total = _without_rare(total)
    return total


def _without_rare(counts: Counter[str]) -> Counter[str]:
    """The most frequent of too many words, so few that it is long before all are looked at again."""
    least = 1
    while len(counts) > KEPT_SHARE * MAX_COUNTED_WORDS:
        least += 1
        counts = Counter({word: count for word, count in counts.items() if count >= least})
    return counts


def learn_apart(
    texts: Iterable[list[str]], settings: SubwordSettings, scratch: Path, place: str
) -> SentencepieceVocabulary:
    """`learn_subwords` in a process of its own.

    texts: lists of prepared lines; scratch: a folder for a file of them, which has no name; place: whose they are, in messages
    Raises Interrupted when a signal asked to stop, ResourceError when the process is lost, InputError when there is no
    text, UserError when nothing can be learnt, and whatever reading the texts raises.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; from nmt.data.learn import _learn_from_stdin; _learn_from_stdin()"
    with tempfile.TemporaryFile(dir=scratch) as sample:
        sample.write(msgspec.json.encode(settings) + b"\n")
        for lines in texts:
            sample.write("".join(line + "\n" for line in lines).encode())
        sample.seek(0)
        with (
            subprocess.Popen(
                [sys.executable, "-c", start], stdin=sample, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process,
            log.progress(f"learning {settings.name}"),
        ):
            try:
                answer = _answer(process, Heartbeat([process.pid]))
            finally:
                process.kill()
    if process.returncode == InputError.code:
        raise InputError(f"{place}: {answer.decode()}")
    if process.returncode == UserError.code:
        raise UserError(answer.decode())
    if process.returncode:
        raise ResourceError(
            "the process that learns subwords was lost, killed perhaps for want of memory (a smaller --subword-sample)"
        )
    return SentencepieceVocabulary(answer)


def _answer(process: "subprocess.Popen[bytes]", heartbeat: Heartbeat) -> bytes:
    while True:
        try:
            return process.communicate(timeout=LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            heartbeat.check()


def _learn_from_stdin() -> None:
    """The other process: settings and texts, a line each, from stdin; the model to stdout, or an error, and its exit status."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent handles signals, and ends this process
    signal_at_end_of_parent(signal.SIGKILL)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=SubwordSettings)
    texts = (line.removesuffix(b"\n").decode() for line in sys.stdin.buffer)
    code = 0
    try:
        answer = learn_subwords(texts, settings).to_bytes()
    except UserError as error:
        answer, code = str(error).encode(), error.code
    with open(1, "wb") as stdout:
        stdout.write(answer)
    raise SystemExit(code)


def learn_subwords(texts: Iterator[str], settings: SubwordSettings) -> SentencepieceVocabulary:
    """Learn a model from normalised and tokenised texts, which are read once.

    A corpus too small for vocab_size gives a smaller vocabulary. Raises UserError where no model can be learnt.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(part for text in texts for part in learnable_parts(text)),
            model_writer=model,
            model_type=settings.name,
            vocab_size=settings.vocab_size,
            hard_vocab_limit=False,
            character_coverage=settings.character_coverage,
            byte_fallback=settings.byte_fallback,
            normalization_rule_name="identity",
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            pad_piece=CONTROL_PIECES[PAD],
            bos_piece=CONTROL_PIECES[BOS],
            eos_piece=CONTROL_PIECES[EOS],
            unk_piece=CONTROL_PIECES[UNK],
            user_defined_symbols=[SPACE_MARK + symbol for symbol in settings.user_symbols],
            shuffle_input_sentence=False,
            num_threads=1,  # several threads sum in another order, and give other models
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _learning_error(str(error), settings) from None
    return SentencepieceVocabulary(model.getvalue())


def learnable_parts(text: str) -> Iterator[str]:
    """A line in parts that sentencepiece does not skip: cut at spaces, or within a word that is too long itself."""
    rest = text.replace(UNKNOWN_MARK, " ").encode()
    while len(rest) > MAX_LEARNT_BYTES:
        end = rest.rfind(b" ", 1, MAX_LEARNT_BYTES + 1)
        if end < 0:
            end = MAX_LEARNT_BYTES
            while rest[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        yield rest[:end].decode()
        rest = rest[end:]
    yield rest.decode()


def _learning_error(message: str, settings: SubwordSettings) -> UserError:
    """The error for a message of sentencepiece."""
    if sizes := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small: the text has {sizes[2]} characters and control symbols "
            f"(at least --vocab-size {sizes[2]}, or lower --character-coverage)"
        )
    if "(vocab_size) >= (0)" in message:  # characters are the entries that are left
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small for control and user symbols, and bytes (give a larger one)"
        )
    if "!sentences_.empty()" in message:
        return InputError("there is no text to learn a vocabulary from (every line is empty)")
    return UserError(f"no {settings.name} vocabulary can be learnt: {quoted(message)}")
