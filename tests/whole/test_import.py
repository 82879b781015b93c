"""`nmt import`: Marian models give the probabilities of Marian's equations, and other files are rejected.

The reference computes in float64 with numpy from Marian's own arrays, and shares no code with nmt.
"""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from conftest import small_disk
from foreign_models import INNER, NETWORKS, TEXT, arrays_of, reference, settings_of
from refusals import assert_refused

from nmt import registry
from nmt.batch import Batch
from nmt.checkpoint import load_model
from nmt.criteria.base import CriterionContext
from nmt.extensions.vocabularies.sentencepiece_file import read_pieces
from nmt.symbols import BOS, EOS
from nmt.translate.forced_decoding import force_decode

yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A sentencepiece model as Marian makes it: EOS is 0, UNK is 1."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT * 5))
    ids = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "v"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    return (folder / "v.model").rename(folder / "v.spm")


def size_of(pieces: Path) -> tuple[int, int]:
    size = len(read_pieces(pieces.read_bytes()))
    return size, size


def write_model(file: Path, settings, arrays) -> None:
    content = yaml.safe_dump(settings).encode() + bytes(5)  # Marian ends it with NUL
    np.savez(file, **arrays, **{"special:model.yml": np.frombuffer(content, np.int8)})


@pytest.fixture
def importing(call, tmp_path):
    """`importing(file, *flags)` returns the result of `nmt import` into tmp_path/out."""
    return lambda file, *flags: call(
        "import", "--model", file, "--output", tmp_path / "out", "--source-lang=en", "--target-lang=de", *flags
    )


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: " ".join(map(str, network.values())))
def test_an_imported_model_has_marians_probabilities(network, pieces, importing, tmp_path, call):
    settings = settings_of(**network)
    arrays = arrays_of(settings, *size_of(pieces))
    write_model(tmp_path / "m.npz", settings, arrays)
    result = importing(tmp_path / "m.npz", "--vocab", pieces, "--vocab", pieces)
    assert result.code == 0, result.err
    loaded = load_model(tmp_path / "out", torch.device("cpu"))
    marian = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for source, target in zip(TEXT, [*TEXT[1:], "cat !"], strict=True):  # the last has characters without a piece
        ids = [np.array(side.encode(text)) for side, text in zip(loaded_sides(loaded), (source, target), strict=True)]
        [found] = force_decode(loaded.model, [ids[0]], [ids[1].tolist()])
        own = reference(arrays, settings, [*marian.encode(source), 0], [*marian.encode(target), 0])
        assert found.log_probs == pytest.approx(own.tolist(), abs=1e-4)
    [line] = translate(call, tmp_path, "a dog eats .")
    assert line["translation"] and line["candidates"][0]["log_prob"] < 0
    result = call("export", "--model", tmp_path / "out", "--output", tmp_path / "ct2", "--threads=1")
    if "dec-cell" in network:
        assert_refused(result, 2, "--decoder-autoregression")
    else:
        assert result.code == 0, result.err


def loaded_sides(loaded):
    return loaded.pipeline.source, loaded.pipeline.target


def translate(call, tmp_path, text: str):
    (tmp_path / "line").write_text(text + "\n")
    result = call("translate", "--model", tmp_path / "out", "--input", tmp_path / "line", "--json", "--engine=torch")
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_an_opus_folder_is_imported_with_its_vocabulary_and_two_segmenters(pieces, importing, tmp_path, call):
    """Pieces missing from the list are unknown words; entries that no segmenter produces can still be generated."""
    known = [piece.text for piece in read_pieces(pieces.read_bytes())]
    entries = ["</s>", "<unk>", "\u2581Hund", *known[2:-2], "<pad>"]
    folder = tmp_path / "opus"
    folder.mkdir()
    (folder / "vocab.yml").write_text(yaml.safe_dump({entry: i for i, entry in enumerate(entries)}, allow_unicode=True))
    (folder / "decoder.yml").write_text(yaml.safe_dump({"models": ["m.npz"], "vocabs": ["vocab.yml", "vocab.yml"]}))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(pieces.read_bytes())
    settings = settings_of(**NETWORKS[0])
    arrays = arrays_of(settings, len(entries), len(entries))
    write_model(folder / "m.npz", settings, arrays)
    result = importing(folder)
    assert result.code == 0, result.err
    loaded = load_model(tmp_path / "out", torch.device("cpu"))
    target = loaded.pipeline.target
    rows = {target.piece(token): token for token in range(target.size)}
    assert target.decode([rows["\u2581Hund"]]) == "Hund"
    source = np.array(loaded.pipeline.source.encode(TEXT[0]))
    marian = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    ids = [entries.index(piece) if piece in entries else 1 for piece in marian.encode(TEXT[0], out_type=str)]
    [found] = force_decode(loaded.model, [source], [[rows["\u2581Hund"]]])
    assert found.log_probs == pytest.approx(reference(arrays, settings, [*ids, 0], [2, 0]).tolist(), abs=1e-4)
    lacking = rows[known[-1]]
    [found] = force_decode(loaded.model, [source], [[lacking]])
    assert found.log_probs[0] == pytest.approx(reference(arrays, settings, [*ids, 0], [1, 0])[0] - 20, abs=1e-4)
    criterion = registry.build(registry.choose("criterion", "cross-entropy", {}), CriterionContext(None, None))
    batch = Batch(torch.from_numpy(np.append(source, EOS))[None], torch.tensor([[BOS, lacking, EOS]]))
    with torch.autocast("cpu", torch.float16):
        loss, nll = criterion(loaded.model, batch)
    assert loss["loss"].total.item() < 2 * nll["nll"].total.item() < 200  # label smoothing reaches <pad> and <s> too


