"""Properties that hold for any input, tried on examples drawn by hypothesis: the same ones in every run."""

import bz2
import gzip
import json
import lzma
import tomllib
from dataclasses import asdict
from itertools import chain
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scorers import RandomScorer, random_sources

from nmt import registry
from nmt.artefact import Artefact, new_folder
from nmt.checkpoint import SAFETENSORS_TYPES, read_tensors, write_tensors
from nmt.data.batching import micro_batches, permuted, plan_part
from nmt.data.plan import Position
from nmt.data.row_files import SetWriter
from nmt.data.shards import Corpus, SetFacts
from nmt.errors import ArtefactError
from nmt.files import to_json
from nmt.options import toml_line
from nmt.symbols import EOS, UNK
from nmt.text.corpus import count_lines, decode_line, raw_lines
from nmt.train.progress import LossWatch, MicroBatchLimit, Progress, Rollback
from nmt.train.update import LossScale
from nmt.translate.windows import windows

many = settings(max_examples=60)
BYTES = st.one_of(
    st.binary(max_size=12), st.sampled_from([b"\r", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x0b", b"\x85", b""])
)
LINES = st.lists(st.lists(BYTES, max_size=4).map(b"".join).map(lambda line: line.replace(b"\n", b" ")), max_size=12)
LENGTHS = arrays.arrays(np.uint32, st.shared(st.integers(1, 60), key="pairs"), elements=st.integers(1, 40))
VOCABULARY = 9


@many
@given(
    lines=LINES,
    whole=st.booleans(),
    packed=st.sampled_from([bytes, gzip.compress, bz2.compress, lzma.compress]),
    sizes=st.lists(st.integers(1, 9), min_size=1),
    window=st.integers(1, 5),
)
def test_a_text_has_one_line_per_lf_however_it_is_stored_and_read(tmp_path, lines, whole, packed, sizes, window):
    content = b"\n".join(lines) + (b"\n" if whole and lines else b"")
    expected = content.split(b"\n")[: -1 if content.endswith(b"\n") or not content else None]
    path = tmp_path / "text"
    path.write_bytes(packed(content))
    assert [line.removesuffix(b"\n") for line in raw_lines(path)] == expected
    assert count_lines(path) == len(expected)

    chunks, position = [], 0
    while position < len(content):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(content[position : position + size])
        position += size
    unread = iter([*chunks, b""])
    pipe = SimpleNamespace(waiting=lambda seconds: True, read=lambda: next(unread))
    read = list(windows(pipe, iter(lambda: window, None), 1 << 20))
    assert [line.removesuffix(b"\n") for lines in read for line in lines] == expected
    assert all(len(lines) <= window for lines in read)


@many
@given(raw=BYTES, first=st.booleans())
def test_a_decoded_line_is_a_single_line_and_valid_text_is_unchanged(raw, first):
    line = decode_line(raw.replace(b"\n", b"") + b"\n", first)
    assert line.text.isprintable() or not set(line.text) & set("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\0")
    assert line.text.encode().decode() == line.text
    assert (line.bad_byte is None) == (line.num_bad == 0)
    if line.bad_byte is not None:
        with pytest.raises(UnicodeDecodeError):
            raw.replace(b"\n", b"").decode()


VALUES = st.one_of(st.text(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.booleans())


@many
@given(table=st.dictionaries(st.from_regex(r"[a-z_]{1,9}(\.[a-z_]{1,9})?", fullmatch=True), VALUES | st.lists(VALUES)))
def test_settings_are_read_as_they_are_written(table):
    written = "\n".join(toml_line(key, value) for key, value in table.items())
    assert tomllib.loads(written) == table


@many
@given(
    files=st.dictionaries(
        st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True), st.binary(max_size=40), min_size=1
    ),
    drawn=st.data(),
)
def test_a_changed_byte_or_length_of_any_file_is_found(tmp_path_factory, files, drawn):
    names = [name for name in files if not any(other.startswith(f"{name}/") for other in files)]
    folder = tmp_path_factory.mktemp("any") / "artefact"
    with new_folder(folder, "model", {}) as made:
        for name in names:
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_bytes(files[name])
    Artefact(folder, "model").check()
    name = drawn.draw(st.sampled_from(sorted(names)))
    content = bytearray(files[name])
    if content and drawn.draw(st.booleans()):
        content[drawn.draw(st.integers(0, len(content) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    else:
        content += drawn.draw(st.binary(min_size=1, max_size=3))
    (folder / name).write_bytes(content)
    with pytest.raises(ArtefactError):
        Artefact(folder, "model").check()


@many
@given(
    rows=st.lists(st.tuples(*[st.lists(st.integers(UNK, 80_000 - 1), max_size=9)] * 2), min_size=1, max_size=80),
    large=st.booleans(),
    drawn=st.data(),
)
def test_pairs_are_read_as_they_were_written_in_any_order(tmp_path_factory, rows, large, drawn):
    sizes = (80_000, 80_000) if large else (100, 80_000)  # 16 and 32 bits
    rows = [([UNK + token % (sizes[0] - UNK) for token in source], target) for source, target in rows]
    folder = tmp_path_factory.mktemp("any") / "data"
    with new_folder(folder, "prepared-data", {}) as made:
        writer = SetWriter(made, "train", sizes)
        cut = drawn.draw(st.integers(0, len(rows)))
        for part in filter(None, (rows[:cut], rows[cut:])):
            lengths = np.array([[len(source), len(target)] for source, target in part])
            writer.add(lengths, *(np.array([*chain(*side)], dtype=np.int64) for side in zip(*part, strict=True)))
        writer.close()
    corpus = Corpus(Artefact(folder, "prepared-data"), SetFacts("train", "train", "train", len(rows)), sizes)
    indices = np.array(drawn.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20)))
    sources, targets = corpus.rows(indices)
    assert [source.tolist() for source in sources] == [rows[index][0] for index in indices]
    assert [target.tolist() for target in targets] == [rows[index][1] for index in indices]


TENSORS = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_]).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@many
@given(
    tensors=st.dictionaries(st.text(min_size=1).filter(lambda name: name != "__metadata__"), TENSORS),
    mapped=st.booleans(),
)
def test_tensors_of_a_checkpoint_keep_every_bit(tmp_path, tensors, mapped):
    path = tmp_path / "x.safetensors"
    written = {name: torch.from_numpy(np.asarray(array)) for name, array in tensors.items()}
    write_tensors(path, written)
    assert path.read_bytes() == safetensors.torch.save(written)
    read = read_tensors(path, mapped)
    assert read.keys() == tensors.keys()
    for name, array in tensors.items():
        assert read[name].numpy().tobytes() == array.tobytes() and tuple(read[name].shape) == array.shape


@pytest.mark.parametrize("kind", SAFETENSORS_TYPES)
def test_each_type_of_tensors_is_written_as_by_the_format_s_library(kind, tmp_path):
    tensors = {"b": torch.arange(7).to(kind), "a": torch.ones(2, 3).to(kind), "c": torch.ones(3, dtype=torch.bool)}
    write_tensors(tmp_path / "x", tensors)
    assert (tmp_path / "x").read_bytes() == safetensors.torch.save(tensors)


COUNTS = st.integers(1, (1 << 63) - 1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PROGRESS = st.builds(
    Progress,
    update=COUNTS,
    position=st.builds(Position, COUNTS, COUNTS),
    best=st.none() | NUMBERS,
    score=st.none() | NUMBERS,
    flops=st.integers(0, 1 << 80),
    scale=st.none() | st.builds(LossScale, st.floats(1, 65536), COUNTS),
    limit=st.builds(MicroBatchLimit, st.sampled_from([None, "torch"]), st.none() | st.text(), COUNTS, COUNTS),
    watch=st.builds(LossWatch, NUMBERS, NUMBERS, COUNTS, COUNTS, COUNTS),
    rollbacks=st.lists(st.builds(Rollback, COUNTS, COUNTS)),
)


@many
@given(progress=PROGRESS)
def test_the_saved_progress_of_a_run_reads_back_unchanged(progress):
    saved = json.loads(to_json(asdict(progress)))
    assert msgspec.convert(saved, Progress) == progress


@many
@given(source=LENGTHS, target=LENGTHS, batch=st.integers(1, 300), cells=st.integers(1, 300), seed=st.integers(0, 99))
def test_any_plan_reads_each_pair_once_within_its_limits_and_resumes_anywhere(source, target, batch, cells, seed):
    plan = plan_part(source, target, batch, seed, 1, 0)
    updates = [plan.update(number) for number in range(len(plan))]
    assert sorted(np.concatenate([group for groups in updates for group in groups])) == list(range(len(target)))
    for number, groups in enumerate(updates):
        assert plan.update_at(plan.num_pairs(number)) == number
        assert sum(int(target[group].sum()) + len(group) for group in groups) <= batch + 4 * 41
        cut = list(micro_batches(groups, source, target, cells))
        assert sorted(np.concatenate(cut)) == sorted(np.concatenate(groups))
        for rows in cut:
            assert len(rows) == 1 or len(rows) * (1 + max(source[rows].max(), target[rows].max())) <= cells


@many
@given(size=st.integers(1, 3000), keys=st.lists(st.integers(0, (1 << 63) - 1), min_size=4, max_size=4))
def test_any_keys_give_a_permutation(size, keys):
    images = permuted(np.arange(size), size, np.array(keys, dtype=np.uint64))
    assert np.array_equal(np.sort(images), np.arange(size))


@pytest.mark.parametrize("name", registry.names("schedule"))
@many
@given(
    lr=st.floats(0.01, 10),
    warmup=st.integers(1, 500),
    last=st.integers(1, 10_000),
    updates=st.lists(st.integers(1, 10_000)),
)
def test_a_learning_rate_is_finite_and_never_above_its_peak(name, lr, warmup, last, updates):
    schedule = registry.build(
        registry.choose("schedule", name, {"lr": lr, "warmup_updates": warmup}), 64, warmup + last
    )
    peak = max(schedule(update) for update in (1, max(1, warmup), warmup + 1))
    for update in updates:
        assert 0 <= schedule(update) <= peak * (1 + 1e-9)


def search(name, scorer, rows, **options):
    decoder = registry.build(registry.choose("decoder", name, {"max_len_a": 0, "max_len_b": 5, **options}))
    return [ones[0] for ones in decoder.search(scorer, rows)]


@many
@given(seed=st.integers(0, 10_000), beam=st.integers(1, 6), alpha=st.floats(0, 2), count=st.integers(1, 5))
def test_a_translation_depends_only_on_its_sentence_and_its_score_on_its_tokens(seed, beam, alpha, count):
    scorer, rows = RandomScorer(seed, VOCABULARY), random_sources(seed, count, VOCABULARY)
    together = search("beam", scorer, rows, beam_size=beam, alpha=alpha)
    alone = [search("beam", scorer, rows[i : i + 1], beam_size=beam, alpha=alpha)[0] for i in range(count)]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    for row, one in zip(rows, together, strict=True):
        state, total, tokens = scorer.start(row[None]), 0.0, [*one.tokens, EOS]
        for read, written in zip([1, *one.tokens], tokens, strict=True):
            log_probs, state = scorer.step(torch.tensor([read]), state)
            total += float(log_probs[0, written])
        assert one.log_prob == pytest.approx(total, abs=1e-4)


@many
@given(seed=st.integers(0, 10_000), count=st.integers(1, 5))
def test_greedy_search_is_a_beam_of_one_without_a_length_penalty(seed, count):
    scorer, rows = RandomScorer(seed, VOCABULARY), random_sources(seed, count, VOCABULARY)
    greedy, beam = search("greedy", scorer, rows), search("beam", scorer, rows, beam_size=1, length_penalty="none")
    assert [one.tokens for one in greedy] == [one.tokens for one in beam]
