"""Learns vocabularies from training text: counts words here, and runs sentencepiece in a separate process.

While learning, sentencepiece ignores signals. It never frees its memory, and kills its process if memory runs out. A separate
process can be killed at any time and returns its memory, and its death is an ordinary error.
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

from nmt.data.workers import CHECK_SECONDS, Heartbeat
from nmt.errors import InputError, ResourceError, UserError, quoted
from nmt.log import log
from nmt.signals import STOP_SIGNALS, signal_at_end_of_parent
from nmt.symbols import BOS, EOS, PAD, SPACE_MARK, SYMBOLS, UNK
from nmt.text.vocabulary import SentencepieceVocabulary

MAX_COUNTED_WORDS: Final = 5_000_000
KEPT_SHARE: Final = 0.9  # maximum share of MAX_COUNTED_WORDS left after the rarest words are dropped
# sentencepiece removes its control symbols from the text it learns from. Their names in the model start with a control
# character, which cleaned text never contains.
CONTROL_PIECES: Final = tuple(f"\x01{symbol}" for symbol in SYMBOLS)

# sentencepiece skips lines that are longer than MAX_LEARNT_BYTES or contain its mark for unknown characters.
MAX_LEARNT_BYTES: Final = 4192
UNKNOWN_MARK: Final = "\u2585"


@dataclass(frozen=True)
class SubwordSettings:
    """Settings for learning a sentencepiece model.

    name: bpe, unigram or char
    vocab_size: number of entries, including control symbols
    character_coverage: share of the text's characters that get an entry
    byte_fallback: whether characters without an entry are encoded as bytes
    user_symbols: words that get an entry each
    """

    name: str
    vocab_size: int
    character_coverage: float
    byte_fallback: bool
    user_symbols: tuple[str, ...] = ()


def sum_counts(counts: Generator[Counter[str]]) -> Counter[str]:
    """Add up counts. If there are more than MAX_COUNTED_WORDS words, the rarest are dropped, which bounds memory."""
    total: Counter[str] = Counter()
    with closing(counts):
        for part in counts:
            total.update(part)
            if len(total) > MAX_COUNTED_WORDS:
                total = _without_rare(total)
    return total


def _without_rare(counts: Counter[str]) -> Counter[str]:
    """Keep only the most frequent words, few enough that the next reduction is not needed soon."""
    least = 1
    while len(counts) > KEPT_SHARE * MAX_COUNTED_WORDS:
        least += 1
        counts = Counter({word: count for word, count in counts.items() if count >= least})
    return counts


def learn_in_subprocess(
    texts: Iterable[list[str]], settings: SubwordSettings, scratch: Path, place: str
) -> SentencepieceVocabulary:
    """Run `learn_subwords` in a separate process.

    texts: lists of prepared lines; scratch: folder for an unnamed temporary file; place: source of the texts, for messages
    Raises Interrupted after a stop signal, ResourceError if the process dies, InputError if there is no text, UserError if
    nothing can be learnt, and the errors of reading the texts.
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
            "the process that learns subwords died, perhaps because memory ran out (use a smaller --subword-sample)"
        )
    return SentencepieceVocabulary(answer)


def _answer(process: "subprocess.Popen[bytes]", heartbeat: Heartbeat) -> bytes:
    while True:
        try:
            return process.communicate(timeout=CHECK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            heartbeat.check()


def _learn_from_stdin() -> None:
    """Entry point of the separate process. Reads settings and texts from stdin, one per line.

    Writes the model to stdout. After an error, writes its message instead, and exits with its status.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent handles signals, and kills this process
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
    """Learn a model from normalised and tokenised texts, which are read only once.

    If the corpus is too small for vocab_size, the vocabulary is smaller. Raises UserError if no model can be learnt.
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
            num_threads=1,  # with several threads the order of sums varies, and so does the model
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _learning_error(str(error), settings) from None
    return SentencepieceVocabulary(model.getvalue())


def learnable_parts(text: str) -> Iterator[str]:
    """Split a line at spaces, or inside overlong words, into parts that sentencepiece does not skip."""
    rest = text.replace(UNKNOWN_MARK, " ").encode()
    while len(rest) > MAX_LEARNT_BYTES:
        end = rest.rfind(b" ", 1, MAX_LEARNT_BYTES + 1)
        if end < 0:
            end = MAX_LEARNT_BYTES
            while rest[end] & 0xC0 == 0x80:  # do not split a character
                end -= 1
        yield rest[:end].decode()
        rest = rest[end:]
    yield rest.decode()


def _learning_error(message: str, settings: SubwordSettings) -> UserError:
    """The error for a message from sentencepiece."""
    if sizes := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small: the characters and control symbols need {sizes[2]} entries "
            f"(use at least --vocab-size {sizes[2]}, or lower --character-coverage)"
        )
    if "(vocab_size) >= (0)" in message:  # no entries are left for characters
        return UserError(
            f"--vocab-size {settings.vocab_size} is too small for control symbols, user symbols and bytes (use a larger one)"
        )
    if "!sentences_.empty()" in message:
        return InputError("no text to learn a vocabulary from: every line is empty (use files that contain text)")
    return UserError(f"cannot learn a {settings.name} vocabulary: {quoted(message)}")
