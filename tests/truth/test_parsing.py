"""The parsing recipe: Penn trees to lines and back, and a treebank of its own."""

import gzip
import importlib
import re
import sys
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from gradients import sentences, transformer
from scorers import RandomScorer, random_sources

from nmt import UserError, registry
from nmt.decoders.beam import Beam
from nmt.decoders.options import BeamOptions
from nmt.extensions.scores.metrics.bracket_f1 import BracketF1, read_tree
from nmt.models.base import State
from nmt.options import NoOptions
from nmt.symbols import BOS, EOS, PAD, SYMBOLS
from nmt.translate.ensemble import Ensemble

PARSING = Path(__file__).parents[2] / "recipes" / "parsing"
sys.path.insert(0, str(PARSING))  # the recipe's modules are scripts and no package
grammar, pairs, trees = map(importlib.import_module, ("grammar", "pairs", "trees"))
sys.path.remove(str(PARSING))

PENN = "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"


def random_tree(random, depth=0):
    """A Penn tree with any labels, words in other scripts, and constituents of one child."""
    if depth > 6 or (depth > 1 and random.random() < 0.4):
        tag = random.choice(["NN", ",", ".", "-LRB-", "``", "PRP$", "XX"])
        return f"({tag} {random.choice(['word', '-LRB-', 'né', '犬', '``', '1/2', 'a@@'])})"
    children = " ".join(random_tree(random, depth + 1) for _ in range(random.randint(1, 3)))
    return f"({random.choice(['NP', 'S', 'VP', 'NP-SBJ', 'SBAR'])} {children})" if depth else f"(TOP {children})"


def samples():
    random = Random(2)
    return [PENN, *islice(grammar.treebank(1), 200), *(random_tree(random) for _ in range(300))]


def test_trees_are_linearised_as_in_grammar_as_a_foreign_language():
    for tags, expected in (
        (False, "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"),
        (True, "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"),
    ):
        words, tokens = trees.linearise(PENN, tags)
        assert (" ".join(words), " ".join(tokens)) == ("John has a dog .", expected)


def test_restoring_a_linearised_tree_gives_the_tree():
    for tree in samples():
        assert trees.restore(*trees.linearise(tree, tags=True)) == tree
        untagged = re.sub(r"\((?!,|\.|``|'')\S+ ([^\s()]+)\)", r"(XX \1)", tree)
        assert trees.restore(*trees.linearise(tree)) == untagged


@pytest.mark.parametrize("tags", [True, False])
def test_a_linearised_tree_scores_100_against_itself_whichever_tags_it_has(tags):
    references, hypotheses = (
        [" ".join(trees.linearise(tree, tags)[1]) for tree in samples()] for tags in (False, tags)
    )
    assert BracketF1(NoOptions())(hypotheses, [references]).value == 100


@pytest.mark.parametrize("root", ["(TOP {})", "(ROOT {})", "( {})", "( {} )", "{}", " {} ", "(TOP\t{})"])
def test_the_root_may_have_any_name_or_none(root):
    tree = PENN.removeprefix("(TOP ").removesuffix(")")
    assert trees.linearise(root.format(tree)) == trees.linearise(PENN)


@pytest.mark.parametrize(
    "line",
    [
        *("", "()", "word", "(TOP)", "(S (NP (NN a))", "(S (NN a)))", "(S (NN a)) (S (NN b))", "(S (NN a b))"),
        *("(S NN (NN a))", "(S (NP) (NN a))", "(NN a) b", "(S (NN a)) b"),
    ],
)
def test_a_line_that_is_not_one_tree_is_refused(line):
    with pytest.raises(ValueError, match="not a Penn tree"):
        trees.linearise(line)


@pytest.mark.parametrize("tokens", ["(S XX )S", "(S XX XX XX )S", "(S XX XX )NP", "(S XX XX", "", "(S XX XX )S )S"])
def test_restoring_a_line_that_does_not_fit_the_words_is_refused(tokens):
    with pytest.raises(ValueError, match="not a tree over 2 words"):
        trees.restore(["a", "b"], tokens.split())


def test_files_of_trees_become_files_of_lines_and_back(tmp_path, capsys):
    penn = samples()
    (tmp_path / "t.trees.gz").write_bytes(gzip.compress("\n".join([*penn, "(S (NN a b))"]).encode()))
    trees.main(["linearise", "--tags", str(tmp_path / "t.trees.gz"), str(tmp_path / "out" / "t")])
    assert f"t.trees.gz:{len(penn) + 1}: skipped: column 8: not a Penn tree" in capsys.readouterr().err
    words, lines = ((tmp_path / "out" / f"t.{name}").read_text().splitlines() for name in ("words", "tree"))
    assert len(words) == len(lines) == len(penn)
    (tmp_path / "found").write_text("".join(f"{line}\n" for line in [*lines[:-1], "(S"]))
    trees.main(["restore", *(str(tmp_path / name) for name in ("out/t.words", "found", "restored"))])
    assert (tmp_path / "restored").read_text().splitlines() == [*penn[:-1], ""]


