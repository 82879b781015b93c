"""Tags are never altered nor split: by any step of text, any kind of subwords, sampling, and there and back."""

import pickle
import random

import numpy as np
import pytest
from conftest import train_arguments, write_corpus
from refusals import assert_refused

from nmt.artefact import Artefact
from nmt.data.prepare import PrepareOptions, prepare
from nmt.extensions.methods.noises.subword_sampling import SubwordSampler
from nmt.extensions.texts.text_steps import TextSettings, text_steps
from nmt.extensions.vocabularies.extension import is_extension
from nmt.extensions.vocabularies.segmentations import segmentations_of
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.rows import Rows
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline, Side, TextPreparer
from nmt.text.settings import SideSettings
from nmt.text.steps import Truecaser
from nmt.text.vocabulary import WordVocabulary
from nmt.translate.requests import Request

TAGS = ("<2de>", "<FORMAL>", ">>fr<<", "tag,comma")
WORDS = ["garden", "house", "river", "mountains", "teacher's", "Letters", "kitchen", "market"]
KINDS = ["bpe", "unigram", "char", "subword-nmt", "none"]


def corpus(folder, pairs=200):
    chance = random.Random(4)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 6))) + "." for _ in range(pairs)]
    tagged = [f"{chance.choice(TAGS[:2])} {line}" for line in lines]
    for language, text in (("en", tagged), ("de", lines)):
        (folder / f"c.{language}").write_text("".join(line + "\n" for line in text))
    (folder / "codes").write_text("#version: 0.2\nr i\nri v\ne r</w>\n< 2\n")
    return str(folder / "c")


def made(folder, subword, **more) -> Pipeline:
    given = {"vocab_size": 0 if subword in ("subword-nmt", "none") else 90, **more}
    given |= {"codes": (str(folder / "codes"),)} if subword == "subword-nmt" else {}
    languages = {"source_lang": "en", "target_lang": "de"}
    train, symbols = (corpus(folder),), (" ".join(TAGS[:2]), *TAGS[1:])
    options = PrepareOptions(
        **languages, output=str(folder / "data"), train=train, subword=subword, user_symbols=symbols, **given
    )
    prepare(options)
    return Pipeline.load(Artefact(folder / "data", "prepared-data"))


@pytest.mark.parametrize("subword", KINDS)
@pytest.mark.parametrize("steps", [{}, {"tokenizer": "moses", "truecase": True}, {"lowercase": True}])
def test_a_tag_is_one_token_anywhere_and_round_trips(subword, steps, tmp_path):
    pipeline = made(tmp_path, subword, **steps)
    side = pickle.loads(pickle.dumps(pipeline.source.vocabulary)) and pipeline.source
    ids = {tag: side.encode(tag) for tag in TAGS}
    assert all(len(of_tag) == 1 and of_tag[0] != UNK for of_tag in ids.values())
    assert len({of_tag[0] for of_tag in ids.values()}) == len(TAGS)
    for tag, [token] in ids.items():
        assert side.piece(token).strip("▁") == tag
        plain = side.encode("river house")
        assert side.encode(f"{tag} river house") == [token, *plain]
        assert side.encode(f"river house {tag}") == [*plain, token]
        assert side.encode(f"  {tag}\t<2de>  ") == [token, *ids["<2de>"]]
        assert side.decode([token, *plain]).lower() == f"{tag} river house".lower()
        assert side.decode([token]) == tag
    inside = side.encode("x<2de>y <2d <2de")
    assert not set(inside) & {token for [token] in ids.values()}
    assert pipeline.source.vocabulary.encode_batch(["<2de> river"]).words.tolist() == [2]


@pytest.mark.parametrize("subword", KINDS)
def test_an_extended_vocabulary_keeps_the_tags_whole(subword, tmp_path):
    old = made(tmp_path, subword)
    languages = {"source_lang": "en", "target_lang": "de"}
    new_text = "<2de> <FORMAL> vexqua vexqua zo"
    for language in ("en", "de"):
        (tmp_path / f"new.{language}").write_text(3 * f"{new_text}\n")
    train, output = (str(tmp_path / "new"),), str(tmp_path / "more")
    prepare(PrepareOptions(**languages, output=output, train=train, vocabulary=str(tmp_path / "data"), extend=60))
    new = Pipeline.load(Artefact(tmp_path / "more", "prepared-data"))
    assert is_extension(new, old) and new.source.vocabulary.size > old.source.vocabulary.size
    for tag in TAGS:
        assert new.source.encode(tag) == old.source.encode(tag) and len(new.source.encode(tag)) == 1
    pieces = [new.source.piece(token) for token in range(old.source.vocabulary.size, new.source.vocabulary.size)]
    assert not {"2", "d", "F", "O"} & set("".join(pieces)), pieces  # nothing is learnt from words that are not split


