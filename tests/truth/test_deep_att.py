"""Deep-Att and Deep-ED against the paper's equations, written out step by step, and against their numbers of parameters."""

import pytest
import torch

from nmt import registry
from nmt.batch import Batch
from nmt.errors import UserError
from nmt.models.base import Vocabularies
from nmt.optimizers.base import parameter_groups
from nmt.symbols import BOS, EOS, PAD

E, H, M, A = 5, 6, 8, 7
DEPTHS = [(3, 2), (2, 3)]


def build(**options):
    sizes = {"embedding_size": E, "hidden_size": H, "memory_size": M, "attention_size": A}
    return registry.build(registry.choose("model", "deep-att", sizes | options), Vocabularies(20, 25, False))


def test_the_papers_size_has_the_parameter_counts_of_the_formula():
    entry = registry.find("model", "deep-att")
    with torch.device("meta"):
        model = entry.cls(entry.options(peepholes=False), Vocabularies(200_000, 80_000, False))

    def count(*modules):
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    e, h, f = 256, 512, 2048
    deep = (f // 2 + h) * f + h * f
    assert count(model.encoder) == 2 * (e * f + h * f + 8 * deep) == 70_254_592
    attention = 1280 * 512 + h * 512 + 512
    assert count(model.first.attention) == attention
    decoder = (e + 1280) * f + h * f + 6 * deep
    assert count(model.first, model.decoder) - attention == decoder == 29_360_128
    assert count(model.projection) == 2 * (h + f) * 1280 == 6_553_600
    embeddings, output = (200_000 + 80_000) * e, 80_000 * h + 80_000
    assert model.num_parameters() == 70_254_592 + 29_360_128 + 6_553_600 + attention + embeddings + output


def lstm(W, theta, f, state):
    """The LSTM of one vector f of gates, in the order output, input, forget, candidate, with peepholes."""
    h, s = state
    p_o, p_i, p_f, z = (f + W @ h).split(H)
    after = z.tanh() * (p_i + theta[1] * s).sigmoid() + (p_f + theta[2] * s).sigmoid() * s
    return after.tanh() * (p_o + theta[0] * after).sigmoid(), after


def zeros():
    return torch.zeros(H).double(), torch.zeros(H).double()


def column(w, names, vectors, first_reverse):
    """A column of the encoder: (f of the top layer, its h), lists over the positions."""
    for i, name in enumerate(names):
        f = [w[f"{name}.inputs.weight"] @ x for x in vectors]
        order = range(len(f)) if (i + first_reverse) % 2 == 0 else range(len(f) - 1, -1, -1)
        h, state = [None] * len(f), zeros()
        for t in order:
            state = lstm(w[f"{name}.cell.recurrent.weight"], w[f"{name}.cell.peepholes"], f[t], state)
            h[t] = state[0]
        vectors = [torch.cat([a[: 2 * H], b]) for a, b in zip(f, h, strict=True)]
    return f, h, order[-1]


def by_the_paper(model, source, target):
    """One sentence: the features before each word of target, which starts with BOS."""
    w, o = {key: value.double() for key, value in model.state_dict().items()}, model.options
    x = [w["source_embedding.weight"][word] for word in source]
    names = [f"encoder.{i}" for i in range(2 * o.encoder_layers)]
    f1, h1, last = column(w, names[: o.encoder_layers], x, 0)
    f2, h2, _ = column(w, names[o.encoder_layers :], x, 1)
    e = [torch.cat(parts) for parts in zip(h1, h2, f1, f2, strict=True)]
    if o.interface == "summary":
        greatest = [torch.stack(vectors).amax(0) for vectors in (h2, f1, f2)]
        context = torch.cat([h1[last], *greatest])
        W_c = w["context.weight"]
    else:
        memory, W_c = [w["projection.weight"] @ vector for vector in e], w["first.context.weight"]
    cells = ["first", *(f"decoder.{i}" for i in range(o.decoder_layers - 1))]
    states, features = [zeros() for _ in cells], []
    f = torch.zeros(4 * H).double()
    for word in target:
        if o.interface == "attention":
            query = w["first.attention.query.weight"] @ states[0][0]
            keys = [w["first.attention.keys.weight"] @ vector for vector in memory]
            energies = [w["first.attention.direction"] @ (query + key).tanh() for key in keys]
            weights = torch.stack(energies).softmax(0)
            context = sum(weight * vector for weight, vector in zip(weights, memory, strict=True))
        y = w["target_embedding.weight"][word]
        for k, name in enumerate(cells):
            f = w[f"{name}.inputs.weight"] @ (y if k == 0 else torch.cat([f[: 2 * H], states[k - 1][0]]))
            f = f + W_c @ context if k == 0 else f
            states[k] = lstm(w[f"{name}.cell.recurrent.weight"], w[f"{name}.cell.peepholes"], f, states[k])
        features.append(states[-1][0])
        if o.read_out_context:
            features[-1] = features[-1] + w["read_out_context.weight"] @ context
        if o.read_out_word:
            features[-1] = features[-1] + w["read_out_word.weight"] @ y
    return torch.stack(features)


def random_model(interface, depths, **options):
    torch.manual_seed(1)
    depths = {"encoder_layers": depths[0], "decoder_layers": depths[1]}
    model = build(interface=interface, **depths, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


SOURCES, TARGETS = [[7, 5, 9, 13, EOS], [4, 19, EOS]], [[BOS, 4, 24, 8], [BOS, 17, 6]]
BATCH = Batch(
    torch.tensor([SOURCES[0], [*SOURCES[1], PAD, PAD]]), torch.tensor([[*TARGETS[0], EOS], [*TARGETS[1], EOS, PAD]])
)


@torch.no_grad()
@pytest.mark.parametrize("depths", DEPTHS)
@pytest.mark.parametrize(
    ("interface", "reads_out"),
    [
        ("attention", {}),
        ("attention", {"read_out_context": True}),
        ("attention", {"read_out_context": True, "read_out_word": True}),
        ("summary", {"read_out_word": True}),
    ],
)
def test_features_follow_the_papers_equations_step_by_step(interface, reads_out, depths):
    model = random_model(interface, depths, **reads_out)
    with torch.enable_grad():
        features = model(BATCH).features
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        torch.testing.assert_close(features[i, : len(target)], by_the_paper(model, source, target))
    expected = model.log_probs(features)
    state = model.start(BATCH.source)
    for position, tokens in enumerate(BATCH.target_input.unbind(1)):
        log_probs, state = model.step(tokens, state)
        torch.testing.assert_close(log_probs, expected[:, position])


def test_deep_ed_reads_out_without_an_attention_context():
    with pytest.raises(UserError, match="--interface attention"):
        build(interface="summary", read_out_context=True)


@torch.no_grad()
def test_deep_ed_searches_many_hypotheses_with_one_context_per_sentence():
    model = random_model("summary", (3, 2))
    state = model.start(BATCH.source)
    _, state = model.step(torch.tensor([BOS, BOS]), state)
    state.reorder(torch.tensor([0, 0, 1, 1]))
    log_probs, state = model.step(torch.tensor([4, 5, 17, 18]), state)
    assert model.attentions(BATCH) == {} and state.attention is None
    for row, (sentence, word) in enumerate([(0, 4), (0, 5), (1, 17), (1, 18)]):
        features = by_the_paper(model, SOURCES[sentence], [BOS, word])
        torch.testing.assert_close(log_probs[row], model.log_probs(features[-1]))
    held = [*state.sentences.values(), *state.hypotheses.values()]
    stored = sum(tensor[0].numel() * 4 for tensor in held)  # float32, though this model is float64
    assert model.float().state_bytes(5, 2) == stored


@torch.no_grad()
def test_recurrent_weights_start_at_zero_with_a_higher_rate_and_embeddings_do_not_decay():
    torch.manual_seed(2)
    model = build(embedding_size=32, hidden_size=32, init_std=0.07)
    recurrent = {name for name, _ in model.named_parameters() if "recurrent" in name or "peepholes" in name}
    assert len(recurrent) == 2 * (9 * 2 + 7)
    for name, parameter in model.named_parameters():
        if name in recurrent or name == "output.bias":
            assert parameter.count_nonzero() == 0
        elif parameter.numel() > 500:
            assert parameter.std() == pytest.approx(0.07, rel=0.1), name
    groups = {group["name"]: group for group in parameter_groups(model)}
    assert [groups[name]["lr_factor"] for name in ("recurrent", "embeddings", "others")] == [12.5, 1.0, 1.0]
    assert groups["embeddings"]["weight_decay"] == 0.0
    assert "weight_decay" not in groups["recurrent"] and "weight_decay" not in groups["others"]
    assert len(groups["recurrent"]["params"]) == len(recurrent)


def test_dropout_acts_on_h_and_not_on_f():
    model = build(dropout=0.5, encoder_layers=1, decoder_layers=1)
    vectors, padding = torch.randn(3, 2, E), torch.zeros(3, 2, dtype=torch.bool)
    assert torch.equal(*(model.encoder[0](vectors, padding)[0] for _ in range(2)))
    assert not torch.equal(model(BATCH).features, model(BATCH).features)
