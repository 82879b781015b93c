"""The commands as a user chains them: prepare, train, average, translate, evaluate and score, for every model."""

import json
import math
import subprocess
from pathlib import Path

import pytest
from conftest import TINY, train_arguments, write_corpus
from forks import forked_nmt
from refusals import assert_refused

from nmt.data.shards import PreparedData
from nmt.runs import Checkpoints, find_model, saved_setting

SCORING = Path(__file__).parents[3] / "shared/data/scoring"
RNNSEARCH = ["--model=rnnsearch", "--hidden-size=24", "--embedding-size=16", "--attention-size=16", "--maxout-size=16"]
CONVS2S = [
    "--model=convs2s",
    "--encoder-layers=2x16k3",
    "--decoder-layers=16k3,20k1",
    "--embedding-size=16",
    "--output-size=16",
]
OTHER_MODELS = {"rnnsearch": RNNSEARCH, "convs2s": CONVS2S}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("test")
    write_corpus(folder / "test", 15, 3)
    return folder / "test"


def test_a_run_translates_with_its_best_checkpoint_and_a_model_folder_needs_nothing_else(
    trained, corpus, tmp_path, call
):
    best = Checkpoints(trained).ranked()[0]
    text = corpus.with_suffix(".en")
    moved = tmp_path / "elsewhere"
    best.rename(moved)
    try:
        alone = call("translate", "--model", moved, "--input", text)
    finally:
        moved.rename(best)
    assert alone.code == 0, alone.err
    assert call("translate", "--model", trained, "--input", text).out == alone.out
    assert alone.out.count("\n") == 15


def test_evaluate_gives_the_same_scores_from_a_file_and_from_a_model_always_with_signature(
    trained, corpus, tmp_path, call
):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    (tmp_path / "out").write_text(call("translate", "--model", trained, "--input", source).out)
    from_file = call("evaluate", "--hypothesis", tmp_path / "out", "--reference", reference, "--json")
    from_model = call("evaluate", "--model", trained, "--source", source, "--reference", reference, "--json")
    assert from_file.code == from_model.code == 0, from_model.err
    assert [row["metric"] for row in from_file.json] == ["bleu", "chrf", "ter"]
    assert all("version:" in row["signature"] and row["decoder"] is None for row in from_file.json)
    decoder = from_model.json[0]["decoder"]
    assert decoder.startswith("beam|") and "|alpha:0.6|" in decoder
    assert from_model.json == [{**row, "system": str(trained), "decoder": decoder} for row in from_file.json]
    assert call("evaluate", tmp_path / "out", reference, "--json").out == from_file.out
    assert call("evaluate", reference, tmp_path / "out", "--json").out != from_file.out
    as_text = call("evaluate", "--hypothesis", tmp_path / "out", "--reference", reference)
    assert as_text.out.splitlines() == [f"{row['detail']}  {row['signature']}" for row in from_file.json]
    assert as_text.err == ""


def test_piped_translations_score_the_same_as_those_in_a_file(corpus, call, nmt):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    from_file = call("evaluate", "--hypothesis", source, "--reference", reference, "--json")
    piped = nmt("evaluate", "--hypothesis=-", f"--reference={reference}", "--json", input=source.read_bytes())
    assert piped.returncode == 0, piped.stderr
    assert json.loads(piped.stdout) == [{**row, "system": "-"} for row in from_file.json]


def test_stdin_is_read_from_its_current_position(corpus, call, tmp_path):
    """As after `read -r header` in a shell."""
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    from_file = call("evaluate", "--hypothesis", source, "--reference", reference, "--json")
    (tmp_path / "text").write_text(f"a header\n{source.read_text()}")
    with (tmp_path / "text").open("rb", buffering=0) as file:
        file.seek(len("a header\n"))
        command = [forked_nmt(), "evaluate", "--hypothesis=-", f"--reference={reference}", "--json"]
        done = subprocess.run(command, stdin=file, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{**row, "system": "-"} for row in from_file.json]


def test_truncation_warnings_of_evaluate_name_only_flags_of_evaluate(trained, tmp_path, call):
    (tmp_path / "long").write_text("ban " * 1100 + "\n")
    made = call("evaluate", "--model", trained, "--source", tmp_path / "long", "--reference", tmp_path / "long")
    assert made.code == 0 and "truncated to 1,024 tokens\n" in made.err and "--max-source-length" not in made.err


