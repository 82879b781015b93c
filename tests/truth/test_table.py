"""Columns of tables as texts: `FILE:1,2` and `FILE:NAME`."""

import csv
import gzip
import io
import random

import pytest
from refusals import assert_refused

from nmt.errors import InputError, UserError
from nmt.storages.base import text_exists
from nmt.text.corpus import read_lines

CELLS = ["a", "b c", 'said "x"', '"', "x, y; z", "", "é\u00a0ü", " in ", "日本"]


def table(delimiter: str, quoting: int, rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerows(rows)
    return out.getvalue().encode()


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.csv.gz", "t.txt"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_columns_can_be_read_by_number_and_by_name(tmp_path, name, delimiter, quoting):
    chance = random.Random(1)
    rows = [["id", "source", "target"], *([str(i), *chance.choices(CELLS, k=2)] for i in range(40))]
    is_csv = ".csv" in name
    content = table(delimiter, quoting, rows) if is_csv else "".join("\t".join(row) + "\n" for row in rows).encode()
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + content if name != "t.csv.gz" else gzip.compress(content))
    columns = list(map(list, zip(*rows, strict=True)))
    for number, column in enumerate(columns, 1):
        assert read_lines(tmp_path / f"{name}:{number}") == column
        assert read_lines(tmp_path / f"{name}:{column[0]}") == column[1:]
    assert read_lines(tmp_path / f"{name}:3,2") == [f"{c} {b}" for _, b, c in rows]  # a tab in a line counts as a space
    assert text_exists(tmp_path / f"{name}:2") and not text_exists(tmp_path / f"no-{name}:2")


@pytest.mark.parametrize(
    ("name", "content", "columns", "error"),
    [
        ("t.tsv", "a\tb\nc\n", "2", InputError),
        ("t.tsv", "a\tb\n", "3", InputError),
        ("t.tsv", "a\tb\n", "c", UserError),
        ("t.tsv", "a\ta\nc\td\n", "a", UserError),
        ("t.csv", '"a,b\n', "1", InputError),
        ("t.csv", '"a"b,c\n', "1", InputError),
    ],
)
def test_a_table_without_the_column_is_an_error(tmp_path, name, content, columns, error):
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=name):
        read_lines(tmp_path / f"{name}:{columns}")


def test_columns_of_a_table_form_a_corpus_and_other_uses_explain_themselves(tmp_path, call):
    (tmp_path / "t.tsv").write_text("Hello .\tHallo .\t0.9\nTwo words\tZwei Wörter\t0.8\n")
    (tmp_path / "h.tsv").write_text("source\ttarget\nHello .\tHallo .\n")
    (tmp_path / "q.tsv").write_text('"Hello ."\t"Hallo ."\n')
    given = [
        "prepare",
        "--source-lang=en",
        "--target-lang=de",
        "--subword=none",
        f"--output={tmp_path / 'd'}",
        "--overwrite",
    ]
    assert_refused(call(*given, f"--train-tsv={tmp_path / 't.tsv'}"), 3, "t.tsv:1", "FILE:1,2")
    told = call(*given, f"--train-tsv={tmp_path / 't.tsv'}:1,2", f"--column=score={tmp_path / 't.tsv'}:3")
    assert told.code == 0 and "2 kept" in told.err and "warning" not in told.err
    told = call(*given, f"--train-tsv={tmp_path / 'h.tsv'}")
    assert told.code == 0 and told.err.count("h.tsv:source,target") == 1
    named = call(*given, f"--source={tmp_path / 'h.tsv'}:source", f"--target={tmp_path / 'h.tsv'}:target")
    assert named.code == 0 and "1 kept" in named.err and "names columns" not in named.err
    assert call(*given, f"--train-tsv={tmp_path / 'q.tsv'}").err.count("q.tsv: the quotes") == 1
    for name, words in (("h", "choose columns by name"), ("q", "the quotes around the cells")):
        copy = (tmp_path / f"{name}.tsv").rename(tmp_path / f"{name}2.tsv")  # one warning per file
        assert call(*given, f"--train-tsv={copy}:1,2").err.count(words) == 1
