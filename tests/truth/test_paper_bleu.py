"""The paper's BLEU step by step: each step against its definition, on constructed cases and on real outputs."""

import gzip
import math
import random
import shutil
import subprocess
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from sacremoses import MosesTokenizer

from nmt import registry
from nmt.errors import UserError
from nmt.extensions.scores.metrics.paper_bleu import (
    PaperBleu,
    PaperBleuOptions,
    check_language,
    language_of,
    multi_bleu,
    replace_punctuation,
    split_compounds,
)

SCORING = Path(__file__).parents[3] / "shared/data/scoring"
LINES = 200  # of each real output
# replace-unicode-punctuation.perl: what it looks for and what it writes, in its order; 1 becomes a quote there indeed.
SCRIPT = [
    ("，", ","), ("。", ". "), ("、", ","), ("”", '"'), ("“", '"'), ("∶", ":"), ("：", ":"), ("？", "?"),
    ("《", '"'), ("》", '"'), ("）", ")"), ("！", "!"), ("（", "("), ("；", ";"), ("１", '"'), ("」", '"'),
    ("「", '"'), ("０", "0"), ("３", "3"), ("２", "2"), ("５", "5"), ("６", "6"), ("９", "9"), ("７", "7"),
    ("８", "8"), ("４", "4"), ("．", ". "), ("～", "~"), ("’", "'"), ("…", "..."), ("━", "-"), ("〈", "<"),
    ("〉", ">"), ("【", "["), ("】", "]"), ("％", "%"),
]  # fmt: skip
LEFT_ALONE = "„‚‘‛‟«»‹›–—‐‑‒―−·•´`'\"\u00a0\u202f\u2009\u200b\u00adäöüßÄÖÜéèœçÇ€°№¿¡一字"
COMPOUNDS = [
    "a-b",
    "a-b-c",
    "ab-bc-cd",
    "a - b",
    "a -b",
    "-a",
    "a-",
    "--",
    "---",
    "a--b",
    "a-b-",
    "",
    "ü-ä-ö",
    "a-ü-b",
    "ß-ß-x",
]


def paper_bleu(language):
    return PaperBleu(PaperBleuOptions(target_lang=language))


def values(language, hypotheses, references):
    """The value of BLEU by each definition."""
    scores = paper_bleu(language).definitions(hypotheses, [references])
    return {name: score.value for name, score in scores}


def script_by_script(text: str) -> str:
    """The punctuation script: one replacement after the other."""
    for mark, replacement in SCRIPT:
        if replacement == ". ":
            while f"{mark} " in text:
                text = text.replace(f"{mark} ", mark)
        text = text.replace(mark, replacement)
    return text


def split_by_scanning(text: str) -> str:
    """What a global substitution does, byte by byte: after a match it continues at its end."""
    line, result, i = text.encode(), b"", 0
    while i < len(line):
        before, middle, after = line[i : i + 1], line[i + 1 : i + 2], line[i + 2 : i + 3]
        if middle == b"-" and before and after and before not in b" \t" and after not in b" \t":
            result, i = result + before + b" ##AT##-##AT## " + after, i + 3
        else:
            result, i = result + before, i + 1
    return result.decode()


def bleu_by_counting(hypotheses: list[str], references: list[list[str]]) -> float:
    """multi-bleu.perl: clipped matches of 1 to 4 tokens over the corpus, and the closest length, of two the shorter."""

    def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
        return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))

    matches, totals, length, reference_length = [0] * 4, [0] * 4, 0, 0
    for lines in zip(hypotheses, *references, strict=True):
        tokens, *others = (line.split(" ") for line in lines)
        length += len(tokens)
        reference_length += min((abs(len(other) - len(tokens)), len(other)) for other in others)[1]
        for n in range(1, 5):
            for ngram, count in ngrams(tokens, n).items():
                totals[n - 1] += count
                matches[n - 1] += min(count, max(ngrams(other, n)[ngram] for other in others))
    if 0 in matches:
        return 0.0
    precision = math.exp(math.fsum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4)
    return 100 * precision * (1.0 if length >= reference_length else math.exp(1 - reference_length / length))


def test_exactly_the_marks_of_the_script_are_replaced():
    for mark, replacement in SCRIPT:
        assert replace_punctuation(f"a{mark}b") == f"a{replacement}b"
    assert replace_punctuation(LEFT_ALONE) == LEFT_ALONE
    known = {mark for mark, _ in SCRIPT}
    others = "".join(chr(i) for i in range(0x20, 0x10000) if not 0xD800 <= i < 0xE000 and chr(i) not in known)
    assert replace_punctuation(others) == others


