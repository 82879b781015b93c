"""What a tokenizer of new data splits comes back letter by letter; older data, and what comes back anyhow, have Moses' tokens."""

import re

import pytest

from nmt import registry
from nmt.extensions.texts.reversible import SPACE_TOKEN
from nmt.text.pipeline import TextPreparer
from nmt.text.settings import SideSettings

MOSES = registry.find("tokenizer", "moses").cls
TEXTS = {
    "en": "See https://example.org/a?x=1&y=2#top, or mail a.b@example.org at 5:30 p.m. — it's 8' x 10' ({name}: %d).",
    "de": "Das <b>Haus</b> kostet 1.000,50&nbsp;€, „sehr“ teuer ; AT&amp;T und ${x} :-)",
    "fr": "Est-ce qu'il est « prêt » ? C'est 50 % de l'eau ; 25\u00a0% à 12:30, d'accord.",
    "fa": "می‌خواهم کتاب‌ها را ببینم، نه؟",
    "ur": "یہ کتاب ہے۔ کیا آپ نے پڑھی؟",
    "he": 'צה"ל אמר: "שלום", ב-12:30.',
    "hi": "बच्चा पक्षी को देखता है। क्या हुआ?",
    "th": "น้ำเย็นมาก ราคา 5:30",
    "lo": "ຂ້ອຍຮັກເຈົ້າ", "km": "ខ្ញុំស្រលាញ់អ្នក។", "my": "မင်္ဂလာပါ။", "bo": "བོད་སྐད།",
    "zh": "他说：“你好！” 3:2",
    "ja": "「はい」と言った。 12:30",
    "fi": "EU:n jäsenet, kello on 12:30.",
    "am": "ሰላም፣ እንዴት ነህ።",
    "xx": "a :b: [c] @-@ 'd' \" e \" f/g h|i #j 5'6\" &lt;k&gt; $PATH %s {0} __n__ :name  l",
}  # fmt: skip


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("truecase", [False, True])
def test_any_kind_of_text_round_trips(language, truecase):
    prepare = TextPreparer(SideSettings(language, "none", False, False, "moses", "none", truecase, reversible=True))
    text = TEXTS[language]
    assert prepare.undo(prepare([text])[0]) == re.sub(" +", " ", text)
    assert MOSES(language).detokenize(MOSES(language).tokenize(text)) != text


@pytest.mark.parametrize("text", ["I don't know; it's John's.", "He paid $1,234.56 for 3.5 kg (fresh).", "Yes!", ""])
def test_text_that_round_trips_under_moses_has_mosess_tokens(text):
    assert MOSES("en").reversible().tokenize(text) == MOSES("en").tokenize(text)


def test_addresses_times_and_tags_are_single_words():
    words = MOSES("en").reversible().tokenize(TEXTS["en"]).split(" ")
    assert {"https://example.org/a?x=1&y=2#top", "a.b@example.org", "5:30"} <= set(words)
    assert SPACE_TOKEN not in "".join(MOSES("en").reversible().tokenize("<b>Go</b> now, {x}."))


def test_older_pipelines_and_those_of_fairseq_keep_their_tokens():
    older = TextPreparer(SideSettings("en", "none", False, False, "moses", "none"))
    assert older(["at 12:30 <b>"]) == ["at 12 : 30 < b >"]
    aggressive = registry.find("tokenizer", "moses-aggressive").cls("en")
    assert aggressive.reversible().tokenize("a well-known 12:30") == "a well @-@ known 12 : 30"


@pytest.mark.parametrize(("language", "tokenizer", "reversible", "warnings"), [
    ("de", "moses", True, 0), ("de", "moses", False, 1), ("de", "moses-aggressive", True, 1), ("th", "moses", True, 1),
    ("fa", "moses", True, 1), ("de", "none", True, 0),
])  # fmt: skip
def test_lines_that_do_not_round_trip_are_counted(language, tokenizer, reversible, warnings, tmp_path, call):
    for ending in ("xx", language):
        (tmp_path / f"t.{ending}").write_text("ein Hund um 12:30\n" * 3 + "ein Hund\n")
    told = call(
        "prepare", "--source-lang", "xx", "--target-lang", language, "--train", tmp_path / "t", "--subword", "none",
        "--vocab-size", 0, "--output", tmp_path / "data", "--tokenizer", tokenizer,
        "--reversible" if reversible else "--no-reversible",
    )  # fmt: skip
    assert told.code == 0
    found = [line for line in told.err.splitlines() if "warning" in line and f"language {language}" in line]
    assert len(found) == warnings
    assert reversible or "3 of 4" in found[0]
