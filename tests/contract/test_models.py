"""What every model promises, whatever it is made of: a registered model is tested here without being named."""

import pytest
import torch
from small_models import SMALL
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.errors import UserError
from nmt.extensions.fast.nn.quantized import quantize
from nmt.extensions.methods.criteria.guided_alignment import watched_pass
from nmt.models.base import Model, Vocabularies
from nmt.nn.attention import INITIAL_CACHE_STEPS
from nmt.optimizers.base import parameter_groups
from nmt.options import options_of
from nmt.symbols import BOS, EOS, PAD, UNK
from nmt.train.parallel import Objective

pytestmark = pytest.mark.usefixtures("one_thread")

EXPERTS = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "d_ff": 40, "heads": 4, "ffn": "moe"}
VARIANTS = {  # of models, whose promises hold for them too
    "transformer of experts": ("transformer", EXPERTS | {"experts": 4}),
    "transformer of balanced experts": (
        "transformer",
        EXPERTS | {"experts": 8, "expert_groups": 2, "expert_every": 1, "gates": "balanced", "norm_position": "pre"},
    ),
}
RELATIVE = SMALL["transformer"] | {"positions": "relative", "relative_distance": 2}
VARIANTS["transformer of relative positions"] = "transformer", RELATIVE
VARIANTS["transformer of restricted self-attention and relative positions by head"] = (
    "transformer",
    RELATIVE | {"relative_distance": 3, "relative_heads": "separate", "relative_values": False, "attention_window": 3},
)
for choice in ("ssru", "average-attention"):
    VARIANTS[f"transformer with {choice}"] = "transformer", SMALL["transformer"] | {"decoder_autoregression": choice}
VARIANTS["transformer of tied layers"] = "transformer", SMALL["transformer"] | {"tie_layers": "all"}
VARIANTS["transformer of RMS norms, gated units, rotary positions and two heads of keys"] = (
    "transformer",
    SMALL["transformer"]
    | {
        "norm": "rms",
        "norm_position": "pre",
        "ffn": "glu",
        "activation": "swish",
        "positions": "rotary",
        "kv_heads": 2,
    },
)
VARIANTS["transformer of sinusoids and rotary positions"] = (
    "transformer",
    SMALL["transformer"] | {"positions": "sinusoidal-rotary"},
)
VARIANTS["transformer of relative positions by head and one head of keys"] = (
    "transformer",
    RELATIVE | {"relative_heads": "separate", "kv_heads": 1},
)
VARIANTS["transformer of average attention with gated units and one head of keys"] = (
    "transformer",
    SMALL["transformer"] | {"decoder_autoregression": "average-attention", "kv_heads": 1, "ffn": "glu"},
)
LANGUAGE_MODEL = {"layers": 2, "d_model": 32, "d_ff": 40, "heads": 4, "ffn": "moe", "experts": 6, "active_experts": 3}
VARIANTS["language model of experts"] = "language-model", LANGUAGE_MODEL
VARIANTS["memory network of a short memory"] = "memory-network", SMALL["memory-network"] | {"memory_size": 3}
READ_OUT = {"gnmt": {"read_out_word": True}, "deep-att": {"read_out_word": True, "embedding_size": 32}, "moe": {}}
for name, more in READ_OUT.items():
    tied = SMALL[name] | {"read_out_context": True, "tie": "all"} | more
    VARIANTS[f"{name} with more in its read-out and one table of embeddings"] = name, tied
TYING = {name: SMALL[name] | READ_OUT.get(name, {}) for name in ("transformer", *READ_OUT)}
ALL = [*registry.names("model"), *VARIANTS]
V = 40
B, W = 4, 3


def build(name, **more):
    torch.manual_seed(3)
    model, options = VARIANTS.get(name, (name, SMALL.get(name, {})))
    return registry.build(registry.choose("model", model, options | more), Vocabularies(V, V, True))


def tiny(name):
    """A small model for looking at: no dropout, and weights so large that whatever leaks or is forgotten shows."""
    model = build(name).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.2)
    return model


def sentence(length, number):
    generator = torch.Generator().manual_seed(1000 * length + number)
    return torch.randint(len((PAD, BOS, EOS)) + 1, V, (length,), generator=generator)


def padded(rows, width=0):
    width = max(width, *(len(row) for row in rows))
    return torch.stack([torch.cat([row, row.new_full((width - len(row),), PAD)]) for row in rows])


def make_batch(num_pairs=B, seed=0):
    """Pairs of random words and of 1 to 7 words a side, so that there is padding on both."""
    sources = [torch.cat([sentence(2 + i % 6, seed + i), torch.tensor([EOS])]) for i in range(num_pairs)]
    targets = [
        torch.cat([torch.tensor([BOS]), sentence(1 + (i * 5 + 2) % 6, seed + i + 500), torch.tensor([EOS])])
        for i in range(num_pairs)
    ]
    return Batch(padded(sources), padded(targets))


