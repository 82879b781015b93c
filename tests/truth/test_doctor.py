"""`nmt doctor`: each fault planted in a clean corpus is found at its place, and no others; charts add up."""

import random
from collections import Counter

import numpy as np
import pytest

import nmt.extensions.doctor.sets
from nmt.data.duplicates import find_repeated
from nmt.data.prepare import PrepareOptions, prepare
from nmt.extensions.doctor.doctor import DoctorOptions, _sides_in_pieces, doctor
from nmt.extensions.doctor.findings import CHECKS, Finding, worst
from nmt.extensions.doctor.languages import foreign_script, guess_language, language_tables, scripts_of
from nmt.extensions.doctor.lengths import MAX_COUNTED_LENGTH, LengthHistograms
from nmt.extensions.doctor.repeats import NO_KEY, TrainingOverlap, first_row_of_key, keys_of
from nmt.extensions.watch.pictures.figures import text_bar, text_bars
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

PAIRS = 60
NAMES = [("dog", "Hund"), ("cook", "Koch"), ("lord", "Herr"), ("son", "Sohn"), ("guest", "Gast"), ("king", "König")]
VERBS = [("sees", "sieht"), ("has", "hat"), ("buys", "kauft"), ("wants", "will"), ("sells", "verkauft")]


def clean() -> tuple[list[bytes], list[bytes]]:
    """Pairs without faults: different sources, recognisable languages, equal numbers."""
    subjects = [(f"{n} {v}", f"{m} {w}") for n, m in NAMES for v, w in VERBS]
    pairs = [
        (
            f"The {s} {i} of these houses, and they are not for us.",
            f"Der {t} {i} von diesen, und sie sind nicht für uns.",
        )
        for i, (s, t) in enumerate(subjects, 100)
    ]
    pairs += [(s.replace("The", "This old"), t.replace("Der", "Dieser alte")) for s, t in pairs]
    assert len(pairs) == PAIRS
    return [f"{s}\n".encode() for s, _ in pairs], [f"{t}\n".encode() for _, t in pairs]


@pytest.fixture
def look(tmp_path):
    """`look(source, target, valid=None, **options)` writes train.en and train.de, and returns the report."""

    def looked(source, target, valid=None, **options):
        (tmp_path / "train.en").write_bytes(b"".join(source))
        (tmp_path / "train.de").write_bytes(b"".join(target))
        if valid is not None:
            (tmp_path / "dev.en").write_bytes(b"".join(valid[0]))
            (tmp_path / "dev.de").write_bytes(b"".join(valid[1]))
            options["valid"] = (str(tmp_path / "dev"),)
        given = DoctorOptions(source_lang="en", target_lang="de", train=(str(tmp_path / "train"),), **options)
        return doctor(given)

    return looked


def shown(finding, tmp_path):
    """The lines of a finding's examples: "train.en:3"."""
    return [example.place.removeprefix(f"{tmp_path}/") for example in finding.examples]


def test_a_clean_corpus_has_no_findings(look):
    source, target = clean()
    report = look(source, target, ([b"A man is here, and he has it.\n"], [b"Ein Mann ist hier, und er hat es.\n"]))
    assert report.findings == []
    assert [(row.label, row.pairs) for row in report.sets] == [("train", PAIRS), ("valid dev", 1)]


LONG = "This is a long line of words, and it is not cut. " * 40, "Das ist eine lange Zeile, sie ist nicht kurz. " * 40

