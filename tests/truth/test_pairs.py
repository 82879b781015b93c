"""The detectors of faults of a pair: each finds its fault in many languages and scripts, and none in pairs that are right."""

import pytest

from nmt.extensions.doctor.examine import DETECTORS
from nmt.extensions.doctor.pairs import LinePair

# A sentence and its translation in languages of many scripts.
GOOD = {
    "de": "Der alte Mann ging jeden Morgen am Fluss spazieren.",
    "fr": "Le vieil homme se promenait chaque matin avec son chien dans le parc.",
    "es": "El anciano paseaba cada mañana por la orilla del río.",
    "pt": "O velho passeava todas as manhãs à beira do rio, não é?",
    "fi": "Vanha mies käveli joka aamu joen rannalla.",
    "tr": "Yaşlı adam her sabah nehir kıyısında yürüyüş yapardı.",
    "vi": "Ông lão đi dạo bên bờ sông mỗi buổi sáng.",
    "ru": "Старик каждое утро гулял вдоль реки.",
    "el": "Ο γέρος περπατούσε κάθε πρωί δίπλα στο ποτάμι.",
    "hy": "Ծերունին ամեն առավոտ զբոսնում էր գետի ափին։",
    "he": "הזקן טייל בכל בוקר לאורך הנהר.",
    "ar": "كان الرجل العجوز يتمشى كل صباح بجانب النهر.",
    "hi": "बूढ़ा आदमी हर सुबह नदी के किनारे टहलता था।",
    "am": "ሽማግሌው በየማለዳው በወንዙ ዳር ይራመድ ነበር።",
    "ka": "მოხუცი ყოველ დილით მდინარის პირას სეირნობდა.",
    "th": "ชายชราเดินเล่นริมแม่น้ำทุกเช้า",
    "zh": "老人每天早晨都在河边散步。",
    "ja": "老人は毎朝川辺を散歩していました。",
    "ko": "노인은 매일 아침 강가를 산책했습니다.",
}
SOURCE = "The old man went for a walk along the river every morning."


def faults(source, target, target_language="de", source_language="en"):
    """The names of the checks that find a fault."""
    raw = tuple(text if isinstance(text, bytes) else text.encode() for text in (source, target))
    pair = LinePair((source_language, target_language), raw, False)
    return {name for name, detect in DETECTORS.items() if any(fault.found for fault in detect(pair))}


@pytest.mark.parametrize("language", GOOD)
def test_a_correct_pair_has_no_fault_in_any_language_and_direction(language):
    assert faults(SOURCE, GOOD[language], language) == set()
    assert faults(GOOD[language], SOURCE, "en", language) == set()
    assert faults(f"{SOURCE}\r\n", f"{GOOD[language]}\n", language) == set()


@pytest.mark.parametrize(
    "text",
    [
        "Tom", "Berlin", "Holiday Inn", "Ludwig van Beethoven", "Leonardo da Vinci", "Universidad de los Andes",
        "Rio de la Plata", "Gone with the Wind", "The Lord of the Rings", "OK!", "Bravo, bravo!", "in vitro", "42",
        "1,234.5 %", "+49 30 1234567", "2013-05-06 12:30", "https://example.org/a/b?c=d&e=f", "www.example.org",
        "someone@example.org", "<someone@example.org>", "AT&T", "R&D", "Q&A", "a < b && c > d", "ISO/IEC 9126-1:2001", "C3PO",
        "Ä", "Ă", "É", "São Paulo", "«LIBERTÉ»", "LA LIBERTÉ» ET", "", "...", "?!", "🙂", "apt-get install foo_bar",
        "x = y + z;", "NATO", "AI", "Ki Moon Ban", "Real Madrid 3 - 1 FC Barcelona",
    ],
)  # fmt: skip
@pytest.mark.parametrize("language", ["de", "fr", "es", "fi", "ru", "zh", "ar", "th"])
def test_identical_names_numbers_addresses_and_short_texts_are_accepted(text, language):
    assert faults(text, text, language) - {"blank-both-sides", "wrong-script"} == set()
    if language in ("de", "fr", "es", "fi") and text:
        assert faults(text, text, language) == set()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Hi.", "Guten Tag!"),
        ("Thanks", "Danke schön"),
        ("Fire!", "Es brennt!"),
        ("No.", "Nein, auf gar keinen Fall."),
        ("He said: 'Ich bin ein Berliner.'", "Er sagte: „Ich bin ein Berliner.“"),
        ("Come in", "Herein"),
        ("See above", "S. o."),
        ("Chapter 3", "3. Kapitel"),
        ("The know-how is ours", "Das Know-how ist unseres"),
        ("Was it you?", "Warst du es?"),
        ("Washington, D.C.", "Washington"),
        ("I love Jean-Luc Godard's À bout de souffle.", "Ich liebe „Außer Atem“ von Godard."),
        ("Tom is wearing a T-shirt.", "Tom hat ein T-Shirt an."),
        ("A man in a hat.", "Ein Mann mit Hut."),
        ("Tom & Jerry; Tim & Struppi", "Tom & Jerry; Tim & Struppi"),
    ],
)
def test_a_correct_english_german_pair_has_no_fault(source, target):
    assert faults(source, target) == set()