def test_a_word_vocabulary_reads_words(importing, tmp_path, call):
    entries = ["</s>", "<unk>", *sorted({word for line in TEXT for word in line.split()})]
    (tmp_path / "v.yml").write_text(yaml.safe_dump({entry: i for i, entry in enumerate(entries)}))
    settings = settings_of(**NETWORKS[0])
    arrays = arrays_of(settings, len(entries), len(entries))
    write_model(tmp_path / "m.npz", settings, arrays)
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "v.yml").code == 0
    loaded = load_model(tmp_path / "out", torch.device("cpu"))
    source, target = (np.array(side.encode("two men zzz")) for side in loaded_sides(loaded))
    ids = [entries.index("two"), entries.index("men"), 1, 0]
    [found] = force_decode(loaded.model, [source], [target.tolist()])
    assert found.log_probs == pytest.approx(reference(arrays, settings, ids, ids).tolist(), abs=1e-4)


# Bad input


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"type": "s2s"}, "its type is s2s"),
        ({"transformer-decoder-autoreg": "average-attention"}, "its transformer-decoder-autoreg is average-attention"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "its dec-cell is gru"),
        ({"transformer-ffn-activation": "gelu"}, "its transformer-ffn-activation is gelu"),
        ({"transformer-postprocess": "nda"}, "this placement of layer norms"),
        ({"transformer-tied-layers": [1, 1]}, "its transformer-tied-layers"),
        ({"transformer-heads": 0}, "heads"),
        ({"transformer-heads": 3}, "heads"),
        ({"dim-emb": 1 << 40}, "d-model"),
        ({"enc-depth": 1000}, "encoder_l3"),
        ({"dim-emb": "x"}, "d-model"),
    ],
)
def test_an_unsupported_kind_of_model_is_rejected(changes, told, pieces, importing, tmp_path):
    settings = settings_of(**NETWORKS[0])
    write_model(tmp_path / "m.npz", settings | changes, arrays_of(settings, *size_of(pieces)))
    result = importing(tmp_path / "m.npz", "--vocab", pieces)
    assert result.code in (2, 4) and told in result.err and not (tmp_path / "out").exists()


def test_a_missing_path_is_reported(importing, tmp_path):
    assert_refused(importing(tmp_path / "typo"), 5, "typo: No such file or directory")


def test_damaged_and_hostile_files_are_errors(pieces, importing, tmp_path):
    settings, file = settings_of(**NETWORKS[0]), tmp_path / "m.npz"
    arrays = arrays_of(settings, *size_of(pieces))

    class Hostile:
        def __reduce__(self):
            return (Path(tmp_path / "executed").touch, ())

    def attempt(told: str, code: int = 4) -> None:
        result = importing(file, "--vocab", pieces)
        assert result.code == code and told in result.err and result.err.count("\n") == 1, result.err
        assert not (tmp_path / "out").exists() and not (tmp_path / "executed").exists()

    write_model(file, settings, arrays | {"Wemb": np.array([Hostile()], dtype=object)})
    attempt("not a Marian model")
    file.write_bytes(pickle.dumps(Hostile()))
    attempt("not a Marian model")
    write_model(file, settings, arrays)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    attempt("not a Marian model")
    place = whole.index(arrays["Wemb"].tobytes()[:16])
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    attempt("not a Marian model")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("Wemb.npy", bytes(20_000_000))
    attempt("its arrays would have")
    np.savez(file, **arrays)
    attempt("its settings (special:model.yml) are missing")
    write_model(file, settings, {name: array for name, array in arrays.items() if name != "encoder_l2_ffn_b1"})
    attempt("'encoder_l2_ffn_b1' is missing")
    write_model(file, settings, arrays | {"encoder_l2_ffn_b1": np.zeros((1, 7), np.float32)})
    attempt("'encoder.1.feed_forward.inner.bias'")
    write_model(file, settings, arrays | {"encoder_l2_ffn_b1": np.full((1, INNER), np.nan, np.float32)})
    attempt("contains NaN or infinity")
    np.savez(file, **arrays, **{"special:model.yml": np.frombuffer(b"a: [", np.int8)})
    attempt("not YAML")


def test_missing_or_damaged_vocabularies_are_errors(pieces, importing, tmp_path):
    settings = settings_of(**NETWORKS[0])
    write_model(tmp_path / "m.npz", settings, arrays_of(settings, *size_of(pieces)))
    assert_refused(importing(tmp_path / "m.npz"), 2, "--vocab", "SOURCE", "TARGET")
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "none.spm").code == 5
    (tmp_path / "v.spm").write_bytes(pieces.read_bytes()[:500])
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "v.spm").code == 4
    (tmp_path / "v.spm").write_bytes(b"\xff" * 500)
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "v.spm").code == 4
    (tmp_path / "v.yml").write_text("- a\n- b\n")
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "v.yml").code == 4
    assert importing(tmp_path / "none.npz", "--vocab", pieces).code == 5
    assert importing(tmp_path, "--vocab", pieces, "--vocab", pieces, "--vocab", pieces).code == 2


def test_a_full_disk_leaves_no_files(pieces, importing, tmp_path):
    settings = settings_of(**NETWORKS[0])
    write_model(tmp_path / "m.npz", settings, arrays_of(settings, *size_of(pieces)))
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 16_384):
        result = importing(tmp_path / "m.npz", "--vocab", pieces, "--output", tmp_path / "disk/out")
        assert result.code == 5 and "No space left" in result.err and list((tmp_path / "disk").iterdir()) == []