# check, side, [(line, source, target)], places; None leaves a side as it is
FAULTS = [
    ("not-utf8", "source", [(7, b"The caf\xe9 has 106 of these, and they are not.", None)], ["train.en:7:8"]),
    ("blank-one-side", "target", [(3, None, "  "), (9, None, "")], ["train.de:3", "train.de:9"]),
    ("blank-one-side", "source", [(4, "\t", None)], ["train.en:4"]),
    ("blank-both-sides", "pair", [(5, "", ""), (6, " ", "")], ["train.en:5", "train.en:6"]),
    ("long-line", "source", [(8, *LONG)], ["train.en:8"]),
    (
        "unlike-lengths",
        "pair",
        [(2, None, "Der Hund."), (60, "No.", "Das hat mit uns nichts zu tun.")],
        ["train.en:2", "train.en:60"],
    ),
    (
        "copy",
        "pair",
        [(11, "Holiday Inn", "holiday inn"), (12, "Er ist da.", "Er ist da."), (13, "12", "12")],
        ["train.en:12"],
    ),
    ("swapped", "pair", [(20, "Sie sind uns nicht gut.", "They have not seen us.")], ["train.en:20"]),
    ("wrong-language", "target", [(21, "They have not seen us.", "Ils ne nous ont pas vus.")], ["train.de:21"]),
    ("wrong-script", "source", [(22, "Они нас не видели.", "Sie haben uns nicht gesehen.")], ["train.en:22"]),
    (
        "control-characters",
        "target",
        [(23, "This is here.", "Das ist \x00\x0c da."), (24, "This is it.", "Es ist\u2028da."), (26, "A\tB", "A\tC")],
        ["train.de:23", "train.de:24"],
    ),
    (
        "not-nfc",
        "target",
        [
            (43, "The tree.", "Der Ba\u0308r ist da."),
            (44, "It is 5 Å.", "Es sind 5 \u212b."),
            (45, "A bear.", "Ein Bär."),
        ],
        ["train.de:43", "train.de:44"],
    ),
    ("compatibility", "target", [(46, "It is.", "Es ist 10\u00a0m²."), (47, "A bear.", "Ein Bär.")], ["train.de:46"]),
    (
        "invisible",
        "source",
        [
            (48, "the ho\u00aduse", "das Haus"),
            (49, "a\u200b b\u200d c", "eins zwei"),
            (50, "the 👨\u200d👩 here is \u0645\u06cc\u200c\u0631", "das ist es hier"),
        ],
        ["train.en:48", "train.en:49"],
    ),
    ("control-characters", "source", [(25, "This one\rand that.\r", "Das eine und das.")], ["train.en:25"]),
    (
        "markup",
        "source",
        [
            (26, "One &amp; all", "Eins, alle"),
            (27, "the <b>one</b>", "der eine"),
            (28, "a &#39; b < c & d;", "a b c d"),
        ],
        ["train.en:26", "train.en:27", "train.en:28"],
    ),
    (
        "mojibake",
        "target",
        [(29, "The king.", "Der KÃ¶nig."), (30, "The lord.", "Der K\ufffdnig."), (31, "This is.", "â€žDasâ€œ ist.")],
        ["train.de:29", "train.de:30", "train.de:31"],
    ),
    (
        "numbers-differ",
        "pair",
        [(32, "1,234.5 or 7", "1.234,5 oder 8"), (33, "1,234.5 or 7.00", "7,00 oder 1 234,5"), (34, "at 5", "um fünf")],
        ["train.en:32"],
    ),
]


def as_bytes(text):
    return (text if isinstance(text, bytes) else text.encode()) + b"\n"


@pytest.mark.parametrize(("check", "side", "faults", "places"), FAULTS, ids=[f"{row[0]}-{row[1]}" for row in FAULTS])
def test_a_planted_fault_is_the_only_one_found_and_at_its_place(check, side, faults, places, look, tmp_path):
    lines = clean()
    for number, *pair in faults:
        for texts, text in zip(lines, pair, strict=True):
            if text is not None:
                texts[number - 1] = as_bytes(text)
    findings = [found for found in look(*lines).findings if (found.check, found.side) != ("long-line", "target")]
    assert [(found.check, found.side, found.set) for found in findings] == [(check, side, "train")]
    assert (findings[0].count, shown(findings[0], tmp_path)) == (len(places), places)


def test_a_repeated_line_is_reported_with_the_line_that_it_repeats(look, tmp_path):
    source, target = clean()
    source += [source[1], source[1], source[1], source[4]]
    target += [target[1], target[1].replace(b"sind", b"waren"), target[1], target[4].replace(b"uns", b"sie")]
    duplicates, others = look(source, target).findings
    assert (duplicates.check, duplicates.count, others.check, others.count) == (
        "duplicate-pairs",
        2,
        "several-targets",
        2,
    )
    assert shown(duplicates, tmp_path) == ["train.en:61", "train.en:63"]
    assert shown(others, tmp_path) == ["train.en:62", "train.en:64"]
    assert [example.text.removeprefix(f"same as {tmp_path}/") for example in others.examples] == [
        "train.en:2",
        "train.en:5",
    ]


