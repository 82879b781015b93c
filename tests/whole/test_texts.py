"""`nmt translate` of any text: sentences, tags, a glossary, and broken translations."""

import html
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from conftest import WORDS, small_model

from nmt import registry, translators
from nmt.cli.main import run
from nmt.dist import World
from nmt.errors import UserError
from nmt.extensions.texts.again import search_again, with_phrases
from nmt.extensions.texts.text_steps import TextSettings, text_steps
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.options import TranslatorOptions
from nmt.translate.requests import Request
from nmt.translate.results import UNCHANGED, Candidate, Translation
from nmt.translators import load

PARAGRAPH = "  Ban des kit.  Lora mus!\n\nBas den"


@pytest.fixture
def translate(trained, tmp_path, capfd):
    """`translate(text, *flags)` in this process: (exit status, output, stderr)."""

    def call(text, *flags):
        (tmp_path / "source").write_text(text)
        files = [f"--input={tmp_path / 'source'}", f"--output={tmp_path / 'output'}"]
        code = run(["translate", f"--model={trained}", *files, "--threads=1", "--engine=torch", *flags])
        output = (tmp_path / "output").read_text() if (tmp_path / "output").exists() else None
        return code, output, capfd.readouterr().err

    return call


def test_sentences_are_translated_one_by_one_and_white_space_is_kept(translate):
    _, alone, _ = translate("Ban des kit.\nLora mus!\nBas den\n")
    first, second, third = alone.splitlines()
    code, output, _ = translate(f"{PARAGRAPH}\n", "--split")
    assert code == 0 and output == f"  {first}  {second}\n\n{third}\n"
    assert translate(f"{PARAGRAPH}\n", "--split", "--n-best=2")[1].startswith(
        f"0 |||   {first}  {second} ||| LogProb= "
    )


def test_ranks_share_out_whole_texts(translate):
    text = "\n".join(f"{a}. {b}!" for a in ("Ban des", "Kit", "Lora mus") for b in ("Bas den", "Lot"))
    assert translate(text, "--split", "--devices=2", "--device=cpu")[1] == translate(text, "--split")[1]


def test_tags_are_kept_around_the_same_text(translate):
    plain = translate("ban des kit lora mus\n")[1]  # the signs are not in the vocabulary, and are restored
    text = "<a>ban <b x='1'>des</b></a> &amp; kit<c/> lora &lt; <d>mus</d>\n"
    code, output, _ = translate(text, "--markup=xml")
    tree = ElementTree.fromstring(f"<root>{output}</root>")
    words = "".join(tree.itertext()).split()
    assert code == 0 and [word for word in words if word not in "&<"] == plain.split() and {"&", "<"} < set(words)
    assert sorted(node.tag for node in tree.iter()) == ["a", "b", "c", "d", "root"]
    assert tree.find("a/b").attrib == {"x": "1"}
    assert sorted(re.findall(r"&\w+;", translate("a < b &amp; ban\n", "--markup=xml")[1])) == ["&amp;", "&lt;"]


def test_blocks_of_a_page_are_translated_separately_and_code_is_kept(translate):
    first, second = translate("ban des\nkit lora\n")[1].splitlines()
    page = "<ul><li>{}</li> <li>{}<br></ul><script>if (a < b) ban</script><p> <!-- ban --> 42 {{x}}</p>\n"
    assert translate(page.format("ban des", "kit lora"), "--markup=html")[:2] == (0, page.format(first, second))


def test_placeholders_that_the_model_cannot_generate_are_kept(translate):
    _, output, _ = translate("ban {name} des %d kit <b>https://x.org/?a=1</b>\n{name}\n", "--markup=xml", "--split")
    assert sorted(re.findall(r"\{name\}|%d|<b>https://x\.org/\?a=1</b>", output.splitlines()[0])) == [
        "%d", "<b>https://x.org/?a=1</b>", "{name}",
    ]  # fmt: skip
    assert output.splitlines()[1] == "{name}"


def test_a_glossary_determines_the_translation_of_its_terms(translate, tmp_path):
    (tmp_path / "terms").write_text("ban\tMUS BAS\n")
    plain = translate("Ban des kit\nkit\n")[1].splitlines()
    code, output, _ = translate("Ban des kit\nkit\n", f"--glossary={tmp_path / 'terms'}")
    first, second = output.splitlines()
    assert code == 0 and "MUS BAS" in first and "MUS BAS" not in plain[0] and second == plain[1]
    code, _, errors = translate("ban\n", f"--glossary={tmp_path / 'source'}")
    assert code == 3 and "source:1: 1 columns" in errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--split", "--alignment=hard"], "--split and --alignment cannot"),
        (["--markup=xml", "--raw-tokens"], "--markup and --raw-tokens cannot"),
        (["--repair", "--word-scores"], "--repair and --word-scores cannot"),
        (["--markup=sgml"], "must be none, html or xml"),
    ],
)
def test_incompatible_options_are_rejected(translate, flags, message):
    code, _, errors = translate("ban\n", *flags)
    assert code == 2 and message in errors