def test_a_tree_in_pairs_has_two_tokens_per_word_but_one_and_gives_the_tree_back():
    words, tokens = trees.linearise(PENN, tags=True)
    expected = ">NNP^NP >(S >VBZ >(VP >DT <(NP <NN <( <."
    assert " ".join(pairs.pairs_of(pairs.tree_of(tokens))) == expected
    for tree in samples():
        words, tokens = trees.linearise(tree, tags=True)
        line = list(pairs.pairs_of(pairs.tree_of(tokens)))
        assert len(line) == 2 * len(words) - 1
        assert list(pairs.brackets_of(pairs.tree_of_pairs(line))) == tokens


@pytest.mark.parametrize("line", ["<NN", ">DT >(NP", ">DT <(NP <NN", ""])
def test_pairs_that_are_no_tree_are_refused(line):
    with pytest.raises((IndexError, ValueError)):
        pairs.tree_of_pairs(line.split())


def test_a_word_in_pairs_is_followed_by_its_ending_or_its_shape():
    assert [*map(pairs.described, ["Patterning", "of", "Brn3c", "-LRB-", "né", "E11.5", "."])] == [
        *(("Patterning", "=Aing"), ("of", "=of"), ("Brn3c", "=Aa0a"), ("-LRB-", "=-A-"), ("né", "=aé")),
        *(("E11.5", "=A0.0"), (".", "=.")),
    ]


def test_files_in_pairs_have_links_and_keep_empty_lines(tmp_path):
    lines = [trees.linearise(PENN, tags=True), ([], [])]
    for number, name in enumerate(("words", "tree")):
        (tmp_path / f"t.{name}").write_text("".join(" ".join(line[number]) + "\n" for line in lines))
    pairs.main(["write", str(tmp_path / "t"), str(tmp_path / "p")])
    assert (tmp_path / "p.words").read_text().splitlines()[1] == ""
    assert (tmp_path / "p.align").read_text().splitlines() == [" ".join(f"{i}-{i}" for i in range(9)), ""]
    pairs.main(["read", str(tmp_path / "p.tree"), str(tmp_path / "back")])
    assert (tmp_path / "back").read_text() == (tmp_path / "t.tree").read_text()


def test_sentences_without_trees_get_the_brackets_of_treebanks(tmp_path):
    (tmp_path / "text").write_text("a  (b c\n\n")
    trees.main(["words", str(tmp_path / "text"), str(tmp_path / "words")])
    assert (tmp_path / "words").read_text() == "a -LRB-b c\n\n"


def test_the_grammars_treebank_depends_only_on_the_seed_and_repeats_no_tree(tmp_path):
    for name, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        counts = ["--train", "300", "--dev", "20", "--test", "30", "--seed", seed]
        grammar.main([*counts, "--output", str(tmp_path / name)])
    one, same, other = (
        {path.name: path.read_text() for path in (tmp_path / name).iterdir()} for name in ("one", "same", "other")
    )
    assert one == same and one != other
    lines = "".join(one.values()).splitlines()
    assert len(lines) == len(set(lines)) == 350
    labels = {label for line in lines for label, _, _ in read_tree(" ".join(trees.linearise(line)[1])).constituents}
    assert {symbol.split("-")[0] for symbol in grammar.RULES} == labels


class Writer:
    """A Scorer that writes some tokens, nearly for certain. size: of its vocabulary"""

    def __init__(self, tokens, size):
        self.tokens, self.size = [*tokens, EOS, EOS], size

    def start(self, source):
        return State({}, {"nothing": source[:, :0]})

    def step(self, tokens, state):
        logits = torch.linspace(0, 1, self.size).repeat(len(tokens), 1)
        logits[:, self.tokens[min(state.length, len(self.tokens) - 1)]] = 20
        return logits.log_softmax(-1), state.after(state.sentences, dict(state.hypotheses), None)


def decode(row):
    return " ".join("w" for token in row if token not in (EOS, PAD))


def searches(name, pieces):
    """A search of the recipe, and the beam search that it restricts, for these target tokens."""
    side = SimpleNamespace(
        size=len(pieces), piece=pieces.__getitem__, decode=decode, decode_line=decode, surface=pieces.__getitem__
    )
    options = BeamOptions(beam_size=3, max_len_a=0, max_len_b=1000)
    registry.load_plugin(str(PARSING / "tree_beam.py"))
    search = registry.find("decoder", name).cls(options)
    search.use_pipeline(SimpleNamespace(source=side, target=side))
    return search, Beam(options)


BRACKETS = [*SYMBOLS, *(f"{side}{label}" for label in ("S", "NP", "VP") for side in "()"), "XX", ".", ",", "-LRB-"]
PAIRS = [*SYMBOLS, *(f"{side}{label}" for label in ("(S", "(NP", "(NP^VP", "NN", ".^NP") for side in "<>"), "<("]


@pytest.mark.parametrize("seed", range(4))
def test_the_search_in_brackets_finds_only_trees_over_the_words(seed):
    search, _ = searches("tree-beam", BRACKETS)
    source = random_sources(seed, 5, len(BRACKETS))
    for row, [best, *_] in zip(source.tolist(), search.search(RandomScorer(seed, len(BRACKETS)), source), strict=True):
        tree = read_tree(" ".join(BRACKETS[token] for token in best.tokens))
        assert tree is not None and len(tree.tags) == row.index(EOS)