def test_evaluation_sentences_are_found_in_training_ignoring_case_and_punctuation(look, tmp_path):
    source, target = clean()
    dev = [b"There is no such line, is there?\n", source[4].upper().replace(b",", b"").replace(b".", b"!"), b"\n"]
    report = look(source, target, (dev, [b"Das ist es nicht, oder?\n", target[4], b"\n"]))
    found = {finding.check: finding for finding in report.findings}
    assert set(found) == {"in-training", "blank-both-sides"}
    assert found["in-training"].set == "valid dev"
    assert (found["in-training"].count, shown(found["in-training"], tmp_path)) == (1, ["dev.en:2"])
    assert found["in-training"].examples[0].text == f"same as {tmp_path}/train.en:5"


@pytest.mark.parametrize("longer", ["en", "de"])
def test_files_of_different_length_are_an_error_and_are_read_up_to_the_shorter(longer, look, tmp_path):
    source, target = clean()
    report = look(*((source, target[:-2]) if longer == "en" else (source[:-2], target)))
    (finding,) = report.findings
    assert (finding.check, finding.severity, finding.count) == ("line-counts", "error", 2)
    assert shown(finding, tmp_path) == [f"train.{longer}:{PAIRS - 1}"]
    assert report.sets[0].pairs == PAIRS - 2


def test_a_file_without_lines_is_an_error(look):
    report = look([], [])
    assert [(finding.check, finding.severity) for finding in report.findings] == [("no-lines", "error")]


def test_a_byte_order_mark_and_crlf_line_ends_are_not_reported(look):
    source, target = clean()
    source[0] = b"\xef\xbb\xbf" + source[0]
    assert look([line.replace(b"\n", b"\r\n") for line in source], target).findings == []


def test_a_corpus_with_swapped_sides_is_an_error(look):
    source, target = clean()
    report = look(target, source)
    found = {finding.check: finding for finding in report.findings}
    assert found["swapped"].severity == "error"
    assert found["swapped"].count == found["swapped"].of == PAIRS


