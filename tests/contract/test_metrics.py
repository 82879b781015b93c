"""The contract of every metric: best for the reference itself, worse for worse text, a signature, a value per line."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
from refusals import assert_refused

from nmt import UserError, registry
from nmt.extensions.searches.utilities import pairwise

ALL = registry.names("metric")
OF_ONE_REFERENCE = {"bracket-f1", "comet"}
REFERENCE = [
    "Die Kommission hat den EU-Haushalt am Montag vorgelegt.",
    "Ein kleines Mädchen spielt mit dem Hund im Garten hinter dem Haus.",
    "„Das ist nicht wahr“, sagte der alte Mann am Fenster.",
    "Im Sommer 2013 stiegen die Preise um 3,5 % auf 1.000 Euro.",
]
SOURCE = [
    "The Commission presented the EU budget on Monday.",
    "A little girl plays with the dog in the garden behind the house.",
    "“That is not true,” said the old man at the window.",
    "In the summer of 2013, prices rose by 3.5% to 1,000 euros.",
]
WORSE = [line.replace(" am ", " zum ").replace("Hund", "Kater").replace("Preise", "Kosten") for line in REFERENCE]
MUCH_WORSE = [" ".join(line.split()[::-2]) for line in WORSE]
TREES = [
    "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP . )S",
    "(S (NP XX )NP (VP XX (PP XX (NP XX )NP )PP )VP . )S",
    "(NP (NP XX XX )NP , (NP XX )NP )NP",
    "(S (PP XX (NP XX )NP )PP (NP XX )NP (VP XX )VP . )S",
]
WORSE_TREES = [line.replace("(VP", "(NP").replace(")VP", ")NP") for line in TREES]
OTHER_TEXT = {  # reference, worse and much worse text of metrics that are not of words
    "bracket-f1": (TREES, WORSE_TREES, [line.replace("(NP", "(X").replace(")NP", ")X") for line in WORSE_TREES])
}


def texts(name):
    """The reference of a metric, worse and much worse text."""
    return OTHER_TEXT.get(name, (REFERENCE, WORSE, MUCH_WORSE))


@pytest.fixture
def build(monkeypatch, tmp_path):
    """`build(name)`: the metric, ready to be used. COMET's library is a stand-in that counts common characters."""

    def load_from_checkpoint(path):
        def score(sample):
            hypothesis, reference = sample["mt"].split(), sample["ref"].split()
            same = sum(own == other for own, other in zip(hypothesis, reference, strict=False))
            return same / max(len(hypothesis), len(reference), 1)

        return SimpleNamespace(
            predict=lambda samples, **_: SimpleNamespace(scores=[score(sample) for sample in samples])
        )

    library = ModuleType("comet")
    library.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", library)
    model = tmp_path / "model.ckpt"
    model.touch()

    def built(name):
        values = {"target_lang": "de", "comet_model": str(model)}
        metric = registry.build(registry.choose("metric", name, values))
        metric.check()
        return metric

    return built


def badness(metric, hypotheses, reference):
    """The corpus score, greater for a worse text."""
    value = metric(hypotheses, [reference], SOURCE).value
    return -value if metric.higher_is_better else value


@pytest.mark.parametrize("name", ALL)
def test_the_reference_itself_has_the_best_score_and_worse_text_a_worse_one(name, build):
    metric, (reference, *worse) = build(name), texts(name)
    scores = [badness(metric, lines, reference) for lines in (reference, *worse, [""] * len(reference))]
    assert scores == sorted(scores) and scores[0] < scores[1] < scores[2]


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_the_lines_does_not_change_the_score(name, build):
    metric, (reference, worse, much_worse) = build(name), texts(name)
    lines = [worse[0], reference[1], "", much_worse[3]]
    reversed_score = metric(lines[::-1], [reference[::-1]], SOURCE[::-1])
    assert metric(lines, [reference], SOURCE) == reversed_score


@pytest.mark.parametrize("name", ALL)
def test_a_score_has_a_signature_with_the_version_of_what_computed_it(name, build):
    reference, worse, _ = texts(name)
    score = build(name)(worse, [reference], SOURCE)
    assert "nrefs:1|" in score.signature and "version:" in score.signature
    assert f"{score.value:.2f}" in score.detail


@pytest.mark.parametrize("name", ALL)
def test_each_line_has_a_score_that_does_not_depend_on_the_other_lines(name, build):
    metric, (references, worse, much_worse) = build(name), texts(name)
    lines = [references[0], "", much_worse[2], worse[3]]
    scores = metric.sentence_scores(lines, [references], SOURCE)
    assert len(scores) == len(lines) and all(isinstance(score, float) for score in scores)
    alone = [
        metric.sentence_scores([line], [[reference]], [source])[0]
        for line, reference, source in zip(lines, references, SOURCE, strict=True)
    ]
    assert scores == alone
    assert scores[0] == (max if metric.higher_is_better else min)(scores)