@pytest.mark.parametrize("seed", range(4))
def test_the_search_in_pairs_finds_only_trees_over_the_words(seed):
    search, _ = searches("pair-beam", PAIRS)
    source = random_sources(seed, 5, len(PAIRS))
    source = source[:, :-1].repeat_interleave(2, 1)  # two tokens per word
    source = torch.cat((torch.where(source == EOS, PAD, source), source.new_full((len(source), 1), PAD)), 1)
    source[torch.arange(len(source)), (source != PAD).sum(1)] = EOS
    for row, [best, *_] in zip(source.tolist(), search.search(RandomScorer(seed, len(PAIRS)), source), strict=True):
        tokens = [PAIRS[token] for token in best.tokens]
        tree = read_tree(" ".join(pairs.brackets_of(pairs.tree_of_pairs(tokens))))
        assert tree is not None and len(tree.tags) == row.index(EOS) / 2


@pytest.mark.parametrize(
    ("name", "pieces", "gold", "words"),
    [
        ("tree-beam", BRACKETS, ["(S", "(NP", "XX", "XX", ")NP", ".", ")S"], 3),
        ("pair-beam", PAIRS, [">NN", ">(NP", "<NN", ">(S", "<.^NP"], 6),
    ],
)
def test_the_search_is_a_plain_beam_search_where_the_model_writes_trees_by_itself(name, pieces, gold, words):
    search, beam = searches(name, pieces)
    told = Writer([*map(pieces.index, gold), EOS], len(pieces))
    source = torch.tensor([[4] * words + [EOS]])
    assert search.search(told, source)[0][0] == beam.search(told, source)[0][0]


@pytest.mark.parametrize(("name", "pieces"), [("tree-beam", BRACKETS), ("pair-beam", PAIRS)])
def test_the_search_for_trees_needs_all_tokens(name, pieces):
    wrapper = registry.find("wrapper", "shortlist").cls(SimpleNamespace(shortlist="file"), None, transformer())
    with pytest.raises(UserError, match=f"--shortlist and --decoder {name} cannot be combined"):
        wrapper.decoder(searches(name, pieces)[0])


def with_encoder(scorer, weight, **options):
    registry.load_plugin(str(PARSING / "encoder_share.py"))
    return registry.find("wrapper", "encoder-share").cls(SimpleNamespace(encoder_share=weight, **options), None, scorer)


def other_transformer():
    """A model whose weights differ from those of `transformer()`."""
    model = transformer()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model.eval()


@pytest.mark.parametrize("scorer", [transformer().eval(), Ensemble([transformer().eval(), other_transformer()])])
def test_the_encoder_adds_what_its_output_at_a_source_token_predicts_to_the_score_of_each_token(scorer):
    source, found = sentences(3, 6).source, []

    def search(shared, source, constraints):
        tokens, state, plain = torch.full((6,), BOS), shared.start(source), scorer.start(source)
        state.reorder(torch.arange(3).repeat_interleave(2))
        plain.reorder(torch.arange(3).repeat_interleave(2))
        for _ in range(source.shape[1] + 1):  # after the last source token, it adds nothing
            log_probs, state = shared.step(tokens, state)
            without, plain = scorer.step(tokens, plain)
            found.append((log_probs - without).unflatten(0, (3, 2)))
            tokens = log_probs.argmax(-1)
            rows = torch.tensor([1, 0, 2, 3, 5, 4])
            tokens = tokens[rows]
            state.reorder(rows)
            plain.reorder(rows)
        return []

    with torch.inference_mode():
        with_encoder(scorer, 0.3).around(search)(scorer, source, [])
        models = getattr(scorer, "models", [scorer])
        of_encoders = [model.output(model.encode(source)).log_softmax(-1) for model in models]
    wanted = 0.3 * torch.stack(of_encoders).mean(0) * (source != PAD)[..., None]  # B S V
    for position in range(source.shape[1]):
        for hypothesis in range(2):
            torch.testing.assert_close(found[position][:, hypothesis], wanted[:, position], rtol=1e-4, atol=1e-4)
    assert found[-1].abs().max() == 0


def test_the_encoders_share_is_weighted_like_the_models_of_an_ensemble():
    source, found = sentences(2, 4).source, []

    def search(shared, source, constraints):
        found.append(shared.step(torch.full((2,), BOS), shared.start(source))[0])
        return []

    scorer = Ensemble([transformer().eval(), other_transformer()], [1.0, 0.0])
    for one in (scorer, transformer().eval()):
        with_encoder(one, 0.3).around(search)(one, source, [])
    torch.testing.assert_close(*found)


def test_the_encoders_share_needs_transformers_and_all_tokens():
    with pytest.raises(UserError, match="--encoder-share works only with models of the kind 'transformer'"):
        with_encoder(torch.nn.Identity(), 0.5)
    with pytest.raises(UserError, match="--encoder-share and --shortlist cannot be combined"):
        with_encoder(transformer(), 0.5, shortlist="file")
