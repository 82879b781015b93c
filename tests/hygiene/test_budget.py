"""How many lines nmt may have: whoever raises a number says why in docs/how-to/development.md.

Without a budget the core grows with each feature. Each number is what was reached, rounded up to the next 500.
"""

import pytest
from modules import FILES, ROOT

INNER_RING = """
registry options batch
text.pipeline subwords.base
data.encode data.row_files data.shards data.plan data.batching data.loader plans.corpus
nn.attention nn.linear nn.dropout
models.base models.layers models.transformer
mixers.base mixers.self_attention feed_forwards.base feed_forwards.dense positions.base positions.sinusoidal positions.learned
criteria.base criteria.cross_entropy criteria.chunks optimizers.base optimizers.adam schedules.noam schedules.inverse_sqrt
decoders.base decoders.greedy decoders.beam decoders.filters decoders.hypothesis
train.trainer train.build train.run train.timers train.update train.validation
translate.translator translate.built_in_engine
"""  # the models, their training and search; docs/explanation/tour.md also leads through files around them
CORE = [file for file in FILES if "extensions" not in file.parts]
PARTS = {
    "the core": (CORE, 23_000),
    "its inner ring": ([ROOT / f"{name.replace('.', '/')}.py" for name in INNER_RING.split()], 7_000),
    "the core and the extensions": (FILES, 58_000),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_nmt_stays_within_its_line_budget(part):
    files, budget = PARTS[part]
    lines = sum(len(file.read_text().splitlines()) for file in files)
    assert budget - 500 < lines <= budget, f"{part} has {lines} lines"


def test_the_tour_leads_through_the_inner_ring():
    tour = (ROOT.parent / "docs/explanation/tour.md").read_text()
    assert [name for name in INNER_RING.split() if f"`{name.replace('.', '/')}.py`" not in tour] == []
