"""One plug-in file adds a component of each kind, and the commands use them like built-in ones."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, TINY, records_of, train_arguments, write_corpus
from refusals import assert_refused

from nmt import registry
from nmt.cli.main import run

PAGE = Path(__file__).parents[2] / "docs/how-to/plugins.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)

PLUGIN = '''
"""A part of each kind, written outside the package."""
import torch
from torch import nn

from nmt import opt, options_class, register
from nmt.criteria.base import Criterion, Loss, Term
from nmt.decoders.base import Decoder, Hypothesis
from nmt.metrics.base import Metric, Score
from nmt.models.base import Model, Output, State
from nmt.schedules.base import Schedule


@options_class
class BagOptions:
    bag_width: int = opt(16, "width of the embeddings")


@register("model", "bag", BagOptions)
class Bag(Model):
    """The mean of the source's words and the last target word decide on the next."""

    def __init__(self, options, vocabularies):
        super().__init__()
        self.width = options.bag_width
        self.source = nn.Embedding(vocabularies.source, self.width)
        self.target = nn.Embedding(vocabularies.target, self.width)
        self.output = nn.Linear(self.width, vocabularies.target)

    def _mean(self, source):
        real = (source != 0).unsqueeze(-1)
        return (self.source(source) * real).sum(1) / real.sum(1)

    def forward(self, batch):
        return Output(self._mean(batch.source)[:, None] + self.target(batch.target_input), {})

    def start(self, source):
        return State({"mean": self._mean(source)})

    def step(self, tokens, state):
        mean = state.sentences["mean"]
        rows = mean[:, None].expand(-1, len(tokens) // len(mean), -1).flatten(0, 1)
        return self.log_probs(rows + self.target(tokens)), State(state.sentences, {}, state.length + 1)


@options_class
class SquaredOptions:
    pass


@register("criterion", "brier", SquaredOptions)
class Brier(Criterion):
    """The squared distance between the predicted and the true distribution."""

    def __init__(self, options, context):
        pass

    def __call__(self, model, batch):
        probabilities = model.output(model(batch).features).softmax(-1)
        wanted = nn.functional.one_hot(batch.target_output, probabilities.shape[-1])
        real = batch.target_output != 0
        nll = -(probabilities.gather(-1, batch.target_output[..., None]).squeeze(-1).log() * real).sum()
        distance = (((probabilities - wanted) ** 2).sum(-1) * real).sum()
        return Loss({"loss": Term(distance, real.sum())}, {"nll": Term(nll.detach(), real.sum())})


@options_class
class SignOptions:
    shrink: float = opt(0.0, "share of the weights that is lost a step")


@register("optimizer", "sign", SignOptions)
class Sign(torch.optim.Optimizer):
    """A step of one length along the sign of the gradient."""

    def __init__(self, options, parameters):
        super().__init__(parameters, {"lr": 0.0})
        self.shrink = options.shrink

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 - self.shrink).sub_(group["lr"] * parameter.grad.sign())


@options_class
class StairsOptions:
    height: float = opt(0.01, "learning rate of the first stair")


