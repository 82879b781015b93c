"""RNNsearch against the paper's own equations, written out word by word, and against its number of parameters."""

import pytest
import torch
from small_models import perturb

from nmt import registry
from nmt.batch import Batch
from nmt.errors import UserError
from nmt.models.base import Vocabularies
from nmt.symbols import BOS, EOS, PAD

H, A, M, L = 12, 9, 7, 5


def small(**options):
    sizes = {"hidden_size": H, "attention_size": A, "embedding_size": M, "maxout_size": L}
    return registry.build(registry.choose("model", "rnnsearch", sizes | options), Vocabularies(20, 25, False))


def parameters_by_formula(K, m, n, a, l, rank):  # noqa: E741
    """facts: embeddings, encoder, decoder, attention, first state, read-out, output; one bias a gate."""
    encoder = 2 * (3 * (m * n + n * n) + 3 * n)
    decoder = 3 * (m * n + n * n + 2 * n * n) + 3 * n
    attention = a * n + 2 * a * n + a
    first_state = n * n + n
    read_out = 2 * l * (n + m + 2 * n) + 2 * l
    output = l * K + K if rank is None else l * rank + rank * K + K
    return 2 * K * m + encoder + decoder + attention + first_state + read_out + output


@pytest.mark.parametrize(("rank", "published"), [(None, 80_443_741), (620, 84_353_861)])
def test_the_papers_size_has_the_papers_number_of_parameters(rank, published):
    assert parameters_by_formula(30_001, 620, 1000, 1000, 500, rank) == published
    entry = registry.find("model", "rnnsearch")
    with torch.device("meta"):  # counted without 320 MB of random numbers
        model = entry.cls(entry.options(output_rank=rank), Vocabularies(30_001, 30_001, False))
    assert model.num_parameters() == published


def gru(x, h, W, U, bias):
    """Appendix A.1.1 for one vector; W, U and bias are (update, reset, candidate), each as in the paper."""
    z = torch.sigmoid(W[0] @ x + U[0] @ h + bias[0])
    r = torch.sigmoid(W[1] @ x + U[1] @ h + bias[1])
    proposal = torch.tanh(W[2] @ x + U[2] @ (r * h) + bias[2])
    return (1 - z) * h + z * proposal


def by_the_paper(model, source, target):
    """Appendix A for one sentence: the features before each word of target, which starts with BOS."""
    weights = {key: value.double() for key, value in model.state_dict().items()}
    annotations = []
    for direction, words in enumerate([source, source[::-1]]):
        W = weights["encoder.inputs.weight"].view(2, 3, H, M)[direction]
        bias = weights["encoder.inputs.bias"].view(2, 3, H)[direction]
        gates, candidate = weights["encoder.gates"][direction], weights["encoder.candidate"][direction]
        U = [gates[:, :H].T, gates[:, H:].T, candidate.T]
        h, states = torch.zeros(H).double(), []
        for word in words:
            h = gru(weights["source_embedding.weight"][word], h, W, U, bias)
            states.append(h)
        annotations.append(states)
    memory = [torch.cat(both) for both in zip(annotations[0], reversed(annotations[1]), strict=True)]
    s = torch.tanh(weights["first_state.weight"] @ annotations[1][-1] + weights["first_state.bias"])
    W_a, *U = weights["cell.recurrent"].T.split([A, H, H])
    U = [*U, weights["cell.candidate"].T]
    V_o, b_o = weights["words.weight"][3 * H :], weights["words.bias"][3 * H :]
    W = [torch.cat(pair, 1) for pair in zip(
        weights["words.weight"][: 3 * H].split(H), weights["cell.values.weight"].split(H), strict=True
    )]  # fmt: skip
    features = []
    for word in target:
        y = weights["target_embedding.weight"][word]
        energies = [weights["cell.energy"] @ torch.tanh(W_a @ s + weights["cell.keys.weight"] @ h) for h in memory]
        alpha = torch.softmax(torch.stack(energies), 0)
        c = sum(a * h for a, h in zip(alpha, memory, strict=True))
        t = weights["read_out_state.weight"] @ s + V_o @ y + weights["read_out_context.weight"] @ c + b_o
        features.append(torch.stack([t[:L], t[L:]]).amax(0))
        s = gru(torch.cat([y, c]), s, W, U, weights["words.bias"][: 3 * H].split(H))
    return torch.stack(features)


@torch.no_grad()
def test_features_follow_the_papers_equations_word_by_word():
    torch.manual_seed(1)
    model = perturb(small().double().eval(), 0.3)
    sources, targets = [[7, 5, 9, 13, EOS], [4, 19, EOS]], [[BOS, 4, 24, 8], [BOS, 17, 6]]
    batch = Batch(
        torch.tensor([sources[0], [*sources[1], PAD, PAD]]),
        torch.tensor([[*targets[0], EOS], [*targets[1], EOS, PAD]]),
    )
    features = model(batch).features
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        torch.testing.assert_close(features[i, : len(target)], by_the_paper(model, source, target))


def test_initialisation_follows_appendix_b():
    torch.manual_seed(2)
    sizes = {"hidden_size": 150, "attention_size": 120, "embedding_size": 110, "maxout_size": 50}
    model = registry.build(registry.choose("model", "rnnsearch", sizes), Vocabularies(300, 300, False))
    weights = model.state_dict()
    recurrent = [*weights["encoder.gates"], *weights["encoder.candidate"], weights["cell.recurrent"][:, 120:]]
    blocks = [block for matrix in [*recurrent, weights["cell.candidate"]] for block in matrix.split(150, dim=1)]
    assert len(blocks) == 9
    for block in blocks:
        torch.testing.assert_close(block.T @ block, torch.eye(150), atol=1e-5, rtol=0)
    special = {"encoder.gates", "encoder.candidate", "cell.recurrent", "cell.candidate", "cell.energy"}
    assert weights["cell.energy"].count_nonzero() == 0
    deviations = {
        "W_a": weights["cell.recurrent"][:, :120].std(),
        "cell.keys.weight": weights["cell.keys.weight"].std(),
    }
    for deviation in deviations.values():
        assert deviation == pytest.approx(0.001, rel=0.05)
    for key in weights.keys() - special - {"cell.keys.weight"}:
        if key.endswith("bias"):
            assert weights[key].count_nonzero() == 0
        else:
            assert weights[key].std() == pytest.approx(0.01, rel=0.05), key


@pytest.mark.parametrize("options", [{"dropout": 1.0}, {"hidden_size": 0}, {"output_rank": 0}])
def test_an_invalid_setting_is_refused_by_name(options):
    with pytest.raises(UserError, match=f"--{next(iter(options))}".replace("_", "-")):
        small(**options)
