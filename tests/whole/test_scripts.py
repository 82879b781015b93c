"""Text in many scripts in the default text pipeline: the output of a perfect model is its reference character by character."""

import sys
import tomllib
import unicodedata
from pathlib import Path

import pytest

from nmt.data.prepare import PrepareOptions, prepare
from nmt.data.shards import PreparedData
from nmt.symbols import UNK

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LANGUAGES = tomllib.loads((BENCHMARKS / "scripts.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scripts():
    sys.path.insert(0, str(BENCHMARKS))
    yield pytest.importorskip("scripts")
    sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("language", LANGUAGES)
def test_reference_tokens_restore_the_exact_text_and_source_tokens_its_normalised_text(language, scripts, tmp_path):
    sources, targets = scripts.write_text(tmp_path, language)
    text = str(tmp_path / "text")
    options = PrepareOptions(
        source_lang="en", target_lang=language, train=(text,), valid=(text,), vocab_size=300, output=f"{tmp_path}/data"
    )
    report = prepare(options)
    pipeline = PreparedData(tmp_path / "data").pipeline
    ids = pipeline.target.encode_batch(targets).lists()
    written = list(map(pipeline.target.decode_line, ids))
    assert written == targets and UNK not in set().union(*ids)
    assert sources[2] == "you see the water ( 10⁶ m² )" == pipeline.source.decode(pipeline.source.encode(sources[2]))
    assert pipeline.source.encode("you se\u00ade the\u200b water\u00a0.") == pipeline.source.encode(sources[0])
    # Lines that are kept although NFC would change them are counted; the 96 ellipses in the source become dots.
    train = report["sets"][0]
    kept = sum(not unicodedata.is_normalized("NFC", line) for line in targets)
    assert [counts["lines"] for counts in train["target"]["altered"].values()] == [kept] * (kept > 0)
    assert [list(counts.values()) for counts in train["source"]["altered"].values()] == [[96, 96]]
