"""Passes: each comes in one file, is active by its own options, and several lie around the search like shells."""

import pytest

from nmt import registry
from nmt.cli.main import run

LOUD = '''
from msgspec import structs

from nmt import opt, options_class, register
from nmt.passes.base import Pass
from nmt.translate.translator import Translator


@options_class
class LoudOptions:
    loud: str = opt("", "a text to put behind each translation")
    loud_times: int = opt(1, "how often", minimum=1)


class LoudTranslator(Translator):
    def __init__(self, inner, searches, text):
        super().__init__(inner.engine, searches.options, searches.filter_texts)
        self.inner, self.text = inner, text

    def translate(self, requests, *more):
        found = self.inner.translate(requests, *more)
        rows = [[structs.replace(c, text=c.text + self.text) for c in row.candidates] for row in found]
        return [structs.replace(row, candidates=new) for row, new in zip(found, rows)]


@register("pass", "loud", LoudOptions)
class Loud(Pass):
    """Puts a text behind each translation."""

    order = 50

    def around(self, translator, searches):
        assert searches.options.loud == ""  # the translator inside has none of it
        return LoudTranslator(translator, searches, self.options.loud * self.options.loud_times)
'''


@pytest.fixture
def translated(trained, tmp_path, capfd):
    """`translated(text, *flags)`: what `nmt translate` prints with the plug-in, in this process."""
    (tmp_path / "loud.py").write_text(LOUD)

    def call(text, *flags):
        (tmp_path / "source").write_text(text)
        words = [
            "translate",
            f"--model={trained}",
            f"--input={tmp_path / 'source'}",
            f"--plugin={tmp_path / 'loud.py'}",
        ]
        code = run([*words, "--threads=1", "--engine=torch", *flags])
        output, errors = capfd.readouterr()
        assert code == 0, errors
        return output.splitlines()

    yield call
    del registry._shelf.parts["pass", "loud"]


def test_a_pass_from_one_file_runs_when_its_option_is_set(translated):
    plain = translated("ban kit\nlora mus\n")
    assert translated("ban kit\nlora mus\n", "--loud=!", "--loud-times=2") == [f"{line}!!" for line in plain]


def test_passes_wrap_the_search_in_their_order(translated):
    sentences = translated("Ban kit.\nLora mus.\n")
    assert translated("Ban kit. Lora mus.\n", "--loud=!", "--split") == [f"{' '.join(sentences)}!"]


@pytest.mark.parametrize("name", registry.names("pass"))
def test_the_options_of_a_pass_are_off_by_default(name):
    from nmt.translate.options import TranslatorOptions

    assert registry.active("pass", TranslatorOptions()) == []
    assert isinstance(TranslatorOptions(), registry.options_class_of("pass", name))