LATIN = [code for code in GOOD if code in ("de", "fr", "es", "pt", "fi", "tr", "vi")]


@pytest.mark.parametrize("language", GOOD)
def test_a_copied_source_is_found(language):
    expected = {"copy"} if language in LATIN else {"copy", "wrong-script"}
    assert faults(SOURCE, SOURCE.upper().capitalize(), language) == expected
    copied = faults(GOOD[language], GOOD[language], language)
    assert "copy" in copied
    assert faults(SOURCE, SOURCE, "en_GB", "en_US") == set()


@pytest.mark.parametrize("language", GOOD)
def test_a_swapped_pair_is_found_if_script_or_tables_distinguish_the_languages(language):
    found = faults(GOOD[language], SOURCE, language)
    if language in ("tr", "vi"):  # languages without a table
        assert found <= {"wrong-language"}
    elif language in LATIN:
        assert found and found <= {"swapped", "wrong-language"}
    else:
        assert "wrong-script" in found


@pytest.mark.parametrize("wrong", GOOD)
def test_a_target_in_another_language_is_found(wrong):
    for language in ("de", "ru", "zh"):
        if language == wrong or (language, wrong) in (("zh", "ja"),):
            continue
        found = faults(SOURCE, GOOD[wrong], language)
        if language == "de" and wrong in ("tr", "vi", "fi"):  # without a table, or with too few function words
            continue
        assert found & {"wrong-language", "wrong-script"}, (language, found)


@pytest.mark.parametrize("language", GOOD)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_utf8_decoded_with_a_wrong_encoding_is_found(language, encoding):
    text = GOOD[language] if not GOOD[language].isascii() else f"{GOOD[language]} Schöne Grüße"
    try:
        broken = text.encode().decode(encoding)
    except UnicodeDecodeError:  # five bytes have no character in Windows-1252
        broken = "".join(bytes([byte]).decode(encoding, errors="ignore") for byte in text.encode())
    assert "mojibake" in faults(SOURCE, broken, language)
    assert "mojibake" in faults(broken, SOURCE, "en", language)


@pytest.mark.parametrize("language", GOOD)
def test_a_truncated_target_is_found(language):
    text = GOOD[language]
    words = text.split()
    short = " ".join(words[: len(words) // 3]) if len(words) > 2 else text[: len(text) // 3]
    found = faults(SOURCE, short, language) & {"truncated", "unlike-lengths"}
    assert bool(found) == (language != "th" or len(SOURCE) > 3 * len(short))  # Thai ends its sentences without a mark
    reverse = " ".join(SOURCE.split()[:3])
    assert faults(text, reverse, "en", language) & {"truncated", "unlike-lengths"} or language == "th"


@pytest.mark.parametrize(
    ("check", "source", "target"),
    [
        ("not-utf8", b"caf\xe9 au lait", "Kaffee"),
        ("blank-one-side", "A line.", "\u200b "),
        ("blank-both-sides", " ", ""),
        ("control-characters", "a\x07b", "ab"),
        ("markup", "&nbsp;a", "a"),
        ("markup", "<br/>a", "a"),
        ("markup", '<a href="x">a</a>', "a"),
        ("markup", "a &#8217; b", "a"),
        ("mojibake", "a \ufffd", "a"),
        ("long-line", "a " * 800, "b " * 800),
        ("numbers-differ", "1 and 2", "1 und 3"),
        ("unlike-lengths", "No.", "Das hat mit uns beiden nichts zu tun."),
    ],
)
def test_a_planted_fault_is_found_alone(check, source, target):
    assert faults(source, target) == {check}
