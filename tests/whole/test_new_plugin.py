"""`nmt new-plugin` writes plug-ins that work: the printed commands run, and their results are correct."""

import csv
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import TINY, records_of, updates_of, write_corpus

from nmt import registry
from nmt.extensions.new_plugin.cli.new_plugin import skeletons

OF_TRAINING = [
    "--batch-tokens=400",
    "--threads=1",
    "--matmul=torch",
    "--max-updates=6",
    "--log-every=1u",
    "--valid-every=6u",
    "--quiet",
]
SOURCE, REFERENCE = "ban kis\nlot, mura 12.\n", "KIS BAN\nMURA LOT\n"


@dataclass
class Tried:
    """A plug-in after its commands ran. place: its folder; run, data: its own or the fixtures'; out: output of each command"""

    place: Path
    plugin: Path
    run: Path
    data: Path
    call: Callable[..., Any]
    out: list[str] = field(default_factory=list)

    def file(self, name: str) -> Path:
        return self.place / name

    def train(self, name: str, *flags: str, tiny: list[str] = TINY) -> Path:
        """Train another run of 6 updates, without the plug-in unless flags name it."""
        output = self.place / name
        done = self.call("train", "--data", self.data, "--output", output, *tiny, *OF_TRAINING, *flags)
        assert done.code == 0, done.err
        return output

    def output(self, *words: object) -> str:
        done = self.call(*words)
        assert done.code == 0, done.err
        return done.out

    def translated(self, *flags: object) -> str:
        return self.output("translate", "--model", self.run, "--input", self.file("TEXT"), *flags)

    def component(self, kind: str) -> Any:
        """The class of the plug-in."""
        registry.load_plugin(str(self.plugin))
        return registry.find(kind, f"my-{kind}").cls


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in updates_of(run)]


def check_model(tried: Tried) -> None:
    """Its features of whole sentences give the predictions of the search at each token."""
    from nmt.batch import Batch, pad_rows
    from nmt.checkpoint import load_model

    registry.load_plugin(str(tried.plugin))
    model = load_model(tried.run, torch.device("cpu")).model
    source, target = pad_rows([[4, 5, 6], [7]]), pad_rows([[4, 9], [5, 6]], [1])
    whole = model.log_probs(model(Batch(source, target)).features)  # B T V
    state, steps = model.start(source), []
    for tokens in target[:, :-1].unbind(1):
        log_probs, state = model.step(tokens, state)
        steps.append(log_probs)
    torch.testing.assert_close(torch.stack(steps, 1), whole)
    assert len(tried.out[1].split("\n")) == 3


def check_criterion(tried: Tried) -> None:
    """Without focus it is cross entropy; with focus it is less."""
    plain = losses(tried.train("plain", "--label-smoothing=0"))
    same = tried.train("same", "--plugin", str(tried.plugin), "--criterion=my-criterion", "--focus=0")
    assert losses(same) == pytest.approx(plain, rel=1e-4)
    assert losses(tried.run)[0] < plain[0]


def check_optimizer(tried: Tried) -> None:
    """It trains, and each step moves each weight by the learning rate."""
    built = tried.component("optimizer")
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, -5.0, 0.1])
    options = SimpleNamespace(beta1=0.9, beta2=0.99, decay=0.0)
    optimizer = built(options, [{"params": [weight]}])
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert weight.tolist() == [-0.5, 0.5, -0.5]
    assert losses(tried.run)[-1] < losses(tried.run)[0]


def check_schedule(tried: Tried) -> None:
    """The learning rate rises by a hundredth of its peak, and is halved later."""
    assert [record["lr"] for record in updates_of(tried.run)] == pytest.approx([0.00001 * i for i in range(1, 7)])
    schedule = tried.component("schedule")(SimpleNamespace(lr=1.0, warmup_updates=10, halve_every=5), 1, None)
    assert [schedule(update) for update in (5, 10, 14, 15, 20)] == [0.5, 1, 1, 0.5, 0.25]


