"""Components of the Transformer in one plug-in file each: mixers, a feed-forward network, positions."""

import tomllib

import pytest
import torch
from conftest import train_arguments
from refusals import assert_refused
from small_models import assert_search_steps_equal_the_whole

from nmt import registry
from nmt.batch import flatten, make_batch
from nmt.checkpoint import load_model
from nmt.models.options import TransformerOptions
from nmt.runs import find_model

MIXER = '''
import torch
from nmt import opt, options_class, register
from nmt.mixers.base import FirstPast, Mixer
from nmt.nn.linear import Linear


@options_class
class DecayOptions:
    decay: float = opt(0.5, "share of the past that each step keeps", minimum=0, below=1)


@register("mixer", "decay", DecayOptions)
class Decay(Mixer):
    """A sum of the past that fades at a fixed rate."""

    def __init__(self, options, shape):
        super().__init__()
        self.decay, self.width = options.decay, shape.width
        self.values = Linear(shape.width, shape.width)

    def forward(self, states, mask=None, causal=False):
        values, sums = self.values(states), []
        for value in values.unbind(1):
            sums.append(value + self.decay * sums[-1] if sums else value)
        return torch.stack(sums, 1)

    def begin(self, memory, dtype):
        return FirstPast({}, {"sum": memory.new_zeros(len(memory), self.width)})

    def search_step(self):
        project = self.values.search_step()

        def step(states, past, length):
            total = project(states) + self.decay * past["sum"]
            return total.clone(), {"sum": total}

        return step
'''
STAND_IN = '''
from typing import ClassVar

from nmt import opt, options_class, register
from nmt.mixers.self_attention import SelfAttention


@options_class
class ScaledOptions:
    stands_for: ClassVar[str] = "self-attention"
    attention_scale: float = opt(1.0, "factor of the output of self-attention", above=0)

    def is_active(self):
        return self.attention_scale != 1


@register("mixer", "scaled", ScaledOptions)
class Scaled(SelfAttention):
    """Self-attention whose output has a factor."""

    def __init__(self, options, shape):
        super().__init__(options, shape)
        self.scale = options.attention_scale

    def forward(self, states, mask=None, causal=False):
        return self.scale * super().forward(states, mask, causal)

    def search_step(self):
        plain = super().search_step()

        def step(states, past, entries):
            output, past = plain(states, past, entries)
            return self.scale * output, past

        return step
'''
FFN = '''
from nmt import opt, options_class, register
from nmt.feed_forwards.base import FeedForward
from nmt.nn.extra_losses import ExtraLosses, add_losses
from nmt.nn.linear import Linear


@options_class
class LinearOptions:
    size_weight: float = opt(0.1, "weight of the loss of large outputs", minimum=0)


@register("ffn", "linear", LinearOptions)
class LinearNetwork(FeedForward):
    """A linear map, with a loss of its own."""

    auxiliary_losses = ("size_loss",)

    def __init__(self, options, shape):
        super().__init__()
        self.weight = options.size_weight
        self.linear = Linear(shape.width, shape.width)

    def forward(self, states):
        output = self.linear(states)
        add_losses(ExtraLosses({"size_loss": self.weight * output.square().mean()}))
        return output

    def search_step(self):
        return self.linear.search_step()
'''
POSITIONS = '''
import torch
from nmt import opt, options_class, register
from nmt.positions.base import PositionEncoding


@options_class
class RampOptions:
    ramp: int = opt(10, "positions until the ramp is 1", minimum=1)


@register("positions", "ramp", RampOptions)
class Ramp(PositionEncoding):
    """A number that grows with the position."""

    def __init__(self, options, width):
        super().__init__()
        self.ramp, self.width = options.ramp, width

    def forward(self, start, length):
        return torch.arange(start, start + length)[:, None].expand(-1, self.width) / self.ramp
'''
PARTS = {  # by kind and name: the file, and the flags that make use of it
    ("mixer", "decay"): (MIXER, ["--decoder-autoregression=decay", "--decay=0.25"]),
    ("mixer", "scaled"): (STAND_IN, ["--attention-scale=0.25"]),
    ("ffn", "linear"): (FFN, ["--ffn=linear", "--size-weight=0.25"]),
    ("positions", "ramp"): (POSITIONS, ["--positions=ramp", "--ramp=25"]),
}
EACH = pytest.mark.parametrize("part", PARTS, ids=" ".join)


@EACH
def test_a_component_from_one_file_trains_and_translates_in_a_transformer(part, call, data, tmp_path):
    file, flags = PARTS[part]
    plugin, run = tmp_path / "part.py", tmp_path / "run"
    plugin.write_text(file)
    plugin = f"--plugin={plugin}"
    trained = call(*train_arguments(data, run, 10, plugin, *flags))
    assert trained.code == 0, trained.err
    saved = tomllib.loads((run / "settings.toml").read_text())
    keys = {flag[2:].partition("=")[0].replace("-", "_"): flag.partition("=")[2] for flag in flags}
    assert {key: str(saved[key]) for key in keys} == keys
    model = load_model(find_model(run), torch.device("cpu")).model
    batch = make_batch(flatten([[5, 6, 7], [8, 9, 5, 6]]), flatten([[5, 6, 5, 8, 9], [9, 9, 7]]))
    assert_search_steps_equal_the_whole(model, batch)
    (tmp_path / "text.en").write_text("ban kis\nkis\n")
    translate = ["translate", "--model", run, plugin, "--input", tmp_path / "text.en", "--quiet", "--beam-size=3"]
    translated = call(*translate, "--alignment=hard")
    assert translated.code == 0 and len(translated.out.splitlines()) == 2, translated.err
    scored = call("score", "--model", run, plugin, tmp_path / "text.en", tmp_path / "text.en")
    assert scored.code == 0, scored.err


@EACH
def test_it_is_listed_and_its_options_are_flags_that_only_its_file_adds(part, call, tmp_path):
    file, flags = PARTS[part]
    (tmp_path / "part.py").write_text(file)
    plugin, flag = f"--plugin={tmp_path / 'part.py'}", flags[-1].partition("=")[0]
    without = call("train", "--data=d", "--output=o", "--help", "model").out
    shown = call("train", "--data=d", "--output=o", plugin, "--help", "model").out
    assert flag not in without and f"\n  {flag} " in shown
    assert part[1] in call("list", part[0], plugin).out
    assert_refused(call("train", "--data=d", "--output=o", plugin, f"{flag}=-1", "--dump-config"), 2, flag)


def test_a_stand_in_component_is_activated_only_by_its_options(call):
    assert registry.selected("mixer", "self-attention", TransformerOptions()).name == "self-attention"
    positions = [{"positions": name} for name in ("relative", "rotary", "sinusoidal-rotary")]
    for values in ({"kv_heads": 2}, {"attention_window": 3}, *positions):
        assert registry.selected("mixer", "self-attention", TransformerOptions(**values)).name == "attention-variants"
        assert registry.selected("mixer", "ssru", TransformerOptions(**values)).name == "ssru"
    refused = call("train", "--data=d", "--output=o", "--decoder-autoregression=attention-variants", "--dump-config")
    assert_refused(refused, 2, "self-attention, average-attention or ssru")
