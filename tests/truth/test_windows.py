"""Lines read in windows: the same lines however their bytes come, the first soon, and never more memory for more of them."""

import bz2
import errno
import gzip
import io
import lzma
import os
import random
import signal
import sys
from itertools import pairwise, repeat
from pathlib import Path

import pytest

from nmt import signals
from nmt.errors import InputError, Interrupted, ResourceError
from nmt.files import new_file
from nmt.log import Bar
from nmt.scorings.base import pairs
from nmt.text.corpus import MAX_RAW_LINE_BYTES
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.results import Translation
from nmt.translate.stream import translate_stream
from nmt.translate.windows import (
    FIRST_WINDOW_LINES,
    MAX_WINDOW_BYTES,
    WINDOW_GROWTH,
    LineEstimate,
    Pipe,
    growing,
    open_source,
    windows,
)


class Pieces:
    """Chunks of bytes that come one by one; None is a pause."""

    def __init__(self, *chunks):
        self.chunks = list(chunks)

    def waiting(self, seconds):
        if self.chunks and self.chunks[0] is None:
            self.chunks.pop(0)
            return False
        return True

    def read(self):
        return self.chunks.pop(0) if self.chunks else b""


def test_lines_do_not_depend_on_how_their_bytes_arrive():
    content = b"one\n\ntwo\r\n\xe4\xb8\xad\xe6\x96\x87\n\nthe end"
    chance = random.Random(1)
    for _ in range(200):
        cuts = sorted(chance.sample(range(1, len(content)), chance.randint(0, 6)))
        chunks = [content[i:j] for i, j in zip([0, *cuts], [*cuts, len(content)], strict=True)]
        for pause in reversed(range(len(chunks))):
            if chance.random() < 0.3:
                chunks.insert(pause, None)
        size = chance.randint(1, 5)
        found = list(windows(Pieces(*chunks), repeat(size), 100))
        assert [line for window in found for line in window] == list(io.BytesIO(content))
        assert all(1 <= len(window) <= size for window in found)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("ab€€".encode(), b"ab"),  # not in the middle of a character
        ("a€ab".encode(), "a€".encode()),
        (b"ban" + b"\x80" * 9, b"ban\x80"),  # no character is as long: what stands there is for the reader to see
        (b"\x80" * 9, b"\x80" * 4),
    ],
)
def test_a_line_that_is_too_long_is_truncated_between_characters(line, kept):
    assert list(windows(Pieces(line + b"\nb\n"), repeat(9), 4)) == [[kept + b"\n", b"b\n"]]


def test_a_window_ends_when_no_line_is_waiting_and_not_earlier():
    found = windows(Pieces(b"a\nb\n", b"c\nd", None, b"d\n", None, b"e\n"), repeat(100), 100)
    assert list(found) == [[b"a\n", b"b\n", b"c\n"], [b"dd\n"], [b"e\n"]]


def test_a_read_error_is_not_reported_as_a_write_error(tmp_path):
    class Broken(Pieces):
        def read(self):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(ResourceError, match="cannot be read: Input/output"), new_file(tmp_path / "out"):
        list(windows(Broken(), repeat(1), 100))
    assert not list(tmp_path.iterdir())


def test_a_truncated_line_keeps_the_maximum_bytes_without_a_partial_character():
    content = "ééé\nxéé\néé\n".encode()
    assert list(windows(Pieces(content), repeat(9), 4)) == [["éé\n".encode(), "xé\n".encode(), "éé\n".encode()]]
    assert list(windows(Pieces(*[b"x" * 10] * 1000, b"\ny\n"), repeat(9), 50)) == [[b"x" * 50 + b"\n", b"y\n"]]


def test_a_signal_is_seen_while_waiting():
    def stop():
        raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        list(windows(Pieces(b"a\n", None, None), repeat(9), 9, stop))