def test_fullwidth_forms_follow_unicode_with_one_exception():
    fullwidth = [mark for mark, _ in SCRIPT if unicodedata.name(mark).startswith("FULLWIDTH") and mark != "１"]
    assert len(fullwidth) == 19
    for mark in fullwidth:
        assert replace_punctuation(mark).strip() == unicodedata.normalize("NFKC", mark)
    assert replace_punctuation("１") == '"'


def test_adjacent_marks_are_replaced_in_the_order_of_the_scripts_lines():
    chance = random.Random(1)
    marks = [mark for mark, _ in SCRIPT] + ["。", "．", " ", " ", " ", "a", "ü", "\u00a0", "-", "."] * 3
    for _ in range(2000):
        text = "".join(chance.choices(marks, k=chance.randint(0, 12)))
        assert replace_punctuation(text) == script_by_script(text)


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("de", "„Ja“, sagte er.", '„ Ja " , sagte er .'),
        ("de", "‚Nein’ – ‘doch’ — “so”…", "‚ Nein ' – ‘ doch ' — \" so \" ..."),
        ("de", "»Über« ‹Öl›, Straße: 3,5 % (z.B. 1.000)!", "» Über « ‹ Öl › , Straße : 3,5 % ( z.B. 1.000 ) !"),
        ("de", "Rock’n’Roll ist’s", "Rock ' n ' Roll ist ' s"),
        ("de", "EU-Haushalt, 70er-Jahre‑Stil", "EU-Haushalt , 70er-Jahre ‑ Stil"),
        ("de", "（Ｅ５０％）；ok？", "( Ｅ50 % ) ; ok ?"),
        ("fr", "« L’été d’aujourd’hui »\u00a0: 10\u202f000\u00a0€\u202f!", "« L' été d' aujourd' hui » : 10 000 € !"),
        ("fr", "Qu’est-ce que c’est… «\u202foui\u202f» ?", "Qu' est-ce que c' est ... « oui » ?"),
    ],
)
def test_text_is_tokenized_as_by_moses(language, text, tokens):
    assert registry.find("tokenizer", "moses").cls(language).tokenize(replace_punctuation(text)) == tokens


def test_a_stop_that_ends_a_line_stays_with_an_abbreviation():
    # Where sacremoses is tokenizer.perl 1.1 as it was: later ones cut the stop off every last word (docs/explanation/bleu.md).
    assert registry.find("tokenizer", "moses").cls("de").tokenize("Sport usw.") == "Sport usw."
    assert registry.find("tokenizer", "moses").cls("de").tokenize("Sport usw. und Musik.") == "Sport usw. und Musik ."


def test_compounds_are_split_match_by_match():
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"
    assert split_compounds("ab-bc-cd") == "ab ##AT##-##AT## bc ##AT##-##AT## cd"
    assert split_compounds("Nord-Süd-Achse - 3-4") == "Nord ##AT##-##AT## Süd ##AT##-##AT## Achse - 3 ##AT##-##AT## 4"
    assert split_compounds("a-ü-b") == "a ##AT##-##AT## ü ##AT##-##AT## b"
    for text in [*COMPOUNDS, *random_compounds()]:
        assert split_compounds(text) == split_by_scanning(text)