def test_evaluate_reports_the_number_of_unnamed_lines_at_the_end(trained, tmp_path, call):
    (tmp_path / "a\nb").write_text("ban ban ban unheard\n" * 3 + "ban\n")
    made = call("evaluate", "--model", trained, "--source", tmp_path / "a\nb", "--reference", tmp_path / "a\nb")
    first, last = made.err.splitlines()
    assert first.endswith(
        "a\\nb:1: 1 of 4 tokens are not in the model's vocabulary (further lines of this kind are only counted)"
    )
    assert last.endswith("a\\nb: affected lines: 3 with unknown tokens")


def test_evaluate_rejects_unscorable_input_before_translating(trained, corpus, tmp_path, call):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    (tmp_path / "short").write_text("".join(reference.read_text().splitlines(keepends=True)[:-1]))
    (tmp_path / "empty").touch()
    asked = ["evaluate", "--model", trained, "--source", source, "--reference"]
    assert call(*asked[:2], tmp_path / "nowhere", *asked[3:], reference).code == 4
    assert call(*asked, reference, "--tokenize=ja-mecab").code == 2
    assert_refused(call(*asked, reference, tmp_path / "short"), 3, "has 15 lines", "has 14")
    empty = call("evaluate", "--hypothesis", tmp_path / "empty", "--reference", tmp_path / "empty")
    assert_refused(empty, 3, "no lines")
    wrong = call("evaluate", "--hypothesis", source, "--reference", reference, "--metrics", "bleu", "tr")
    assert_refused(wrong, 2, "'ter'")


def test_a_model_that_translates_no_line_is_scored_but_the_command_fails(broken, corpus, call):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    result = call("evaluate", "--model", broken, "--source", source, "--reference", reference, "--json", "--quiet")
    assert result.code == 5
    assert result.json[0]["value"] == 0
    assert f"{source}:1: not translated" in result.err
    assert "15 of 15 lines could not" in result.err.splitlines()[-1]


def test_evaluate_rejects_text_split_into_subwords(corpus, tmp_path, call):
    reference = corpus.with_suffix(".de")
    lines = reference.read_text().splitlines()
    split = [line.replace("A", "A@@ ") if i < 5 else line for i, line in enumerate(lines)]
    expected = sum("@@ " in line for line in split)
    assert expected > 1
    (tmp_path / "out").write_text("\n".join(split) + "\n")
    for hypothesis, against in ((tmp_path / "out", reference), (reference, tmp_path / "out")):
        result = call("evaluate", "--hypothesis", hypothesis, "--reference", against, "--quiet")
        assert_refused(result, 3, expected)
        assert result.out == "" and result.err.count("\n") == 1
    (tmp_path / "out").write_text("\n".join([lines[0] + "@@", *lines[1:]]) + "\n")
    assert call("evaluate", "--hypothesis", tmp_path / "out", "--reference", reference, "--quiet").err == ""


def test_evaluate_distinguishes_the_versions_of_newstest2014(tmp_path, call):
    filtered, whole = tmp_path / "newstest2014.de", tmp_path / "out"
    filtered.write_text("ein Satz mit Wörtern\n" * 2737)
    whole.write_text("ein Satz mit Wörtern\n" * 3003)
    result = call("evaluate", "--hypothesis", filtered, "--reference", filtered, "--metrics=bleu")
    assert result.code == 0 and result.err.startswith("nmt: warning: this test set has 2,737 lines")
    mixed = call("evaluate", "--hypothesis", whole, "--reference", filtered)
    assert_refused(mixed, 3, "out has 3,003 lines", "wmt14/full")
    assert call("evaluate", "--hypothesis", whole, "--reference", whole, "--metrics=bleu").err == ""


def test_paper_bleu_of_every_system_is_in_one_table(corpus, trained, tmp_path, call):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    result = call("evaluate", "--paper", "--hypothesis", source, reference, "--reference", reference)
    assert result.code == 0 and result.err == ""
    head, *rows = [line.split() for line in result.out.splitlines()]
    assert head == [str(source), str(reference), "signature"]
    names = ["sacreBLEU 13a", "sacreBLEU intl", "tokenised", "paper"]
    assert [" ".join(row).startswith(f"{name} 0.00 100.00") for row, name in zip(rows, names, strict=True)] == [
        True
    ] * 4
    as_json = call("evaluate", "--paper", "--hypothesis", source, reference, "--reference", reference, "--json").json
    assert [(row["system"], row["metric"]) for row in as_json] == [
        (str(path), name) for path in (source, reference) for name in names
    ]
    of_model = call("evaluate", "--paper", "--model", trained, "--source", source, "--reference", reference, "--json")
    assert of_model.code == 0 and "compounds split" in of_model.json[-1]["signature"]
    assert of_model.json[-1]["decoder"].startswith("beam|")


