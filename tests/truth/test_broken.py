"""Signs of a broken translation, and glossaries."""

import numpy as np
import pytest

from nmt.errors import InputError
from nmt.extensions.texts.faults import faults
from nmt.extensions.texts.glossary import Glossary

SENTENCE = "The committee decided on Monday that the new bridge will be built next year."


@pytest.mark.parametrize(
    ("source", "translation", "kinds"),
    [
        (SENTENCE, "Der Ausschuss beschloss am Montag, dass die neue Brücke nächstes Jahr gebaut wird.", set()),
        (SENTENCE, "Der Ausschuss der der der der der beschloss es am Montag im neuen Haus.", {"repeated"}),
        (SENTENCE, "Der Ausschuss beschloss, dass er beschloss, dass er beschloss, dass er beschloss.", {"repeated"}),
        (SENTENCE, "Der Ausschuss.", {"missing"}),
        (SENTENCE, "", {"missing"}),
        (SENTENCE, "Ein Satz, der kein Ende hat und " + ", ".join(f"noch {i} mehr sagt" for i in range(20)), {"repeated"}),
        ("It rains. It snows. It hails. It thaws.", "Es regnet, und es schneit dann.", {"missing"}),
        ("It rains. It snows.", "Es regnet. Es schneit.", set()),
        ("no no no no no", "nein nein nein nein nein", set()),
        ("no no no no no", "nein nein nein nein nein nein nein nein", {"repeated"}),
        ("Yes.", "Ja, das ist wirklich so.", set()),
        ("----------", "- - - - - - - - - -", set()),
        ("委员会星期一决定明年建造新桥，并且要在河上建造。", "Das Komitee beschloss am Montag den Bau der Brücke.", set()),
        ("委员会星期一决定明年建造新桥，并且要在河上建造。", "Das Komitee.", {"missing"}),
        ("Thank you all very much.", "非常感谢谢谢谢谢谢谢", {"repeated"}),
        ("Thank you all very much.", "非常感谢大家。", set()),
    ],
)  # fmt: skip
def test_faults_are_found_and_good_translations_are_left_alone(source, translation, kinds):
    languages = "zh" if source[0] > "\u3000" else "en", "de"
    assert set(faults(source, translation, languages)) == kinds


def test_tokens_without_attention_are_missing():
    weights = np.zeros((6, 12))
    weights[:, :5] = 0.2
    found = faults(SENTENCE, SENTENCE, ("en", "de"), weights)
    assert found == {"missing": "7 consecutive source tokens got no attention"}
    assert not faults(SENTENCE, SENTENCE, ("en", "de"), np.full((6, 12), 1 / 12))


def glossary(tmp_path, text: str) -> Glossary:
    (tmp_path / "terms.tsv").write_text(text)
    return Glossary.read(tmp_path / "terms.tsv")


def test_terms_match_whole_words_and_the_longest_wins(tmp_path):
    terms = glossary(tmp_path, "bank\tUfer\nriver  bank\tFlussufer\nIT\tEDV\nAcme Corp.\t\n\nc++\tC++\n")
    assert terms.phrases("The Bank and the river bank, by it and IT.") == ("Ufer", "Flussufer", "EDV")
    assert terms.phrases("banker, it, embank, bank_") == ()
    assert Glossary({"New York": "N", "york": "Y", "": "x"}).phrases("in new york or New York") == ("Y", "N")
    assert len(Glossary({f"term {i}": "x" for i in range(50000)}).phrases("term 7 " * 10000)) == 1
    assert terms.phrases("Acme Corp. uses C++ and BANK and bank") == ("Acme Corp.", "C++", "Ufer")
    assert Glossary({"river bank": "F", "neural machine translation": "N", "it": ""}).phrases("use it") == ("it",)
    assert Glossary({"a " * 60: "x", "it": "y", "bank": "z"}).phrases("it bank") == ("y", "z")
    for both in ({"IT": "EDV", "it": "es"}, {"it": "es", "IT": "EDV"}):  # what is written wins in any order
        assert Glossary(both).phrases("IT or It") == ("EDV", "es")
    signs = Glossary({"dog": "Hund", "o'clock": "Uhr", "e-mail": "Mail"})
    assert signs.phrases("{dog}, %(dog)s, https://a.org/dog, dog@a.org") == ()
    assert signs.phrases("5 o’clock: e‑mail, do\u00adg’s") == ("Uhr", "Mail", "Hund")
    assert terms.phrases("") == Glossary({}).phrases("bank") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc d\n", "terms.tsv:2: 1 columns"),
        ("a\tb\tc\n", "terms.tsv:1: 3 columns"),
        ("\tb\n", "terms.tsv:1: 2 columns"),
        ("a\tb\na\tc\n", "terms.tsv:2: 'a' already has a different translation"),
        ("b\tc\n" + "a " * 51 + "\tb\n", "terms.tsv:2: this term has 51 words, but at most 50 are allowed"),
    ],
)
def test_a_line_that_is_not_a_term_is_reported(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        glossary(tmp_path, text)


def test_terms_are_whole_words_in_any_script():
    glossary = Glossary({"東京": "Tokyo", "कि": "that", "cafe": "Kneipe", "na\u00efve": "naiv", "ไทย": "Thai"})
    for text, wanted in [
        ("私は東京に住む", ("Tokyo",)),
        ("किताब", ()),
        ("a cafe\u0301", ()),
        ("a cafe", ("Kneipe",)),
        ("a nai\u0308ve man", ("naiv",)),
        ("ภาษาไทยง่าย", ("Thai",)),
    ]:
        assert glossary.phrases(text) == wanted, text