@pytest.mark.parametrize("name", ALL)
def test_lines_without_text_are_scored(name, build):
    metric, (reference, worse, _) = build(name), texts(name)
    for hypotheses, references in ((["", ""], reference[:2]), (worse[:2], ["", reference[1]]), (["", ""], ["", ""])):
        assert isinstance(metric(hypotheses, [references], SOURCE[:2]).value, float)
        assert len(metric.sentence_scores(hypotheses, [references], SOURCE[:2])) == 2


@pytest.mark.parametrize("blank", ["", " ", "\u200b\ufeff"])
@pytest.mark.parametrize("name", sorted({*ALL} - OF_ONE_REFERENCE))
def test_a_blank_line_in_one_of_several_references_is_ignored(name, blank, build):
    metric, (reference, worse, _) = build(name), texts(name)
    alone, of_lines = metric(worse, [reference], SOURCE), metric.sentence_scores(worse, [reference], SOURCE)
    for other in ([blank] * 4, [blank, *reference[1:]]):
        for references in ([reference, other], [other, reference]):
            assert metric(worse, references, SOURCE).value == pytest.approx(alone.value)
            assert metric.sentence_scores(worse, references, SOURCE) == pytest.approx(of_lines)
    mixed = metric(worse, [[*reference[:2], blank, blank], [blank, blank, *reference[2:]]], SOURCE)
    assert mixed.value == pytest.approx(alone.value)
    assert "nrefs:var|" in metric(worse, [reference, [blank, *reference[1:]]], SOURCE).signature
    assert metric(["", ""], [[blank, reference[0]], [blank, blank]], SOURCE[:2]).signature


@pytest.mark.parametrize("name", sorted(OF_ONE_REFERENCE))
def test_a_metric_of_one_reference_refuses_a_second_one(name, build):
    with pytest.raises(UserError):
        build(name)(texts(name)[1], [texts(name)[0]] * 2, SOURCE)


@pytest.mark.parametrize("name", ALL)
def test_pairwise_scores_equal_the_sentence_scores(name, build):
    metric, lines = build(name), [*(rows[0] for rows in texts(name)), ""]
    scores = pairwise(metric, SOURCE[0], lines)
    expected = [metric.sentence_scores([line] * len(lines), [lines], [SOURCE[0]] * len(lines)) for line in lines]
    assert scores.tolist() == [pytest.approx(row, abs=1e-9) for row in expected]


PLUGIN = '''
"""A metric of one file."""
from nmt import opt, options_class, register
from nmt.metrics.base import Metric, Score


@options_class
class MineOptions:
    error_cost: float = opt(2.0, "subtracted for each missing word", minimum=0)


@register("metric", "mine", MineOptions)
class Mine(Metric):
    """The words of the reference that are there."""

    def __init__(self, options):
        self.options = options

    def __call__(self, hypotheses, references, sources=None):
        missing = sum(len(set(r.split()) - set(h.split())) for h, r in zip(hypotheses, references[0], strict=True))
        return Score(100 - self.options.error_cost * missing, "cost:2|version:1")
'''


def test_a_metric_from_a_plug_in_is_used_by_name(new_nmt, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    for name, lines in (("out", WORSE), ("ref", REFERENCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    missing = sum(len(set(r.split()) - set(h.split())) for h, r in zip(WORSE, REFERENCE, strict=True))
    files = ["--plugin", tmp_path / "mine.py", "--hypothesis", tmp_path / "out", "--reference", tmp_path / "ref"]
    rows = new_nmt("evaluate", *files, "--metrics", "mine", "bleu", "--json")
    assert rows.returncode == 0, rows.stderr
    mine, bleu = json.loads(rows.stdout)
    assert (mine["metric"], mine["value"], bleu["metric"]) == ("mine", 100 - 2 * missing, "bleu")
    line = new_nmt("evaluate", *files, "--metrics", "mine").stdout.decode()
    assert line == f"mine = {100 - 2 * missing:.2f}  cost:2|version:1\n"
    line = new_nmt("evaluate", *files, "--metrics", "mine", "--error-cost=3").stdout.decode()
    assert line.startswith(f"mine = {100 - 3 * missing:.2f} ")
    assert_refused(new_nmt("evaluate", *files, "--metrics", "bleu", "--error-cost=3"), 2, "--error-cost")
    assert b"mine" in new_nmt("list", "metric", "--plugin", tmp_path / "mine.py").stdout
