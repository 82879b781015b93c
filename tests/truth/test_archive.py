"""A text in an archive, compressed or in sgm is read back exactly; damaged and hostile files are refused."""

import bz2
import gzip
import io
import lzma
import os
import random
import re
import stat
import sys
import tarfile
import zipfile
from html import escape
from pathlib import Path

import pytest
from refusals import assert_refused

from nmt.errors import ArtefactError, InputError, UserError
from nmt.extensions.archives import members
from nmt.extensions.archives.whole import check_whole
from nmt.scorings.base import pairs
from nmt.storages import streams
from nmt.storages.base import open_text, text_exists
from nmt.text.corpus import count_lines, raw_lines, read_lines
from nmt.translate.windows import LineEstimate

CHANCE = random.Random(1)
TEXT = b"".join(b"%d %x\n" % (i, CHANCE.getrandbits(64)) for i in range(20_000))  # more than is read at once
SGM = b"<refset>\n<doc>\n<hl>\n<seg id='1'>One</seg>\n</hl>\n<p>\n<seg id='2'>Two</seg>\n</p></doc>\n</refset>\n"


def tar(
    files: dict[str, bytes], mode: str = "w", format: int = tarfile.GNU_FORMAT, **special: tarfile.TarInfo
) -> bytes:
    """A tar of regular files, with special members before them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=format) as made:
        for info in special.values():
            made.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return stream.getvalue()


def content(path: Path) -> bytes:
    return b"".join(raw_lines(path))


FILES = {"training/other.de": TEXT[::-1], "training/corpus.de": TEXT, "training/last": b"end\n"}
ARCHIVES = {
    "plain.tar": tar(FILES),
    "gzip.tgz": tar(FILES, "w:gz"),
    "bzip2.tar.bz2": tar(FILES, "w:bz2"),
    "xz.tar.xz": tar(FILES, "w:xz"),
    "pax.tar": tar(FILES, format=tarfile.PAX_FORMAT),
    "dotted.tgz": tar({f"./{name}": text for name, text in FILES.items()}, "w:gz"),
    "a.zip": zipped(FILES),
    "any name at all": tar(FILES, "w:gz"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_member_of_an_archive_reads_as_the_text_that_was_stored(tmp_path, name):
    (tmp_path / name).write_bytes(ARCHIVES[name])
    for file, text in FILES.items():
        assert text_exists(tmp_path / name / file)
        assert content(tmp_path / name / file) == text
    assert sorted(os.listdir(tmp_path)) == [name]
    check_whole(tmp_path / name)


def zstd(text):
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return pytest.importorskip(name).compress(text)


def test_damaged_zstd_is_an_error(tmp_path):
    for name, packed in {
        "cut": zstd(TEXT)[:-9],
        "more": zstd(TEXT) + b"more",
        "wide": zstd(TEXT)[:4] + b"\xff" * 50,
    }.items():
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(InputError, match="damaged zstd"):
            content(tmp_path / name)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_compressed_text_is_decompressed_alone_in_a_tar_and_in_a_tar_in_a_tar(tmp_path, pack):
    twice = pack(TEXT[:1000]) + pack(TEXT[1000:])  # two streams, as pigz and cat make them
    (tmp_path / "alone").write_bytes(twice)
    (tmp_path / "outer.tar").write_bytes(tar({"a/t.gz": twice, "a/in.tar": tar({"b/t.gz": twice})}))
    (tmp_path / "outer.tgz").write_bytes(tar({"in.tgz": tar({"t.gz": twice}, "w:gz")}, "w:gz"))
    for name in ("alone", "outer.tar/a/t.gz", "outer.tar/a/in.tar/b/t.gz", "outer.tgz/in.tgz/t.gz"):
        assert content(tmp_path / name) == TEXT
    for cut in ("alone", "outer.tar"):
        check_whole(tmp_path / cut)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("length", [99, 101, 180, 255, 3000])
def test_members_with_long_names_and_names_of_any_script_are_found(tmp_path, format, length):
    if length > 255 and format == tarfile.USTAR_FORMAT:
        return  # which has no space for them
    name = "/".join(["größe雪"[: length % 6 + 1] * 8] * 99).encode()[:length].decode(errors="ignore").rstrip("/")
    name = name if format != tarfile.USTAR_FORMAT else "/".join("x" * 9 for _ in range(length // 10))
    (tmp_path / "a.tar").write_bytes(tar({"first": b"1\n", name: TEXT, "last": b"2\n"}, format=format))
    with tarfile.open(tmp_path / "a.tar") as theirs:
        assert name in theirs.getnames()
    assert [content(tmp_path / "a.tar" / file) for file in ("first", name, "last")] == [b"1\n", TEXT, b"2\n"]


@pytest.mark.parametrize(
    "names",
    [
        ["[Content_Types].xml", "word/document.xml"],  # docx
        ["xl/workbook.xml", "[Content_Types].xml"],  # xlsx of openpyxl
        ["mimetype", "content.xml"],  # odt
    ],
)
def test_an_office_document_is_recognised_as_one(tmp_path, names):
    (tmp_path / "text.office").write_bytes(zipped(dict.fromkeys(names, b"<xml/>")))
    with pytest.raises(UserError, match=r"is an office document .*plain text"):
        read_lines(tmp_path / "text.office")
    assert read_lines(tmp_path / "text.office" / names[1]) == ["<xml/>"]


def test_two_members_can_be_read_at_the_same_time(tmp_path):
    (tmp_path / "a.tgz").write_bytes(tar({"t.en": TEXT, "t.de": TEXT.upper()}, "w:gz"))
    found = pairs(str(tmp_path / "a.tgz/t.en"), str(tmp_path / "a.tgz/t.de"), 10_000, LineEstimate())
    assert [target for _, targets in found for target in targets] == TEXT.upper().decode().splitlines()


def test_a_missing_member_is_an_error_with_the_nearest_name(tmp_path):
    (tmp_path / "a.tgz").write_bytes(tar(FILES, "w:gz"))
    (tmp_path / "text").write_bytes(b"no archive\n")
    for name, message in (
        ("a.tgz/training/corpus.dee", "no member 'training/corpus.dee' .*did you mean 'training/corpus.de'"),
        ("a.tgz/corpus.de/x", "no member 'corpus.de/x'"),
        ("a.tgz/9", "its members: training/other.de, training/corpus.de"),
        ("text/x", "no such file"),
        ("a.tgz/training/last/x", "last: this file is not an archive"),
        ("nothing/x", "no such file"),
    ):
        assert not text_exists(tmp_path / name)
        with pytest.raises(UserError, match=message) as caught:
            count_lines(tmp_path / name)
        assert caught.value.code == 2


@pytest.mark.parametrize("name", ["gzip.tgz", "plain.tar", "a.zip"])
def test_an_archive_without_a_member_name_is_not_a_text(tmp_path, name):
    (tmp_path / name).write_bytes(ARCHIVES[name])
    with pytest.raises(UserError, match=rf"is an archive \(name a file inside it, as in .*{name}/training/other.de"):
        count_lines(tmp_path / name)


# Damaged files


@pytest.mark.parametrize("name", ["plain.tar", "gzip.tgz", "bzip2.tar.bz2", "xz.tar.xz", "pax.tar", "a.zip"])
def test_a_truncated_archive_is_an_input_error_that_names_it(tmp_path, name):
    whole = ARCHIVES[name]
    for size in [len(whole) * tenth // 10 for tenth in range(1, 10)] + [len(whole) // 512 * 256, 512, 700]:
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(InputError, match=f"{name}.*: damaged"):
            check_whole(tmp_path / name)
        with pytest.raises(UserError, match=name):
            count_lines(tmp_path / name / "training/last")


@pytest.mark.parametrize("name", ["gzip.tgz", "bzip2.tar.bz2", "xz.tar.xz", "a.zip"])
def test_a_flipped_byte_is_noticed(tmp_path, name):
    whole = bytearray(ARCHIVES[name])
    whole[len(whole) // 2] ^= 64
    (tmp_path / name).write_bytes(whole)
    with pytest.raises(InputError, match=f"{name}.*: damaged"):
        check_whole(tmp_path / name)


def test_a_wrong_check_sum_at_the_very_end_is_noticed_however_long_the_archive_is(tmp_path):
    # The zeros that end a tar lie on both sides of the end of a read.
    for length in range(streams.READ_BYTES - 12_000, streams.READ_BYTES + 3_000, 500):
        text = random.Random(length).randbytes(length).hex().encode()[:length]
        whole = bytearray(gzip.compress(tar({"t": text}), compresslevel=1))
        whole[-8] ^= 1
        (tmp_path / "a.tgz").write_bytes(whole)
        with pytest.raises(InputError, match="damaged"):
            check_whole(tmp_path / "a.tgz")


def test_counting_the_lines_of_a_member_reads_the_check_sum_of_its_archive(tmp_path):
    """Reading stops at the end of the member otherwise, and wrong bytes in it would be text."""
    whole = bytearray(gzip.compress(tar({"first": b"a text\n" * 500, "last": random.Random(1).randbytes(200_000)})))
    (tmp_path / "a.tgz").write_bytes(whole)
    assert count_lines(tmp_path / "a.tgz/first") == 500
    whole[-8] ^= 1
    (tmp_path / "a.tgz").write_bytes(whole)
    assert text_exists(tmp_path / "a.tgz/first") and len(read_lines(tmp_path / "a.tgz/first")) == 500
    with pytest.raises(InputError, match="damaged gzip"):
        count_lines(tmp_path / "a.tgz/first")


def test_an_archive_may_contain_office_files_and_empty_streams(tmp_path):
    office = zipped({"word/document.xml": b"<xml/>"})
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar({"letter.docx": office, "t": b"text\n"})))
    check_whole(tmp_path / "a.tgz")
    assert content(tmp_path / "a.tgz/t") == b"text\n"
    (tmp_path / "x.bz2").write_bytes(bz2.compress(b""))
    assert content(tmp_path / "x.bz2") == b""
    (tmp_path / "x.bz2").write_bytes(bz2.compress(b"a\n") + bz2.compress(b"") + bz2.compress(b"b\n"))
    assert content(tmp_path / "x.bz2") == b"a\nb\n"


def test_a_damaged_text_in_a_sound_tar_is_noticed(tmp_path):
    broken = bytearray(gzip.compress(TEXT))
    broken[-6] ^= 1
    (tmp_path / "a.tar").write_bytes(tar({"t.gz": bytes(broken)}))
    for read in (lambda: check_whole(tmp_path / "a.tar"), lambda: content(tmp_path / "a.tar/t.gz")):
        with pytest.raises(InputError, match=r"a.tar/t.gz: damaged gzip"):
            read()


def test_random_headers_cause_errors_without_a_traceback(tmp_path):
    chance = random.Random(2)
    whole = tar({"x" * 150: b"one\n", "two": b"2\n"}, format=tarfile.PAX_FORMAT)
    for i in range(150):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            broken[chance.randrange(512 * 5)] = chance.randrange(256)
        if i % 2:  # with a check sum that is right, so that what it guards is looked at
            for start in range(0, 2560, 512):
                broken[start + 148 : start + 156] = b"%06o\0 " % tarfile.calc_chksums(broken[start : start + 512])[0]
        (tmp_path / "a.tar").write_bytes(broken)
        for read in (lambda: check_whole(tmp_path / "a.tar"), lambda: count_lines(tmp_path / "a.tar/two")):
            try:
                read()
            except UserError as error:
                assert "a.tar" in str(error)


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("a.tgz", tar(FILES, "w:gz")), ("a.tar", tar(FILES)), ("a.gz", gzip.compress(TEXT)), ("a.zip", zipped(FILES)),
        ("a.tar.xz", tar(FILES, "w:xz")), ("a.txt", TEXT),
    ],
)  # fmt: skip
def test_an_html_page_with_an_archives_name_is_reported_as_damaged(tmp_path, name, sound):
    (tmp_path / "temporary").write_bytes(sound)
    check_whole(tmp_path / "temporary", name)
    (tmp_path / "temporary").write_bytes(b"<html>Please sign in</html>\n" * 100)
    with pytest.raises(InputError, match=r"HTML page" if name == "a.txt" else r"although its name is"):
        check_whole(tmp_path / "temporary", name)


# Hostile archives


@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        (member("t", tarfile.SYMTYPE, "/etc/passwd"), "t"),
        (member("t", tarfile.LNKTYPE, "u"), "t"),
        (member("t", tarfile.SYMTYPE, "/etc"), "t/passwd"),
        (member("t", tarfile.CHRTYPE), "t"),
        (member("t", tarfile.FIFOTYPE), "t"),
        (member("/etc/t", tarfile.REGTYPE), "etc/t"),
        (member("a/../t", tarfile.REGTYPE), "t"),
        (member("../t", tarfile.REGTYPE), "../t"),
    ],
)
def test_only_regular_files_inside_the_archive_are_read(tmp_path, info, wanted):
    (tmp_path / "a.tar").write_bytes(tar({"u": b"u\n"}, hostile=info))
    (tmp_path / "t").write_bytes(b"outside\n")
    with pytest.raises(ArtefactError, match=r"a.tar") as caught:
        count_lines(tmp_path / "a.tar" / wanted)
    assert caught.value.code == 4
    assert content(tmp_path / "a.tar/u") == b"u\n"
    with pytest.raises(ArtefactError, match=r"a.tar.*only regular files"):
        check_whole(tmp_path / "a.tar")


def test_naming_a_folder_in_an_archive_is_a_usage_error_and_not_an_attack(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar({"u": b"u\n"}, hostile=member("t", tarfile.DIRTYPE)))
    with pytest.raises(UserError, match=r"a.tar/t is a folder") as caught:
        count_lines(tmp_path / "a.tar/t")
    assert caught.value.code == 2
    check_whole(tmp_path / "a.tar")


def test_links_and_names_that_leave_the_archive_are_refused_in_a_zip_too(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(link, "/etc/passwd")
        made.writestr("b/../t", "x")
    for wanted in ("link", "t"):
        with pytest.raises(ArtefactError, match=r"only regular files"):
            count_lines(tmp_path / "a.zip" / wanted)


def test_a_decompression_bomb_is_refused_and_repetitive_text_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 20)
    zeros = gzip.compress(bytes(8 << 20), mtime=0)  # with another time it may pass for the header of a tar
    (tmp_path / "bomb.gz").write_bytes(zeros)
    (tmp_path / "bomb.tgz").write_bytes(tar({"zeros": bytes(8 << 20), "t": b"x\n"}, "w:gz"))
    (tmp_path / "bomb.zip").write_bytes(zipped({"t": bytes(8 << 20)}))
    (tmp_path / "bomb.tar").write_bytes(tar({"t": gzip.compress(zeros)}))
    for name in ("bomb.gz", "bomb.tgz/t", "bomb.zip/t", "bomb.tar/t"):
        if name == "bomb.tar/t":
            assert content(tmp_path / name) == zeros  # unpacked once, as a text is
            continue
        with pytest.raises(ArtefactError, match=r"bomb.*expands to more than 250 times"):
            content(tmp_path / name)
    (tmp_path / "dull.gz").write_bytes(gzip.compress(TEXT[:30_000] * 100))
    assert content(tmp_path / "dull.gz") == TEXT[:30_000] * 100


@pytest.mark.parametrize("size", [1 << 62, 1 << 63, 1 << 70])
def test_a_member_that_claims_an_impossible_size_ends_too_early(tmp_path, size):
    info = tarfile.TarInfo("first")
    info.size = size
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + tar({"t": b"text\n"}))
    with pytest.raises(InputError, match="damaged archive: the file ends too early"):
        count_lines(tmp_path / "a.tar/t")


def test_too_many_members_and_too_long_headers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MAX_MEMBERS", 100)
    (tmp_path / "many.tar").write_bytes(tar({str(i): b"" for i in range(101)}))
    (tmp_path / "many.zip").write_bytes(zipped({str(i): b"" for i in range(101)}))
    for name in ("many.tar", "many.zip"):
        with pytest.raises(ArtefactError, match="more than 100 members"):
            count_lines(tmp_path / name / "none")
    (tmp_path / "long.tar").write_bytes(tar({"x" * (2 << 20): b"", "t": b""}))
    with pytest.raises(ArtefactError, match="a header has"):
        count_lines(tmp_path / "long.tar/t")


# sgm


def sgm(*segs: str) -> bytes:
    return ("<srcset>\n<doc>\n" + "\n".join(segs) + "\n</doc>\n</srcset>\n").encode()


def test_the_segments_of_sgm_are_lines_whatever_is_around_them(tmp_path):
    sentences = ["a & b", '<b> "it\'s"', "", "Straße – 雪 »", "&amp; stays", "x"]
    segs = [f'<seg id="{i}">{escape(sentence)}</seg>' for i, sentence in enumerate(sentences)]
    whole = sgm("<p>", *segs[:3], "</p><hl>", *segs[3:5], "</hl>", segs[5].upper() + segs[0])
    for name, stored in (
        ("t.sgm", whole),
        ("t.sgm.gz", gzip.compress(whole)),
        ("t.SGM", whole.replace(b"\n", b"\r\n")),
    ):
        (tmp_path / name).write_bytes(stored)
        assert read_lines(tmp_path / name) == [*sentences[:5], "X", sentences[0]]
    (tmp_path / "dev.tgz").write_bytes(tar({"dev/t.sgm": whole, "dev/t.sgm.gz": gzip.compress(whole)}, "w:gz"))
    for name in ("dev/t.sgm", "dev/t.sgm.gz"):
        assert count_lines(tmp_path / "dev.tgz" / name) == 7


@pytest.mark.parametrize(
    ("seg", "text"),
    [
        ("<seg id=1> over\n three \n\n lines </seg>", "over three lines"),
        ("<seg id=1>\n</seg>", ""),
        ("<SEG ID='1'>in <hl>a</hl> segment</SEG>", "in <hl>a</hl> segment"),
        ("<seg id=1>&lt;&gt;&quot;&apos;&amp;&#65;&#x42;&#X43;</seg>", "<>\"'&ABC"),
        ("<seg id=1>&amp;lt; &nbsp; & &amp AT&T;</seg>", "&lt; &nbsp; & &amp AT&T;"),
        ("<seg id=1>one&#10;line&#x2028;only</seg>", "one line only"),
        ("text that is in no segment <seg id=1>a</seg> nor this", "a"),
    ],
)
def test_a_segment_is_one_line_and_its_entities_are_decoded_once(tmp_path, seg, text):
    (tmp_path / "t.sgm").write_bytes(sgm(seg))
    assert read_lines(tmp_path / "t.sgm") == [text]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            sgm("<seg id=1>a", "<seg id=2>b</seg>"),
            r"t.sgm:4: not valid sgm: <seg> inside the segment that starts on line 3",
        ),
        (sgm("<seg id=1>a</seg>", "b</seg>"), r"t.sgm:4: not valid sgm: </seg> without <seg>"),
        (sgm("<seg id=1 a</seg>"), r"t.sgm:3: not valid sgm: </seg> without <seg>"),
        (sgm("<seg id=1>&#55296;</seg>"), r"t.sgm:3: not valid sgm: &#55296; is not a character"),
        (sgm("<seg id=1>&#0;</seg>"), r"t.sgm:3: not valid sgm"),
        (b"no sgm\n", r"t.sgm:1: not valid sgm: the file contains no <seg>"),
        (b"", r"t.sgm:1: not valid sgm: the file contains no <seg>"),
        (SGM[:-20], r"t.sgm:8: not valid sgm: the file ends before"),
        (SGM[: SGM.index(b"Two")], r"t.sgm:7: not valid sgm: the file ends before"),
        (sgm("<seg id=1>" + "a" * (1 << 20) + "b</seg>"), r"t.sgm:3: not valid sgm: a segment has more than"),
    ],
)
def test_malformed_sgm_is_an_error_with_its_line(tmp_path, content, message):
    (tmp_path / "t.sgm").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_lines(tmp_path / "t.sgm")


def test_a_reader_can_stop_early(tmp_path):
    (tmp_path / "a.tgz").write_bytes(tar({"t": TEXT, "s.sgm": SGM}, "w:gz"))
    with open_text(tmp_path / "a.tgz/t") as file:
        assert file.readline() == TEXT[: TEXT.index(b"\n") + 1]
    assert re.fullmatch(b"One\n", next(iter(raw_lines(tmp_path / "a.tgz/s.sgm"))))


NAMES_OF_OTHERS = ("a.gz", "a.BZ2", "a.en.xz", "a.zst", "a.sgm.gz", "a.tsv.gz", "a.tar", "a.zip", "a.tgz", "a.tar.gz")


@pytest.mark.parametrize("content", [TEXT, b"", b"\n"], ids=["text", "empty", "a line"])
@pytest.mark.parametrize("name", NAMES_OF_OTHERS)
def test_plain_text_with_the_name_of_a_compressed_file_or_archive_is_refused(name, content, tmp_path, call):
    (tmp_path / name).write_bytes(content)
    for read in (read_lines, count_lines, lambda path: list(raw_lines(path))):
        with pytest.raises(InputError, match="its name says that it is"):
            read(tmp_path / name)
    (tmp_path / "b").write_bytes(TEXT)
    prepare = ["--source-lang=en", "--target-lang=de", "--source", tmp_path / name, "--target", tmp_path / "b"]
    assert_refused(
        call("prepare", *prepare, "--output", tmp_path / "o"), 3, tmp_path / name, "its name says that it is"
    )


def test_a_compressed_file_is_read_as_text_whatever_its_name(tmp_path):
    for name in ("a", "a.txt", "a.bz2"):
        (tmp_path / name).write_bytes(gzip.compress(TEXT))
        assert "".join(f"{line}\n" for line in read_lines(tmp_path / name)).encode() == TEXT


def test_plain_text_inside_a_tar_is_refused_if_its_name_says_that_it_is_compressed(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar({"x.gz": TEXT, "y": TEXT}))
    with pytest.raises(InputError, match=r"a\.tar/x\.gz"):
        read_lines(tmp_path / "a.tar/x.gz")
    assert len(read_lines(tmp_path / "a.tar/y")) == 20_000
