"""Which metrics and tokenizers there are, what text looks like parts of words, and the signatures of scores."""

import pytest
import sentencepiece
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_spm

from nmt.errors import ResourceError, UserError
from nmt.infer.evaluate import check_metric, check_tokenizer, evaluate, num_split

ALONE = ["13a", "char", "intl", "none", "zh"]  # they need neither a package nor a file


@pytest.mark.parametrize("name", ALONE)
def test_a_tokenizer_that_needs_nothing_is_there_and_is_named_in_the_signature(name):
    check_tokenizer(name)
    assert f"|tok:{name}|" in evaluate(["a b"], [["a b"]], ["bleu"], name, False)[0].signature


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="did you mean '13a'"):
        check_tokenizer("14a")
    with pytest.raises(UserError, match="did you mean 'bleu'"):
        check_metric("blue")
    with pytest.raises(UserError, match="did you mean 'chrf'"):
        evaluate(["a"], [["a"]], ["chrff"], "13a", False)


def test_a_tokenizer_whose_package_is_missing_names_what_to_install(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'") as refused:
        check_tokenizer("ja-mecab")
    assert refused.value.code == 2


@pytest.mark.parametrize("name", sorted(tokenizer_spm.SPM_MODELS))
def test_a_tokenizer_whose_model_is_missing_says_where_it_belongs_and_downloads_nothing(name, tmp_path, monkeypatch):
    assert name in BLEU.TOKENIZERS
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(ResourceError, match="download it from https://"):
        check_tokenizer(name)


def test_a_tokenizer_with_its_model_in_place_is_used_and_a_damaged_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    text, file = tmp_path / "text", tmp_path / "models/flores200sacrebleuspm"
    file.parent.mkdir()
    text.write_text("ab ba\nabba ab\n" * 20)
    trainer = sentencepiece.SentencePieceTrainer
    trainer.train(input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=8, minloglevel=2)
    (tmp_path / "m.model").rename(file)
    check_tokenizer("flores200")
    score = evaluate(["ab ba ab ba"], [["ab ba ab ba"]], ["bleu"], "flores200", False)[0]
    assert score.value == pytest.approx(100) and "|tok:flores200|" in score.signature
    file.write_bytes(b"no model")
    with pytest.raises(ResourceError, match="flores200"):
        check_tokenizer("flores200")


@pytest.mark.parametrize("line", ["Wirt@@ schaft", "die Wirt@@", "▁die ▁Wirt schaft", "a ▁b"])
def test_parts_of_words_are_seen(line):
    assert num_split(["", line, "a plain line", line]) == 2


@pytest.mark.parametrize("line", ["", "@@", "a @@ b", "mail me@@example.org", "a_b __c", "x▁y"])
def test_plain_text_is_not_taken_for_parts_of_words(line):
    assert num_split([line]) == 0