@register("schedule", "stairs", StairsOptions)
class Stairs(Schedule):
    """Half the learning rate every 20 updates."""

    def __init__(self, options, width, max_updates):
        self.height = options.height

    def __call__(self, update):
        return self.height / 2 ** (update // 20)


@options_class
class FixedOptions:
    words: int = opt(3, "words of every translation")


@register("decoder", "fixed", FixedOptions)
class Fixed(Decoder):
    """The best word at each of a fixed number of positions."""

    def __init__(self, options):
        self.words = options.words

    def decode(self, scorer, source, constraints):
        state, tokens, rows = scorer.start(source), torch.ones(len(source), dtype=torch.long), []
        for _ in range(self.words):
            log_probs, state = scorer.step(tokens, state)
            tokens = log_probs[:, 4:].argmax(-1) + 4
            rows.append(tokens)
        return [[Hypothesis(row.tolist(), 0.0, 0.0)] for row in torch.stack(rows, 1)]


@options_class
class LengthOptions:
    pass


@register("metric", "length", LengthOptions)
class Length(Metric):
    """Words of the translations, in percent of those of the first reference."""

    def __init__(self, options):
        pass

    def __call__(self, hypotheses, references, sources=None):
        words, wanted = (sum(len(line.split()) for line in lines) for lines in (hypotheses, references[0]))
        return Score(100 * words / wanted, "words:spaces")
'''
PARTS = ["--model=bag", "--criterion=brier", "--optimizer=sign", "--schedule=stairs", "--decoder=fixed"]
BY_LENGTH = ["--valid-metrics=length", "--best-by=length"]


@pytest.fixture
def plugin(tmp_path) -> Path:
    path = tmp_path / "outside.py"
    path.write_text(PLUGIN)
    return path


def test_a_model_of_plug_in_components_trains_and_translates(plugin, data, tmp_path, nmt):
    run = tmp_path / "run"
    arguments = [a for a in train_arguments(data, run, 20) if a.split("=")[0] not in TINY_FLAGS]
    trained = nmt(*arguments, f"--plugin={plugin}", *PARTS, "--bag-width=8", "--shrink=0.001", "--words=2", *BY_LENGTH)
    assert trained.returncode == 0, trained.stderr
    assert b"valid_length" in (run / "metrics.jsonl").read_bytes()
    translated = nmt(
        "translate", "--model", run, "--plugin", plugin, "--decoder=fixed", "--words=5", input=b"ban kis\n"
    )
    assert translated.returncode == 0, translated.stderr
    assert len(translated.stdout.split()) == 5
    (tmp_path / "output").write_bytes(translated.stdout)
    (tmp_path / "reference").write_text("BAN KIS\n")
    texts = ["--hypothesis", tmp_path / "output", "--reference", tmp_path / "reference"]
    scored = nmt("evaluate", "--plugin", plugin, *texts, "--metrics=length", "--json")
    assert scored.returncode == 0, scored.stderr
    assert b"250" in scored.stdout and b"words:spaces" in scored.stdout
    assert_refused(nmt("translate", "--model", run, input=b"ban kis\n"), 4, "--plugin")


TINY_FLAGS = {
    "--encoder-layers", "--decoder-layers", "--d-model", "--d-ff", "--heads", "--dropout", "--schedule",
    "--lr", "--warmup-updates",
}  # fmt: skip


def test_plug_in_components_are_listed_described_and_have_flags(plugin, nmt):
    assert b"brier" in nmt("list", "criterion", "--plugin", plugin).stdout
    assert b"width of the embeddings" in nmt("describe", "model", "bag", "--plugin", plugin).stdout
    assert b"--bag-width" in nmt("train", "--plugin", plugin, "--model", "bag", "--help", "model").stdout


def test_a_component_with_a_taken_name_is_rejected_with_both_places(tmp_path, nmt):
    path = tmp_path / "thief.py"
    path.write_text(PLUGIN.replace('"bag"', '"transformer"'))
    assert_refused(nmt("list", "--plugin", path), 2, "thief.py:19: ", "already registered", "nmt.models.transformer")


@pytest.fixture
def page_plugin(tmp_path) -> Path:
    """The Python blocks of docs/how-to/plugins.md, as one plug-in."""
    path = tmp_path / "my_parts.py"
    path.write_text("\n".join(BLOCKS))
    return path


@pytest.mark.parametrize("kind", ["model", "decoder"])
def test_the_model_and_decoder_on_the_page_equal_the_output_of_new_plugin(kind, tmp_path, call):
    assert call("new-plugin", kind, tmp_path / f"my_{kind}.py").code == 0
    assert (tmp_path / f"my_{kind}.py").read_text() in BLOCKS


def test_the_page_has_a_schedule_with_a_preset(page_plugin, nmt):
    assert b"triangle" in nmt("list", "schedule", "--plugin", page_plugin).stdout
    steep = ("--preset", "steep", "--dump-config", "--data=d", "--output=o")
    dumped = nmt("train", "--plugin", page_plugin, *steep).stdout.decode()
    assert "height = 0.01  # preset steep" in dumped


@pytest.mark.parametrize("block", BLOCKS, ids=[re.findall(r"^class (\w+)", block, re.M)[-1] for block in BLOCKS])
def test_every_code_block_of_the_page_is_a_complete_plug_in(block, tmp_path, call):
    path = tmp_path / "block.py"
    path.write_text(block)
    [(kind, name)] = re.findall(r'@register\("(\w+)", "([\w-]+)"', block)
    listed = call("list", kind, "--plugin", path)
    assert listed.code == 0 and name in listed.out.split(), listed.err


@pytest.fixture(scope="module")
def weighted_data(tmp_path_factory) -> Path:
    """Prepared data of 100 pairs with the column `weight`."""
    folder = tmp_path_factory.mktemp("weighted")
    write_corpus(folder / "train", 100, 1)
    write_corpus(folder / "dev", 10, 2)
    (folder / "train.weight").write_text("".join(f"{i % 3}\n" for i in range(100)))
    texts = [f"--train={folder / 'train'}", f"--valid={folder / 'dev'}", f"--column=weight={folder / 'train.weight'}"]
    more = ["--source-lang=en", "--target-lang=de", "--subword=none", f"--output={folder / 'data'}", "--quiet"]
    assert run(["prepare", *texts, *more]) == 0
    return folder / "data"


@pytest.mark.parametrize(
    "criterion", [["searching"], ["weighted"], ["minimum-risk", "--criterion.decoder.n-best=4"]], ids=lambda c: c[0]
)
def test_the_criteria_and_metric_on_the_page_work_in_training(criterion, page_plugin, weighted_data, tmp_path, call):
    arguments = train_arguments(weighted_data, tmp_path / "run", 2, "--valid-every=2u", f"--plugin={page_plugin}")
    trained = call(*arguments, "--criterion", *criterion, "--valid-metrics=exact", "--best-by=exact")
    assert trained.code == 0, trained.err
    last = records_of(tmp_path / "run")[-1]
    assert last["update"] == 2 and last["valid_ppl"] > 1 and last["valid_exact"] >= 0


def test_minimum_risk_with_one_candidate_is_rejected(page_plugin, data, tmp_path, call):
    refused = call(*train_arguments(data, tmp_path / "run", 2), f"--plugin={page_plugin}", "--criterion=minimum-risk")
    assert_refused(refused, 2, "--criterion.decoder.n-best")


def test_an_installed_plug_in_is_found_by_its_entry_point(tmp_path, nmt):
    installed(tmp_path, "mine", PLUGIN)
    path = {"PYTHONPATH": str(tmp_path)}
    listed = nmt("list", env=path)
    assert listed.returncode == 0, listed.stderr
    for kind in registry.FOLDERS:
        assert set(registry.names(kind)) <= set(listed.stdout.decode().split())
    assert {"bag", "brier", "sign", "stairs", "fixed", "length"} <= set(listed.stdout.decode().split())


def installed(folder: Path, name: str, text: str) -> None:
    """Write a plug-in as pip installs it into a folder: a module and an entry point that names it."""
    place = folder / f"{name}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[nmt.plugins]\n{name} = {name}\n")
    (folder / f"{name}.py").write_text(text)


def test_only_the_broken_one_of_several_installed_plug_ins_is_skipped_and_it_is_named(tmp_path, nmt):
    installed(tmp_path, "healthy", PLUGIN)
    model, _, _ = PLUGIN.replace('"bag"', '"sack"').partition("@options_class\nclass Squared")
    installed(tmp_path, "ill", f"{model}\n1 / 0\n")
    path = {"PYTHONPATH": str(tmp_path)}
    listed = nmt("list", env=path)
    words = listed.stdout.decode().split()
    assert listed.returncode == 0 and {"bag", "transformer"} <= set(words) and "sack" not in words
    place = f"{tmp_path / 'ill.py'}:{len(model.splitlines()) + 2}".encode()
    warning = b"nmt: warning: plug-in ill (" + place + b") could not be loaded: ZeroDivisionError"
    assert listed.stderr.count(warning) == 1 and listed.stderr.count(b"\n") == 1
    described = nmt("describe", "criterion", "cross-entropy", env=path)
    assert described.returncode == 0 and b"label_smoothing" in described.stdout
    missing = nmt("describe", "model", "sack", env=path)
    assert missing.returncode == 2
    error = missing.stderr.splitlines()[-1]
    assert (
        error.startswith(b"nmt: error: unknown model 'sack'")
        and b"plug-in ill (" + place + b") could not be loaded" in error
    )


EXTENSION = {  # the files of a package laid out like an extension of nmt
    "__init__.py": '"""Stairs."""',
    "schedules/__init__.py": "",
    "schedules/options.py": """
from nmt import opt, options_class

@options_class
class StairsOptions:
    lr: float = opt(0.01, "learning rate of the first step", above=0)
    warmup_updates: int = opt(0, "not looked at")
""",
    "schedules/stairs.py": '''
import torch
from nmt import register
from nmt.schedules.base import Schedule
from steps.schedules.options import StairsOptions

@register("schedule", "stairs", StairsOptions)
class Stairs(Schedule):
    """Half the learning rate every two updates."""
    def __init__(self, options, width, max_updates):
        self.lr = options.lr
    def __call__(self, update):
        return self.lr / 2 ** ((update - 1) // 2)
''',
    "scorings/__init__.py": "",
    "scorings/options.py": """
from nmt import opt, options_class

@options_class
class MeanOptions:
    mean: bool = opt(False, "print the mean of all scores")
""",
    "scorings/mean.py": """
import torch
from nmt import register
from nmt.scorings.base import Scoring, value_of
from steps.scorings.options import MeanOptions

@register("scoring", "mean", MeanOptions)
class Mean(Scoring):  # without a docstring
    def texts(self, scorer):
        values = [value_of(self.options, pair) for _, pairs in scorer.windows(self.options.target) for pair in pairs]
        yield f"{sum(values) / len(values):.6f}\\n"
""",
    "cli/__init__.py": "",
    "cli/climb.py": '''"""`nmt climb`: say how high the stairs are."""
import sys
from nmt import options_class
from nmt.cli.command import Command

@options_class
class ClimbOptions:
    pass

def run(options):
    """Say it."""
    sys.stdout.write("high\\n")

COMMAND = Command("climb", ClimbOptions, run, group="list")
''',
    "presets.toml": '[steep]\nhelp = "steep stairs"\nschedule = "stairs"\nlr = 0.03\n',
}
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "steps"
version = "1.0"
[project.entry-points."nmt.plugins"]
steps = "steps"
[tool.setuptools.packages.find]
include = ["steps*"]
[tool.setuptools.package-data]
steps = ["*.toml"]
"""


@pytest.mark.skipif(find_spec("pip") is None or find_spec("setuptools") is None, reason="needs pip and setuptools")
def test_a_pip_installed_package_laid_out_as_an_extension_is_an_extension(data, trained, tmp_path, nmt):
    project, site = tmp_path / "project", tmp_path / "site"
    for name, text in EXTENSION.items():
        (project / "steps" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "steps" / name).write_text(text)
    (project / "pyproject.toml").write_text(PROJECT)
    pip = [sys.executable, "-m", "pip", "--isolated", "--quiet", "--disable-pip-version-check", "install", "--no-index"]
    command = [*pip, "--no-deps", "--no-build-isolation", f"--target={site}", str(project)]
    subprocess.run(command, env={**ENVIRONMENT, "PYTHONWARNINGS": "default"}, check=True)  # pip has its own warnings
    path = {"PYTHONPATH": str(site)}
    assert b"Say how high the stairs are" in nmt("--help", env=path).stdout
    assert nmt("climb", env=path).stdout == b"high\n"
    described = nmt("describe", "schedule", "stairs", env=path).stdout
    assert described.startswith(b"schedule stairs (steps.schedules.stairs)\nHalf the learning rate every two updates.")
    done = nmt(
        *train_arguments(data, tmp_path / "run", 4), "--preset=steep", "--schedule=stairs", "--log-every=1u", env=path
    )
    assert done.returncode == 0, done.stderr
    rates = [record["lr"] for record in records_of(tmp_path / "run") if "lr" in record]
    assert rates == [0.005, 0.005, 0.0025, 0.0025]
    (tmp_path / "text").write_text("ban\nkit mus\n")
    scores = ["score", f"--model={trained}", tmp_path / "text", tmp_path / "text"]
    assert b"print the mean of all scores" in nmt("score", "--help", env=path).stdout
    each, mean = (nmt(*scores, *flags, env=path).stdout.split() for flags in ([], ["--mean"]))
    assert float(mean[0]) == pytest.approx(sum(map(float, each)) / 2, abs=1e-5)


def test_helper_files_and_files_with_several_components_are_loaded(tmp_path, new_nmt):
    package = tmp_path / "nmt"
    shutil.copytree(Path(registry.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "schedules" / "helper.py").write_text("raise RuntimeError('not a part')\n")
    part = '@register("schedule", "{0}", NoOptions)\nclass {0}(Schedule):\n    """The {0} schedule."""\n'
    imports = "from nmt import options_class, register\nfrom nmt.schedules.base import Schedule\n"
    options = "@options_class\nclass NoOptions:\n    pass\n"
    (package / "schedules" / "pair.py").write_text(imports + options + part.format("First") + part.format("Second"))
    path = {"PYTHONPATH": str(tmp_path)}
    listed = new_nmt("list", "schedule", env=path, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    rows = dict(line.split(maxsplit=1) for line in listed.stdout.decode().splitlines()[1:])
    assert rows["First"] == "The First schedule." and rows["Second"] == "The Second schedule."
    assert "noam" in rows and not {"helper", "base", "pair"} & set(rows)
    described = new_nmt("describe", "schedule", "Second", env=path, cwd=tmp_path)
    assert b"(nmt.schedules.pair)" in described.stdout, described.stderr


def test_the_command_on_the_development_page_works_as_printed(trained, tmp_path, new_nmt):
    text = (PAGE.parent / "development.md").read_text()
    package = tmp_path / "nmt"
    shutil.copytree(Path(registry.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "cli" / "pieces.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    listed = new_nmt("--help", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path).stdout.decode()
    assert re.search(r"pieces +Print the target tokens of a model", listed)
    shown = new_nmt("pieces", trained, "--limit", "4", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split() == [b"<pad>", b"<s>", b"</s>", b"<unk>"]


def test_the_complete_settings_files_on_the_page_are_valid(page_plugin, tmp_path, call):
    text = (PAGE.parents[1] / "reference/settings.md").read_text()
    *_, translating, training = re.findall(r"```toml\n(.*?)```", text, re.S)
    for command, settings in (("translate", translating), ("train", training)):
        (tmp_path / "settings.toml").write_text(settings)
        dumped = call(command, "--plugin", page_plugin, "--config", tmp_path / "settings.toml", "--dump-config")
        assert dumped.code == 0, dumped.err
        assert ("mbr" if command == "translate" else "minimum-risk") in tomllib.loads(dumped.out).values()


@pytest.mark.parametrize(
    "how", ["sys.exit(0)", "raise SystemExit('bye')", "raise GeneratorExit", "class E(BaseException): pass\nraise E"]
)
def test_a_plugin_that_exits_on_import_is_status_2(how, call, tmp_path):
    (tmp_path / "leaves.py").write_text(f"import sys\n{how}\n")
    assert_refused(call("list", "model", f"--plugin={tmp_path / 'leaves.py'}"), 2, "leaves.py")


def test_a_plugin_that_exits_during_a_command_is_status_2_and_named_with_its_line(call, data, tmp_path):
    (tmp_path / "leaves.py").write_text('''
import sys
from nmt import register
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions

@register("criterion", "leaves", CrossEntropyOptions)
class Leaves(CrossEntropy):
    """Ends the program."""

    def __call__(self, model, batch):
        sys.exit(0)
''')
    more = ["--criterion=leaves", f"--plugin={tmp_path / 'leaves.py'}"]
    assert_refused(call(*train_arguments(data, tmp_path / "run", 2, *more)), 2, "leaves.py:11")


@pytest.mark.parametrize("command", [["list", "model"], ["list", "model", "--json"]])
def test_a_plugin_that_closes_stdout_is_status_2(command, nmt, tmp_path):
    (tmp_path / "closes.py").write_text("import sys\nsys.stdout.close()\n")
    assert_refused(nmt(*command, f"--plugin={tmp_path / 'closes.py'}"), 2, "plug-in has closed stdout")


def test_a_plugin_whose_model_needs_real_tensors_is_trained(call, data, tmp_path):
    (tmp_path / "real.py").write_text('''
from nmt import register
from nmt.extensions.zoo.models.options import RnnSearchOptions
from nmt.extensions.zoo.models.rnnsearch import RnnSearch

@register("model", "real", RnnSearchOptions)
class Real(RnnSearch):
    """Looks at the values of its weights."""

    def __init__(self, options, vocabularies):
        super().__init__(options, vocabularies)
        self.largest = self.output.weight.detach().numpy().max()
''')
    sizes = ["--model=real", "--embedding-size=8", "--hidden-size=8", "--attention-size=8", "--maxout-size=8"]
    arguments = [argument for argument in train_arguments(data, tmp_path / "run", 2) if argument not in TINY]
    trained = call(*arguments, *sizes, f"--plugin={tmp_path / 'real.py'}")
    assert trained.code == 0, trained.err
