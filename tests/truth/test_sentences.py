"""Sentences of a paragraph: where they end, and that nothing between them is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.extensions.texts.abbreviations import abbreviations
from nmt.extensions.texts.sentences import MAX_CHARACTERS, _Rules, clauses, sentences


def split(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text, language)]


@pytest.mark.parametrize(
    ("language", "wanted"),
    [
        ("en", ["Dr. Smith lives in the U.S. army base.", '"Really?" she asked.', "Yes!", "No...", "Perhaps."]),
        ("en", ["See No. 5 for it.", "It costs 3.5 euros.", "4 people came (all of them.)", "Then they left."]),
        ("en", ["Who is J. R. Smith?", "“A man.”", "He said: “Come in.”", "[Nobody came.]"]),
        ("en", ["It was 5 p.m. and late...", "What else?"]),
        (
            "de",
            ["Am 3. Oktober kam Hr. Müller z. B. nach Berlin.", "Er blieb bis 1990.", "„Und dann?“", "Dann ging er."],
        ),
        ("es", ["El Sr. Pérez llegó.", "¿Quién es?", "¡Nadie!"]),
        ("fr", ["M. Dupont est là.", "« Oui. »", "Il part."]),
        ("hi", ["मैं जा रहा हूँ।", "वह आया।"]),
        ("ar", ["كيف حالك؟", "أنا بخير."]),
        ("my", ["မြန်မာစာ။", "ဒုတိယ။"]),
        ("hy", ["Մեկ։", "Երկու։"]),
        ("he", ["שלום.\u200f", "מה שלומך?"]),
        ("en", ["no capital. letter begins here.", "But here."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(language, wanted):
    assert split(" ".join(wanted), language) == wanted
    assert split("  " + "\n\n ".join(wanted) + "\n", language) == wanted


ABBREVIATIONS = [
    (
        "en",
        ["See Fig. 3, p. 5 and Eq. 7.", "He moved to Washington, D.C. in 1998.", "It was 5 p.m.", "Then he left, etc."],
    ),
    (
        "de",
        [
            "Siehe Abb. 3 und Bd. 4.",
            "Am 24. Dezember kam Karl IV. Wittelsbach.",
            "Es waren 25.",
            "Dann gab es Brot usw.",
        ],
    ),
    (
        "fr",
        [
            "Mme. Durand, voir p. 5 et fig. 3.",
            "En 753 av. J.-C. Rome fut fondée.",
            "J'ai des pommes, etc.",
            "C'est tout.",
        ],
    ),
    ("es", ["El Dr. Gómez y la Sra. López.", "Véase pág. 5.", "Los EE. UU. Mexicanos."]),
    ("it", ["Il Sig. Rossi e il prof. Neri.", "Vedi pag. 5.", "Mele, pere, ecc.", "Poi tornò."]),
    ("pt", ["O Sr. Silva mora na Av. Paulista 12.", "Ver pág. 5."]),
    ("nl", ["Dhr. Jansen en mevr. Bakker.", "Zie afb. 3 op blz. 5.", "Appels enz.", "Daarna ging hij."]),
    ("sv", ["Hr. Berg, t.ex. Anna, jfr. Tabell 2.", "De var 25.", "Sedan gick han."]),
    ("pl", ["Prof. Kowalski i inż. Lis, ul. Długa 5.", "Por. Tab. 2."]),
    ("cs", ["Ing. Černý, viz obr. 3.", "Např. Praha a sv. Václav.", "Jablka atd.", "Pak šel."]),
    ("ru", ["Проф. Иванов, см. рис. 3.", "Яблоки и т. д.", "Потом он ушёл.", "В г. Москве."]),
    ("el", ["Ο κ. Νικολάου;", "Βλ. εικ. 3."]),
    ("hi", ["डॉ. शर्मा आए।", "वह गया।"]),
    ("xx", ["Dr. Smith and J. R. Jones, e.g. Tom.", "The end."]),
]


@pytest.mark.parametrize(("language", "wanted"), ABBREVIATIONS)
def test_an_abbreviation_ends_a_sentence_only_if_the_next_word_starts_one(language, wanted):
    assert split(" ".join(wanted), language) == wanted


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        ("en", "1. |The girl sings. |2. |The boy dances."),
        ("en", "(1) |The girl sings. |(2) |The boy dances."),
        ("en", "a) |the girl sings. |b) |the boy dances."),
        ("en", "- |The girl sings.\n|- |The boy dances."),
        ("en", "• |The girl sings. |• |The boy dances."),
        ("en", "A. Smith came. |B. Jones left."),
        ("de", "1. |Mädchen singen. |2. |Jungen tanzen."),
        ("de", "3. Mai. |Das ist ein Feiertag."),
    ],
)
def test_a_list_marker_is_a_separate_part(language, marked):
    assert split(marked.replace("|", ""), language) == [part.strip() for part in marked.split("|")]


def test_chinese_and_japanese_sentences_need_no_space():
    assert split("你好。我是学生！真的吗？“是的。”他说。", "zh") == [
        "你好。",
        "我是学生！",
        "真的吗？",
        "“是的。”",
        "他说。",
    ]
    assert split("「はい。」と彼は言った。行こう！", "ja") == ["「はい。」と彼は言った。", "行こう！"]


def test_a_line_break_ends_a_sentence():
    assert split("A title\nThe text goes on.\n\n\tLast", "en") == ["A title", "The text goes on.", "Last"]
    assert split(" \n ", "en") == split("", "en") == []


def test_a_long_sentence_is_split_at_punctuation_then_spaces_then_anywhere():
    for text in ("one two three, " * 500, "word " * 700):
        parts = split(text, "en")
        assert "".join("".join(parts).split()) == "".join(text.split())
        assert max(map(len, parts)) <= MAX_CHARACTERS and len(parts) < 2 + 2 * len(text) / MAX_CHARACTERS
    assert all(part.endswith(",") for part in split("one two three, " * 500, "en"))
    assert "".join(split("x" * 3000, "en")) == "x" * 3000
    assert split("x" + " " * 3500 + "y, z", "en") == ["x", "y, z"]


def test_clauses_have_a_minimum_length():
    text = "He came, saw, and then he went away again; nobody knew why, he said."
    parts = [text[start:end] for start, end in clauses(text, 0, len(text), 15)]
    assert " ".join(parts) == text and len(parts) == 2 and min(map(len, parts)) >= 15
    text = "the train of 12:30 to the town,which is far away, leaves the station at 13:45 and has 1,200 seats"
    assert [text[start:end] for start, end in clauses(text, 0, len(text), 15)] == text.replace(
        "away, ", "away,|"
    ).split("|")


def test_repeated_opening_brackets_are_read_in_linear_time():
    assert len(split("( " * 50000, "en")) == 100 and len(split('." ' * 50000, "en")) > 1


@given(st.text("aB3.?!…。 \n\"')(,;“”", max_size=60), st.sampled_from(["en", "de", "zh", "xx"]))
def test_only_whitespace_lies_between_sentences(text, language):
    spans = sentences(text, language)
    edges = [0, *(place for span in spans for place in span), len(text)]
    assert edges == sorted(edges)
    assert not "".join(text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)).strip()
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)


@given(st.text(st.sampled_from("12 aB.!\n:("), max_size=20))
def test_list_marks_are_those_that_a_search_for_each_one_finds(text):
    listed = _Rules(text, abbreviations("en"))._listed
    for name in ("1", "2", "12", "a", "B", "aB"):
        found = re.search(rf"(?:^|[.?!…:;]\s+|\n\s*){name}\.\s", text)
        assert (name in listed) == (found is not None)