def test_shifted_lines_are_an_error_though_each_line_is_good(look):
    chance = random.Random(1)
    words = [f"{a}{b}" for a in "bdfgklmn" for b in ("aro", "elu", "imo")]
    source = [" ".join(chance.choices(words, k=chance.randint(3, 30))) for _ in range(400)]
    target = [line.replace("a", "ä") + "x" for line in source]
    lines = [f"{line}\n".encode() for line in source], [f"{line}\n".encode() for line in target]
    assert look(*lines).findings == []
    found = look(lines[0], [*lines[1][1:], lines[1][0]]).findings
    assert (found[0].check, found[0].severity) == ("lengths-unrelated", "error")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Prepared data with subwords of the clean corpus."""
    folder = tmp_path_factory.mktemp("vocabulary")
    for name, lines in zip(("c.en", "c.de"), clean(), strict=True):
        (folder / name).write_bytes(b"".join(lines))
    prepare(
        PrepareOptions(
            source_lang="en", target_lang="de", train=(f"{folder}/c",), output=f"{folder}/data", vocab_size=150
        )
    )
    return folder / "data"


def test_out_of_vocabulary_characters_and_filtered_pairs_are_reported(vocabulary, look, tmp_path):
    source, target = clean()
    source[2] = b"The dog % has, and they are not @ for us @.\n"
    source[3], target[3] = b"\n", target[3]
    source[4] = source[4].replace(b".", b" and these houses are not for us, and they are not for these.")
    lengths = doctor_lengths(vocabulary, source, target)
    report = look(source, target, vocabulary=str(vocabulary), max_length=max(lengths[:, 0]) - 1, max_ratio=1.25)
    dropped = {found.detail: found for found in report.findings if found.check == "dropped"}
    longest = lengths.max(axis=1) >= max(lengths[:, 0])
    uneven = ~longest & (lengths.min(axis=1) > 0) & (lengths.max(axis=1) > 1.25 * lengths.min(axis=1))
    expected = Counter({"empty": 1, "too long": int(longest.sum()), "ratio": int(uneven.sum())})
    assert Counter({detail: found.count for detail, found in dropped.items()}) == +expected
    assert shown(dropped["too long"], tmp_path) == ["train.en:5"]
    (unknown,) = (found for found in report.findings if found.check == "unknown-tokens")
    assert (unknown.side, unknown.count, shown(unknown, tmp_path)) == ("source", 3, ["train.en:3"])
    assert unknown.examples[0].text.startswith("(% @) The dog")
    assert report.sets[0].sides["source"]["characters_out_of_vocabulary"] == {"@": 2, "%": 1}
    assert report.sets[0].unit == "tokens"


def doctor_lengths(vocabulary, source, target):
    """(N, 2) tokens of each side."""
    from nmt.data.shards import PreparedData

    pipeline = PreparedData(vocabulary).pipeline
    sides = (pipeline.source, source), (pipeline.target, target)
    return np.array([[len(side.encode(line.decode().strip())) for line in lines] for side, lines in sides]).T


def test_a_vocabulary_learnt_on_other_text_is_detected_by_tokens_per_word(vocabulary, look):
    source = [f"Quizzical zephyrs {i} jolted vexed wizards.\n".encode() for i in range(30)]
    report = look(source, source[::-1], vocabulary=str(vocabulary))
    found = {(finding.check, finding.side): finding for finding in report.findings}
    finding = found["tokens-per-word", "source"]
    assert finding.severity == "warning"
    assert finding.count == report.sets[0].sides["source"]["tokens"] > 2.5 * finding.of == 2.5 * 6 * 30


def test_characters_and_languages_without_spaces_are_not_compared_with_words():
    vocabulary = WordVocabulary(["a"])

    def pipeline(language: str, subword: str) -> Pipeline:
        sides = [
            Side(SideSettings(code, "none", False, False, "none", subword), vocabulary) for code in ("en", language)
        ]
        return Pipeline(*sides, False)

    assert _sides_in_pieces(pipeline("de", "bpe")) == ["source", "target"]
    assert _sides_in_pieces(pipeline("zh_TW", "bpe")) == ["source"]
    assert _sides_in_pieces(pipeline("de", "char")) == _sides_in_pieces(None) == []


def test_prepared_data_is_examined_as_text(tmp_path):
    source, target = clean()
    source, target = [*source, source[6], b"\n"], [*target, target[6], b"Nichts.\n"]
    source[9], target[9] = b"Er ist da, und wir sind es nicht.\n", b"He is there, and we are not.\n"
    for name, lines in (("c.en", source), ("c.de", target), ("dev.en", source[:2]), ("dev.de", target[:2])):
        (tmp_path / name).write_bytes(b"".join(lines))
    data = f"{tmp_path}/data"
    prepare(
        PrepareOptions(
            source_lang="en", target_lang="de", train=(f"{tmp_path}/c",), valid=(f"{tmp_path}/dev",), output=data, vocab_size=200
        )
    )  # fmt: skip
    report = doctor(DoctorOptions(data=data))
    assert [(row.label, row.pairs) for row in report.sets] == [("train", PAIRS + 1), ("valid dev", 2)]
    found = {finding.check: finding for finding in report.findings}
    assert {check: finding.count for check, finding in found.items()} == {
        "swapped": 1, "duplicate-pairs": 1, "in-training": 2, "dropped": 1,
    }  # fmt: skip
    assert shown(found["swapped"], tmp_path) == ["data/train:10"]
    assert shown(found["duplicate-pairs"], tmp_path) == [f"data/train:{PAIRS + 1}"]
    assert shown(found["in-training"], tmp_path) == ["data/valid.dev.source.txt:1", "data/valid.dev.source.txt:2"]
    assert (found["dropped"].detail, found["dropped"].of) == ("empty", PAIRS + 2)


@pytest.mark.parametrize("max_pairs", [0, 7, 100, 1999])
def test_every_histogram_sums_to_the_number_of_examined_pairs(max_pairs, look, monkeypatch):
    monkeypatch.setattr(nmt.extensions.doctor.sets, "CHUNK_PAIRS", 300)
    chance = random.Random(3)
    sizes = [0, 0, 1, 2, 5, 40, 300, MAX_COUNTED_LENGTH, MAX_COUNTED_LENGTH + 1, 2000]
    sides = [[b"a " * chance.choice(sizes) + b"\n" for _ in range(2000)] for _ in range(2)]
    report = look(*sides, max_pairs=max_pairs).sets[0]
    assert (report.pairs, report.examined) == (2000, max_pairs or 2000)
    assert set(report.lengths) == {"source", "target", "ratio"}
    for rows in report.lengths.values():
        assert sum(count for _, count in rows) == report.examined
        assert sum(float(line.split("%")[0].split()[-1]) for line in text_bars(rows)) == pytest.approx(
            100, abs=0.05 * len(rows)
        )
    assert report.lengths["source"][0] == ("0", sum(line == b"\n" for line in sides[0])) or max_pairs


def test_a_sample_is_evenly_spaced_and_its_lines_keep_their_numbers(look, tmp_path, monkeypatch):
    monkeypatch.setattr(nmt.extensions.doctor.sets, "CHUNK_PAIRS", 16)
    source = [f"{i + 1000} x <b>\n".encode() for i in range(103)]
    (finding,) = look(source, [f"{i + 1000} y\n".encode() for i in range(103)], max_pairs=10, examples=99).findings
    numbers = [int(place.partition(":")[2]) for place in shown(finding, tmp_path)]
    assert len(numbers) == finding.of == 10
    assert set(np.diff(numbers)) <= {10, 11}
    assert [int(example.text[:4]) - 999 for example in finding.examples] == numbers


@pytest.mark.parametrize("max_pairs", [3, 50, 101, 200])
def test_repeated_pairs_have_correct_line_numbers_in_samples_and_across_files(max_pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(nmt.extensions.doctor.sets, "CHUNK_PAIRS", 16)
    prefixes = []
    for name, size in (("a", 77), ("b", 0), ("c", 124)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{name} same {language}\n" for _ in range(size)))
        prefixes.append(f"{tmp_path}/{name}")
    options = DoctorOptions(
        source_lang="en", target_lang="de", train=tuple(prefixes), max_pairs=max_pairs, examples=200
    )
    (finding,) = doctor(options).findings
    assert finding.count == max_pairs - 2  # all but the first of either file
    for place, example in zip(shown(finding, tmp_path), finding.examples, strict=True):
        file, _, line = place.partition(":")
        assert file in ("a.en", "c.en") and 1 <= int(line) <= {"a": 77, "c": 124}[file[0]]
        assert example.text.startswith(f"same as {tmp_path}/{file}:")


def test_equal_keys_mean_equal_texts():
    chance = random.Random(5)
    texts = [chance.choice(["", "a", "b", "ä", *map(str, range(40))]) for _ in range(100)]
    keys = keys_of(texts)
    assert ((keys == NO_KEY) == [not text for text in texts]).all()
    again = find_repeated(keys[:, None], 7)
    assert again.tolist() == [bool(text) and text in texts[:i] for i, text in enumerate(texts)]
    assert all(first_row_of_key(keys, i) == texts.index(texts[i]) for i in np.flatnonzero(again))


def test_overlap_gives_the_first_training_line_of_each_sentence():
    wanted = keys_of(["a", "", "b", "c", "b"])
    overlap = TrainingOverlap([wanted, keys_of(["d"])])
    overlap.add_training(keys_of(["x", "b", "", "d"]), 0)
    overlap.add_training(keys_of(["b", "a"]), 4)
    assert overlap.training_rows(wanted) == {0: 5, 2: 1, 4: 1}
    assert overlap.training_rows(keys_of(["d"])) == {0: 3}


def test_correlation_equals_numpys():
    chance = np.random.default_rng(1)
    lengths = chance.integers(1, 50, size=(100, 2))
    characters = lengths * 5 + chance.integers(0, 40, size=(100, 1))
    found = LengthHistograms()
    found.add(lengths[:30], characters[:30])
    found.add(lengths[30:], characters[30:])
    assert found.correlation == pytest.approx(np.corrcoef(characters.T)[0, 1])
    flat = LengthHistograms()
    flat.add(np.full((9, 2), 3), np.full((9, 2), 17))
    assert flat.correlation is None


# The first sentence or two of article 1 of the Universal Declaration of Human Rights.
ARTICLE_1 = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and "
    "should act towards one another in a spirit of brotherhood.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und "
    "sollen einander im Geist der Brüderlichkeit begegnen.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y "
    "conciencia, deben comportarse fraternalmente los unos con los otros.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza "
    "e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, "
    "devem agir uns para com os outros em espírito de fraternidade.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand en geweten, "
    "en behoren zich jegens elkander in een geest van broederschap te gedragen.",
    "da": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og samvittighed, og de "
    "bør handle mod hverandre i en broderskabets ånd.",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft och samvete och bör "
    "handla gentemot varandra i en anda av broderskap.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki ja "
    "omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem i "
    "sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "cs": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a mají spolu "
    "jednat v duchu bratrství.",
    "ro": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Ele sunt înzestrate cu rațiune și "
    "conștiință și trebuie să se comporte unele față de altele în spiritul fraternității.",
    "hu": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és lelkiismerettel "
    "bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.",
}  # fmt: skip


def test_every_language_of_the_table_is_recognised_from_a_sentence():
    tables = language_tables()
    assert set(ARTICLE_1) == set(tables.function_words)
    assert {code: guess_language(text) for code, text in ARTICLE_1.items()} == {code: code for code in ARTICLE_1}
    assert {code for codes in tables.letters.values() for code in codes.split()} < set(tables.function_words)
    assert [guess_language(text) for text in ("", "Berlin", "12 !", "Xyz abc", "the", "Привет")] == [None] * 6


@pytest.mark.parametrize(
    ("language", "text", "script"),
    [
        ("en", "Привет, мир", "cyrillic"), ("de_AT", "Grüße, Ωmega", None), ("en", "γεια σου κόσμε", "greek"),
        ("ru", "hello world", "latin"), ("ru", "Это новый iPhone, а не старый", None), ("zh", "你好，世界", None),
        ("ja", "これは本です", None), ("en", "これは本です", "hiragana"), ("ko", "안녕하세요", None), ("hi", "नमस्ते दुनिया", None),
        ("ar", "مرحبا بالعالم", None), ("sr", "Zdravo svete, здраво", None), ("tlh", "Привет", None), ("en", "Δ = 3 μm", None),
    ],
)  # fmt: skip
def test_a_line_in_a_wrong_script_is_recognised_by_its_letters(language, text, script):
    assert foreign_script(text, scripts_of(language)) == script


def test_a_language_has_one_row_of_scripts():
    codes = Counter(code for codes in language_tables().languages_of_scripts.values() for code in codes.split())
    assert set(codes.values()) == {1}


def test_severity_grows_with_the_share_of_lines_and_a_few_lines_raise_none():
    assert [Finding("copy", "train", "pair", n, 1000).severity for n in (1, 9, 10, 49, 50)] == [
        "note", "note", "warning", "warning", "error",
    ]  # fmt: skip
    assert Finding("copy", "train", "pair", 10, 10).severity == "note"
    assert Finding("not-utf8", "train", "source", 1, 10).severity == "error"
    found = [Finding("copy", "train", "pair", n, 1000) for n in (1, 10)]
    assert (worst(found), worst([]), worst(found[:1])) == ("warning", None, "note")
    assert all(check.warning <= check.error for check in CHECKS.values())


def test_bars_are_as_long_as_their_counts():
    assert [len(text_bar(n, 8, 8)) for n in (0, 1, 4, 8)] == [0, 1, 4, 8]
    assert (text_bar(1, 10**9, 10), text_bar(3, 16, 2), text_bar(5, 8, 1)) == ("▏", "▍", "▋")
    assert text_bars([("a", 3), ("bcd", 1)], width=3) == ["  a 3  75.0 % ███", "bcd 1  25.0 % █"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no corpus"), ({"data": "d", "train": ("a",)}, "cannot be combined"), ({"train": ("a",)}, "-lang"),
        ({"data": "d", "vocabulary": "v"}, "--vocabulary and --data cannot"), ({"source": ("a",)}, "needs a target"),
        ({"data": "d", "workers": 0}, r"--workers (is )?0"), ({"data": "d", "max_ratio": 0.5}, r"--max-ratio (is )?0.5"),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        DoctorOptions(**given)


def test_the_number_of_workers_changes_no_result(look, monkeypatch):
    monkeypatch.setattr(nmt.extensions.doctor.sets, "CHUNK_PAIRS", 20)
    source, target = clean()
    source[50] = source[3]
    one, two = (look(source, target, (source[:2], target[:2]), workers=workers) for workers in (1, 2))
    assert one.to_json() == two.to_json()
    assert {finding.check for finding in one.findings} == {"several-targets", "in-training", "numbers-differ"}
