"""A part that holds another part: its keys as flags, in settings files and in what is saved."""

import tomllib

import pytest
from conftest import train_arguments
from refusals import assert_refused

from nmt import Part, UserError, opt, options_class, part, register, registry
from nmt.options import as_dict

RUN = ("--data=d", "--output=o")
PLUGIN = """
from nmt import Part, opt, options_class, part, register
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.models.transformer import Transformer, TransformerOptions


@options_class
class RiskOptions(CrossEntropyOptions):
    decoder: Part = part("decoder", "sampling", "search that samples candidates", aliases=("sampler",))
    risk_weight: float = opt(0.5, "share of the risk", minimum=0, maximum=1)


@register("criterion", "risk", RiskOptions)
class Risk(CrossEntropy):
    "Cross entropy that holds a search."


@options_class
class DraftOptions(TransformerOptions):
    draft: Part = part("decoder", "beam", "search of the draft")


@register("model", "draft", DraftOptions)
class Draft(Transformer):
    "A transformer that holds a search."
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "inner.py"
    path.write_text(PLUGIN)
    return f"--plugin={path}"


@pytest.fixture
def dumped(call, plugin):
    """The settings of `nmt train --criterion risk`, as --dump-config prints them."""

    def settings(*arguments):
        shown = call("train", *RUN, plugin, "--criterion=risk", *arguments, "--dump-config")
        assert shown.code == 0, shown.err
        return tomllib.loads(shown.out)

    return settings


def test_options_of_an_inner_component_are_flags_under_its_path(call, plugin, dumped):
    assert dumped()["criterion.decoder"] == "sampling" and dumped()["criterion.decoder.temperature"] == 1
    given = dumped("--criterion.decoder.temperature", "0.8", "--risk-weight=0.25", "--criterion.label-smoothing=0.2")
    assert given["criterion.decoder.temperature"] == 0.8
    assert given["risk_weight"] == 0.25 and given["label_smoothing"] == 0.2
    assert given["decoder"] == "beam" and given["beam_size"] == 4
    beams = dumped("--criterion.decoder=beam", "--criterion.decoder.beam=7", "--beam-size=3")
    assert beams["criterion.decoder.beam_size"] == 7 and beams["beam_size"] == 3
    assert dumped("--sampler=greedy")["criterion.decoder"] == "greedy"
    shown = call("train", *RUN, plugin, "--criterion=risk", "--help", "criterion").out
    assert "criterion.decoder sampling" in shown and "\n  --criterion.decoder.temperature X" in shown
    assert "\n  --risk-weight X" in shown and "\n  --criterion.decoder NAME" in shown


def test_the_kind_can_be_dropped_if_no_command_option_starts_with_the_key(call, plugin, dumped):
    settings = dumped("--model=draft", "--draft=sampling", "--draft.temperature=0.4")
    assert settings["draft"] == "sampling" and settings["draft.temperature"] == 0.4
    assert dumped("--model=draft", "--model.draft=sampling", "--model.draft.temperature=0.4") == settings
    top = dumped("--decoder=sampling", "--decoder.temperature=0.3")
    assert top["temperature"] == 0.3 and top["criterion.decoder.temperature"] == 1
    assert_refused(call("train", *RUN, plugin, "--criterion=risk", "--decoder.temperature=0.3"), 2, "--decoder")


def test_a_command_s_own_flag_chooses_no_inner_component(dumped, tmp_path):
    (tmp_path / "inner.py").write_text(PLUGIN.replace('aliases=("sampler",)', 'aliases=("type",)'))
    settings = dumped("--type=rnnsearch")  # another word for --model
    assert (settings["model"], settings["criterion.decoder"]) == ("rnnsearch", "sampling")


@pytest.mark.parametrize(
    "text",
    [
        'criterion = "risk"\n"criterion.decoder" = "sampling"\n"criterion.decoder.temperature" = 0.8\nrisk-weight = 0.1\n',
        'risk_weight = 0.1\n[criterion]\nname = "risk"\n[criterion.decoder]\nname = "sampling"\ntemperature = 0.8\n',
        '[criterion]\nname = "risk"\nrisk-weight = 0.1\ndecoder.temperature = 0.8\n',
    ],
)
def test_flat_keys_and_tables_of_a_settings_file_are_equivalent(text, call, plugin, dumped, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(text)
    shown = call("train", *RUN, plugin, "--config", file, "--dump-config")
    assert tomllib.loads(shown.out) == dumped("--criterion.decoder.temperature=0.8", "--risk-weight=0.1")
    assert f"0.8  # {file}" in shown.out
    file.write_text(shown.out)
    assert call("train", plugin, "--config", file, "--dump-config").out.count(str(file)) == shown.out.count(" = ")
    assert tomllib.loads(call("train", plugin, "--config", file, "--dump-config").out) == tomllib.loads(shown.out)


def test_the_error_for_a_wrong_inner_key_suggests_the_right_one(call, plugin, tmp_path):
    def refused(*arguments):
        result = call("train", *RUN, plugin, "--criterion=risk", *arguments)
        assert result.code == 2, result.err
        return result.err

    assert "did you mean --criterion.decoder.temperature?" in refused("--criterion.decoder.temprature=1")
    assert "(it belongs to --criterion.decoder alternatives, --criterion.decoder beam," in refused(
        "--criterion.decoder.alpha=1"
    )
    assert "--criterion.decoder.temperature 'hot': must be a number" in refused("--criterion.decoder.temperature=hot")
    assert "--risk-weight 2.0: must be at least 0 and at most 1" in refused("--risk-weight=2")
    assert "unknown decoder 'sampled'" in refused("--criterion.decoder=sampled")
    file = tmp_path / "s.toml"
    file.write_text("[criterion.decoder]\ntemprature = 1\n")
    assert "did you mean 'criterion.decoder.temperature'?" in refused("--config", file)


def test_a_preset_s_options_are_dropped_with_their_inner_component(call, plugin, tmp_path):
    preset = """