def check_decoder(tried: Tried) -> None:
    """With one hypothesis it is greedy search; with more, its log-probabilities are those of the model."""
    from nmt.batch import Batch, pad_rows
    from nmt.checkpoint import load_model
    from nmt.symbols import BOS, EOS

    mine = ["--plugin", tried.plugin, "--decoder=my-decoder", "--token-reward=0"]
    assert tried.translated(*mine, "--beam-size=1") == tried.translated("--decoder=greedy")
    assert "BLEU" in tried.out[1]
    tried.component("decoder")
    model = load_model(tried.run, torch.device("cpu")).model.eval()
    decoder = registry.build(registry.choose("decoder", "my-decoder", {"max_len_b": 2}))
    source = pad_rows([[4, 5, 6], [7]])
    for number, [found] in enumerate(decoder.search(model, source)):
        target = torch.tensor([[BOS, *found.tokens, EOS]])
        batch = Batch(pad_rows([[[4, 5, 6], [7]][number]]), target)
        with torch.no_grad():
            log_probs = model.log_probs(model(batch).features).gather(-1, target[:, 1:, None])
        assert found.log_prob == pytest.approx(log_probs.sum().item(), abs=1e-4)
        assert found.score == pytest.approx(found.log_prob + 0.5 * len(found.tokens), abs=1e-4)


def check_metric(tried: Tried) -> None:
    """Two of four words, in another order, give a score of one half."""
    metric = tried.component("metric")(SimpleNamespace(lowercase=False))
    assert metric(["a b c d"], [["d x y a"]]).value == 50
    assert metric(["A"], [["a"]]).value == 0
    assert "nrefs:1|case:mixed" in tried.out[0]
    assert records_of(tried.run)[-1]["valid_my-metric"] >= 0


def check_noise(tried: Tried) -> None:
    """It changes the losses, unless its option has its default value."""
    plain = losses(tried.train("plain"))
    assert losses(tried.train("off", "--plugin", str(tried.plugin), "--my-noise=0")) == plain != losses(tried.run)


def check_scoring(tried: Tried) -> None:
    """The pairs with the lowest plain scores come first."""
    files = ["--source", tried.file("TEXT"), "--target", tried.file("REFERENCE")]
    plain = [float(line.split()[0]) for line in tried.output("score", "--model", tried.run, *files).split("\n")[:-1]]
    rows = [line.split("\t") for line in tried.out[0].split("\n")[:-1]]
    assert [float(row[1]) for row in rows] == pytest.approx(sorted(plain), abs=1e-3)
    assert rows[0][2] == REFERENCE.split("\n")[int(rows[0][0]) - 1]


def check_filter(tried: Tried) -> None:
    """Some letters of plain translations are removed."""
    letter = next(letter for letter in tried.translated() if letter.isalpha())
    changed = tried.translated("--plugin", tried.plugin, f"--my-filter={letter}")
    assert letter not in changed and changed.strip()


def check_tokenizer(tried: Tried) -> None:
    """It joins the tokens that it separates."""
    tokenizer = tried.component("tokenizer")("en")
    text = 'He said, "don\'t" (at 12.5).'
    assert tokenizer.tokenize(text) != text == tokenizer.detokenize(tokenizer.tokenize(text))


def check_subword(tried: Tried) -> None:
    """It restores words from their pieces."""
    vocabulary = tried.component("subword").vocabulary(["ban@@", "ana", "so"])
    [ids] = vocabulary.encode_batch(["banana so"]).lists()
    assert [vocabulary.piece(token) for token in ids] == ["ban@@", "ana", "so"]
    assert vocabulary.decode(ids) == "banana so"


def check_format(tried: Tried) -> None:
    """Keys are kept, and texts equal those of a line-by-line translation."""
    lines = tried.file("TRANSLATED").read_text().split("\n")
    assert lines[0] == "# a comment" and [line.split(" = ")[0] for line in lines[1:3]] == ["first.key", "second"]
    assert [line.split(" = ")[1] for line in lines[1:3]] == tried.translated().split("\n")[:2]


def check_reporter(tried: Tried) -> None:
    """Its file has the values of the log."""
    rows = list(csv.reader((tried.run / "my_reporter.csv").read_text().splitlines()))
    assert [(int(row[0]), float(row[1])) for row in rows] == [(r["update"], r["loss"]) for r in updates_of(tried.run)]


def check_start(tried: Tried) -> None:
    """The matrices of a model are orthogonal."""
    layer = torch.nn.Linear(4, 3)
    run = SimpleNamespace(options=SimpleNamespace(seed=1), model=layer)
    tried.component("start")(SimpleNamespace(my_start=2.0)).begin(run)
    torch.testing.assert_close(layer.weight @ layer.weight.mT, 4 * torch.eye(3))
    assert losses(tried.run) != losses(tried.train("plain"))


