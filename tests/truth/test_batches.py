"""A batch keeps each pair's columns with the pair, however it is padded, split and moved."""

import numpy as np
import pytest
import torch

from nmt.batch import Batch, Column, dummy_batch, flatten, make_batch, pad_rows
from nmt.errors import UserError
from nmt.extensions.methods.columns.links import NO_LINK
from nmt.rows import Rows
from nmt.symbols import BOS, EOS, PAD

SOURCES = [[4, 5, 6, 7], [8], [], [9, 10]]
TARGETS = [[14], [15, 16, 17], [18, 19], []]
WEIGHTS = [0.5, 2.0, 0.0, 1.0]
TOKEN_WEIGHTS = [[1.5, 1.0], [2.5, 3.5, 4.5, 1.0], [5.5, 6.5, 7.5], [8.5]]  # EOS has one too
LINKS = [[(0, 0), (3, 0)], [], [(0, 1)], [(0, 0), (1, 0), (1, 0)]]


def whole() -> Batch:
    links = [link for row in LINKS for link in row]
    return make_batch(
        flatten(SOURCES),
        flatten(TARGETS),
        {
            "weight": ("pair", Rows(np.array(WEIGHTS), np.ones(4, np.int64))),
            "token-weight": ("target", Rows(np.concatenate(TOKEN_WEIGHTS), np.array([2, 4, 3, 1]))),
            "alignment": ("links", Rows(np.array(links), np.array([2, 0, 1, 3]))),
        },
    )


def pairs(batch: Batch) -> list[tuple]:
    """Each pair with its columns, without padding."""
    rows = []
    for i in range(len(batch)):
        source, target = (
            [token for token in side[i].tolist() if token != PAD] for side in (batch.source, batch.target)
        )
        token_weights = batch["token-weight"][i]
        assert token_weights.shape == batch.target_output[i].shape and not token_weights[len(target) - 1 :].any()
        links = [tuple(link) for link in batch["alignment"][i].tolist() if link != [NO_LINK, NO_LINK]]
        rows.append((source, target, float(batch["weight"][i]), token_weights[: len(target) - 1].tolist(), links))
    return rows


WANTED = [
    ([*source, EOS], [BOS, *target, EOS], weight, token_weights, links)
    for source, target, weight, token_weights, links in zip(
        SOURCES, TARGETS, WEIGHTS, TOKEN_WEIGHTS, LINKS, strict=True
    )
]


def test_a_batch_contains_its_pairs_padded_on_the_right():
    batch = whole()
    assert pairs(batch) == WANTED and len(batch) == 4
    assert batch.source.shape == (4, 5) and batch.target.shape == (4, 5) and batch.cells == 20
    assert batch.target_input.shape == batch.target_output.shape == batch["token-weight"].shape
    assert batch["alignment"].shape == (4, 3, 2) and batch["alignment"].dtype == torch.int64
    assert int(batch.num_target_tokens) == sum(len(target) + 1 for target in TARGETS)
    assert pad_rows(SOURCES[:2], [BOS]).tolist() == [[BOS, 4, 5, 6, 7, EOS], [BOS, 8, EOS, PAD, PAD, PAD]]


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("end", range(1, 5))
def test_rows_keep_their_columns_and_lose_unneeded_padding(start, end):
    if start >= end:
        return
    part = whole().rows(slice(start, end))
    assert pairs(part) == WANTED[start:end]
    assert part.source.shape[1] == max(map(len, SOURCES[start:end])) + 1
    assert part.target.shape[1] == max(map(len, TARGETS[start:end])) + 2
    assert part["alignment"].shape[1] == max(map(len, LINKS[start:end]))


@pytest.mark.parametrize("max_tokens", [1, 5, 8, 12, 100])
def test_a_split_keeps_all_pairs_in_order_and_every_batch_small(max_tokens):
    parts = whole().split(max_tokens)
    assert [row for part in parts for row in pairs(part)] == WANTED
    assert all(part.cells <= max_tokens or len(part) == 1 for part in parts)
    assert len(parts) == 1 or max_tokens < 20


def test_a_batch_moves_with_all_its_columns():
    batch = whole().to(torch.device("meta"))
    moved = [batch.source, batch.target, *(column.values for column in batch.columns.values())]
    assert len(moved) == 5 and all(tensor.device.type == "meta" for tensor in moved)
    assert [column.kind for column in batch.columns.values()] == ["pair", "target", "links"]
    assert pairs(whole().to(torch.device("cpu"))) == WANTED


def test_a_column_is_read_by_name_and_a_missing_one_is_an_error():
    batch = Batch(torch.tensor([[EOS]]), torch.tensor([[BOS, EOS]]), {"weight": Column(torch.ones(1), "pair")})
    assert "weight" in batch and "other" not in batch
    with pytest.raises(UserError, match=r"no column 'other'.*--column other=FILE"):
        batch["other"]
    assert Batch(batch.source, batch.target).columns == {}


def test_a_dummy_batch_has_the_requested_lengths_and_columns():
    batch = dummy_batch(3, 4, 2, {"weight": "pair", "token-weight": "target", "alignment": "links"})
    assert batch.source.shape == (3, 4) and batch.target_output.shape == (3, 2)
    assert (batch.source[:, -1] == EOS).all() and (batch.target_output[:, -1] == EOS).all()
    assert batch["weight"].tolist() == [1, 1, 1] and batch["token-weight"].tolist() == [[1, 1]] * 3
    assert batch["alignment"].tolist() == [[[0, 0]]] * 3
