"""Filters, wrappers of the built-in search, and viewers: each comes in one file, and is active by its own options."""

import json

import pytest
from conftest import WORDS

from nmt import UserError, load, registry
from nmt.cli.main import run
from nmt.cli.translate import TranslateOptions
from nmt.translate.requests import Request

PARTS = '''
import numpy as np
from pathlib import Path

from nmt import opt, options_class, register
from nmt.filters.base import Filter
from nmt.translate.wrapper import SearchWrapper
from nmt.viewers.base import Viewer


@options_class
class OnceOptions:
    once: tuple[str, ...] = opt((), "words of which none comes again")


@register("filter", "once", OnceOptions)
class Once(Filter):
    """Words that stand once in a translation, at most."""

    @classmethod
    def texts_of_all(cls, options):
        return options.once

    def refusal(self, given, texts, phrases):
        return "too many words" if len(given) > 25 else ""

    def begin(self, texts):
        ids = {token for text in texts for token in self.target.encode(text)}

        def forbid(tokens, num_forced):
            return np.isin(np.arange(self.target.size), [token for token in ids if token in tokens[num_forced:]])

        return forbid


@options_class
class LastOptions:
    last: bool = opt(False, "the last of the candidates of a line comes first")


@register("wrapper", "last", LastOptions)
class Last(SearchWrapper):
    """The candidates of a line from the last to the first."""

    order = 20

    def ranked(self, texts, outcomes, max_tokens):
        return [outcome[::-1] for outcome in outcomes], ""


@options_class
class NotesOptions:
    written = ("notes",)
    notes: str | None = opt(None, "file of the lines and their translations")


@register("viewer", "notes", NotesOptions)
class Notes(Viewer):
    """Writes what it sees into a file."""

    def begin(self, translator):
        self.lines = [translator.engine.signature]

    def see(self, number, request, translation):
        self.lines.append(f"{number} {request.text} {translation.text}")

    def end(self):
        Path(self.options.notes).write_text("\\n".join(self.lines))

    def __init__(self, options):
        self.options = options
'''


@pytest.fixture
def translated(trained, tmp_path, capfd):
    """`translated(text, *flags)`: the lines that `nmt translate` prints with the plug-in, in this process."""
    (tmp_path / "parts.py").write_text(PARTS)

    def call(text, *flags):
        (tmp_path / "source").write_text(text)
        files = [f"--input={tmp_path / 'source'}", f"--plugin={tmp_path / 'parts.py'}"]
        code = run(["translate", f"--model={trained}", *files, "--threads=1", "--engine=torch", *flags])
        output, errors = capfd.readouterr()
        assert code == 0, errors
        return output.splitlines()

    yield call
    for kind, name in (("filter", "once"), ("wrapper", "last"), ("viewer", "notes")):
        registry._shelf.parts.pop((kind, name), None)


def repeats(text):
    return len(set(text.split())) < len(text.split())


def test_a_filter_from_one_file_reads_its_option_and_request_fields(translated, trained):
    flags, source, once = ["--min-length=4", "--beam-size=2"], "ban ban ban ban", [word.upper() for word in WORDS]
    [plain] = translated(f"{source}\n", *flags)
    [of_all] = translated(f"{source}\n", *(f"--once={word}" for word in once), *flags)
    assert repeats(plain) and not repeats(of_all)
    lines = [{"source": source, "once": once}, {"source": source, "n": 1}]
    rows = translated("".join(json.dumps(line) + "\n" for line in lines), "--input-form=json", *flags)
    by_field, without = map(json.loads, rows)
    assert by_field["translation"] == of_all and "once" not in by_field
    assert without["translation"] == plain and without["n"] == 1
    translator = load(trained, decoder_options={"min_length": 4, "beam_size": 2})
    [one, refused] = translator.translate([Request(source, once=once), Request("ban", once=[*once, "ban"])])
    assert one.text == of_all and refused.error == "too many words"


def test_a_wrapper_from_one_file_runs_when_its_option_is_set(translated):
    plain = [line.split(" ||| ")[1] for line in translated("ban kit\n", "--n-best=3")]
    assert [line.split(" ||| ")[1] for line in translated("ban kit\n", "--n-best=3", "--last")] == plain[::-1]


def test_a_viewer_from_one_file_sees_each_line_and_never_overwrites_an_input(translated, tmp_path, trained, capfd):
    first, second = translated("ban kit\nlora mus\n", f"--notes={tmp_path / 'notes'}")
    seen = (tmp_path / "notes").read_text().splitlines()
    assert seen[0].startswith("beam|") and seen[1:] == [f"0 ban kit {first}", f"1 lora mus {second}"]
    words = ["translate", f"--model={trained}", f"--input={tmp_path / 'source'}", f"--notes={tmp_path / 'source'}"]
    assert run(words) == 2 and "--input and --notes name the same file" in capfd.readouterr().err


def test_request_fields_that_match_no_filter_are_refused():
    with pytest.raises(UserError, match="unknown field of a request 'avoided'"):
        Request("ban", avoided=("a",))


@pytest.mark.parametrize("kind", ["filter", "wrapper", "viewer"])
def test_they_are_off_by_default(kind):
    options = TranslateOptions(model=("model",))
    assert registry.active_names(kind, options) == []
    assert all(isinstance(options, registry.options_class_of(kind, name)) for name in registry.names(kind))