def check_kernel(tried: Tried) -> None:
    """It gives the result of the method that it replaces."""
    registry.load_plugin(str(tried.plugin))
    criterion = registry.find("criterion", "my-kernel-loss").cls(None, None)
    logits, targets = torch.randn(5, 7), torch.tensor([1, 4, 0, 6, 2])
    [fast] = tried.component("kernel")(None).compute(criterion, logits, targets)
    torch.testing.assert_close(fast, criterion.nll(logits, targets)[0])


def check_mixer(tried: Tried) -> None:
    """Step-by-step results equal those of all positions at once."""
    mixer = tried.component("mixer")(SimpleNamespace(my_mixer=0.5), SimpleNamespace(width=4))
    states, (_, past), step, outputs = (
        torch.randn(2, 3, 4),
        mixer.begin(torch.zeros(2, 1, 4), None),
        mixer.search_step(),
        [],
    )
    with torch.no_grad():
        for position in range(3):
            output, past = step(states[:, position], past, position)
            outputs.append(output)
        torch.testing.assert_close(torch.stack(outputs, 1), mixer(states, causal=True))


def check_ffn(tried: Tried) -> None:
    """The search gives the same output as training."""
    from nmt.feed_forwards.base import FeedForwardShape

    network = tried.component("ffn")(None, FeedForwardShape(4, 8, 0.0)).eval()
    states = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(network.search_step()(states), network(states))
    assert losses(tried.run) != losses(tried.train("plain"))


def check_positions(tried: Tried) -> None:
    """Positions that start later are a slice of all positions."""
    positions = tried.component("positions")(None, 4)
    torch.testing.assert_close(positions(2, 3), positions(0, 5)[2:])
    assert not positions(0, 1).any() and losses(tried.run) != losses(tried.train("plain"))


def check_viewer(tried: Tried) -> None:
    """Each line ends with its number of tokens, which are words here."""
    rows = [line.split(" ||| ") for line in tried.out[0].splitlines()]
    assert [int(row[-1]) for row in rows] == [len(row[0].split()) for row in rows] != []


def check_preview(tried: Tried) -> None:
    """It shows the defaults and starts no run."""
    assert "model: transformer\n" in tried.out[0] and json.loads(tried.out[1])["schedule"] == "inverse-sqrt"
    assert not tried.run.exists()


def written(kind: str, place: Path, call: Callable[..., Any]) -> tuple[Path, list[str]]:
    """The plug-in of a kind, and its commands."""
    name = kind.replace("-", "_")
    done = call("new-plugin", kind, place / f"my_{name}.py", "--json")
    assert done.code == 0, done.err
    return Path(done.json["file"]), done.json["commands"]


@pytest.mark.parametrize("kind", skeletons())
def test_the_commands_printed_for_a_skeleton_run_and_give_correct_results(kind, data, trained, tmp_path, call):
    plugin, commands = written(kind, tmp_path, call)
    write_corpus(tmp_path / "CORPUS", 60, 3)
    for name, text in {"TEXT": SOURCE, "REFERENCE": REFERENCE, "HYPOTHESIS": REFERENCE}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "REQUESTS").write_text('{"text": "ban kis", "my-filter": ["B"]}\n')
    (tmp_path / "DOCUMENT").write_text("# a comment\nfirst.key = ban kis\nsecond = lot, mura 12.\n")
    tried = Tried(tmp_path, plugin, trained, data, call)
    assert len(commands) == 2
    for command in commands:
        _, name, *words = shlex.split(command, comments=True)
        if name == "train":
            tried.run = tmp_path / "RUN"
            words += (
                OF_TRAINING
                if "--model" in words
                else [*(flag for flag in TINY if flag.split("=")[0] not in words), *OF_TRAINING]
            )
            if "--schedule" in words:
                words = [word for word in words if not word.startswith(("--lr=", "--warmup"))]
        if name == "prepare":
            tried.data = tmp_path / "DATA"
        places = {"RUN": tried.run, "DATA": tried.data}
        done = call(name, *(places.get(word, tmp_path / word if word.isupper() else word) for word in words))
        assert done.code == 0, (command, done.err)
        tried.out.append(done.out)
    globals()[f"check_{kind.replace('-', '_')}"](tried)