def test_the_first_windows_are_small_and_a_large_text_has_hardly_more_windows():
    lines, most = 100_000, 2000
    sizes = [len(window) for window in windows(Pieces(*[b"a\n" * 500] * (lines // 500)), growing(most), 9)]
    assert sum(sizes) == lines
    assert sizes[0] == FIRST_WINDOW_LINES
    assert all(later <= WINDOW_GROWTH * size for size, later in pairwise(sizes))
    assert max(sizes) == most and len(sizes) <= lines / most + 4
    assert next(growing(5)) == 5


def test_an_endless_line_can_be_interrupted_without_checking_every_chunk():
    def interrupt():
        raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        list(windows(Pieces(*repeat(b"x", 10)), repeat(2000), 5, interrupt))
    lines = [b"x\n"] * 10
    assert [line for window in windows(Pieces(*lines), repeat(3), 5, interrupt) for line in window] == lines


def test_a_window_of_long_lines_is_full_before_it_fills_the_memory():
    lines = [b"x" * (i * 100_000 % 999_999) + b"\n" for i in range(40)]
    found = list(windows(Pieces(*lines), repeat(2000), MAX_RAW_LINE_BYTES))
    assert [line for window in found for line in window] == lines
    assert max(sum(map(len, window)) for window in found) < MAX_WINDOW_BYTES + 1_000_000


class Counting:
    """Translates nothing, and notes how many lines it was asked for and how many were printed before."""

    max_characters, context = 100, 0

    def __init__(self, reading):
        self.reading, self.asked, self.printed = reading, [], [0]

    def translate(self, requests, bar):
        if len(self.printed) == 3:
            os.close(self.reading)
        elif self.asked:
            self.printed.append(os.read(self.reading, 1 << 16).count(b"\n"))
        self.asked.append(len(requests))
        signals.check()
        return [Translation()] * len(requests)

    def idle(self):
        pass


def test_lines_are_printed_before_the_next_search_and_not_after_the_reader_left():
    reading, writing = os.pipe()
    counting, source = Counting(reading), Pieces(*[b"a\n" * 1000] * 50)
    with os.fdopen(writing, "wb") as output, pytest.raises(BrokenPipeError):
        translate_stream(counting, source, output, "text", lambda *_: "b\n", 2000, LineWarnings("book"), False, Bar(""))
    assert counting.printed == [0, FIRST_WINDOW_LINES, WINDOW_GROWTH * FIRST_WINDOW_LINES]
    assert counting.asked == [
        FIRST_WINDOW_LINES,
        WINDOW_GROWTH * FIRST_WINDOW_LINES,
        WINDOW_GROWTH**2 * FIRST_WINDOW_LINES,
        WINDOW_GROWTH**3 * FIRST_WINDOW_LINES,
    ]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda text: b"\x28\xb5\x2f\xfd" + text])
def test_compressed_text_in_a_pipe_is_refused(pack):
    read, write = os.pipe()
    os.write(write, pack(b"line\n"))
    with pytest.raises(InputError, match=r"must not be compressed, but this is (gzip|bzip2|xz|zstd)"):
        Pipe(read).read()
    os.close(read)
    os.close(write)


def test_lines_of_files_are_estimated_by_the_bytes_on_disk_that_were_read(tmp_path):
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    names = [str(tmp_path / "plain"), str(tmp_path / "packed")]
    for order in (names, names[::-1]):
        estimate, totals = LineEstimate(*order), []
        assert estimate.total() is None
        for name in order:
            with open_source(name, estimate) as source:
                while source.read():
                    totals.append(estimate.total())
        assert totals[-1] == 100_000
    one, counted = LineEstimate(names[1]), []
    with open_source(names[1], one) as source:
        while source.read():
            counted.append(one.total())
    assert len(counted) > 5 and counted[2:] == pytest.approx([50_000] * (len(counted) - 2), rel=0.3)
    with open_source(names[0], unknown := LineEstimate(names[0], "-")) as source:
        source.read()
    assert unknown.total() is None


def test_nobody_waits_for_the_first_lines_of_a_file(tmp_path):
    counting, source = Counting(os.open(os.devnull, os.O_RDONLY)), Pieces(*[b"a\n" * 1000] * 4)
    with (tmp_path / "output").open("wb") as output:
        translate_stream(counting, source, output, "text", lambda *_: "b\n", 2000, LineWarnings("book"), False, Bar(""))
    assert counting.asked == [2000, 2000]
    assert (tmp_path / "output").read_bytes() == b"b\n" * 4000


@pytest.mark.parametrize("side", ["source", "target"])
def test_pairs_are_the_same_from_files_and_stdin_and_are_streamed(tmp_path, monkeypatch, side):
    for name, text in (("source", "\ufeffa\nb\r\n\nd"), ("target", "A\n\nC\nD\n")):
        (tmp_path / name).write_text(text, newline="")
    files = [str(tmp_path / "source"), str(tmp_path / "target")]
    wanted = [(["a", "b"], ["A", ""]), (["", "d"], ["C", "D"])]
    assert list(pairs(*files, 2, LineEstimate())) == wanted
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as fed:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = pairs(*("-" if Path(file).name == side else file for file in files), 2, LineEstimate())
        lines = (tmp_path / side).read_bytes().splitlines()
        for few, pair in zip((lines[:2], lines[2:]), wanted, strict=True):
            fed.write(b"".join(line + b"\n" for line in few))
            assert next(found) == pair
        fed.close()
        assert list(found) == []


@pytest.mark.parametrize(
    ("live", "messages"),
    [
        (b"a\nb\nc\nd\n", "stdin has more lines than .*file, which has 3;"),
        (b"a\n", "file has more lines than stdin, which has 1;"),
        (b"a\nb\xff\nc\n", "stdin:2:2: not UTF-8"),
    ],
)
def test_texts_that_do_not_form_pairs_are_refused(tmp_path, monkeypatch, live, messages):
    (tmp_path / "file").write_text("A\nB\nC\n")
    (tmp_path / "other").write_bytes(live)
    with pytest.raises(InputError, match=messages.replace("stdin", ".*other")):
        list(pairs(str(tmp_path / "other"), str(tmp_path / "file"), 2, LineEstimate()))
    with (tmp_path / "other").open() as stdin, pytest.raises(InputError, match=messages):
        monkeypatch.setattr(sys, "stdin", stdin)
        list(pairs("-", str(tmp_path / "file"), 2, LineEstimate()))
