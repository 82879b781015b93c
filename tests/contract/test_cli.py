"""Settings, flags, exit statuses and streams of every command (docs/reference/contract.md, docs/reference/settings.md)."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from conftest import ENVIRONMENT, NMT, small_disk, train_arguments
from pages import DOCUMENTS, PAGES, ROOT, code_blocks
from refusals import assert_refused
from typer.testing import CliRunner

from nmt import registry
from nmt.cli import main, peers, train
from nmt.cli.command import DEFAULTS, Command, CommonOptions
from nmt.cli.commands import commands
from nmt.cli.parameters import flags_of, spread_values
from nmt.device import choose_device
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import Option, convert, options_of

RUN = ("--data=d", "--output=o")


@pytest.fixture
def call(capsys, monkeypatch) -> Callable[..., SimpleNamespace]:
    """`call(arguments)` runs a command in this process, with a registry of its own: code, out, err."""
    registry.presets()
    for kind in registry.FOLDERS:  # a module is imported once: what it registers must be on the shelf that stays
        for name in registry.names(kind):
            registry.find(kind, name)
    old = registry._shelf
    monkeypatch.setattr(registry, "_shelf", registry._Shelf(dict(old.parts), dict(old.presets), dict(old.plugins)))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> SimpleNamespace:
        code = main.run([str(argument) for argument in arguments])
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())

    return run


@pytest.fixture
def dumped(call) -> Callable[..., dict[str, object]]:
    """The settings that `nmt train` has, as --dump-config prints them."""

    def settings(*arguments: object) -> dict[str, object]:
        shown = call("train", *RUN, *arguments, "--dump-config")
        assert shown.code == 0, shown.err
        return tomllib.loads(shown.out)

    return settings


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_help_and_refuses_an_unknown_flag(command, call):
    shown = call(command, "--help")
    assert shown.code == 0 and "--config" in shown.out
    refused = call(command, "--no-such-flag")
    assert refused.code == 2 and refused.out == ""
    *errors, last = refused.err.splitlines()
    assert "'--no-such-flag'" in errors[0] and last.startswith(("nmt: error: ", f"try: nmt {command}"))
    assert all(error.startswith("nmt: error: ") for error in errors)


def test_an_unknown_command_names_the_nearest(nmt):
    assert_refused(nmt("trian"), 2, "'train'")


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("tiny", "'transformer-student-tiny' or 'transformer-tiny'"),
        ("iwslt", "'convs2s-iwslt' or 'transformer-iwslt'"),
        ("rnn", "'rnnsearch' or 'rnnsearch-small'"),
    ],
)
def test_a_partial_name_is_answered_with_the_names_that_contain_it(given, suggested, call):
    assert f"unknown preset '{given}' (did you mean {suggested}?)" in call("train", "--preset", given).err


def test_too_many_names_that_contain_a_word_are_not_listed(call):
    assert "did you mean" not in call("train", "--preset", "table3").err
    assert "did you mean" not in call("train", "--preset", "e").err


@pytest.mark.parametrize(
    "flags", [("--source", "-", "--target", "x"), ("--train", "-"), ("--train", "x", "--test-source", "-")]
)
def test_prepare_says_that_it_does_not_read_stdin(flags, call, tmp_path):
    refused = call("prepare", "--source-lang=en", "--target-lang=de", *flags, "--output", tmp_path / "d")
    named = flags[flags.index("-") - 1]
    assert_refused(refused, 2, named)


def test_the_error_for_a_mistyped_flag_value_or_key_suggests_the_right_one(call, tmp_path):
    assert "did you mean --dropout?" in call("train", "--dropuot", "0.1").err
    for more in ((), ("--dump-config",)):
        assert_refused(call("train", *RUN, "--dropout=lots", *more), 2, "'lots'", "a number")
    assert "--dropout 1.5" in call("train", *RUN, "--dropout=1.5").err
    config = tmp_path / "s.toml"
    config.write_text("dropuot = 0.1\n")
    assert_refused(call("train", "--config", config), 2, "s.toml", "'dropout'")


def test_flags_override_files_and_files_override_presets_and_each_origin_is_shown(call, tmp_path):
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("dropout = 0.2\nheads = 2\nd-ff = 99\n")
    second.write_text("heads = 4\n")
    given = ["train", "--preset=transformer-big", "--config", first, second, "--d-ff=7", *RUN]
    dumped = call(*given, "--dump-config").out
    values = tomllib.loads(dumped)
    assert (values["d_model"], values["dropout"], values["heads"], values["d_ff"]) == (1024, 0.2, 4, 7)
    assert "d_model = 1024  # preset transformer-big" in dumped
    assert f"dropout = 0.2  # {first}" in dumped
    assert f"heads = 4  # {second}" in dumped
    assert "d_ff = 7  # the command line" in dumped
    assert "adam_eps = 1e-09" in dumped
    (tmp_path / "all.toml").write_text(dumped)
    assert tomllib.loads(call("train", "--config", tmp_path / "all.toml", "--dump-config").out) == values


def test_the_chosen_components_decide_which_flags_exist(call):
    shown = call("train", "--model", "rnnsearch", "--help").out
    assert "--d-ff" not in shown
    assert "--d-ff" in call("train", "--help", "model").out
    assert call("train", "--model=rnnsearch", "--d-ff=3").code == 2


@pytest.mark.parametrize("columns", ["1", "40", "60", "80", "200"])
def test_help_shows_every_flag_whole_however_narrow_the_terminal(columns, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    shown = call("prepare", "--help").out
    shown = shown[shown.index("\n\n", shown.index("Examples")) :]
    options = [option for group in command_of("prepare").own_groups().values() for option in group]
    for option in options:
        label = option.label if option.positional else f"(-., )?{option.flag}"
        assert re.search(rf"^  {label}(?![\w-])", shown, re.M)
    longest = max(len(option.flag + option.type_name) + 10 for option in options)
    assert max(map(len, shown.splitlines())) <= max(int(columns), 50, longest)


@pytest.mark.parametrize("command", list(commands()))
def test_help_has_no_boxes_and_shows_only_existing_defaults(command, call):
    for flag in ("-h", "--help"):
        shown = call(command, flag).out
        assert not re.search(r"[\x1b\u2500-\u257f]|default: (none|no|yes)\b", shown)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_help_of_a_kind_lists_the_options_of_the_chosen_component(kind, call):
    shown = call("train", "--help", kind).out
    inner = options_of(registry.find(kind, DEFAULTS[kind]).options)
    listed = re.findall(r"^  (--[\w-]+)", shown, re.M)
    assert {option.flag for option in inner} <= set(listed) and "--save-every" not in listed
    assert call("help", "train", kind).out == shown


@pytest.mark.parametrize("name", list(commands()))
def test_every_example_in_a_help_can_be_parsed(name, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.en").write_text("a\n")
    command = command_of(name)
    assert len(command.examples) == 3
    for example in command.examples:
        words = shlex.split(example.rpartition(" | ")[2], comments=True)
        end = words.index(">") if ">" in words else len(words)
        read = call(*words[1:end], "--dump-config")
        assert read.code == 0 or "model: " in read.err, read.err


def test_equivalent_names_of_other_toolkits_are_accepted_with_a_note(call, dumped):
    for flags, key, value in (
        ("--arch=transformer_wmt_en_de_big", "d_model", 1024),
        ("--arch transformer", "d_model", 512),
        ("--lr-scheduler inverse_sqrt", "schedule", "inverse-sqrt"),
        ("--criterion cross_entropy", "label_smoothing", 0.0),
        ("--devices 0 1 2 3", "devices", 4),
        ("--devices=0", "devices", 1),
        ("--max_updates 7", "max_updates", 7),
        ("-max_updates=7", "max_updates", 7),
        ("-batch-tokens 7", "batch_tokens", 7),
    ):
        assert dumped(*flags.split())[key] == value
        shown = call("train", *RUN, *flags.split(), "--dump-config").err
        assert flags.split()[0].partition("=")[0] in shown and "read as" in shown and "error" not in shown
    assert dumped("--task", "translation") == dumped()


def test_numbers_can_start_or_end_with_the_decimal_point(dumped):
    settings = dumped("--dropout=.2", "--clip-norm=1.", "--adam-betas=.9,.98")
    assert (settings["dropout"], settings["clip_norm"], settings["adam_betas"]) == (0.2, 1.0, [0.9, 0.98])


def test_numbers_can_be_written_as_a_python_tuple(dumped):
    for text in ("0.9,0.98", "(0.9, 0.98)", "[0.9,0.98]"):
        assert dumped(f"--adam-betas={text}")["adam_betas"] == [0.9, 0.98]


def test_the_errors_for_an_alias_in_a_file_and_a_value_after_a_switch_say_what_to_write(call, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text('save_dir = "x"\n')
    assert "unknown setting 'save_dir' (use output)" in call("train", "--config", config).err
    assert "try: nmt train --data=d --output=o --no-valid-bleu\n" in call("train", *RUN, "--valid-bleu", "no").err
    mean = call("average", "run/checkpoints/update-1", "run/checkpoints/update-2").err
    assert "update-2" in mean and "--checkpoint" in mean


def test_a_learning_rate_is_refused_for_a_schedule_that_takes_a_factor(call):
    assert_refused(call("train", *RUN, "--lr=5e-4"), 2, "--schedule")


def test_commands_of_other_toolkits_are_answered_with_existing_commands(call):
    for name, told in peers.tables()["commands"].items():
        assert name not in commands() and told.split(";")[0].split()[0] in commands()
    for name in ("fairseq-train", "fine-tune"):
        refused = call(name, "data", "--fp16", "--output", "run")
        assert_refused(refused, 2, f"'{name}'", "'--fp16'", "\ntry: nmt train data --precision fp16 --output run")


@pytest.mark.parametrize("command", sorted(peers.tables().keys() - {"commands"}))
def test_flags_of_other_toolkits_are_answered_with_existing_flags(command, call):
    known = {name: all_flags(command_of(name)) for name in commands()}
    every = set().union(*known.values())
    for key, told in peers.tables()[command].items():
        flag, *values = key.split()
        assert values or flag not in known[command] or flag in ("--keep-best", "--n-best"), f"{flag} is ours too"
        assert re.match(r"(= )?(-|drop: |use )", told), told
        placeholders = set(re.findall(r"\{([A-Z]+)(?:\.\.\.)?\}", key))
        assert set(re.findall(r"\{([A-Z]+)(?:\.\.\.)?\}", told)) <= placeholders, told
        words = told.removeprefix("= ").partition("; ")[0].split() if "drop: " not in told else []
        for named in re.findall(r"--[\w-]+", told):
            assert named in (known[command] if named in words else every), f"{key} is answered with {named}"


def test_a_flag_of_an_unchosen_component_is_answered_with_the_components_that_have_it(call):
    assert_refused(call("translate", "--model=x", "--temperature=0.5"), 2, "'--temperature'", "--decoder sampling")
    several = call("train", *RUN, "--teacher=m", "--divergence-weight=3")
    assert_refused(several, 2, "--criterion distillation", "--criterion in-place-distillation, --criterion r-drop")


def test_a_flag_of_an_inner_component_is_answered_with_its_full_name(call):
    for flag in ("--temperature=3", "--no-unk"):
        refused = call("translate", "--model=x", "--decoder=mbr", flag)
        assert_refused(
            refused, 2, f"unknown flag '{flag.removesuffix('=3')}'", f"--candidates.{flag[2:].removesuffix('=3')}"
        )


def command_of(name: str) -> Command:
    return importlib.import_module(commands()[name].module).COMMAND


def test_the_page_for_users_of_other_toolkits_is_correct(call):
    text = (DOCUMENTS / "peers.md").read_text()
    example = re.search(r"\$ nmt (.*)\n((?:nmt: error: .*\n)+try: .*\n)", text)
    assert example and call(*example[1].split()).err == example[2]
    known = set().union(*(all_flags(command_of(name)) for name in commands()))
    ours = [row.split("|")[-2] for row in text.splitlines() if row.startswith("| ")]
    named = {flag for cell in ours for flag in re.findall(r"--[\w-]+", cell)}
    assert "--batch-tokens" in named and named - {"--help", "--version"} <= known


def all_flags(command: Command) -> set[str]:
    """The flags of a command, with those of every part it can take."""
    parts = [registry.find(kind, name).options for kind in command.kinds for name in registry.names(kind)]
    own = command.own_groups().values()
    options = [
        *(option for group in own for option in group),
        *(option for part in parts for option in options_of(part)),
    ]
    return {flag for option in options for flag in option.spellings()}


def test_an_extra_argument_is_named_with_the_flag_it_may_need(call):
    assert_refused(call("score", "--model=m", "--source=a", "--target=b", "text.en"), 2, "'text.en'", "--source")
    assert_refused(call("train", "data", "my run"), 2, "'my run'", "try: nmt train data --output 'my run'\n")
    for words in (["hyp", "ref", "ref2"], ["hyp", "ref2", "--reference=ref", "--hypothesis=hyp", "x"]):
        assert_refused(call("evaluate", *words), 2, "--hypothesis", "--reference")
    refused = call("prepare", "-s", "en", "-t", "fr", "--trainpref=x", "--destdir=d")
    assert_refused(refused, 2, "try: nmt prepare --source-lang en --target-lang fr --trainpref=x --destdir=d\n")


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ("train", "train DATA --output OUTPUT"),
        ("train data", "train data --output OUTPUT"),
        ("translate a.en b.en", "translate a.en b.en --model MODEL"),
        ("score --model=m text.en", "score --model=m text.en TARGET"),
        ("score text.en --max-tokens 5", "score text.en TARGET --max-tokens 5 --model MODEL"),
        ("sweep --output o", "sweep FILE --output o"),
        ("describe", "describe KIND"),
    ],
)
def test_missing_arguments_are_reported_with_the_whole_command(given, completed, call):
    assert call(*given.split()).err.endswith(f"\ntry: nmt {completed}\n")


def test_a_similar_name_is_suggested_with_the_whole_command(call):
    assert "try: nmt train data --output 'my run'\n" in call("trian", "data", "--output", "my run").err
    for flag in ("--dropuot=0.3", "--dropuot 0.3"):
        assert_refused(call("train", "data", *flag.split(), "--output=run"), 2, flag.replace("uo", "ou"), "--output")
    assert "--length-penalty" in call("translate", "-L3", "--model=m").err


def test_help_and_version_also_work_as_commands(call):
    assert call("help").out == call("--help").out != ""
    assert call("version").out == call("--version").out != ""
    for command in commands():
        assert call("help", command).out == call(command, "--help").out != ""
    assert call("help", "train", "--model", "rnnsearch").out == call("train", "--model", "rnnsearch", "--help").out
    assert call("help", "help").out == call("help", "version").out == call("--help").out
    assert call("help", "trian").code == 2


@pytest.mark.parametrize("name", list(commands()))
def test_each_positional_argument_can_also_be_given_by_a_flag(name, call):
    """The words stand for the same settings as the flags; a word and the flag together are refused, or are two values."""
    command = command_of(name)
    options = [option for option in command.own_groups()["Options"] if option.positional]
    words = [["model", "transformer"][i] if name in ("list", "describe") else f"w{i}" for i in range(len(options))]
    flags = [part for option, word in zip(options, words, strict=True) for part in (option.flag, word)]
    end = ["--dump-config"]
    by_words, by_flags = call(name, *words, *end), call(name, *flags, *end)
    if "corpus" not in [option.name for option in options]:  # whose files are looked up
        assert by_words.code == 0 and by_words.out == by_flags.out, by_words.err
    for option, word in zip(options, words, strict=True):
        if option.count is not None:
            assert_refused(call(name, *words, option.flag, "other", *end), 2, word, option.flag)


def test_positional_arguments_can_precede_a_list_flag_or_follow_a_single_value_flag(call):
    kept = tomllib.loads(call("evaluate", "h", "r", "--metrics", "bleu", "chrf", "--dump-config").out)
    assert (kept["hypothesis"], kept["reference"], kept["metrics"]) == (["h"], ["r"], ["bleu", "chrf"])
    flags = tomllib.loads(call("evaluate", "--hypothesis", "a", "b", "--reference", "r", "s", "--dump-config").out)
    assert (flags["hypothesis"], flags["reference"]) == (["a", "b"], ["r", "s"])
    text = tomllib.loads(call("translate", "--model", "m", "a.en", "b.en", "--dump-config").out)
    assert (text["model"], text["input"]) == (["m"], ["a.en", "b.en"])


def test_each_short_flag_means_the_same_option_in_all_commands():
    """Of all commands and of every part they can take. A flag that chooses a part (`--model` of a training) is another."""
    options: dict[str, set[str]] = {}
    letters: dict[str, set[tuple[str, ...]]] = {}
    for name in commands():
        command = command_of(name)
        parts = [registry.find(kind, part).options for kind in command.kinds for part in registry.names(kind)]
        own = [option for group in command.own_groups().values() for option in group]
        for option in (*own, *(option for part in parts for option in options_of(part))):
            short = tuple(alias for alias in option.aliases if len(alias) == 1)
            for letter in short:
                options.setdefault(letter, set()).add(option.name)
            if not option.kind:
                letters.setdefault(option.name, set()).add(short)
    assert {letter: names for letter, names in options.items() if len(names) > 1 or letter in "hV"} == {}
    assert {name: found for name, found in letters.items() if len(found) > 1} == {}


def test_the_settings_page_lists_all_positional_arguments_and_short_flags():
    page = (DOCUMENTS / "reference/settings.md").read_text()
    words, letters = [], {}
    for name in commands():
        command = command_of(name)
        own = [option for group in command.own_groups().values() for option in group]
        labels = " ".join(f"{o.label}{'...' if o.words is None else ''}" for o in own if o.positional)
        words += [(f"{name} {labels}", not command.greedy)] if labels else []
        parts = [registry.find(kind, part).options for kind in command.kinds for part in registry.names(kind)]
        for option in (*own, *(option for part in parts for option in options_of(part))):
            letters |= {alias: option.flag for alias in option.aliases if len(alias) == 1}
    listed = re.findall(r"^\| `nmt ([^`]+)` \| (one|all) ?[^|]*\|$", page, re.M)
    assert [(row, takes == "one") for row, takes in listed] == words
    assert dict(re.findall(r"^\| `-(\w)` \| `(--[\w-]+)` \|$", page, re.M)) == letters


def test_a_removed_short_flag_is_answered_with_the_long_one(call):
    for words in (["-s", "en"], ["-sen"], ["-t=de"]):
        refused = call("import", "model.npz", "--output=m", *words)
        assert_refused(refused, 2, {"s": "--source-lang", "t": "--target-lang"}[words[0][1]])


def test_a_boolean_flag_has_one_spelling_for_yes_and_one_for_no(call, dumped):
    assert dumped("--no-valid-bleu", "--best-by=loss")["valid_bleu"] is False
    assert dumped("--no-valid-bleu", "--valid-bleu")["valid_bleu"] is True
    for flag in ("--output-bias", "--model.output-bias"):
        assert dumped(flag)["output_bias"] is True
        assert dumped("--output-bias", f"--no-{flag[2:]}")["output_bias"] is False
    assert_refused(call("train", *RUN, "--valid-bleu=no"), 2, "--valid-bleu", "--no-valid-bleu")
    assert call("prepare", "--no-shared-vocab", "--help").code == 0


def test_a_missing_plugin_is_distinguished_from_a_failing_one(call, tmp_path):
    (tmp_path / "needy.py").write_text("import no_such_module\n")
    for missing in (tmp_path, tmp_path / "x.py", "x.py", ".", "no_such_module"):
        assert_refused(call("list", "--plugin", missing), 2, missing)
    assert_refused(call("list", "--plugin", tmp_path / "needy.py"), 2, "could not be loaded: ModuleNotFoundError")


FAILING = {
    "\n\n1 / 0\n": 3,
    "\ndef f(:\n": 2,
    "x = 1\nimport no_such_module\n": 2,
    "\nimport helper\n": 2,
    "import nmt\n\n\nnmt.register('bogus', 'x', object)\n": 4,
    "\n\nraise SystemExit(3)\n": 3,
    "\n\n\nimport torch\n": 4,
    "\nimport nmt.train.trainer\n": 2,
}


@pytest.mark.parametrize("content", FAILING)
@pytest.mark.parametrize("kind", ["file", "module", "installed"])
def test_a_plugin_that_fails_at_import_is_named_with_the_line_of_the_failure(kind, content, new_nmt, tmp_path):
    """torch is missing here."""
    (tmp_path / "failing.py").write_text(content)
    (tmp_path / "helper.py").write_text("\n\n\n{}['x']\n")
    if kind == "installed":
        (tmp_path / "failing-1.dist-info").mkdir()
        (tmp_path / "failing-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1\n")
        (tmp_path / "failing-1.dist-info/entry_points.txt").write_text("[nmt.plugins]\nfailing = failing\n")
    given = {"file": ["--plugin", tmp_path / "failing.py"], "module": ["--plugin", "failing"], "installed": []}[kind]
    without_torch = Path(__file__).parents[1] / "without_torch"
    path = os.pathsep.join(map(str, [without_torch, tmp_path, *sys.path]))
    done = new_nmt("list", "model", *given, env={"PYTHONPATH": path})
    assert done.returncode == (0 if kind == "installed" else 2)
    assert f"{tmp_path}/failing.py:{FAILING[content]}" in done.stderr.decode()
    assert "helper" not in content or f"{tmp_path}/helper.py:4" in done.stderr.decode()


def test_all_forms_of_a_flag_are_equivalent(call, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text("heads = 16\n")
    other = tmp_path / "t.toml"
    other.write_text("d-ff = 7\n")
    shown = call("train", *RUN, "--config", file, other, "--dump-config").out
    assert "heads = 16 " in shown and "d_ff = 7 " in shown
    for given in (["-c", file, "-c", other], [f"--config={file}", f"--config={other}"], [f"-qc{file}", f"-c={other}"]):
        assert call("train", *RUN, *given, "--dump-config").out == shown


def test_the_values_of_a_list_flag_are_spread_over_repeated_flags():
    options = [
        *options_of(CommonOptions),
        Option("betas", tuple[float, float], (), "", ()),
        Option("output", str, "", "", ("o",)),
    ]
    flags = flags_of(options)
    assert spread_values(["--config", "A", "B", "-q"], flags, greedy=True) == ["--config", "A", "--config", "B", "-q"]
    assert spread_values(["--config", "A", "B"], flags, greedy=False) == ["--config", "A", "B"]
    assert spread_values(["--betas", "-1", "-.5", "x"], flags, greedy=True) == ["--betas", "-1,-.5", "x"]
    assert spread_values(["-o", "-", "-x", "--", "--config", "A", "B"], flags, greedy=True) == [
        *("-o", "-", "-x", "--", "--config", "A", "B")
    ]


def completed(words: str) -> list[str]:
    """The words that a shell offers at the end of a command line."""
    environment = {
        "_NMT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = CliRunner().invoke(main.app, env=environment, prog_name="nmt")
    assert done.exit_code == 0
    return done.stdout.split()


def test_a_shell_completes_commands_flags_components_presets_and_choices(tmp_path):
    assert completed("nmt tr") == ["train", "translate"]
    assert completed("nmt train --model rnn") == ["rnnsearch"]
    assert completed("nmt train --preset table3-b") == ["table3-b-dk16", "table3-b-dk32"]
    assert completed("nmt train --norm-position p") == ["post", "pre"]
    assert completed("nmt train --warmup-") == ["--warmup-updates"]
    assert "--d-ff" not in completed("nmt train --model rnnsearch --d") and "--d-ff" in completed("nmt train --d")
    assert "--candidates.temperature" in completed("nmt translate --decoder mbr --candidates.t")
    assert completed("nmt translate --input ") == []  # the shell lists files
    assert "--install-completion" in completed("nmt --")
    plugin = tmp_path / "mine.py"
    plugin.write_text("import nmt\n\nnmt.preset('table3-mine', 'of a plug-in', heads=2)\n")
    assert completed(f"nmt train --plugin {plugin} --preset table3-m") == ["table3-mine"]


def test_a_shell_is_offered_the_short_spelling_of_a_flag_and_the_long_one_once_its_kind_is_typed(tmp_path):
    assert completed("nmt translate --alph") == ["--alpha"] and completed("nmt translate --decoder.alph") == [
        "--decoder.alpha"
    ]
    assert completed("nmt translate --decod") == ["--decoder"]
    assert completed("nmt translate --no-decoder") == [] and completed("nmt translate --no-no-u") == ["--no-no-unk"]
    of_mbr = completed("nmt translate --decoder mbr --")
    assert "--candidates.n-best" in of_mbr and "--decoder.candidates.n-best" not in of_mbr
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import nmt\n\n\n@nmt.options_class\nclass Mine:\n    device: int = nmt.opt(1, 'a name that the command has')\n"
        "\n\n@nmt.register('schedule', 'mine', Mine)\nclass Schedule:\n    'A schedule.'\n"
    )
    assert completed(f"nmt train --plugin {plugin} --schedule mine --sch") == ["--schedule", "--schedule.device"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_can_be_shown(shell):
    shown = CliRunner().invoke(main.app, env={"_NMT_COMPLETE": f"source_{shell}"}, prog_name="nmt")
    assert shown.exit_code == 0 and "_NMT_COMPLETE" in shown.stdout


def test_a_flag_without_its_value_is_reported(call):
    for words in (["--data"], ["--data", "--output", "o"], ["--config"]):
        assert_refused(call("train", *words), 2, words[0])


def test_short_flags_accept_an_attached_value(dumped, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text("heads = 16\n")
    assert dumped(f"-c{config}")["heads"] == dumped(f"-c={config}")["heads"] == 16
    assert dumped("-atransformer-big")["d_model"] == 1024


def test_pairs_of_numbers_are_two_arguments_or_one_with_a_comma(call, dumped):
    for words in (["--adam-betas", "0.5", "0.75"], ["--adam-betas=0.5,0.75"], ["--adam-betas", "0.5,0.75"]):
        assert dumped(*words)["adam_betas"] == [0.5, 0.75]
    assert dumped("--adam-betas", "0.5", "0.75", "--adam-betas", "0.25", "0.5")["adam_betas"] == [0.25, 0.5]
    for words in (["0.5"], ["0.5", "0.75", "0.9"]):
        assert call("train", *RUN, "--adam-betas", *words).code == 2


def test_file_names_are_not_split_at_commas():
    assert convert("a,b", tuple[str, ...]) == convert(["a,b"], tuple[str, ...]) == ("a,b",)
    assert convert("1,2", tuple[int, ...]) == convert(["1", "2"], tuple[int, ...]) == (1, 2)
    assert convert(["x,y", "x"], tuple[Literal["x", "y"], ...]) == ("x", "y", "x")


def test_a_value_can_be_none(dumped, call):
    assert dumped("--d-k", "3")["d_k"] == 3
    assert dumped("--d-k", "none")["d_k"] == "none"
    assert "N|none" in call("train", "--help").out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("plugin = ['mine.py']", "use the flag --plugin"),
        ("config = ['other.toml']", "'config' cannot be set in a file"),
        ("debug = true", "use the flag --debug"),
        ("dump-config = true", "use the flag --dump-config"),
        ("preset = 3", "--preset '3': must be a text or none (set by"),
        ("dropout = [0.1]", "--dropout '[0.1]': must be a number (set by"),
        ("seed = " + "1" * 10_000, "not valid TOML: Exceeds the limit"),
        ("seed = " + "[" * 100_000, "not valid TOML: maximum recursion depth"),
    ],
)
def test_a_settings_file_that_sets_what_it_cannot_is_refused(line, told, call, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text(line)
    assert_refused(call("train", *RUN, "--config", config), 2, told, "s.toml")


def test_the_module_imports_nothing_from_the_working_directory(tmp_path):
    for name in ("typer", "torch", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('from the working directory')")
    done = subprocess.run([sys.executable, "-m", "nmt", "list", "model"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "transformer" in done.stdout, done.stderr


def test_a_folder_as_settings_file_exits_with_2(call, tmp_path):
    assert_refused(call("train", "--config", tmp_path), 2, tmp_path)


def test_a_preset_s_options_are_dropped_with_their_component(call, dumped, tmp_path):
    base = dumped("--preset=transformer-base")
    assert (base["schedule"], base["lr"]) == ("noam", 1.0)
    config = tmp_path / "s.toml"
    config.write_text('schedule = "inverse-sqrt"\n')
    own = dumped("--schedule=inverse-sqrt")["lr"]
    for replaced in ("--schedule=inverse-sqrt", f"--config={config}"):
        shown = call("train", *RUN, "--preset=transformer-base", replaced, "--dump-config")
        assert tomllib.loads(shown.out)["lr"] == own
        assert shown.err.splitlines() == [
            "preset transformer-base: its schedule noam is replaced, so these options are ignored: lr, warmup_updates"
        ]
    assert dumped("--preset=transformer-base", "--schedule=inverse-sqrt", "--lr=3")["lr"] == 3
    assert dumped("--preset=transformer-base", "--optimizer=sgd")["d_model"] == 512
    config.write_text('preset = "transformer-big"\n')
    assert dumped(f"--config={config}")["d_model"] == 1024
    assert dumped(f"--config={config}", "--preset=none")["d_model"] == dumped()["d_model"]
    assert dumped(f"--config={config}", "--preset=transformer-base")["d_model"] == 512


def test_unexpected_arguments_are_quoted_unchanged(call):
    assert "KIND is missing" in call("describe").err
    assert_refused(call("describe", "model"), 2, "NAME")
    assert_refused(call("translate", DOCUMENTS, "--threads", "1"), 2, DOCUMENTS, "--model", "--threads")
    assert_refused(call("list", "model", "x"), 2, "'x'")
    assert call("list", "--", "schedule").out == call("list", "schedule").out
    assert "unknown kind of component '--json'" in call("list", "--", "--json").err
    assert "unknown kind of component '-x'" in call("list", "--", "-x").err
    assert (
        call("describe", "--kind", "model", "--name", "transformer").out == call("describe", "model", "transformer").out
    )


def optimizer_with(tmp_path: Path, *fields: str) -> tuple[str, ...]:
    """Arguments that choose an optimizer of a plug-in, whose options class has these fields."""
    options = "\n    ".join(["@options_class\nclass Options:", *fields])
    part = "@register('optimizer', 'clash', Options)\nclass Clash:\n    pass\n"
    (tmp_path / "clash.py").write_text(f"from nmt import opt, options_class, register\n\n{options}\n\n{part}")
    return (f"--plugin={tmp_path / 'clash.py'}", "--optimizer=clash")


def test_two_options_of_a_component_with_the_same_flag_are_refused(call, tmp_path):
    fields = ("pace: float = opt(0.0, 'any')", "speed: float = opt(0.0, 'any', aliases=('pace',))")
    assert_refused(call("train", *RUN, *optimizer_with(tmp_path, *fields)), 2, "'--optimizer.pace'")


def test_a_plugin_that_is_named_in_two_ways_is_loaded_once(dumped, tmp_path):
    plugin, optimizer = optimizer_with(tmp_path, "pace: float = opt(0.0, 'any')")
    assert dumped(plugin, f"--plugin={tmp_path}/../{tmp_path.name}/clash.py", optimizer)["pace"] == 0


@pytest.mark.parametrize(
    ("field", "flag", "key"),
    [
        ("quiet: bool = opt(False, 'any')", "--quiet", "optimizer.quiet"),
        ("no_debug: bool = opt(False, 'any')", "--no-debug", "optimizer.no_debug"),
        ("output: str = opt('part', 'any')", "--output=new", "optimizer.output"),
        ("steepness: str = opt('part', 'any', aliases=('c', 'h', 'config'))", "-h", "steepness"),
    ],
)
def test_a_flag_of_both_a_command_and_a_component_sets_the_command_s_option(field, flag, key, call, dumped, tmp_path):
    clash = optimizer_with(tmp_path, field)
    full = f"--optimizer.{key.removeprefix('optimizer.')}".replace("_", "-")
    assert "Usage: nmt train" in call("train", *RUN, *clash, "--help").out
    if flag == "-h":
        assert "Usage: nmt train" in call("train", *RUN, *clash, flag).out
    else:
        assert dumped(*clash, flag)[key] in (False, "part")
    value = [full] if "bool" in field else [full, "mine"]
    settings = dumped(*clash, *value)
    assert settings[key] in (True, "mine") and settings["output"] == "o"


@pytest.mark.parametrize("again", ["max-updates = 7", '"schedule.lr" = 4.0', "[schedule]\nlr = 4.0"])
def test_a_setting_repeated_in_a_file_is_refused(again, call, tmp_path):
    (tmp_path / "my.toml").write_text(f"max_updates = 3\nlr = 3.0\n{again}\n")
    refused = call("train", *RUN, "--config", tmp_path / "my.toml", "--dump-config")
    assert refused.code == 2 and ("set twice" in refused.err or "are the same setting" in refused.err), refused.err


@pytest.mark.parametrize("name", ["cpu:", "cpu:0", "cuda:", "cuda:00", "cuda:٠", "gpu"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(UserError, match="use auto, cpu, cuda or cuda:N"):
        choose_device(name)


def test_a_flag_of_two_components_is_ambiguous_and_its_full_names_are_not(call, dumped, tmp_path):
    clash = optimizer_with(
        tmp_path, "dropout: float = opt(0.5, 'any')", "speed: float = opt(0.0, 'any', aliases=('lr',))"
    )
    for flag, both in (
        ("--dropout", "--model.dropout or --optimizer.dropout"),
        ("--lr", "--optimizer.speed or --schedule.lr"),
    ):
        assert_refused(call("train", *RUN, *clash, flag, "0.3"), 2, flag, both)
    settings = dumped(
        *clash, "--model.dropout=0.2", "--optimizer.dropout", "0.3", "--schedule.lr=4", "--optimizer.lr=5"
    )
    assert settings["model.dropout"] == 0.2 and settings["optimizer.dropout"] == 0.3
    assert settings["schedule.lr"] == 4 and settings["speed"] == 5 and "lr" not in settings
    file = tmp_path / "flat.toml"
    file.write_text("dropout = 0.1\n")
    assert_refused(call("train", *RUN, *clash, "--config", file), 2, "'dropout'", "model.dropout", "optimizer.dropout")
    assert dumped(*clash, "--preset=transformer-big")["model.dropout"] == 0.3
    shown = call("train", *RUN, *clash, "--help", "model").out + call("train", *RUN, *clash, "--help", "optimizer").out
    assert "--model.dropout" in shown and "--optimizer.dropout" in shown and "  --d-model" in shown


def test_nmt_list_describes_a_component_by_its_own_summary(call, monkeypatch):
    entries = [registry.find(kind, name) for kind in registry.FOLDERS for name in registry.names(kind)]
    said = {(entry.kind, entry.name): (entry.cls.__doc__ or "").strip().split("\n")[0] for entry in entries}
    monkeypatch.setattr(registry, "_shelf", registry._Shelf(entry_points_loaded=True))
    read = {(kind, name): told for kind in registry.FOLDERS for name, told in registry.summaries(kind).items()}
    assert read == said and all(read.values())


def test_a_unique_name_can_be_described_without_its_kind(call, trained):
    assert call("describe", "noam").out == call("describe", "schedule", "noam").out
    assert call("describe", "transformer-tiny").out == call("describe", "preset", "transformer-tiny").out
    assert call("describe", trained).out == call("describe", "folder", trained).out
    assert "; after update 40" in call("describe", trained).out
    ambiguous = call("describe", "rnnsearch")
    assert_refused(ambiguous, 2, "`nmt describe model rnnsearch`", "`nmt describe preset rnnsearch`")
    assert "did you mean 'transformer-tiny'?" in call("describe", "trnsformer-tiny").err


def test_presets_are_listed_and_described(call):
    listed = json.loads(call("list", "preset", "--json").out)
    assert list(listed) == ["preset"] and "transformer-base" in listed["preset"]
    described = call("describe", "preset", "transformer-base")
    values = tomllib.loads("".join(described.out.partition("\n\n")[2:]))
    assert described.code == 0 and values["d_model"] == 512 and values["adam_betas"] == [0.9, 0.98]


def commands_of(text: str) -> list[list[str]]:
    """The calls of `nmt` in the code blocks of a page, as words. A call that shows an error is left out."""
    lines = re.sub(r"^.*\nnmt: error.*\n", "", "\n".join(code_blocks(text)), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", lines)
    parts = [part for line in lines.splitlines() for part in re.split(r" \| ", re.split(r" #", line)[0])]
    calls = [found[1] for part in parts if (found := re.search(r"(?:^|[\s/])nmt +([a-z].*)", part))]
    return [shlex.split(re.split(r" [<>] ", call)[0]) for call in calls]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page.read_text())], ids=lambda page: page.stem)
def test_the_commands_of_a_document_run_as_they_are_printed(page, call, tmp_path, monkeypatch):
    plugin = code_blocks((DOCUMENTS / "how-to/plugins.md").read_text(), "python")
    (tmp_path / "my_parts.py").write_text("\n".join(plugin))
    for name in {*re.findall(r"--plugin (\w+\.py)", page.read_text())} - {"my_parts.py"}:
        (tmp_path / name).symlink_to("my_parts.py")
    (tmp_path / "my.toml").write_text("heads = 4\n")
    for language in ("en", "de"):
        (tmp_path / f"news.en-de.{language}").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/settings.toml").write_text(call("train", *RUN, "--dump-config").out)
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/best.toml").write_text('model = "model"\nalpha = 0.9\n')
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Command, "call", lambda *_: 0)  # which is called with settings that are checked
    monkeypatch.setitem(vars(train.COMMAND), "base", None)  # the models of a document are not there
    for words in commands_of(page.read_text()):
        done = call(*[{"...": "--dump-config"}.get(word, word) for word in words])
        assert done.code == 0, (words, done.err)


def test_commands_on_a_page_are_found_in_pipes_and_across_lines():
    lines = ["X=1 .venv/bin/nmt a < b | nmt c d  # nmt e", "x \\", "    -m nmt f 'g h' > i", "$ nmt j", "nmt: error: k"]
    text = "\n".join(["```", *lines, "```", "nmt l"])
    assert commands_of(text) == [["a"], ["c", "d"], ["f", "g h"]]


def test_a_reader_that_leaves_while_help_is_shown_gives_exit_status_141():
    command = subprocess.Popen(
        [*NMT, "list", "--help"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    command.stdout.close()
    assert command.communicate()[1] == b"" and command.returncode == 141


def test_results_are_utf_8_under_every_locale_and_printing_errors_never_fails(new_nmt, tmp_path):
    plugin = tmp_path / "accents.py"
    plugin.write_text('from nmt import preset\npreset("étude", "a naïve preset")\n', encoding="utf-8")
    environment = {"PYTHONIOENCODING": "ascii:strict"}
    shown = new_nmt("describe", "preset", "étude", "--plugin", plugin, env=environment)
    assert shown.returncode == 0 and "étude" in shown.stdout.decode() and "naïve" in shown.stdout.decode()
    assert new_nmt("describe", "preset", "café", env=environment).returncode == 2


@pytest.mark.parametrize(
    "line",
    [
        *(f"train --data=d --output=o {flag}" for flag in ("--d-ff=4611686018427387904", "--encoder-layers=10000000")),
        *(f"train --data=d --output=o --warmup-updates={sign}18446744073709551616" for sign in ("", "-")),
        *(f"translate --model=m {flag}" for flag in ("--beam-size=1000000000", "--max-len-b=4611686018427387904")),
        *(f"translate --model=m {flag}" for flag in ("--replicas=1000", "--threads=9999999", "--devices=99999")),
        "evaluate --hypothesis=h --reference=r --trials=4611686018427387904",
        "export --model=m --output=o --check-lines=4611686018427387904",
        "shortlist --data=d --output=o --rounds=4611686018427387904",
        "prepare --train=t --output=o --vocab-size=2147483648",
    ],
)
def test_an_absurdly_large_number_exits_with_2_and_names_the_limit(line, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *words, flag = line.split()
    assert_refused(call(*words, flag), 2, *flag.split("="), "must be")
    assert not list(tmp_path.iterdir())


def test_a_hexadecimal_number_of_thousands_of_digits_exits_with_2_and_names_the_option(data, call, tmp_path):
    (tmp_path / "settings.toml").write_text(f"warmup_updates = 0x{'f' * 9000}\n")
    refused = call("train", f"--data={data}", f"--output={tmp_path / 'run'}", f"--config={tmp_path / 'settings.toml'}")
    assert refused.code == 2 and "--warmup-updates 0xffff" in refused.err and len(refused.err) < 600


# Prints the exit status of a command and the most memory it held, in KiB. A child starts with the peak of its parent, so the
# parent is to be small.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_model_too_large_for_memory_exits_with_5_before_allocating_any(data, tmp_path):
    sizes = ["--d-model=1000000", "--d-ff=1000000", "--encoder-layers=1000000"]
    command = [*NMT, "train", f"--data={data}", f"--output={tmp_path / 'run'}", *sizes]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, env=ENVIRONMENT, timeout=240
    )
    code, peak = map(int, ended.stdout.split())
    assert code == 5 and "too many for the" in ended.stderr
    assert peak < 1 << 20


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_running_out_of_memory_exits_with_5_and_advice(device, call, monkeypatch):
    def allocate(arguments, **named):
        if device == "cpu":
            return torch.empty(1 << 60)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(main, "app", allocate)
    assert_refused(call("train"), 5, "out of memory", "--max-tokens")


def test_a_file_name_with_markup_and_control_characters_is_printed_escaped(nmt):
    name = "[/b]\x1b[31m\nred" + "x" * 300
    refused = nmt("train", f"--data={name}", "--output=o", "--config", name)
    assert_refused(refused, 2, "/b")
    assert b"\x1b" not in refused.stderr and refused.stderr.count(b"\n") == 1
    assert len(quoted("x" * 1000)) == 200


def test_a_reader_of_stderr_that_left_changes_nothing(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    stderr = os.fdopen(writing, "w")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        log.warn("a warning")
        log.error("an error")
    with suppress(BrokenPipeError):
        stderr.close()


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_stdout_or_stderr_exits_with_5(number):
    shell = " ".join(f"'{word}'" for word in NMT)
    closed = subprocess.run(["bash", "-c", f"{shell} list --json {number}>&-"], env=ENVIRONMENT, capture_output=True)
    assert closed.returncode == 5


@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_fills_up_during_output_exits_with_5(unbuffered, pages, tmp_path):
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 4096 * pages), (tmp_path / "disk/list").open("wb") as file:
        done = subprocess.run(
            [*NMT, "list", "--json"],
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
            stdout=file,
            stderr=subprocess.PIPE,
        )
        assert (done.returncode, done.stderr) == (5, b"nmt: error: stdout: No space left on device\n")
        assert os.fstat(file.fileno()).st_size == 4096 * pages  # of the 9 KB that were to be written


def test_a_full_stdout_exits_with_5_and_a_closed_pipe_with_141():
    shell = " ".join(f"'{word}'" for word in NMT)
    full = subprocess.run(["bash", "-c", f"{shell} list > /dev/full"], env=ENVIRONMENT, capture_output=True)
    assert_refused(full, 5, "No space left")
    read, write = os.pipe()
    os.close(read)
    left = subprocess.run([*NMT, "list"], env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert left.returncode == 141 and left.stderr == b""


def test_an_unwritable_stderr_changes_neither_the_work_nor_the_exit_status(data, tmp_path):
    commands = {
        0: train_arguments(data, tmp_path / "run", 20, "--no-quiet"),
        4: ["translate", f"--model={tmp_path / 'nowhere'}"],
    }
    for code, arguments in commands.items():
        with Path("/dev/full").open("wb") as full:
            assert (
                subprocess.run([*NMT, *arguments], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=full).returncode
                == code
            )
    assert (tmp_path / "run/checkpoints/update-20").exists()


@pytest.mark.parametrize("variables", [{"RANK": "one"}, {"RANK": "0"}, {"RANK": "0", "MASTER_PORT": "x"}])
def test_non_numeric_torchrun_variables_exit_with_2(variables, trained, nmt):
    given = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", **variables}
    refused = nmt("translate", f"--model={trained}", env=given, input=b"ban\n")
    assert_refused(refused, 2, "not a number (torchrun sets it")


def test_a_missing_model_or_data_folder_exits_with_4_and_is_named(nmt, tmp_path):
    score = ["score", "--model=nowhere", "--source=a", "--target=b"]
    train = ["train", "--data=nowhere", f"--output={tmp_path / 'run'}", "--preset=transformer-mini"]
    for arguments in (score, train):
        assert_refused(nmt(*arguments), 4, "nowhere: no such folder")


def test_a_bug_exits_with_1_and_shows_the_traceback_only_on_request(nmt, tmp_path):
    plugin = tmp_path / "bug.py"
    plugin.write_text("from nmt import registry\n\nregistry.summaries = None\n")
    bug = nmt("list", "--plugin", plugin)
    assert bug.returncode == 1 and b"a bug in nmt: TypeError" in bug.stderr and b"Traceback" not in bug.stderr
    assert b"Traceback" in nmt("list", "--plugin", plugin, "--debug").stderr


@pytest.mark.parametrize("failing", ["raise KeyError('x')", "{}['x']", "import os; os.environ['x']"])
def test_an_error_inside_a_plug_in_exits_with_2_and_names_the_place(failing, nmt, tmp_path):
    plugin = tmp_path / "faulty.py"
    plugin.write_text(f"from nmt import registry\n\ndef broken(kind):\n    {failing}\n\nregistry.summaries = broken\n")
    failed = nmt("list", "--plugin", plugin)
    assert failed.returncode == 2 and failed.stderr.count(b"\n") == 1
    assert failed.stderr.decode() == f"nmt: error: plug-in {plugin}:4 failed: KeyError: 'x' (--debug shows where)\n"
    assert b"Traceback" in nmt("list", "--plugin", plugin, "--debug").stderr


def test_an_undeclared_option_is_named(call, tmp_path):
    plugin = tmp_path / "plain.py"
    plugin.write_text(
        "import nmt\n\n@nmt.options_class\nclass MyOptions:\n    size: int = 3\n\n"
        "@nmt.register('schedule', 'mine', MyOptions)\nclass Mine:\n    pass\n"
    )
    assert_refused(call("list", "--plugin", plugin), 2, "MyOptions.size")


def test_metrics_are_split_at_commas(call, tmp_path):
    file = tmp_path / "lines"
    file.write_text("the cat sat on the mat\n")
    files = ("evaluate", f"--hypothesis={file}", f"--reference={file}", "--json", "--metrics")
    scored = call(*files, "bleu,chrf")
    assert scored.code == 0 and scored.out == call(*files, "bleu", "chrf").out
    assert [row["metric"] for row in json.loads(scored.out)] == ["bleu", "chrf"]
    assert "unknown metric 'chrff'" in call(*files, "bleu,chrff").err
    assert "--metrics names no metric" in call(*files, ",").err


def test_a_component_set_as_both_value_and_table_is_answered_with_the_table(call, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text('decoder = "mbr"\n[decoder]\nnum_candidates = 3\n')
    assert (
        'write a component with options as a table: [decoder] with name = "beam"'
        in call("train", *RUN, "--config", config).err
    )


@pytest.mark.parametrize("key", ["confg", "debg", "dump_confg", "plugn"])
def test_a_mistyped_key_is_never_answered_with_one_that_files_cannot_set(key, call, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text(f"{key} = true\n")
    refused = call("train", *RUN, "--config", config)
    assert f"unknown setting '{key}'" in refused.err and "did you mean" not in refused.err


@pytest.mark.parametrize(
    ("words", "corrected"),
    [
        ("train d -o r --model rnnsearch --hidden-size 512 --lrr 3", "--hidden-size 512 --lr 3"),
        ("translate -m m --replace-unk in.txt --beam-sizee 3", "--replace-unk in.txt --beam-size 3"),
        ("translate in.txt --ckptt 3 --model a --beam-sizee 2 --model B", ""),
        ("translate -m m --devices 0 in.txt --beam-sizee 3", "--devices 1 in.txt --beam-size 3"),
        ("fine-tune d -o r --model_name_or_path X", "nmt train d -o r --init-from X\n"),
    ],
)
def test_a_correction_changes_nothing_that_was_right(words, corrected, call):
    refused = call(*words.split())
    assert refused.code == 2
    if corrected:
        assert corrected in refused.err.partition("try: ")[2], refused.err
    else:  # an unknown flag is dropped, and nothing else
        assert refused.err.endswith("try: nmt translate in.txt --model a --beam-size 2 --model B\n"), refused.err


def test_a_word_that_a_correction_adds_is_no_error_but_one_that_was_typed_is(call):
    missing = call("train", "d", "--output", "r", "--max-updates")
    assert missing.code == 2 and "MAX_UPDATES'" not in missing.err
    assert "--beam-size 'M': must be a whole number" in call("translate", "x", "--ckpt", "M", "--beam-size", "M").err


def test_help_ignores_what_is_wrong_around_it(call, tmp_path):
    (tmp_path / "a.toml").write_text("lr = 0.1\n")
    whole = call("train", "--help").out
    for words in (("--help", "data"), ("--beam-size", "--help"), ("--help", "modle")):
        assert call("train", *words).out == whole
    assert call("train", "--config", tmp_path / "a.toml", "--help", "data").code == 0
    assert_refused(call("train", "-hh"), 2, "'-hh'")