@pytest.mark.parametrize(
    ("file", "component", "cls"),
    [
        ("my_model.py", "my-model", "MyModel"),
        ("tree-lstm.py", "tree-lstm", "TreeLstm"),
        ("TreeLstm.py", "tree-lstm", "TreeLstm"),
        ("model.py", "model", "MyModel"),  # Model is the base class
    ],
)
def test_a_component_is_named_after_its_file(file, component, cls, tmp_path, call):
    done = call("new-plugin", "model", tmp_path / file)
    assert done.code == 0, done.err
    assert f"--plugin {tmp_path / file} --model {component} " in done.out
    assert f"class {cls}(Model)" in (tmp_path / file).read_text()
    assert component in call("list", "model", "--plugin", tmp_path / file).out.split()


@pytest.mark.parametrize(
    ("kind", "file", "named"),
    [
        ("modle", "my_model.py", "did you mean 'model'"),
        ("network", "my_model.py", "criterion, "),
        ("model", "my_model.txt", "my_model.py"),
        ("model", "1st.py", "my_model.py"),
        ("model", "class.py", "keyword"),
        ("decoder", "beam.py", "'beam' already exists"),
        ("noise", "seed.py", "--seed is already a flag"),
        ("model", "no-folder/my_model.py", "no-folder"),
        ("model", "kept.py", "kept.py already exists"),
    ],
)
def test_an_invalid_kind_or_file_is_rejected(kind, file, named, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kept.py").write_text("kept\n")
    done = call("new-plugin", kind, file)
    assert done.code in (2, 5) and named in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.py"] and Path("kept.py").read_text() == "kept\n"


MISTAKES = {  # kind, text of the skeleton, text of an author: the line of the plug-in with the mistake, words from the error
    "syntax": ("model", "def read(self, source: Tensor)", "def read(self, source: Tensor", "def read", "SyntaxError"),
    "import": ("model", "import Model, ", "import Modle, ", "import Modle", "cannot import name 'Modle'"),
    "package": ("model", "import torch\n", "import torhc\n", "import torhc", "No module named 'torhc'"),
    "name": ("model", "@options_class", "@option_class", "@option_class", "'option_class' is not defined"),
    "kind": ("model", '@register("model"', '@register("modle"', "@register", "did you mean 'model'?"),
    "taken": ("model", '"my-model"', '"transformer"', "@register", "already registered by nmt.models.transformer"),
    "no options class": ("model", "@options_class\n", "", "@register", "decorate it with @options_class"),
    "no opt": (
        "model",
        "    dropout: float = opt(0.1, ",
        "    depth: int = 3\n    dropout: float = opt(0.1, ",
        "@register",
        "opt()",
    ),
    "option": ("model", "options.width", "options.size", "options.size", "has no attribute 'size'"),
    "arguments": ("model", ", vocabularies: Vocabularies", "", "@register", "the model interface"),
    "no forward": (
        "model",
        "def forward",
        "def forwards",
        "@register",
        "abstract method 'forward'|abstract method forward",
    ),
    "no step": ("model", "def step", "def steps", "super().__init__", "`?step`?"),
    "no output": ("model", "self.output =", "self.logits =", "@register", "no attribute 'output'"),
    "type": ("model", "return Output(features, {})", "return features", "@register", "must return Output"),
    "shape": ("model", "Output(features,", "Output(features[0],", "@register", r"instead of \(B, T, D\)"),
    "layer": ("model", "nn.Linear(2 * ", "nn.Linear(3 * ", "self.join(", "shapes cannot be multiplied"),
    "loss": (
        "criterion",
        "return Loss.of_target_tokens(",
        "return (lambda *_, **__: loss)(",
        "@register",
        "criterion interface",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_names_the_file_and_the_line_of_the_plug_in(mistake, data, tmp_path, call):
    kind, right, wrong, at, words = MISTAKES[mistake]
    plugin, _ = written(kind, tmp_path, call)
    text = plugin.read_text()
    assert right in text
    plugin.write_text(text := text.replace(right, wrong))
    lines = [number for number, line in enumerate(text.split("\n"), 1) if at in line]
    sizes = ["--width=8"] if kind == "model" else [*TINY, "--focus=1"]
    done = call(
        "train",
        "--data",
        data,
        "--output",
        tmp_path / "run",
        f"--{kind}=my-{kind}",
        *sizes,
        *OF_TRAINING,
        "--plugin",
        plugin,
    )
    assert done.code == 2 and re.search(words, done.err), done.err
    assert any(f"{plugin}:{number}" in done.err for number in lines), (lines, done.err)