def test_the_language_of_the_files_or_model_selects_the_bleu_tokenizer(tmp_path, call):
    lines = [f"这条河有{word}很干净" for word in ("水", "鱼", "船", "沙", "石头", "名字")] * 4
    for name, texts in (("dev.en", [str(i % 6) for i in range(24)]), ("dev.zh", lines), ("ref", lines)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    reference, source = tmp_path / "dev.zh", tmp_path / "dev.en"

    def signature(*words):
        done = call("evaluate", *words, "--metrics=bleu", "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)[0]["signature"], "nmt: warning" in done.err

    named = signature(reference, reference)
    assert "|tok:zh|" in named[0] and not named[1]
    unnamed = signature(tmp_path / "ref", tmp_path / "ref")
    assert "|tok:13a|" in unnamed[0] and unnamed[1]
    assert "|tok:zh|" in signature(tmp_path / "ref", tmp_path / "ref", "--target-lang=zho_Hans")[0]
    assert "|tok:char|" in signature(reference, reference, "--tokenize=char")[0]

    prepared, run = tmp_path / "data", tmp_path / "run"
    arguments = ["--source-lang=en", "--target-lang=zh", f"--train={tmp_path / 'dev'}", f"--valid={tmp_path / 'dev'}"]
    assert call("prepare", *arguments, "--subword=char", f"--output={prepared}").code == 0
    for updates, words in ((2, []), (4, ["--tokenize=zh"])):
        assert call(*train_arguments(prepared, run, updates, "--valid-every=2u", *words)).code == 0
        assert saved_setting(find_model(run), "bleu_tokenize") == "zh"
    other = tmp_path / "other"
    assert call(*train_arguments(prepared, other, 2, "--bleu-tokenize=13a", "--valid-every=2u")).code == 0
    assert call(*train_arguments(prepared, other, 4, "--valid-every=2u")).code == 0
    for model, tokenizer in ((run, "zh"), (other, "13a")):
        of_model = [f"--model={model}", f"--source={source}", f"--reference={tmp_path / 'ref'}"]
        assert f"|tok:{tokenizer}|" in signature(*of_model)[0]
        assert "|tok:intl|" in signature(*of_model, "--tokenize=intl")[0]


def test_the_language_for_paper_bleu_comes_from_a_flag_or_a_file_name_or_is_required(corpus, tmp_path, call):
    lines = corpus.with_suffix(".de").read_bytes()
    (tmp_path / "ref").write_bytes(lines)
    (tmp_path / "ref.fr").write_bytes(lines)
    asked = ["evaluate", "--paper", "--json", "--hypothesis", tmp_path / "ref", "--reference"]
    assert_refused(call(*asked, tmp_path / "ref"), 2, "--target-lang")
    assert call(*asked, tmp_path / "ref", tmp_path / "ref.fr").code == 0
    assert len(call(*asked, tmp_path / "ref.fr").json) == 3
    assert len(call(*asked, tmp_path / "ref.fr", "--target-lang=de").json) == 4
    assert call(*asked, tmp_path / "ref.fr", "--target-lang=xx").code == 2
    for more in ("--lowercase", "--metrics=bleu", "--tokenize=intl", "--significance=bootstrap"):
        assert call(*asked, tmp_path / "ref.fr", more).code == 2


def test_systems_are_compared_with_the_first_and_results_are_reproducible(corpus, tmp_path, call):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    compared = ["evaluate", "--hypothesis", reference, source, "--reference", reference]
    plain = call(*compared, "--case-sensitive")
    assert [line.split()[:3] for line in plain.out.splitlines()[1:]] == [
        ["bleu", "100.00", "0.00"], ["chrf", *plain.out.splitlines()[2].split()[1:3]], ["ter", "0.00", "100.00"]
    ]  # fmt: skip
    for test in ("bootstrap", "randomization"):
        asked = [*compared, "--metrics", "bleu", "chrf", f"--significance={test}", "--trials=100"]
        result = call(*asked)
        assert result.code == 0 and result.out == call(*asked).out
        assert result.out.count("baseline") == result.out.count("|seed:12345|") == 2
        rows = call(*asked, "--json").json
        assert [row["p_value"] for row in rows] == [None, 1 / 101] * 2
    for more in (["--metrics=bleu"], ["--paper", "--target-lang=de"], ["--metrics=bleu", "--significance=bootstrap"]):
        assert all(
            row["signature"].endswith("|unicode:nfc")
            for row in call(*compared, *more, "--json", "--normalization=nfc").json
        )
    refused = [
        ["--significance=bootstrap"],
        ["--trials=5"],
        ["--case-sensitive", "--lowercase"],
        ["--source=x"],
        ["--significance=tea"],
    ]
    for more in refused:
        assert call("evaluate", "--hypothesis", reference, "--reference", reference, *more).code == 2
    assert call("evaluate", "--hypothesis", "-", "-", "--reference", reference).code == 2


@pytest.mark.skipif(not SCORING.is_dir(), reason="the published outputs are not beside the checkout")
@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
@pytest.mark.parametrize("system", ["google", "bergamot-base-memory"])
def test_evaluate_reproduces_published_bleu(pair, system, call):
    folder, language = SCORING / pair, pair.partition("-")[2]
    hypothesis, reference = folder / f"wmt13.{system}.{language}.gz", folder / f"wmt13.ref.{language}.gz"
    result = call("evaluate", "--hypothesis", hypothesis, "--reference", reference, "--metrics=bleu", "--json")
    published = float((folder / f"wmt13.{system}.{language}.bleu").read_text())
    assert round(result.json[0]["value"], 1) == published
    assert result.err == ""


# What perl made of the same files: tokenizer.perl 1.1, and the other three scripts that the chain names.
BY_PERL = {
    ("en-de", "google"): {"tokenised": 29.096337, "paper": 29.550332},
    ("en-de", "bergamot-base-memory"): {"tokenised": 28.028579, "paper": 28.446664},
    ("en-fr", "google"): {"paper": 26.276465},
    ("en-fr", "bergamot-base-memory"): {"paper": 35.813663},
}


@pytest.mark.skipif(not SCORING.is_dir(), reason="the published outputs are not beside the checkout")
@pytest.mark.parametrize(("pair", "system"), BY_PERL)
def test_paper_bleu_equals_that_of_the_perl_scripts(pair, system, call):
    folder, language = SCORING / pair, pair.partition("-")[2]
    hypothesis, reference = folder / f"wmt13.{system}.{language}.gz", folder / f"wmt13.ref.{language}.gz"
    result = call("evaluate", "--paper", "--hypothesis", hypothesis, "--reference", reference, "--json")
    values = {row["metric"]: row["value"] for row in result.json}
    assert round(values["sacreBLEU 13a"], 1) == float((folder / f"wmt13.{system}.{language}.bleu").read_text())
    for name, value in BY_PERL[pair, system].items():
        assert values[name] == pytest.approx(value, abs=0.002)  # one French line has another stop in sacremoses


def test_score_is_the_log_probability_that_beam_search_reports(trained, corpus, tmp_path, call):
    source = corpus.with_suffix(".en")
    found = call("translate", "--model", trained, "--json", "--input", source).out.splitlines()
    best = [json.loads(line) for line in found]
    (tmp_path / "out").write_text("".join(one["translation"] + "\n" for one in best))
    given = ["score", "--model", trained, "--source", source, "--target", tmp_path / "out"]
    scores = [float(line) for line in call(*given).out.split()]
    assert scores == pytest.approx([one["candidates"][0]["log_prob"] for one in best], abs=1e-4)
    detailed = [json.loads(line) for line in call(*given, "--per-token", "--json").out.splitlines()]
    for one in detailed:
        assert math.fsum(token["log_prob"] for token in one["tokens"]) == pytest.approx(one["log_prob"], abs=1e-6)
        assert one["tokens"][-1]["token"] == "</s>"
    means = [json.loads(line)["log_prob"] for line in call(*given, "--normalize", "--json").out.splitlines()]
    assert means == [one["log_prob"] / len(one["tokens"]) for one in detailed]


@pytest.mark.parametrize("model", OTHER_MODELS)
def test_other_models_work_with_the_same_commands(model, data, corpus, tmp_path, call):
    arguments = [argument for argument in train_arguments(data, tmp_path / "run", 20) if argument not in TINY]
    trained = call(*arguments, *OTHER_MODELS[model], "--batch-tokens=400", "--lr=0.1", "--threads=1")
    assert trained.code == 0, trained.err
    assert call("average", "--run", tmp_path / "run", "--last=2", "--output", tmp_path / "m").code == 0
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    assert call("translate", "--model", tmp_path / "m", "--input", source).out.count("\n") == 15
    assert call("score", "--model", tmp_path / "m", "--source", source, "--target", reference).out.count("\n") == 15
    assert call("evaluate", "--model", tmp_path / "m", "--source", source, "--reference", reference).code == 0


def test_bytenet_translates_characters_and_rejects_subword_data(data, corpus, tmp_path, call):
    write_corpus(tmp_path / "text", 80, 4)
    prepared = ["--source-lang=en", "--target-lang=de", "--train", tmp_path / "text", "--valid", corpus]
    assert call("prepare", *prepared, "--subword=char", "--output", tmp_path / "d").code == 0
    sizes = ["--model=bytenet", "--hidden-size=8", "--encoder-layers=3", "--decoder-layers=3", "--max-dilation=4"]
    arguments = [argument for argument in train_arguments(tmp_path / "d", tmp_path / "run", 10) if argument not in TINY]
    trained = call(*arguments, *sizes, "--bucket=10", "--threads=1")
    assert trained.code == 0, trained.err
    source, search = corpus.with_suffix(".en"), ["--beam-size=12", "--length-penalty=none"]
    translated = call("translate", "--model", tmp_path / "run", "--input", source, *search)
    assert translated.code == 0 and translated.out.count("\n") == 15
    alignment = call("translate", "--model", tmp_path / "run", "--input", source, "--alignment=hard")
    assert_refused(alignment, 2, "this model has no attention, which")
    arguments = [argument for argument in train_arguments(data, tmp_path / "other", 10) if argument not in TINY]
    assert_refused(call(*arguments, *sizes), 2, "model bytenet reads characters", "use nmt prepare --subword char")
    apart = ["--subword=char", "--no-joint-vocabulary", "--target-subword=bpe", "--vocab-size=60"]
    assert call("prepare", *prepared, *apart, "--output", tmp_path / "apart").code == 0
    arguments = [
        argument for argument in train_arguments(tmp_path / "apart", tmp_path / "other", 10) if argument not in TINY
    ]
    assert_refused(call(*arguments, *sizes), 2, "--subword bpe", "use nmt prepare --subword char")


def test_new_data_can_use_the_vocabulary_of_a_run_a_model_or_prepared_data(data, trained, corpus, tmp_path, call):
    for number, vocabulary in enumerate((trained, trained / "checkpoints/update-10", data)):
        output = tmp_path / str(number)
        asked = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={corpus}", f"--output={output}"]
        assert call(*asked, f"--vocabulary={vocabulary}", "--quiet").code == 0
        assert PreparedData(output).pipeline.hash == PreparedData(data).pipeline.hash


def test_data_with_a_different_vocabulary_is_rejected(data, trained, tmp_path, call):
    write_corpus(tmp_path / "other", 50, 9)
    prepared = ["--source-lang=en", "--target-lang=de", "--train", tmp_path / "other", "--valid", tmp_path / "other"]
    assert call("prepare", *prepared, "--subword=bpe", "--vocab-size=60", "--output", tmp_path / "d").code == 0
    scored = call("average", "--run", trained, "--last=1", "--output", tmp_path / "m", "--score", tmp_path / "d")
    assert_refused(scored, 4, "vocabulary differs")
    assert not (tmp_path / "m").exists()
    assert_refused(call(*train_arguments(tmp_path / "d", trained, 50)), 4, "trained on data that differs")
    own = ["--vocabulary", Checkpoints(trained).best(), "--output", tmp_path / "e"]
    assert call("prepare", *prepared, *own).code == 0
    scored = call("average", "--run", trained, "--last=1", "--output", tmp_path / "n", "--score", tmp_path / "e")
    assert scored.code == 0, scored.err


def test_evaluate_accepts_a_set_of_prepared_data_like_files(data, trained, call):
    from nmt.data.shards import PreparedData

    dev = next(iter(PreparedData(data).valid.values()))
    (trained.parent / "dev.en").write_text("".join(line + "\n" for line in dev.source_lines))
    (trained.parent / "dev.de").write_text("".join(line + "\n" for line in dev.target_lines))
    files = ["--source", trained.parent / "dev.en", "--reference", trained.parent / "dev.de"]
    of_files = call("evaluate", "--model", trained, *files, "--json")
    of_data = call("evaluate", "--model", trained, "--data", data, "--set=dev", "--json")
    assert of_data.code == 0, of_data.err
    assert of_data.json == of_files.json
    assert call("evaluate", "--model", trained, "--data", data).code == 2  # it has no test set
