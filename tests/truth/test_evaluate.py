"""BLEU's tokenizers, TER's case, checks of test sets, and paired tests between systems."""

from unicodedata import normalize

import pytest
import sentencepiece
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest
from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_ko_mecab, tokenizer_spm

from nmt import registry
from nmt.errors import InputError, ResourceError, UserError
from nmt.evaluations.base import System
from nmt.extensions.scores.metrics.chrf_plus import ChrfPlus, ChrfPlusOptions
from nmt.extensions.scores.metrics.gleu import Gleu, GleuOptions
from nmt.extensions.scores.metrics.paper_bleu import PaperBleu, PaperBleuOptions
from nmt.extensions.scores.significance import check_seed, compare
from nmt.extensions.scores.text_checks.blank_references import BlankReferences
from nmt.extensions.scores.text_checks.differing_forms import DifferingForms, UnicodeFormOptions
from nmt.extensions.scores.text_checks.joined_words import count_subword_lines, refuse_subwords
from nmt.extensions.scores.text_checks.newstest2014 import Newstest2014, warn_of_newstest2014
from nmt.extensions.scores.text_checks.word_metrics import WordMetrics
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.metrics.chrf import Chrf, ChrfOptions
from nmt.metrics.ter import Ter, TerOptions


def bleu(tokenize):
    return Bleu(BleuOptions(tokenize=tokenize))


ALONE = ["13a", "char", "intl", "none", "zh"]  # they need neither a package nor a file


@pytest.mark.parametrize("name", ALONE)
def test_a_tokenizer_without_dependencies_works_and_is_named_in_the_signature(name):
    bleu(name).check()
    assert f"|tok:{name}|" in bleu(name)(["a b"], [["a b"]]).signature


def doubts(metric, lines):
    return list(WordMetrics(None).doubts([metric], [lines]))


def in_language(metric, language):
    metric.use_language(language)
    return metric


@pytest.mark.parametrize(
    ("languages", "tokenizer"),
    [
        (["zh", "zh_TW", "zh-Hans", "zho_Hans", "yue"], "zh"),
        (["th", "lo", "khm_Khmr", "my", "bo"], "char"),
        (["", "de", "en-GB", "vi", "hi"], "13a"),
    ],
)
def test_the_tokenizer_follows_the_language_unless_one_is_given(languages, tokenizer):
    for language in languages:
        assert f"|tok:{tokenizer}|" in in_language(bleu("auto"), language)(["a b"], [["a b"]]).signature
        assert "|tok:intl|" in in_language(bleu("intl"), language)(["a b"], [["a b"]]).signature
        gleu = in_language(Gleu(GleuOptions()), language)
        assert f"|tok:{tokenizer}|" in gleu(["a b"], [["a b"]]).signature
        given = Bleu(BleuOptions(target_lang=language))
        assert f"|tok:{tokenizer}|" in in_language(given, "de" if language else "")(["a"], [["a"]]).signature


@pytest.mark.parametrize(("language", "module"), [("ja", tokenizer_ja_mecab), ("ko", tokenizer_ko_mecab)])
def test_a_missing_tokenizer_falls_back_to_characters_with_a_warning(language, module, monkeypatch):
    monkeypatch.setattr(module, "MeCab", None)
    metric, lines = in_language(bleu("auto"), language), ["私は良い米を知っています", "좋은 쌀을 안다"]
    assert "|tok:char|" in metric(lines, [lines]).signature
    assert len(doubts(metric, lines)) == 1
    assert not doubts(in_language(bleu("char"), language), lines)
    monkeypatch.setattr(module, "MeCab", object())
    assert metric.tokenizer == f"{language}-mecab"


UNSPACED = {
    "zh": ["他们明天早晨要去北京开会。", "这条河的水很干净，可以喝。"],
    "ja": ["私たちは新しい木を見ます。", "カタカナコンピューター"],
    "th": ["ฉันชอบอ่านหนังสือ", "วันนี้ฝนตกหนักมาก"],
    "km": ["ខ្ញុំចូលចិត្តអានសៀវភៅ", "ថ្ងៃនេះភ្លៀងខ្លាំង"],
    "my": ["ကျွန်တော်စာဖတ်ရတာကြိုက်တယ်", "ဒီနေ့မိုးရွာတယ်"],
    "lo": ["ຂ້ອຍມັກອ່ານປຶ້ມ", "ມື້ນີ້ຝົນຕົກແຮງ"],
    "bo": ["ང་ལ་དཔེ་ཆ་ཀློག་པར་དགའ།", "དེ་རིང་ཆར་པ་ཆེན་པོ་འབབ།"],
}
SPACED = {
    "de": ["Das ist ein langer deutscher Satz.", "Donaudampfschifffahrtsgesellschaft ist ein Wort."],
    "ko": ["나는 책을 읽는 것을 좋아한다", "오늘은 비가 많이 온다"],
    "zh": ["我 昨天 在 商店 买 了 三 本 书 。", "他们 明天 早晨 要 去 北京 开会 。"],
    "hi": ["मुझे किताबें पढ़ना पसंद है", "आज बहुत बारिश हो रही है"],
}