@pytest.mark.skipif(shutil.which("perl") is None, reason="there is no perl here")
def test_compounds_are_split_as_perl_itself_does():
    texts = [*COMPOUNDS, *random_compounds()]
    program = ["perl", "-ple", r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"]
    given = "".join(f"{text}\n" for text in texts).encode()
    perl = subprocess.run(program, input=given, capture_output=True, check=True, timeout=60, env={"LC_ALL": "C"})
    assert [split_compounds(text) for text in texts] == perl.stdout.decode().split("\n")[:-1]


def random_compounds() -> list[str]:
    chance = random.Random(2)
    return ["".join(chance.choices("ab-- ü€\u00a0一", k=chance.randint(1, 14))) for _ in range(500)]


@pytest.mark.parametrize("num_references", [1, 3])
def test_multi_bleu_equals_a_direct_count(num_references):
    chance = random.Random(3)
    for case in range(60):
        words = ["a", "b", "c", "d"][: chance.randint(1, 4)]
        lines = [
            [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(6)]
            for _ in range(num_references + 1)
        ]
        value = multi_bleu(lines[0], lines[1:], "").value
        assert value == pytest.approx(bleu_by_counting(lines[0], lines[1:]), abs=1e-9), case


def test_multi_bleu_is_zero_without_a_matching_4_gram_and_penalises_short_output():
    assert multi_bleu(["a b c x d e f"], [["a b c d e f g"]], "").value == 0
    assert multi_bleu(["a b c"], [["a b c"]], "").value == 0  # there are no four
    assert multi_bleu(["a b c d e"], [["a b c d e f g h"]], "").value == pytest.approx(100 * math.exp(1 - 8 / 5))
    assert multi_bleu(["a b c d e"], [["a b c d e f"], ["a b c d"]], "").value == pytest.approx(100)  # 4 is as near
    assert multi_bleu(["A b c d"], [["a b c d"]], "").value == 0  # case counts


def test_a_table_names_and_explains_its_definitions():
    text = ["Der EU-Haushalt ist „groß“."]
    names, german = zip(*paper_bleu("de").definitions(text, [text]), strict=True)
    assert names == ("sacreBLEU 13a", "sacreBLEU intl", "tokenised", "paper")
    names, french = zip(*paper_bleu("fr").definitions(text, [text]), strict=True)
    assert names == ("sacreBLEU 13a", "sacreBLEU intl", "paper")
    assert all(score.value == pytest.approx(100) for score in (*german, *french))
    assert "|tok:13a|" in german[0].signature and "|tok:intl|" in german[1].signature
    assert ", de)" in german[3].signature and "compounds split, multi-bleu: nrefs:1|case:mixed" in german[3].signature
    assert all("compounds" not in score.signature for score in [german[2], *french])
    assert all("version:" in score.signature for score in (*german, *french))


def test_a_split_compound_is_partly_correct():
    hypothesis, reference = ["Das ist der EU-Rat ."], ["Das ist der EU-Haushalt ."]
    scores = values("de", hypothesis, reference)
    assert scores["paper"] == paper_bleu("de")(hypothesis, [reference]).value
    tokens = ["Das ist der EU ##AT##-##AT## Rat ."], [["Das ist der EU ##AT##-##AT## Haushalt ."]]
    assert scores["tokenised"] == pytest.approx(bleu_by_counting(hypothesis, [reference]))
    assert scores["paper"] == pytest.approx(bleu_by_counting(*tokens))
    assert scores["paper"] > scores["tokenised"]


@pytest.mark.skipif(not SCORING.is_dir(), reason="the published outputs are not beside the checkout")
@pytest.mark.parametrize("language", ["de", "fr"])
@pytest.mark.parametrize("system", ["google", "bergamot-base-memory"])
def test_the_papers_bleu_of_real_outputs_follows_its_definition(language, system):
    hypotheses, references = (
        gzip.decompress((SCORING / f"en-{language}/wmt13.{name}.{language}.gz").read_bytes())
        .decode()
        .split("\n")[:LINES]
        for name in (system, "ref")
    )
    moses = MosesTokenizer(lang=language)  # with the escapes that tokenizer.perl writes: they change no score
    tokens = [[moses.tokenize(script_by_script(line), return_str=True) for line in t] for t in (hypotheses, references)]
    split = [[split_by_scanning(line) for line in lines] for lines in tokens]
    scores = values(language, hypotheses, references)
    assert scores["tokenised" if language == "de" else "paper"] == pytest.approx(
        bleu_by_counting(tokens[0], [tokens[1]])
    )
    if language == "de":
        assert scores["paper"] == pytest.approx(bleu_by_counting(split[0], [split[1]]))


def test_a_language_is_read_from_the_ending_of_a_file_and_an_unknown_one_is_refused():
    names = ["ref.de", "/a.fr/ref.de.gz", "x.y.fr", "de", "ref.txt", "ref.gz", "ref.DE", ".de", "ref.de/x"]
    assert [language_of(name) for name in names] == ["de", "de", "fr", None, None, None, None, None, None]
    assert {language_of(f"ref.de{ending}") for ending in (".bz2", ".xz", ".sgm", ".sgm.gz")} == {"de"}
    check_language("cs")
    with pytest.raises(UserError, match="target language of the Moses tokenizer 'german'"):
        check_language("german")
    with pytest.raises(UserError, match="'xx'"):
        paper_bleu("xx")(["a"], [["a"]])
    with pytest.raises(UserError, match="--target-lang"):
        PaperBleu(PaperBleuOptions()).check()
