"""Subwords: each way to divide text comes in one file, which learns a vocabulary and reads it back."""

from pathlib import Path

import pytest

from nmt import registry
from nmt.cli.main import run
from nmt.data.shards import PreparedData
from nmt.errors import ArtefactError

SORTED = '''
from nmt import opt, options_class, register
from nmt.subwords.base import Subword
from nmt.text.vocabulary import WordVocabulary


@options_class
class SortedOptions:
    shortest_word: int = opt(1, "letters of a word with an entry")


@register("subword", "sorted", SortedOptions)
class Sorted(Subword):
    """Words by the alphabet."""

    vocabulary = WordVocabulary

    def learn(self, text):
        return WordVocabulary(sorted(word for word in text.word_counts() if len(word) >= self.options.shortest_word))
'''


def test_a_subword_method_from_one_file_is_learnt_and_read_back(tmp_path):
    (tmp_path / "sorted.py").write_text(SORTED)
    (tmp_path / "t.en").write_text("the kit of a ban\n")
    (tmp_path / "t.de").write_text("muli kit\n")
    words = [
        "prepare",
        f"--train={tmp_path / 't'}",
        "--source-lang=en",
        "--target-lang=de",
        f"--output={tmp_path / 'data'}",
    ]
    words += [f"--plugin={tmp_path / 'sorted.py'}", "--subword=sorted", "--quiet"]
    try:
        assert run([*words, "--shortest-word=3"]) == 0
        pipeline = PreparedData(Path(tmp_path / "data")).pipeline
        assert pipeline.source.pieces("the muli ban a") == ["the", "muli", "ban", "<unk>"]
        assert pipeline.source.encode("ban kit") == [4, 5]
    finally:
        del registry._shelf.parts["subword", "sorted"]
    with pytest.raises(ArtefactError, match="subword 'sorted' is not available"):
        _ = PreparedData(Path(tmp_path / "data")).pipeline