@pytest.mark.parametrize("language", UNSPACED)
def test_unspaced_scripts_without_a_language_cause_a_warning_for_word_metrics(language):
    lines = UNSPACED[language]
    for metric in (bleu("auto"), bleu("13a"), bleu("intl"), Gleu(GleuOptions())):
        assert doubts(metric, lines)
    assert doubts(Ter(TerOptions()), lines)
    assert not doubts(in_language(Gleu(GleuOptions(tokenize="char")), language), lines)
    assert not doubts(Chrf(ChrfOptions()), lines)


@pytest.mark.parametrize("language", SPACED)
def test_text_with_spaces_between_words_causes_no_warning(language):
    lines = SPACED[language]
    for metric in (bleu("auto"), Gleu(GleuOptions()), Ter(TerOptions()), bleu("none")):
        assert not doubts(metric, lines)


def test_lines_of_fewer_than_four_words_cause_a_warning_for_bleu():
    short, longer = ["Open file", "Save as", "Close"], ["Open the file now", "Save", "Close"]
    assert bleu("13a")(short, [short]).value == 0
    assert doubts(bleu("13a"), short) and not doubts(bleu("13a"), longer) and not doubts(bleu("char"), short)


@pytest.mark.parametrize("language", ["zh", "ja", "de"])
def test_ter_of_chinese_and_japanese_equals_sacrebleus_over_characters(language):
    lines, reference = ["我买了三本书。"], ["我买了三本新书。"]
    splits = language != "de"
    expected = TER(normalized=splits, asian_support=splits).corpus_score(lines, [reference])
    assert in_language(Ter(TerOptions()), language)(lines, [reference]).value == expected.score


def test_an_unknown_name_is_refused_with_the_nearest_or_all_known_names():
    with pytest.raises(UserError, match=r"unknown BLEU tokenizer '14a' \(known: 13a, char, .*, zh\)"):
        bleu("14a").check()
    with pytest.raises(UserError, match="did you mean 'bleu'"):
        registry.find("metric", "blue")
    with pytest.raises(UserError, match="did you mean 'chrf'"):
        registry.find("metric", "chrff")