@pytest.mark.parametrize("subword", KINDS)
@pytest.mark.parametrize("steps", [{}, {"tokenizer": "moses", "truecase": True}, {"lowercase": True}])
def test_added_tags_are_tags_and_added_words_are_not(subword, steps, tmp_path):
    old, added = made(tmp_path, subword, **steps), ["<2XX>", "__yy__", ">>zz<<"]
    (tmp_path / "added").write_text("\n".join([*added, "peter", "<2de>", "<2XX>"]))
    for language in ("en", "de"):
        (tmp_path / f"new.{language}").write_text("<2XX> river\n")
    given = {"train": (str(tmp_path / "new"),), "vocabulary": str(tmp_path / "data"), "output": str(tmp_path / "more")}
    prepare(PrepareOptions(source_lang="en", target_lang="de", extend_with=str(tmp_path / "added"), **given))
    new = Pipeline.load(Artefact(tmp_path / "more", "prepared-data"))
    assert is_extension(new, old) and not is_extension(old, new)
    for side, before in ((new.source, old.source), (new.target, old.target)):
        assert side.prepare.tags == (*TAGS, *added)
        assert side.size == before.size + len(added) + 1
        assert side.unknown_tag("<2es> river") == "<2es>" and side.unknown_tag("<2XX> river") == ""
        for tag in added:
            [token] = side.encode(tag)
            assert side.encode(f"{tag} river house") == [token, *before.encode("river house")]
            assert side.decode([token, *before.encode("river")]).lower() == f"{tag} river".lower()


@pytest.mark.parametrize("subword", KINDS)
def test_only_sentencepiece_splits_a_tag_from_the_start_of_a_longer_word(subword, tmp_path):
    pieces = made(tmp_path, subword).source.pieces("tag,commas")
    assert ("▁tag,comma" in pieces) == (subword in ("bpe", "unigram", "char"))


def test_merges_with_different_user_symbols_are_not_an_extension():
    settings = SideSettings("en", "none", False, False, "none", "subword-nmt")
    old, new = (CodesVocabulary("#version: 0.2\na b\n", ["<2de>", "b"], symbols) for symbols in (["<2de>"], []))
    of_both = [Pipeline(Side(settings, each), Side(settings, each), True) for each in (old, new)]
    assert is_extension(of_both[0], of_both[0]) and not is_extension(of_both[1], of_both[0])


@pytest.mark.parametrize("subword", ["bpe", "unigram", "subword-nmt"])
def test_sampling_of_subwords_leaves_a_tag_whole(subword, tmp_path):
    side = made(tmp_path, subword).source
    token = side.encode("<FORMAL>")[0]
    ids = np.array(side.encode("<FORMAL> river river <FORMAL>"), dtype=np.int64)
    sampler = SubwordSampler(segmentations_of(side.vocabulary, 1.0), 1.0)
    for key in range(5):
        sampled = sampler(Rows(ids, np.array([len(ids)])), np.array([key], dtype=np.uint64), 1000).values.tolist()
        assert (sampled[0], sampled[-1], sampled.count(token)) == (token, token, 2)
        assert side.decode(sampled) == "<FORMAL> river river <FORMAL>"


def test_the_text_after_a_tag_is_prepared_as_without_it():
    settings = ("en", "nfkc", False, False, "moses", "none")
    truecaser = Truecaser([["the"], ["Rhine"]])
    plain = TextPreparer(SideSettings(*settings, truecase=True), truecaser)
    tagged = TextPreparer(SideSettings(*settings, truecase=True, user_symbols=TAGS), truecaser)
    text = "The Rhine isn't wide, is it?"
    assert tagged([f"<2de> {text}", text, "<2de>"]) == [f"<2de> {plain([text])[0]}", plain([text])[0], "<2de>"]
    assert tagged.undo(tagged([f"<2de> {text}"])[0]) == f"<2de> {text}"


def test_text_that_looks_like_a_tag_is_reported_only_at_the_start():
    side = Side(SideSettings("en", "nfc", False, False, "none", "none", user_symbols=TAGS), WordVocabulary(["<added>"]))
    assert side.unknown_tag("<2fr> house") == "<2fr>"
    assert side.unknown_tag("<2de> <formal> house") == "<formal>"
    assert side.unknown_tag(">>de<< house") == ">>de<<"
    for text in ("<2de> house", "<added> house", "house <2fr>", "", "< house", "tag,other house"):
        assert side.unknown_tag(text) == ""
    without = Side(SideSettings("en", "nfc", False, False, "none", "none"), WordVocabulary([]))
    assert without.unknown_tag("<2fr> house") == ""