from nmt import preset
preset("risky", "any", **{"criterion": "risk", "criterion.decoder": "sampling", "criterion.decoder.temperature": 0.7})
"""
    (tmp_path / "inner.py").write_text(PLUGIN + preset)
    shown = call("train", *RUN, plugin, "--preset=risky", "--dump-config")
    assert '"criterion.decoder.temperature" = 0.7  # preset risky' in shown.out
    shown = call("train", *RUN, plugin, "--preset=risky", "--criterion.decoder=greedy", "--dump-config")
    assert shown.err == (
        "preset risky: its criterion.decoder sampling is replaced, so these options are ignored: criterion.decoder.temperature\n"
    )
    assert '"criterion.decoder" = "greedy"' in shown.out


def test_a_run_with_inner_components_is_saved_resumed_and_translates(call, plugin, data, tmp_path):
    run = tmp_path / "run"
    more = (plugin, "--model=draft", "--draft.beam-size=3", "--criterion=risk", "--criterion.decoder.temperature=0.8")
    started = call(*train_arguments(data, run, 10, *more))
    assert started.code == 0, started.err
    saved = tomllib.loads((run / "settings.toml").read_text())
    assert saved["draft.beam_size"] == 3 and saved["criterion.decoder.temperature"] == 0.8
    resumed = call("train", plugin, "--config", run / "settings.toml", "--max-updates=12", "--quiet")
    assert resumed.code == 0, resumed.err
    changed = call(*train_arguments(data, run, 14, *more, "--criterion.decoder.temperature=0.9"))
    assert_refused(changed, 2, "criterion.decoder.temperature")
    described = call("describe", "folder", run, plugin).out
    assert 'draft = "beam"' in described and '"draft.beam_size" = 3' in described
    text = tmp_path / "text.en"
    text.write_text("ban kis\n")
    translated = call("translate", "--model", run, plugin, "--input", text, "--quiet")
    assert translated.code == 0, translated.err


@options_class
class _InnerOptions:
    size: int = opt(2, "any", minimum=1)


@options_class
class _OuterOptions:
    inner: Part = part("decoder", "inner-test", "any")
    width: int = opt(5, "any")


def test_a_component_is_rebuilt_from_its_saved_settings():
    @register("decoder", "inner-test", _InnerOptions)
    class Inner:
        def __init__(self, options):
            self.size = options.size

    @register("criterion", "outer-test", _OuterOptions)
    class Outer:
        def __init__(self, options, build):
            self.inner, self.width = build(options.inner), options.width

    chosen = registry.choose("criterion", "outer-test", {"inner.size": "7", "width": "6"})
    saved = as_dict(chosen.options)
    assert saved == {"inner": "inner-test", "inner.size": 7, "width": 6}
    assert registry.choose("criterion", "outer-test", saved) == chosen
    built = registry.build(chosen, registry.build)
    assert (built.inner.size, built.width) == (7, 6)
    assert registry.build(Part("criterion", "outer-test"), registry.build).inner.size == 2
    with pytest.raises(UserError, match="--size 0: must be at least 1"):
        registry.choose("criterion", "outer-test", {"inner.size": 0})


def test_a_component_can_override_the_defaults_of_its_inner_component(call, tmp_path, dumped):
    values = 'aliases=("sampler",), values={"n_best": 4, "temperature": 0.6}'
    (tmp_path / "inner.py").write_text(PLUGIN.replace('aliases=("sampler",)', values))
    settings = dumped()
    assert (settings["criterion.decoder.n_best"], settings["criterion.decoder.temperature"]) == (4, 0.6)
    assert dumped("--criterion.decoder.n-best=2")["criterion.decoder.n_best"] == 2
    assert dumped("--criterion.decoder=beam")["criterion.decoder.n_best"] == 1
    for given, expected in (({}, (4, 0.6)), ({"decoder": "sampling", "decoder.n_best": 2}, (2, 0.6))):
        options = registry.choose("criterion", "risk", given).options.decoder.options
        assert (options.n_best, options.temperature) == expected
    assert registry.choose("criterion", "risk", {"decoder": "beam"}).options.decoder.options.n_best == 1
    held = registry.find("criterion", "risk").options().decoder
    assert registry.build(held).options.n_best == 4


def test_a_default_for_an_unknown_option_of_the_inner_component_is_refused(call, tmp_path):
    (tmp_path / "wrong.py").write_text(PLUGIN.replace('aliases=("sampler",)', 'values={"n_bets": 4}'))
    assert_refused(call("train", *RUN, f"--plugin={tmp_path / 'wrong.py'}", "--criterion=risk"), 2, "'n_best'")