def test_a_tokenizer_whose_package_is_missing_names_what_to_install(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'") as refused:
        bleu("ja-mecab").check()
    assert refused.value.code == 2


@pytest.mark.parametrize("name", sorted(tokenizer_spm.SPM_MODELS))
def test_a_tokenizer_whose_model_is_missing_says_where_it_belongs_and_downloads_nothing(name, tmp_path, monkeypatch):
    assert name in BLEU.TOKENIZERS
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(ResourceError, match="download it from https://"):
        bleu(name).check()


def test_a_tokenizer_with_its_model_in_place_is_used_and_a_damaged_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    text, file = tmp_path / "text", tmp_path / "models/flores200sacrebleuspm"
    file.parent.mkdir()
    text.write_text("ab ba\nabba ab\n" * 20)
    trainer = sentencepiece.SentencePieceTrainer
    trainer.train(input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=8, minloglevel=2)
    (tmp_path / "m.model").rename(file)
    bleu("flores200").check()
    score = bleu("flores200")(["ab ba ab ba"], [["ab ba ab ba"]])
    assert score.value == pytest.approx(100) and "|tok:flores200|" in score.signature
    file.write_bytes(b"no model")
    with pytest.raises(ResourceError, match="flores200"):
        bleu("flores200").check()


def test_ter_equals_sacrebleus_and_ignores_case_by_default():
    lines, references = ["Das haus ist GROSS ."], [["das Haus ist gross ."]]
    assert Ter(TerOptions())(lines, references).value == 0
    assert Ter(TerOptions())(lines, references).value == TER().corpus_score(lines, references).score
    with_case = Ter(TerOptions(case_sensitive=True))(lines, references)
    assert with_case.value == pytest.approx(100 * 3 / 5) and "|case:mixed|" in with_case.signature


def test_chrf_with_words_equals_sacrebleus_with_word_order_2():
    lines, references = ["the cat sat", "a dog"], [["the cat sat down", "a dog"], ["one cat sat", ""]]
    expected = CHRF(word_order=2).corpus_score(lines, [references[0], ["one cat sat", None]])
    assert ChrfPlus(ChrfPlusOptions())(lines, references).value == expected.score
    assert "|nw:2|" in ChrfPlus(ChrfPlusOptions())(lines, references).signature


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_significance_tests_ignore_blank_lines_of_a_second_reference(test):
    blank = ["" if i % 2 else line for i, line in enumerate(REFERENCES[0])]
    metrics = [("bleu", bleu("13a")), ("ter", Ter(TerOptions()))]
    found = compare(SYSTEMS, [REFERENCES[0], blank], metrics, test, 20)
    assert [one.value for one in found] == [one.value for one in compare(SYSTEMS, REFERENCES, metrics, test, 20)]
    assert all(one.signature.startswith("nrefs:var|") for one in found)


@pytest.mark.parametrize("line", ["Wirt@@ schaft", "die Wirt@@", "▁die ▁Wirt schaft", "a ▁b"])
def test_subword_marks_in_text_are_detected(line):
    assert count_subword_lines(["", line, "a plain line", line]) == 2


@pytest.mark.parametrize("line", ["", "@@", "a @@ b", "mail me@@example.org", "a_b __c", "x▁y"])
def test_plain_text_is_not_taken_for_subwords(line):
    assert count_subword_lines([line]) == 0


def test_subwords_are_refused_only_in_more_than_a_tenth_of_the_lines():
    plain, split = ["a b"] * 18, ["die Wirt@@ schaft", "▁die ▁Wirt schaft"]
    refuse_subwords("out", [*plain, *split])
    with pytest.raises(InputError, match=r"out: 3 of 20 lines .* spm_decode") as refused:
        refuse_subwords("out", [*plain[1:], *split, split[0]])
    assert refused.value.code == 3


@pytest.mark.parametrize("lines", [(2737, 3003), (3003, 2737)])
def test_mixed_versions_of_newstest2014_are_reported(lines):
    texts = [System(name, [""] * count) for name, count in zip(("out", "ref.de"), lines, strict=True)]
    with pytest.raises(InputError, match="-t wmt14/full") as refused:
        Newstest2014(None).compare_lengths(*texts)
    filtered, whole = ("out", "ref.de") if lines[0] == 2737 else ("ref.de", "out")
    assert f"{filtered} looks like the campaign's filtered newstest2014" in str(refused.value)
    assert f"{whole} looks like the full set" in str(refused.value)
    Newstest2014(None).compare_lengths(texts[0], System("other", [""] * 3000))


@pytest.mark.parametrize("name", ["newstest2014.de", "/data/newstest2014-deen-ref.de", "WMT14.ref", "x/wmt2014.de"])
def test_the_filtered_newstest2014_is_recognised_by_length_and_name(name, capsys):
    warn_of_newstest2014(["out", name], 3003)
    warn_of_newstest2014(["out", "newstest2013.de", "wmt13.de"], 2737)
    assert not capsys.readouterr().err
    warn_of_newstest2014(["out", name], 2737)
    assert "3,003" in capsys.readouterr().err


VIETNAMESE = ["Tôi thích uống cà phê sữa đá .", "Hôm nay trời mưa ."]
FORMS = {  # hypotheses, references, and the form in which they are equal
    "accents": ([normalize("NFD", line) for line in VIETNAMESE], VIETNAMESE, "nfc"),
    "accents of references": (VIETNAMESE, [normalize("NFD", line) for line in VIETNAMESE], "nfc"),
    "Hangul": ([normalize("NFD", "오늘은 비가 온다")], ["오늘은 비가 온다"], "nfc"),
    "kana": ([normalize("NFD", "がんばってください")], ["がんばってください"], "nfc"),
    "width": (["今日は、雨だ! ABC 123"], ["今日は、雨だ！ ＡＢＣ １２３"], "nfkc"),
    "ligatures": (["a fine office"], ["a ﬁne oﬀice"], "nfkc"),
    "half-width kana": (["カタカナ"], ["ｶﾀｶﾅ"], "nfkc"),
    "signs": (["10 m2 km"], ["10 m² ㎞"], "nfkc"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_different_unicode_forms_cause_a_warning_that_names_the_flag_to_unify_them(kind, capsys):
    hypotheses, references, form = FORMS[kind]
    texts = [System("out", hypotheses)], [System("ref", references)]
    DifferingForms(UnicodeFormOptions()).examine(*texts)
    told = capsys.readouterr().err
    assert f"--normalization {form}" in told and f"{len(hypotheses)} of {len(hypotheses)} lines" in told
    check = DifferingForms(UnicodeFormOptions(normalization=form))
    assert check.lines(hypotheses) == check.lines(references) and check.signature() == f"unicode:{form}"
    check.examine(*texts)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("kind", FORMS)
def test_differences_that_no_unicode_form_removes_cause_no_warning(kind, capsys):
    for lines in FORMS[kind][:2]:
        DifferingForms(UnicodeFormOptions()).examine(
            [System("out", [f"{line} x" for line in lines])], [System("ref", lines)]
        )
    DifferingForms(UnicodeFormOptions()).examine(
        [System("out", ["Nein …", "“Ja”"])], [System("ref", ["Doch …", '"Ja"'])]
    )
    assert not capsys.readouterr().err


def test_only_lines_without_any_reference_are_counted(capsys):
    hypotheses, texts = System("out", ["a b"] * 4), [["a", "", "\u200b", "b"], ["", "c", "", "d"]]
    references = [System(f"ref{i}", lines) for i, lines in enumerate(texts)]
    [alone], [both] = (list(BlankReferences(None).doubts([], given)) for given in (texts[:1], texts))
    assert "2 of 4 lines have no reference (the first is line 2)" in alone
    assert "1 of 4 lines have no reference (the first is line 3)" in both
    BlankReferences(None).examine([hypotheses], references)
    told = capsys.readouterr().err
    assert all(f"ref{i}: 1 of 4 lines are blank" in told for i in range(2))
    BlankReferences(None).examine([hypotheses], references[:1])
    assert not [*BlankReferences(None).doubts([], [["a"] * 4])] and not capsys.readouterr().err


SYSTEMS = [
    ("A", [f"the cat sat on mat number {i} of many" for i in range(40)]),
    ("B", [f"the cat sat on mat number {i} of few" if i % 3 else "a dog" for i in range(40)]),
    ("C", [f"the cat sits on mat number {i} of many" for i in range(40)]),
]
REFERENCES = [[f"the cat sat on a mat number {i} of many" for i in range(40)]]
BLEU_ALONE = [("bleu", bleu("13a"))]


@pytest.mark.parametrize(("test", "short"), [("bootstrap", "bs"), ("randomization", "ar")])
def test_systems_are_compared_as_in_sacrebleu_and_reproducibly(test, short):
    ours = [*BLEU_ALONE, ("chrf", Chrf(ChrfOptions()))]
    comparisons = compare(SYSTEMS, REFERENCES, ours, test, 50)
    assert comparisons == compare(SYSTEMS, REFERENCES, ours, test, 50)
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    signatures, columns = PairedTest(SYSTEMS, metrics, REFERENCES, short, 50, 0 if short == "ar" else -1)()
    expected = [
        (system, name, result.score, result.mean, result.ci, result.p_value, str(signatures[key]))
        for name, key in (("bleu", "BLEU"), ("chrf", "chrF2"))
        for (system, _), result in zip(SYSTEMS, columns[key], strict=True)
    ]
    assert [tuple(vars(comparison).values()) for comparison in comparisons] == expected
    assert all(
        f"|{short}:50|" in comparison.signature and "|seed:12345|" in comparison.signature for comparison in comparisons
    )


def test_a_much_worse_system_differs_significantly_and_p_counts_one_extra_trial():
    comparisons = compare(SYSTEMS, REFERENCES, BLEU_ALONE, "randomization", 99)
    assert comparisons[0].p_value is None
    assert comparisons[1].p_value == 1 / 100  # no shuffle of 99 differs as much


def test_a_metric_without_sacrebleu_statistics_has_no_significance_test():
    paper = PaperBleu(PaperBleuOptions(target_lang="de"))
    with pytest.raises(UserError, match="does not support the metric paper-bleu"):
        compare(SYSTEMS, REFERENCES, [("paper-bleu", paper)], "bootstrap", 9)


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_systems_with_equal_scores_do_not_differ(test):
    """Also of other lines: in other case, for a metric that ignores it."""
    name, lines = SYSTEMS[0]
    systems = [(name, lines), ("same", list(lines)), ("upper", [line.upper() for line in lines])]
    lowercase = [("bleu", Bleu(BleuOptions(lowercase=True)))]
    first, *others = compare(systems, REFERENCES, lowercase, test, 9)
    assert [other.p_value for other in others] == [1.0, 1.0]
    assert {other.value for other in others} == {first.value}


@pytest.mark.parametrize("seed", ["none", "0", "-1", "", "1e3", "٣"])
def test_an_irreproducible_seed_is_refused(seed, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(UserError, match="SACREBLEU_SEED"):
        check_seed()
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    check_seed()
    assert "|seed:7|" in compare(SYSTEMS, REFERENCES, BLEU_ALONE, "bootstrap", 9)[0].signature