def with_padding(batch, columns):
    return Batch(*(nn.functional.pad(side, (0, columns), value=PAD) for side in (batch.source, batch.target)))


def whole(model, batch):
    """Log-probabilities of the next word at each target position, the sentence read as a whole: (B, T, V)."""
    features = model(batch).features
    return model.log_probs(features.flatten(0, 1)).unflatten(0, features.shape[:2])


def predicting(model, tokens):
    """(N,) which rows of a step predict something: all, but after the end, where a model's experts read nothing."""
    after_end = (tokens == EOS) | (tokens == PAD)
    return ~after_end if model.auxiliary_losses else torch.ones_like(after_end)


def same(given, wanted):
    torch.testing.assert_close(given, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_shapes_match_the_model_interface(name):
    model, batch = tiny(name), make_batch()
    features, extra_losses, *_ = model(batch)
    assert features.shape[:2] == batch.target_input.shape
    assert model.output(features).shape == (*batch.target_input.shape, V)
    assert model.width > 0
    assert all(term.total.shape == term.count.shape == () for term in extra_losses.values())
    counts = model.extra_counts(batch)
    assert counts.keys() == extra_losses.keys()
    assert all(torch.equal(count, extra_losses[name].count) for name, count in counts.items())
    log_probs, state = model.step(torch.full((B,), BOS), model.start(batch.source))
    assert log_probs.shape == (B, V)
    assert log_probs.dtype == torch.float32
    assert state.length == 1
    assert {len(tensor) for tensor in [*state.sentences.values(), *state.hypotheses.values()]} == {B}
    same(log_probs.exp().sum(-1), torch.ones(B))


@pytest.mark.parametrize(("tie", "tables"), [("none", 3), ("target", 2), ("all", 1)])
@pytest.mark.parametrize("name", TYING)
def test_tied_tables_are_one_parameter(name, tie, tables):
    tied, untied = (
        registry.build(registry.choose("model", name, TYING[name] | {"tie": choice}), Vocabularies(V, V, True))
        for choice in (tie, "none")
    )
    width = tied.target_embedding.embedding_dim
    assert untied.num_parameters() - tied.num_parameters() == (3 - tables) * V * width


@pytest.mark.parametrize("name", TYING)
def test_one_table_for_all_needs_one_vocabulary(name):
    with pytest.raises(UserError, match="--tie target or --tie none"):
        registry.build(registry.choose("model", name, TYING[name] | {"tie": "all"}), Vocabularies(V, V, False))


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_padding_changes_nothing(name):
    model, batch = tiny(name), make_batch()
    length = batch.target_input.shape[1]
    wider = whole(model, with_padding(batch, 3))[:, :length]
    real = batch.target_output != PAD
    same(wider[real], whole(model, batch)[real])


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_the_other_sentences_of_a_batch_change_nothing(name):
    model, batch = tiny(name), make_batch()
    together = whole(model, batch)
    for i in range(B):
        source, target = batch.source[i], batch.target[i]
        alone = whole(model, Batch(source[source != PAD][None], target[target != PAD][None]))[0]
        same(alone, together[i, : len(alone)])


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_every_word_of_the_source_is_read_by_a_model_that_reads_the_source(name):
    model, batch = tiny(name), make_batch()
    before = whole(model, batch)
    if not model.reads_source:
        assert torch.equal(whole(model, Batch(batch.source.flip(0), batch.target)), before)
        return
    for i in range(B):
        for j in range(int((batch.source[i] != PAD).sum()) - 1):
            other = batch.source.clone()
            other[i, j] = V - 1 if other[i, j] != V - 1 else V - 2
            assert (whole(model, Batch(other, batch.target))[i] - before[i]).abs().amax() > 1e-3


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_a_position_sees_the_words_before_it_and_none_after(name):
    model, batch = tiny(name), make_batch()
    before = model(batch).features
    for position in range(1, batch.target_input.shape[1]):
        other = batch.target.clone()
        other[:, position] = (other[:, position] + 7) % (V - 4) + 4
        after = model(Batch(batch.source, other)).features
        same(after[:, :position], before[:, :position])
        assert ((after - before)[:, position].abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize(
    "name", [name for name in registry.names("model") if name != "memory-network"]
)  # it has no dropout
@torch.no_grad()
def test_dropout_is_active_in_training_alone(name):
    model, batch = build(name, dropout=0.5), make_batch()
    assert not torch.equal(model.train()(batch).features, model(batch).features)
    assert torch.equal(model.eval()(batch).features, model(batch).features)


@pytest.mark.parametrize("eight_bits", [False, True])
@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_token_by_token_equals_the_whole_sentence_and_so_does_the_model_prepared_for_a_search(name, eight_bits):
    model, batch = tiny(name), make_batch()
    if eight_bits:
        quantize(model)
    expected = whole(model, batch)
    for scorer in (model, model.for_search()):
        state = scorer.start(batch.source)
        for position, tokens in enumerate(batch.target_input.unbind(1)):
            log_probs, state = scorer.step(tokens, state)
            rows = predicting(model, tokens)
            same(log_probs[rows], expected[rows, position])
            assert state.length == position + 1


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_a_model_prepared_with_another_output_predicts_by_it_or_ignores_it(name):
    model, batch = tiny(name), make_batch()
    tokens = torch.tensor([EOS, UNK, 7, V - 1])
    bos = torch.full((B,), BOS)
    expected, _ = model.step(bos, model.start(batch.source))
    scorer = model.for_search(lambda features: model.output(features)[:, tokens])
    log_probs, _ = scorer.step(bos, scorer.start(batch.source))
    if log_probs.shape[1] == len(tokens):
        same(log_probs, expected[:, tokens].log_softmax(-1))
    else:
        same(log_probs, expected)


@pytest.mark.parametrize("length", [1, 16])
@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_its_search_state_has_the_declared_size_in_bytes(name, length):
    model, source = tiny(name), torch.cat([sentence(6, 0), torch.tensor([EOS])])[None]
    state = model.start(source)
    for _ in range(length):
        _, state = model.step(torch.tensor([BOS]), state)
    tensors = [*state.sentences.values(), *state.hypotheses.values()]
    capacity = -(-length // INITIAL_CACHE_STEPS) * INITIAL_CACHE_STEPS  # of a cache, where a model has one
    stated = model.state_bytes(7, length), model.state_bytes(7, capacity)
    assert sum(tensor.nbytes for tensor in tensors) in stated
    quantize(model)
    assert (model.state_bytes(7, length), model.state_bytes(7, capacity)) == stated


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_its_parameter_groups_hold_every_trainable_parameter_once_in_order(name, is_frozen):
    model = build(name)
    next(iter(model.parameters())).requires_grad_(not is_frozen)
    grouped = [parameter for group in parameter_groups(model) for parameter in group["params"]]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert sorted(map(id, grouped)) == sorted(map(id, trainable))


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_attention_is_the_same_word_by_word_and_for_the_whole_sentence(name):
    model, batch = tiny(name), make_batch()
    found = model.attentions(batch)
    lengths = {"source": batch.source.shape[1], "target": batch.target_input.shape[1]}
    sides = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
    for kind, weights in found.items():
        queries, keys = sides[kind]
        assert (weights.shape[1], *weights.shape[3:]) == (B, lengths[queries], lengths[keys])
        same(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if keys == "source":
            assert weights.masked_select(batch.source[:, None, None] == PAD).count_nonzero() == 0
    assert model.has_attention == ("cross" in found)
    state = model.start(batch.source)
    state.watched = True
    for position, tokens in enumerate(batch.target_input.unbind(1)):
        _, state = model.step(tokens, state)
        assert (state.attention is None) == ("cross" not in found)
        if state.attention is not None:
            rows = predicting(model, tokens)
            same(state.attention[rows], found["cross"][model.alignment_layer].mean(1)[rows, position])


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_many_hypotheses_per_sentence_equal_the_whole_sentence_after_each_reordering(name):
    """All hypotheses start as one (BOS read once a sentence), then change places within their sentence at each step."""
    model, batch = tiny(name), make_batch()
    T = 6
    targets = torch.stack([sentence(T + 2, i) for i in range(B * W)])  # as if each had been found by a search
    targets[:, 0] = BOS
    expected = whole(model, Batch(batch.source.repeat_interleave(W, 0), targets))  # N T+1 V
    order = torch.arange(B * W)
    generator = torch.Generator().manual_seed(5)
    _, state = model.step(torch.full((B,), BOS), model.start(batch.source))
    state.reorder(torch.arange(B).repeat_interleave(W))
    for position in range(1, T + 1):
        log_probs, state = model.step(targets[order, position], state)
        same(log_probs, expected[order, position])
        places = torch.cat([torch.randperm(W, generator=generator) + W * i for i in range(B)])
        state.reorder(places)
        order = order[places]
    assert {len(tensor) for tensor in state.sentences.values()} == {B}
    assert {len(tensor) for tensor in [*state.hypotheses.values(), state.ancestors] if tensor is not None} == {B * W}


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_sentences_that_leave_the_search_change_nothing_for_those_that_stay(name):
    model, batch = tiny(name), make_batch()
    expected = whole(model, batch)
    _, state = model.step(batch.target[:, 0], model.start(batch.source))
    alive_sentences = torch.tensor([3, 1])
    state.keep(alive_sentences, alive_sentences)
    for position in (1, 2):
        log_probs, state = model.step(batch.target[alive_sentences, position], state)
        same(log_probs, expected[alive_sentences, position])


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_a_model_rebuilt_with_the_saved_weights_is_the_same_model(name):
    model, batch = tiny(name), make_batch()
    other = build(name).eval()
    assert not torch.equal(other(batch).features, model(batch).features)
    other.load_state_dict({key: tensor.clone() for key, tensor in model.state_dict().items()})
    assert torch.equal(other(batch).features, model(batch).features)


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_the_same_seed_builds_the_same_model(name):
    first, second = build(name).state_dict(), build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", ALL)
def test_it_memorises_twenty_pairs_and_every_parameter_contributes(name):
    model, batch = build(name), make_batch(20)
    model.eval()  # no dropout: the pairs are to be known, not generalised from
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    criterion = CrossEntropy(CrossEntropyOptions(label_smoothing=0.0), CriterionContext(None, model))
    objective = Objective(model, criterion)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    known = batch.target_output != PAD
    if not model.reads_source:
        known[:, :2] = False  # the first words tell which text it is
    for update in range(1, 151):
        optimizer.zero_grad()
        torch.stack([loss.total / loss.count for loss in objective(batch).trained.values()]).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % 10 == 0:
            with torch.no_grad():
                best = whole(model, batch).argmax(-1)
            unchanged = {key for key, parameter in model.named_parameters() if torch.equal(parameter, before[key])}
            if not unchanged and torch.equal(best[known], batch.target_output[known]):
                return
    pytest.fail(f"after {update} updates {unchanged} are as before, and {best[known].tolist()} is predicted")


@pytest.mark.parametrize("name", ALL)
def test_it_trains_and_translates_in_bfloat16_close_to_float32(name):
    model, batch = tiny(name), make_batch()
    exact = whole(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        features, extra_losses, *_ = model(batch)
        logits = model.output(features)
        log_probs, state = model.step(torch.full((B,), BOS), model.start(batch.source))
        model.step(torch.full((B,), V - 1), state)
    loss = cross_entropy(logits.float().flatten(0, 1), batch.target_output.flatten(), ignore_index=PAD)
    sum((term.total for term in extra_losses.values()), loss).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert log_probs.dtype == torch.float32
    for found, wanted in ((logits.float().log_softmax(-1), exact), (log_probs, exact[:, 0])):
        near = torch.isclose(found, wanted, atol=0.5, rtol=0.1).all(-1)
        # Rounding may send a word of a sentence to other experts.
        assert near.float().mean() >= (0.75 if model.auxiliary_losses else 1.0)


@pytest.mark.parametrize("name", registry.names("model"))
def test_training_only_settings_are_options_of_the_model(name):
    entry = registry.find("model", name)
    own = {option.name for option in options_of(entry.options)}
    assert entry.cls.training_options - Model.training_options <= own
    assert {option for option in own if "dropout" in option} <= entry.cls.training_options


@pytest.mark.parametrize("name", ALL)
def test_a_pass_that_is_computed_again_for_its_gradient_has_the_same_gradient(name):
    model, batch = build(name).eval(), make_batch()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradients(features):
        return torch.autograd.grad(features.sum(), parameters, allow_unused=True)

    found = gradients(checkpoint(lambda: model(batch).features, use_reentrant=False))
    for one, other in zip(found, gradients(model(batch).features), strict=True):
        torch.testing.assert_close(one, other)


class Unfinished(Model):
    """A model that defines none of `step`, `prepared` and `predict`."""

    def forward(self, batch):
        raise NotImplementedError

    def start(self, source):
        raise NotImplementedError


def test_a_model_without_a_step_is_refused_when_it_is_built():
    with pytest.raises(TypeError, match="Unfinished must define"):
        Unfinished()


@pytest.mark.parametrize("name", ALL)
def test_a_watched_pass_gives_the_attention_of_the_alignment_layer(name):
    model, batch = tiny(name), make_batch()
    if "cross" not in (maps := model.attentions(batch)):
        with pytest.raises(UserError, match="no attention weights to train"):
            watched_pass(model, batch)
        return
    attention = watched_pass(model, batch).attention
    same(attention, maps["cross"][model.alignment_layer].mean(1))
    real = batch.target_output != PAD
    same(attention.sum(-1)[real], torch.ones(int(real.sum())))
    assert torch.autograd.grad(attention[:, :, 0].sum(), model.source_embedding.weight)[0].any()