def test_a_prefix_requires_a_single_sentence(translate):
    lines = [{"source": "Ban. Des.", "target_prefix": "x"}, {"source": "<p>Ban<p>Des", "target_prefix": "x"}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    code, output, _ = translate(text, "--split", "--markup=html", "--input-form=json")
    first, second = map(json.loads, output.splitlines())
    assert code == 5 and "error" not in first and "a single block" in second["error"]


def test_ctranslate2_translates_sentences_too(trained, tmp_path):
    pytest.importorskip("ctranslate2")
    own, other = (load_texts(trained, engine) for engine in ("torch", "ctranslate2"))
    assert (
        other.engine.signature.endswith(other.engine.signature.split("|")[-1])
        and "ctranslate2" in other.engine.signature
    )
    assert [t.text for t in other.translate([PARAGRAPH, ""])] == [t.text for t in own.translate([PARAGRAPH, ""])]


def load_texts(model, engine):
    return load(model, options=TranslatorOptions(split=True, engine=engine, replicas=1, threads=1))


@pytest.fixture
def work(trained):
    """`work(text, settings, search)`: the translation of a text by a search (text, again) -> text, and the rounds."""
    pipeline = load(trained).pipeline

    def call(text, settings, search):
        rounds = text_steps(Request(text), settings, pipeline)
        seen = []
        try:
            wanted = next(rounds)
        except StopIteration as stop:
            return stop.value, seen
        while True:
            seen.append((wanted.is_repair, [request.text for request in wanted.requests]))
            answers = [
                Translation([Candidate(search(r.text, wanted.is_repair), [], -1.0, -1.0)]) for r in wanted.requests
            ]
            try:
                wanted = rounds.send(answers)
            except StopIteration as stop:
                return stop.value, seen

    return call


LONG = "the man who saw the dog went home, and the woman stayed there for a while"


def test_a_broken_translation_is_repeated_in_parts_and_reported(work):
    def search(text, again):
        return text.upper() if again else "ho ho ho ho ho ho ho ho ho ho ho ho ho ho ho ho"

    translation, seen = work(LONG, TextSettings(repair=True), search)
    assert translation.text == LONG.upper() and "'ho' is repeated 16 times" in translation.warnings["repaired"]
    assert seen == [(False, [LONG]), (True, ["the man who saw the dog went home,", LONG[35:]])]
    translation, seen = work("One is here. " + LONG, TextSettings(repair=True, split=True), search)
    assert [again for again, _ in seen] == [False, True] and translation.text == ("One is here. " + LONG).upper()


def test_an_unrepaired_translation_is_reported_and_the_first_one_kept(work):
    translation, _ = work(LONG, TextSettings(repair=True), lambda text, again: "no" if again else "ja")
    assert translation.text == "ja" and "3% as long" in translation.warnings["broken"]
    translation, seen = work(LONG, TextSettings(repair=True), lambda text, again: text)
    assert not translation.warnings and len(seen) == 1
    translation, _ = work(LONG, TextSettings(), lambda text, again: "ja")
    assert not translation.warnings


def test_a_lost_placeholder_is_restored(work):
    settings = TextSettings(markup="xml")
    translation, seen = work("a {x} b", settings, lambda text, again: text)
    assert translation.text == "a {x} b" and len(seen) == 1


@pytest.mark.parametrize(
    ("settings", "text", "answers", "wanted"),
    [
        (TextSettings(markup="xml"), "See {x}. Go {y}.", {"See {x}.": "Siehe {x}.", "Go X1.": "Geh X1."}, "Siehe {x}. Geh {y}."),
        (TextSettings(markup="xml"), "<a>See</a> {x} now", {"See Anna now": "Siehe Anna"}, "<a>Siehe</a> {x}"),
        (TextSettings(check=True), " See {x} now ", {"See X1 now": "Jetzt X1 sehen"}, " Jetzt {x} sehen "),
        (TextSettings(check=True), "One is. Two is.", {"One is.": "Eins.", "Two is.": "Zwei."}, "Eins. Zwei."),
        (TextSettings(split=True), "1) One is.\tTwo 🐶 is.", {" One is.": "Eins.", "Two  is.": "Zwei."}, "1) Eins.\tZwei 🐶."),
        (TextSettings(split=True), "It''s {0}.", {"It's X1.": "C'est X1."}, "C''est {0}."),
        (TextSettings(check=True), "''It'' {0}'s.", {"''It'' X1's.": "''Es'' X1."}, "''Es'' {0}."),
        (TextSettings(split=True), "See {x} 🐶.", {"See X1 .": "Siehe X1."}, "Siehe {x} 🐶."),
        (TextSettings(split=True), "{n, plural, other {# dogs}}", {"X1 dogs": "X1 Hunde"}, "{n, plural, other {# Hunde}}"),
    ],
)  # fmt: skip
def test_lost_content_is_translated_again_in_other_ways(work, settings, text, answers, wanted):
    translation, _ = work(text, settings, lambda asked, again: answers.get(asked, "Ja."))
    assert translation.text == wanted and not translation.warnings


@pytest.mark.parametrize(
    "settings",
    [TextSettings(split=True), TextSettings(check=True), TextSettings(markup="html"), TextSettings(markup="xml")],
)
@pytest.mark.parametrize("answer", ["", "Ja."])
def test_a_text_that_remains_incomplete_is_kept_unchanged_and_reported(work, settings, answer):
    text = "See {x} now and <a>{n, plural, other {"
    translation, _ = work(text, settings, lambda asked, again: answer)
    assert translation.text == text and list(translation.warnings) == [UNCHANGED]


def test_texts_of_one_call_are_batched(trained):
    translator = load_texts(trained, "torch")
    batches = []
    inner = translator.engine.search

    def search(batch):
        batches.append(sum(map(len, batch)))
        return inner(batch)

    translator.engine.search = search
    translator.translate([PARAGRAPH, PARAGRAPH, "ban"])
    assert batches == [7]


def test_the_searches_for_phrases_and_for_broken_translations_keep_the_options_of_the_first(trained):
    beam = registry.choose("decoder", "beam", {"beam_size": 6, "alpha": 1.5, "max_len_a": 2.0})
    again = search_again(beam, [trained]).options
    assert (again.beam_size, again.alpha, again.max_len_a, again.no_repeat_ngram) == (12, 1.5, 2.0, 4)
    phrases = with_phrases(beam)
    assert phrases.name == "constrained-beam" and phrases.options.beam_size == 6
    assert search_again(registry.choose("decoder", "greedy"), [trained]).name == "beam"
    assert search_again(phrases, [trained]).name == "constrained-beam"


def test_a_model_without_attention_repairs_and_rejects_options_that_need_attention(tmp_path):
    model = small_model(tmp_path / "m", "neural-gpu", hidden_size=8)
    line = " ".join(2 * WORDS[:12])

    def translated(**options):
        short = {"max_len_a": 0, "max_len_b": 5}  # so that most of the text is missing
        given = TranslatorOptions(replicas=1, threads=1, engine="torch", **options)
        return load(model, options=given, decoder_options=short).translate([line])

    [translation] = translated(repair=True)
    assert translation.text and not translation.error and {"repaired", "broken"} & set(translation.warnings)
    for needed in ({"markup": "xml"}, {"alignment": "hard"}, {"replace_unk": True}):  # the model knows all these words
        with pytest.raises(UserError, match="this model has no attention"):
            translated(**needed)


def test_a_placeholder_invented_by_the_model_is_kept(work):
    translation, rounds = work("Pay five dollars.", TextSettings(markup="xml"), lambda text, again: "Zahle $USD.")
    assert translation.text == "Zahle $USD." and len(rounds) == 1
    translation, rounds = work("Pay {x} dollars.", TextSettings(markup="xml"), lambda text, again: "Zahle $USD.")
    assert "{x}" in translation.text and len(rounds) == 2


def test_a_repair_runs_in_the_same_place_as_the_first_search(trained, monkeypatch):
    worlds, whole, world = [], translators.open_engine, World(rank=1, size=2, local_rank=1, local_size=2)
    monkeypatch.setattr(translators, "open_engine", lambda request: worlds.append(request.world) or whole(request))
    options = TranslatorOptions(repair=True, replicas=1, threads=1, engine="torch")
    made = translators.open_translator([trained], options, registry.choose("decoder", "beam"), world)
    made._open_repair()
    assert worlds == [world, world]


def test_texts_to_avoid_can_come_from_a_pipe_and_apply_to_repairs(trained):
    reader, writer = os.pipe()
    os.write(writer, b"MULI BAN\n")
    os.close(writer)
    options = TranslatorOptions(avoid=f"/dev/fd/{reader}", repair=True, replicas=1, threads=1)
    made = translators.open_translator([trained], options, registry.choose("decoder", "beam"))
    for translator in (made, made._open_repair()):
        assert translator.encode([Request("ban")])[0].constraints.filters == {"avoid": ("MULI BAN",)}
    os.close(reader)


def test_untranslated_sentences_are_kept_and_reported(trained):
    rounds = text_steps(Request("Ban kit.\n\nMus lora."), TextSettings(split=True), load(trained).pipeline)
    assert len(next(rounds).requests) == 2
    with pytest.raises(StopIteration) as stop:
        rounds.send([Translation(), Translation()])
    assert stop.value.value.text == "Ban kit.\n\nMus lora." and list(stop.value.value.warnings) == [UNCHANGED]


def test_a_constrained_text_is_repaired_as_a_whole(trained):
    request = Request("first part is here, and the second is there for a while", "x", ("y",))
    rounds = text_steps(request, TextSettings(repair=True), load(trained).pipeline)
    next(rounds)
    again = rounds.send([Translation([Candidate("no", [], -1.0, -1.0)])])
    assert again.is_repair and [(r.text, r.prefix, r.phrases) for r in again.requests] == [(request.text, "x", ("y",))]


def test_a_repair_with_the_same_omission_is_discarded(trained):
    weights = [[1.0] + [0.0] * 30] * 6
    rounds = text_steps(Request(LONG), TextSettings(repair=True, markup="xml"), load(trained).pipeline)
    answer = [Translation([Candidate(LONG, [5] * 6, -1.0, -1.0, weights=weights)])]
    wanted = next(rounds)
    with pytest.raises(StopIteration) as stop:
        while True:
            wanted = rounds.send(answer * len(wanted.requests))
    translation = stop.value.value
    assert list(translation.warnings) == ["broken"] and "got no attention" in translation.warnings["broken"]


def test_the_truncation_warning_suggests_no_option_that_does_not_help(work, capfd):
    translation, _ = work("ban " * 300_000, TextSettings(split=True), lambda text, again: text)
    assert translation.warnings == {"truncated text": "truncated to 1,048,576 characters"}
    assert len(translation.text.split()) == (1 << 20) // 4
    warnings = LineWarnings("book")
    warnings.add_translations([translation])
    warnings.log_counts()
    messages = capfd.readouterr().err
    assert (
        "book:1: truncated to 1,048,576 characters\n" in messages
        and "book: affected lines: 1 with too many characters" in messages
    )


def test_line_separator_characters_never_end_a_line_of_output(translate):
    code, output, _ = translate("<p>ban&#10;des</p>&#x2028;\n1&#13;2\n", "--markup=html")
    assert code == 0 and len(output.splitlines()) == 2 and output.splitlines()[1] == "1 2"


def test_a_string_is_not_accepted_as_a_list_of_texts(trained):
    with pytest.raises(UserError, match="requests must be a list of lines"):
        load_texts(trained, "torch").translate("Ban des.")


def test_searches_without_repair_and_terms_are_rejected(translate, trained, tmp_path):
    (tmp_path / "terms").write_text("ban\tMUS\n")
    code, _, errors = translate("ban\n", f"--glossary={tmp_path / 'terms'}", "--decoder=sampling")
    assert code == 2 and "--glossary needs --decoder beam" in errors
    pytest.importorskip("ctranslate2")
    assert run(["export", f"--model={trained}", "--format=ctranslate2", f"--output={tmp_path / 'ct'}", "--quiet"]) == 0
    with pytest.raises(UserError, match="--repair needs the built-in search"):
        load(tmp_path / "ct", options=TranslatorOptions(repair=True))


LONG_TEXTS = {
    "nested": 8000 * "<b>dog " + 8000 * "</b>",
    "many sentences in elements": 90 * "<i>" + 6000 * "The dog runs. " + 90 * "</i>",
    "siblings": 9000 * "<b>dog</b> ",
    "single tags": 9000 * "a<x/>",
    "list numbers": 12000 * "1. ",
    "placeholders": 9000 * "{x} dog ",
    "comments": 9000 * "<!-- a --> ",
    "open declarations": 9000 * "<!DOCTYPE [",
    "a word": 160_000 * "a",
    "a message": "{a, plural, other {" + 9000 * "<b>dog</b> " + "}}",
}


@pytest.mark.parametrize("markup", ["none", "html", "xml"])
@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_long_text_takes_no_longer_than_its_parts(work, name, markup):
    """Steps whose work grows with the square of the length would take many minutes here."""
    text = LONG_TEXTS[name]
    translation, _ = work(text, TextSettings(split=True, markup=markup), lambda asked, again: asked)
    kept, wanted = (Counter(re.sub(r"\W", "", html.unescape(side))) for side in (translation.text, text))
    assert kept == wanted