@pytest.mark.parametrize("symbol", ["</s>", "a▁b", "x@@", "\udcff"])
def test_symbols_that_have_another_meaning_are_refused(symbol):
    with pytest.raises(ValueError, match="must not be a control symbol"):
        PrepareOptions(source_lang="en", target_lang="de", output="d", train=("c",), user_symbols=(symbol,))


def test_prepare_and_translate_report_a_tag_missing_from_the_vocabulary(tmp_path, call):
    write_corpus(tmp_path / "c", 60, 1)
    lines = (tmp_path / "c.en").read_text().splitlines()
    (tmp_path / "c.en").write_text("".join(f"<2de> {line}\n" for line in lines))
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'c'}", "--vocab-size=60"]
    assert call(*arguments, "--user-symbols", "<2de> <2fr>", f"--output={tmp_path / 'data'}").code == 0
    assert call(*train_arguments(tmp_path / "data", tmp_path / "run", 10)).code == 0
    (tmp_path / "in").write_text("<2de> " + lines[0] + "\n<2es> " + lines[0] + "\n")
    told = call("translate", f"--model={tmp_path / 'run'}", f"--input={tmp_path / 'in'}")
    assert told.code == 0 and len(told.out.splitlines()) == 2
    assert "in:2: '<2es>' is not a tag of this model and is read as text (it has <2de>, <2fr>)" in told.err
    assert "in:1" not in told.err and "1 with an unknown tag" in told.err
    again = [*arguments[:-1], f"--vocabulary={tmp_path / 'run'}", f"--output={tmp_path / 'more'}"]
    assert_refused(call(*again, "--user-symbols=<2es>"), 2, "'<2es>'", "--extend-with", "FILE")
    assert call(*again, "--user-symbols=<2de>").code == 0


@pytest.mark.parametrize("corpus", ["--train", "--valid"])
def test_corpus_tags_missing_from_the_vocabulary_are_reported_with_file_and_line(corpus, tmp_path, call):
    write_corpus(tmp_path / "c", 60, 1)
    lines = (tmp_path / "c.en").read_text().splitlines()
    tagged = [f"<2{'es' if i in (30, 50) else 'de'}> {line}" for i, line in enumerate(lines, 1)]
    for name, of_file in (("c", [f"<2de> {line}" for line in lines]), ("t", tagged)):
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in of_file))
        (tmp_path / f"{name}.de").write_text((tmp_path / "c.de").read_text())
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'c'}"]
    told = call(
        *arguments,
        f"{corpus}={tmp_path / 't'}",
        "--vocab-size=60",
        "--user-symbols=<2de>",
        f"--output={tmp_path / 'd'}",
    )
    assert told.code == 0
    where = (
        "t.en:30: '<2es>' is not a tag in this vocabulary, so it is read as text (known tags: <2de>; add more with "
        "--user-symbols)"
    )
    assert f"{where}; {'train' if corpus == '--train' else 't'} has 2 lines with unknown tags" in told.err
    more = call(
        *arguments, f"{corpus}={tmp_path / 't'}", f"--vocabulary={tmp_path / 'd'}", f"--output={tmp_path / 'e'}"
    )
    assert more.code == 0 and "t.en:30: '<2es>'" in more.err and "(known tags: <2de>; --extend-with" in more.err
    (tmp_path / "tags").write_text("<2es>\n")
    extended = ["--vocabulary", tmp_path / "d", "--extend-with", tmp_path / "tags", f"--output={tmp_path / 'f'}"]
    known = call(*arguments, f"{corpus}={tmp_path / 't'}", *extended)
    assert known.code == 0 and "not a tag" not in known.err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<2de> <formal> I am here. You are there.", ["<2de> <formal> I am here.", "<2de> <formal> You are there."]),
        ("I am here. You are there.", ["I am here.", "You are there."]),
    ],
)
def test_the_tags_of_a_text_apply_to_each_of_its_sentences(text, wanted):
    settings = SideSettings("en", "nfc", False, False, "none", "none", user_symbols=("<2de>", "<2en>", "<formal>"))
    side = Side(settings, WordVocabulary(["<2de>", "<2en>", "<formal>", "I"]))
    steps = text_steps(Request(text), TextSettings(split=True), Pipeline(side, side, True))
    assert [request.text for request in next(steps).requests] == wanted


def test_symbols_between_commas_are_refused():
    with pytest.raises(ValueError, match="not commas"):
        PrepareOptions(source_lang="en", target_lang="de", train=("x",), output="y", user_symbols=("<2de>,<formal>",))
