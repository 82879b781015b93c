"""`nmt import` and `nmt export` for Hugging Face, fairseq and CTranslate2: probabilities are those of their equations.

The reference computes in float64 with numpy, and shares no code with nmt.
"""

import json
import pickle
import random
import shutil
import struct
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from conftest import small_disk
from foreign_models import (
    ALL,
    HEADS,
    INNER,
    LAYERS,
    NETWORKS,
    POST,
    PRE,
    TARGET,
    TEXT,
    D,
    arrays_of,
    reference,
    settings_of,
    torch_layers,
)
from random_models import make_model
from refusals import assert_refused
from safetensors.torch import save_file

from nmt.artefact import Artefact
from nmt.checkpoint import load_model
from nmt.cli.main import run
from nmt.extensions.vocabularies.sentencepiece_file import read_pieces
from nmt.symbols import BOS
from nmt.text.pipeline import Pipeline
from nmt.translate.forced_decoding import force_decode

RELU = {"transformer-ffn-activation": "relu"}
SWISH = {"transformer-ffn-activation": "swish"}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT * 5))
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "text"), model_prefix=str(folder / "v"), **options)
    return folder / "v.model"


@pytest.fixture
def importing(call, tmp_path):
    """`importing(path, *flags)` returns the result of `nmt import` into tmp_path/out."""
    return lambda path, *flags: call("import", "--model", path, "--output", tmp_path / "out", *flags)


def log_probs(folder: Path, source: str, target: str) -> list[float]:
    """Nats of the tokens of a target text and of EOS."""
    loaded = load_model(folder, torch.device("cpu"))
    [found] = force_decode(
        loaded.model, [np.array(loaded.pipeline.source.encode(source))], [loaded.pipeline.target.encode(target)]
    )
    return found.log_probs


def tensors_of(arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


# Hugging Face


def positions_of_huggingface(count: int) -> np.ndarray:
    """All sines before all cosines, with the paper's angles."""
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def write_huggingface(folder: Path, pieces: Path, network, **config: object):
    """Write a MarianMTModel folder with random weights. Returns its arrays by Marian's names, its settings and its entries."""
    texts = [piece.text for piece in read_pieces(pieces.read_bytes())[3:]]
    entries = ["</s>", "<unk>", *reversed(texts), ">>de<<", "<pad>"]
    settings = settings_of(**network)
    arrays = arrays_of(settings, len(entries), len(entries))
    folder.mkdir()
    shared = "Wemb" in arrays
    tables = {"shared": arrays["Wemb"]} if shared else {}
    for side in () if shared else ("encoder", "decoder"):
        tables[f"{side}.embed_tokens"] = arrays[f"{side}_Wemb"]
    tensors = {f"model.{name}": array for name, array in torch_layers(arrays).items()}
    tensors |= {f"model.{name}.weight": array for name, array in tables.items()}
    if "decoder_ff_logit_out_Wt" in arrays:
        tensors["lm_head.weight"] = arrays["decoder_ff_logit_out_Wt"]
    tensors["final_logits_bias"] = arrays["decoder_ff_logit_out_b"]
    if shared:
        save_file(tensors_of(tensors), folder / "model.safetensors", {"format": "pt"})
    else:
        torch.save(tensors_of(tensors), folder / "pytorch_model.bin")
    sizes = {"d_model": D, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_ffn_dim": INNER, f"{side}_attention_heads": HEADS}
    content = {"model_type": "marian", "scale_embedding": True, "activation_function": "swish", **sizes}
    content |= {"decoder_start_token_id": len(entries) - 1, "tie_word_embeddings": "lm_head.weight" not in tensors}
    (folder / "config.json").write_text(json.dumps(content | config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    (folder / "vocab.json").write_text(json.dumps({entry: i for i, entry in enumerate(entries)}))
    for name in ("source.spm", "target.spm"):
        shutil.copy(pieces, folder / name)
    return arrays, settings, entries


@pytest.mark.parametrize("network", [{**POST, **ALL, **SWISH}, {**POST, **SWISH}, {**POST, **TARGET, **SWISH}], ids=str)
def test_a_hugging_face_folder_is_imported_and_exported_again(network, pieces, importing, tmp_path, call):
    arrays, settings, entries = write_huggingface(tmp_path / "hf", pieces, network)
    assert importing(tmp_path / "hf").code == 0
    segmenter = sentencepiece.SentencePieceProcessor(model_file=str(pieces))

    def ids(text: str) -> list[int]:
        tag, text = ([">>de<<"], text.removeprefix(">>de<<")) if text.startswith(">>de<<") else ([], text)
        found = [*tag, *segmenter.encode(text, out_type=str)]
        return [entries.index(piece) if piece in entries else 1 for piece in found] + [0]

    pairs = [*pairwise(TEXT), (f">>de<< {TEXT[0]}", "cat \u732b")]
    for source, target in pairs:
        own = reference(arrays, settings, ids(source), ids(target), positions_of_huggingface, 1e-5, len(entries) - 1)
        assert log_probs(tmp_path / "out", source, target) == pytest.approx(own.tolist(), abs=1e-4)
    result = call("export", "--format=huggingface", "--model", tmp_path / "out", "--output", tmp_path / "again")
    assert result.code == 0, result.err
    assert ">>de<<" in json.loads((tmp_path / "again/vocab.json").read_text())
    shutil.rmtree(tmp_path / "hf")
    assert importing(tmp_path / "again", "--overwrite").code == 0
    for source, target in pairs:
        own = reference(arrays, settings, ids(source), ids(target), positions_of_huggingface, 1e-5, len(entries) - 1)
        assert log_probs(tmp_path / "out", source, target) == pytest.approx(own.tolist(), abs=1e-4)


@pytest.fixture(scope="module")
def pieces_data(tmp_path_factory):
    """Prepared data of subwords."""
    folder = tmp_path_factory.mktemp("subwords")
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in TEXT * 5))
    flags = ["--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}", f"--output={folder / 'data'}"]
    assert run(["prepare", *flags, "--vocab-size=45", "--quiet"]) == 0
    return folder / "data"


@pytest.mark.parametrize("positions", ["sinusoidal", "t2t-sinusoidal", "learned"])
def test_a_trained_model_exported_to_hugging_face_gives_the_same_probabilities(
    positions, pieces_data, importing, tmp_path, call
):
    sizes = [
        "--d-model=16",
        "--d-ff=32",
        "--heads=2",
        "--encoder-layers=1",
        "--decoder-layers=2",
        "--norm-epsilon=1e-5",
    ]
    more = [f"--positions={positions}", "--max-updates=2", "--max-positions=40", "--no-valid-bleu"]
    assert call("train", f"--data={pieces_data}", f"--output={tmp_path / 'run'}", *sizes, *more).code == 0
    result = call("export", "--format=huggingface", "--model", tmp_path / "run", "--output", tmp_path / "hf")
    assert result.code == 0, result.err
    assert importing(tmp_path / "hf").code == 0
    checkpoint = tmp_path / "run/checkpoints/update-2"
    assert log_probs(tmp_path / "out", *TEXT[:2]) == pytest.approx(log_probs(checkpoint, *TEXT[:2]), abs=1e-5)
    assert load_model(tmp_path / "out", torch.device("cpu")).facts.options["positions"] == positions
    tokenizer = json.loads((tmp_path / "hf/tokenizer_config.json").read_text())
    assert tokenizer["bos_token"] == "<s>"  # no text, so that it is not printed
    search = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert tokenizer["model_max_length"] == search["max_length"] == (40 if positions == "learned" else 512)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "bart"}, "model_type"),
        ({"scale_embedding": False}, "scale_embedding"),
        ({"activation_function": "tanh"}, "activation_function"),
        ({"decoder_ffn_dim": 7}, "differ in size"),
        ({"d_model": "x"}, "config.json"),
        ({"d_model": 1 << 40}, "config.json"),
        ({"encoder_layers": 9}, "encoder.layers.2"),
        ({"decoder_start_token_id": -5}, "decoder_start_token_id"),
        ({"encoder_ffn_dim": 7, "decoder_ffn_dim": 7}, "feed_forward"),
    ],
)
def test_an_unsupported_kind_of_folder_is_rejected(config, told, pieces, importing, tmp_path):
    write_huggingface(tmp_path / "hf", pieces, {**POST, **ALL, **SWISH}, **config)
    assert_refused(importing(tmp_path / "hf"), 4, told)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        "model.encoder.layers.0.fc1.weight",
        "model.encoder.layers.0.fc2.bias",
        "model.encoder.layers.0.self_attn_layer_norm.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    ],
)
@pytest.mark.parametrize("more", [4, -4])
def test_a_hugging_face_array_of_wrong_width_is_rejected(name, more, pieces, importing, tmp_path):
    write_huggingface(tmp_path / "hf", pieces, {**POST, **SWISH})
    file = tmp_path / "hf/pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    array = tensors[name]
    other = torch.cat([array, array[..., :more]], -1) if more > 0 else array[..., :more]
    torch.save(tensors | {name: other.clone()}, file)
    assert_refused(importing(tmp_path / "hf"), 4, D + more, D)


# fairseq

CODES = "#version: 0.2\nt h\nth e</w>\nd o\ndo g</w>\nm e\n"
CUT = {
    "the": ["the"],
    "dog": ["dog"],
    "men": ["me@@", "n"],
    "a": ["a"],
    "two": ["t@@", "w@@", "o"],
    "man": ["m@@", "a@@", "n"],
}


def positions_of_fairseq(count: int) -> np.ndarray:
    """The first position has the number 2."""
    angles = np.arange(2, count + 2)[:, None] * np.exp(-np.log(10000) * np.arange(D // 2) / (D / 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def write_fairseq(folder: Path, network, in_config: bool = False, **more: object):
    """Write a folder with a fairseq checkpoint and dictionaries. Returns its arrays, settings and entries."""
    entries = ["<s>", "<pad>", "</s>", "<unk>", *sorted({piece for cut in CUT.values() for piece in cut} | {"m@@"})]
    settings = settings_of(**network, **{"output-omit-bias": True})
    arrays = arrays_of(settings, len(entries), len(entries))
    tensors = dict(torch_layers(arrays))
    for side in ("encoder", "decoder"):
        tensors[f"{side}.embed_tokens.weight"] = arrays.get(f"{side}_Wemb", arrays.get("Wemb"))
        if settings["transformer-preprocess"]:
            tensors[f"{side}.layer_norm.weight"] = arrays[f"{side}_top_ln_scale"].reshape(-1)
            tensors[f"{side}.layer_norm.bias"] = arrays[f"{side}_top_ln_bias"].reshape(-1)
    if "decoder_ff_logit_out_Wt" in arrays:
        tensors["decoder.output_projection.weight"] = arrays["decoder_ff_logit_out_Wt"]
    arguments = {"arch": "transformer", "share_all_embeddings": "Wemb" in arrays, "activation_fn": "relu"}
    for side in ("encoder", "decoder"):
        arguments |= {f"{side}_embed_dim": D, f"{side}_ffn_embed_dim": INNER, f"{side}_attention_heads": HEADS}
        arguments |= {f"{side}_layers": LAYERS, f"{side}_normalize_before": bool(settings["transformer-preprocess"])}
    arguments |= {"share_decoder_input_output_embed": "tied-embeddings" in settings} | more
    languages = {"source_lang": "en", "target_lang": "de"}
    content = {"args": None, "cfg": {"model": Namespace(**arguments), "task": languages}}
    if not in_config:
        content = {"args": Namespace(**arguments, **languages)}
    folder.mkdir()
    torch.save(content | {"model": tensors_of(tensors), "extra_state": {"epoch": 1}}, folder / "checkpoint_best.pt")
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{entry} 1\n" for entry in entries[4:]))
    (folder / "bpecodes").write_text(CODES)
    return arrays, settings, entries


@pytest.mark.parametrize(
    ("network", "in_config"),
    [({**POST, **ALL, **RELU}, False), ({**PRE, **TARGET, **RELU}, True), ({**PRE, **RELU}, False)],
    ids=str,
)
def test_a_fairseq_checkpoint_is_imported_with_its_merges(network, in_config, importing, tmp_path):
    arrays, settings, entries = write_fairseq(tmp_path / "fs", network, in_config)
    result = importing(tmp_path / "fs")
    assert result.code == 0, result.err

    def ids(text: str) -> list[int]:
        cut = [piece for word in text.split() for piece in CUT.get(word, ["\u732b"])]
        return [entries.index(piece) if piece in entries else 3 for piece in cut] + [2]

    for source, target in (("the dog", "two men"), ("a man the \u732b", "the men a dog"), ("the", "dog \u732b")):
        own = reference(arrays, settings, ids(source), ids(target), positions_of_fairseq, 1e-5, 2)
        assert log_probs(tmp_path / "out", source, target) == pytest.approx(own.tolist(), abs=1e-4)


def test_a_fairseq_checkpoint_gets_positions_for_the_longer_side(importing, tmp_path):
    write_fairseq(tmp_path / "fs", {**POST, **ALL, **RELU}, max_source_positions=7, max_target_positions=12)
    result = importing(tmp_path / "fs")
    assert result.code == 0, result.err
    model = load_model(tmp_path / "out", torch.device("cpu")).model
    assert len(model.source_positions.weight) == len(model.target_positions.weight) == 12


def test_code_in_a_checkpoint_is_not_executed(importing, tmp_path):
    class Hostile:
        def __reduce__(self):
            return (Path(tmp_path / "executed").touch, ())

    def attempt(told: str) -> None:
        result = importing(tmp_path / "fs/checkpoint_best.pt")
        assert result.code == 4 and told in result.err and result.err.count("\n") == 1, result.err
        assert not (tmp_path / "out").exists() and not (tmp_path / "executed").exists()

    write_fairseq(tmp_path / "fs", {**POST, **ALL, **RELU})
    file = tmp_path / "fs/checkpoint_best.pt"
    whole = file.read_bytes()
    file.write_bytes(pickle.dumps(Hostile()))
    attempt("contains objects other than tensors")
    torch.save({"args": Hostile()}, file)
    attempt("contains objects other than tensors")
    file.write_bytes(whole[: len(whole) // 2])
    attempt("not a file that torch.save wrote")
    file.write_bytes(b"")
    attempt("not a file that torch.save wrote")
    torch.save([1, 2], file)
    attempt("not a fairseq checkpoint")
    torch.save({"args": Namespace(source_lang="en", target_lang="de")}, file)
    attempt("no weights ('model')")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data.pkl", bytes(20_000_000))
    attempt("its arrays would have")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"no_scale_embedding": True}, "its no_scale_embedding is True"),
        ({"decoder_ffn_embed_dim": 7}, "encoder_ffn_embed_dim and decoder_ffn_embed_dim differ"),
        ({"activation_fn": "tanh"}, "its activation_fn is tanh"),
        ({"encoder_layers": 9}, "encoder.layers.2"),
        ({"encoder_layers": None}, "encoder-layers"),
        ({"encoder_embed_dim": [1], "decoder_embed_dim": [1]}, "encoder_embed_dim"),
        ({"max_source_positions": "x"}, "not a fairseq Transformer"),
    ],
)
def test_an_unsupported_kind_of_checkpoint_is_rejected(more, told, importing, tmp_path):
    write_fairseq(tmp_path / "fs", {**POST, **ALL, **RELU}, **more)
    result = importing(tmp_path / "fs")
    assert result.code in (2, 4) and told in result.err and not (tmp_path / "out").exists()


def test_mismatched_dictionaries_are_errors(importing, tmp_path):
    write_fairseq(tmp_path / "fs", {**POST, **ALL, **RELU})
    path = tmp_path / "fs/dict.de.txt"
    entries = path.read_text()
    for content, told in (
        (entries + "x 1\n", "entries, but the model"),
        (entries + "a 1\n", "entries must be unique"),
        ("a", "line 1"),
    ):
        path.write_text(content)
        assert_refused(importing(tmp_path / "fs"), 4, told)
    path.unlink()
    assert importing(tmp_path / "fs").code == 5
    assert importing(tmp_path / "fs/none.pt").code == 5


# CTranslate2


def write_early_ctranslate2(
    folder: Path, flags: Mapping[str, int | np.ndarray] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, object], list[str]]:
    """Write a folder of layout 2: no settings except flags, positions computed from 1, no end symbol after the source."""
    entries = ["<blank>", "<s>", "</s>", *sorted({word for line in TEXT for word in line.split()}), "<unk>"]
    settings = settings_of(**PRE, **RELU)
    arrays = arrays_of(settings, len(entries), len(entries))
    found = {}
    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "context"])):
        for i in range(LAYERS):
            ours, theirs = f"{side}_l{i + 1}", f"{side}/layer_{i}"
            for kind in attentions:
                name = f"{theirs}/{'self_attention' if kind == 'self' else 'attention'}"
                fused = ["qkv", "o"] if kind == "self" else ["q", "kv", "o"]
                for number, letters in enumerate(fused):
                    weights = [arrays[f"{ours}_{kind}_W{letter}"].T for letter in letters]
                    biases = [arrays[f"{ours}_{kind}_b{letter}"][0] for letter in letters]
                    found[f"{name}/linear_{number}/weight"] = np.concatenate(weights)
                    found[f"{name}/linear_{number}/bias"] = np.concatenate(biases)
                found[f"{name}/layer_norm/gamma"] = arrays[f"{ours}_{kind}_Wo_ln_scale_pre"][0]
                found[f"{name}/layer_norm/beta"] = arrays[f"{ours}_{kind}_Wo_ln_bias_pre"][0]
            for number in (0, 1):
                found[f"{theirs}/ffn/linear_{number}/weight"] = arrays[f"{ours}_ffn_W{number + 1}"].T
                found[f"{theirs}/ffn/linear_{number}/bias"] = arrays[f"{ours}_ffn_b{number + 1}"][0]
            found[f"{theirs}/ffn/layer_norm/gamma"] = arrays[f"{ours}_ffn_ffn_ln_scale_pre"][0]
            found[f"{theirs}/ffn/layer_norm/beta"] = arrays[f"{ours}_ffn_ffn_ln_bias_pre"][0]
        found[f"{side}/layer_norm/gamma"] = arrays[f"{side}_top_ln_scale"][0]
        found[f"{side}/layer_norm/beta"] = arrays[f"{side}_top_ln_bias"][0]
        found[f"{side}/embeddings/weight"] = arrays[f"{side}_Wemb"]
    found["decoder/projection/weight"] = arrays["decoder_ff_logit_out_Wt"]
    found["decoder/projection/bias"] = arrays["decoder_ff_logit_out_b"][0]
    found["num_heads"] = np.array(HEADS, np.int8)
    found |= {
        name: np.array(value, np.int8) if isinstance(value, int) else value for name, value in (flags or {}).items()
    }

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    content = struct.pack("<I", 2) + text("TransformerSpec") + struct.pack("<II", 3, len(found))
    for name, array in found.items():
        content += text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        content += struct.pack("<BI", array.itemsize, array.size) + np.ascontiguousarray(array).tobytes()
    folder.mkdir()
    (folder / "model.bin").write_bytes(content)
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{entry}\n" for entry in entries[:-1]))
    return arrays, settings, entries


def positions_from_one(count: int) -> np.ndarray:
    angles = np.arange(1, count + 1)[:, None] * np.exp(-np.log(10000) * np.arange(D // 2) / (D / 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


LANGUAGES = ("--source-lang=en", "--target-lang=de")
SIDES = (("encoder", 9), ("decoder", 12))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, {"source_eos": False}),
        ({"with_source_eos": 1}, {"source_eos": True}),
        ({"with_target_bos": 0}, {"source_eos": False}),
        ({"decoder/start_from_zero_embedding": 1}, {"source_eos": True}),
        ({"with_source_bos": 1}, None),
        ({"user_decoder_start_tokens": 1}, None),
    ],
)
def test_flags_of_an_early_ctranslate2_are_respected(flags, wanted, importing, tmp_path):
    arrays, _, entries = write_early_ctranslate2(tmp_path / "ct2", flags)
    result = importing(tmp_path / "ct2", *LANGUAGES)
    if wanted is None:
        assert_refused(result, 2, "start token")
        return
    assert result.code == 0, result.err
    loaded = load_model(tmp_path / "out", torch.device("cpu"))
    assert {key: loaded.facts.options[key] for key in wanted} == wanted
    start = "</s>" if flags == {"with_target_bos": 0} else "<s>"
    first = 0.0 if "zero" in "".join(flags) else arrays["decoder_Wemb"][entries.index(start)]
    np.testing.assert_allclose(loaded.model.target_embedding.weight[BOS].detach().numpy(), first, atol=1e-6)


def test_an_embedding_scale_is_a_flag_or_a_factor_and_other_scales_are_rejected(importing, tmp_path):
    root = np.array(D**0.5, np.float32)
    for number, (scale, is_ours) in enumerate(((1, True), (root, True), (0, False), (np.array(1, np.float32), False))):
        write_early_ctranslate2(tmp_path / f"ct2-{number}", {"encoder/scale_embeddings": scale})
        result = importing(tmp_path / f"ct2-{number}", *LANGUAGES, "--overwrite")
        assert result.code == (0 if is_ours else 2) and is_ours != ("embeddings are scaled by" in result.err), (
            result.err
        )
    write_early_ctranslate2(tmp_path / "heads", {"encoder/num_heads": 2, "decoder/num_heads": 4})
    assert_refused(importing(tmp_path / "heads", *LANGUAGES, "--overwrite"), 2, "num_heads")


def test_position_tables_can_differ_in_length(importing, tmp_path):
    tables = {side: np.random.default_rng(1).normal(size=(length, D)).astype(np.float32) for side, length in SIDES}
    flags = {f"{side}/position_encodings/encodings": table for side, table in tables.items()}
    write_early_ctranslate2(tmp_path / "ct2", flags)
    result = importing(tmp_path / "ct2", *LANGUAGES)
    assert result.code == 0, result.err
    model = load_model(tmp_path / "out", torch.device("cpu")).model
    for side, found in (("encoder", model.source_positions), ("decoder", model.target_positions)):
        own, length = found.weight.detach().numpy(), len(tables[side])
        assert len(own) == 12
        np.testing.assert_array_equal(own[:length], tables[side])
        np.testing.assert_array_equal(own[length:], np.broadcast_to(tables[side][-1], (12 - length, D)))


def test_an_early_ctranslate2_model_is_imported(importing, tmp_path, call):
    arrays, settings, entries = write_early_ctranslate2(tmp_path / "ct2")
    assert importing(tmp_path / "ct2", *LANGUAGES).code == 0

    for source, target in (("the dog", "two men"), (TEXT[0], TEXT[1]), ("zzz", "zzz men")):
        own = reference(
            arrays,
            settings,
            [entries.index(word) if word in entries else len(entries) - 1 for word in source.split()],
            [*(entries.index(word) if word in entries else len(entries) - 1 for word in target.split()), 2],
            positions_from_one,
            1e-5,
            1,
        )
        assert log_probs(tmp_path / "out", source, target) == pytest.approx(own.tolist(), abs=1e-4)
    (tmp_path / "line").write_text("the dog\n\ntwo men eat .\n")
    engines = [
        call("translate", "--model", tmp_path / "out", "--input", tmp_path / "line", f"--engine={engine}")
        for engine in ("torch", "ctranslate2")
    ]
    assert engines[0].code == engines[1].code == 0 and engines[0].out == engines[1].out, engines[1].err


@pytest.mark.parametrize("kind", ["float32", "int8", "int16", "float16", "bfloat16"])
def test_a_ctranslate2_export_is_imported_again_in_each_numeric_type(kind, trained, importing, tmp_path, call):
    pytest.importorskip("ctranslate2")
    checkpoint = trained / "checkpoints/update-40"
    flags = ["--model", checkpoint, "--output", tmp_path / "ct2", f"--quantization={kind}", "--threads=1"]
    assert call("export", *flags).code == 0
    result = importing(tmp_path / "ct2", *LANGUAGES)
    assert result.code == 0 and ("largest difference in log-probabilities: " in result.err), result.err
    words = load_model(checkpoint, torch.device("cpu")).pipeline.source.vocabulary.entries
    texts = " ".join(words[:5]), " ".join(words[3:8])
    tolerance = {"float32": 1e-5, "int8": 0.2, "int16": 0.01, "float16": 0.01, "bfloat16": 0.1}[kind]
    assert log_probs(tmp_path / "out", *texts) == pytest.approx(log_probs(checkpoint, *texts), abs=tolerance)


def test_heads_of_nonstandard_width_are_imported(importing, tmp_path, call):
    pytest.importorskip("ctranslate2")
    model = make_model(tmp_path / "model", heads=3, d_model=32, d_k=24, d_v=24, attention_bias=True)
    assert call("export", "--model", model, "--output", tmp_path / "ct2", "--threads=1").code == 0
    result = importing(tmp_path / "ct2", *LANGUAGES)
    assert result.code == 0, result.err
    texts = "ban kit lora", "loli ban"
    assert log_probs(tmp_path / "out", *texts) == pytest.approx(log_probs(model, *texts), abs=1e-5)


def test_a_damaged_ctranslate2_model_is_an_error(importing, tmp_path):
    write_early_ctranslate2(tmp_path / "ct2")
    file = tmp_path / "ct2/model.bin"
    whole = file.read_bytes()

    def attempt(content: bytes, told: str) -> None:
        file.write_bytes(content)
        assert_refused(importing(tmp_path / "ct2", *LANGUAGES), 4, told)
        assert not (tmp_path / "out").exists()

    for length in (0, 3, 30, len(whole) // 2, len(whole) - 1):
        attempt(whole[:length], "model.bin")
    attempt(struct.pack("<I", 99) + whole[4:], "version 99")
    place = whole.index(struct.pack("<BI", 4, D * D))
    attempt(whole[:place] + struct.pack("<BI", 4, 1 << 30) + whole[place + 5 :], "truncated")
    attempt(whole[:place] + struct.pack("<BI", 7, D * D) + whole[place + 5 :], "KeyError")
    file.write_bytes(whole)
    (tmp_path / "ct2/target_vocabulary.txt").write_text("<blank>\n<s>\n</s>\n")
    assert importing(tmp_path / "ct2", *LANGUAGES).code == 4
    (tmp_path / "ct2/target_vocabulary.txt").unlink()
    assert importing(tmp_path / "ct2", *LANGUAGES).code == 2
    (tmp_path / "ct2/config.json").write_text(json.dumps({"add_source_bos": True}))
    assert importing(tmp_path / "ct2", *LANGUAGES).code == 2


# Marian


@pytest.mark.parametrize("network", [NETWORKS[0], NETWORKS[3], NETWORKS[5]], ids=str)
def test_a_model_exported_to_marian_has_the_arrays_that_it_was_imported_from(network, importing, tmp_path, call):
    yaml = pytest.importorskip("yaml")
    plain = ["on", "no", "null", "01", "1", "12:30", "~", "<<"]  # these are text as Marian writes and reads them
    entries = ["</s>", "<unk>", *plain, *sorted({word for line in TEXT for word in line.split()})]
    numbers = {entry: i for i, entry in enumerate(entries)}
    quoted = yaml.safe_dump({entry: i for entry, i in numbers.items() if entry not in plain})
    (tmp_path / "v.yml").write_text(quoted + "".join(f"{entry}: {numbers[entry]}\n" for entry in plain))
    settings = settings_of(**network)
    arrays = arrays_of(settings, len(entries), len(entries))
    content = np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)
    np.savez(tmp_path / "m.npz", **arrays, **{"special:model.yml": content})
    assert importing(tmp_path / "m.npz", "--vocab", tmp_path / "v.yml", *LANGUAGES).code == 0
    source = Pipeline.load(Artefact(tmp_path / "out", "model")).source
    assert {*plain} <= {source.piece(i) for i in range(source.size)}
    result = call("export", "--format=marian", "--model", tmp_path / "out", "--output", tmp_path / "again")
    assert result.code == 0, result.err
    written = dict(np.load(tmp_path / "again/model.npz"))
    own = yaml.safe_load(written.pop("special:model.yml").tobytes().split(b"\0")[0])
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(written[name], array, err_msg=name)
    assert {key: own[key] for key in settings} == settings
    decoder = yaml.safe_load((tmp_path / "again/model.npz.decoder.yml").read_text())
    words = yaml.safe_load((tmp_path / "again" / decoder["vocabs"][1]).read_text())
    assert words == {entry: i for i, entry in enumerate(entries)}


def test_models_that_the_other_toolkit_cannot_compute_are_rejected(data, tmp_path, call):
    sizes = ["--d-model=16", "--d-ff=32", "--heads=2", "--encoder-layers=1", "--decoder-layers=1", "--max-updates=1"]
    wrong = {
        "pre": (["--norm-position=pre"], "huggingface", "--norm-position pre"),
        "ssru": (["--decoder-autoregression=ssru"], "huggingface", "--decoder-autoregression ssru"),
        "average": (
            ["--decoder-autoregression=average-attention"],
            "marian",
            "--decoder-autoregression average-attention",
        ),
        "relative": (["--positions=relative"], "huggingface", "--positions relative"),
        "rotary": (["--positions=rotary"], "huggingface", "--positions rotary"),
        "both positions": (["--positions=sinusoidal-rotary"], "huggingface", "--positions sinusoidal-rotary"),
        "rms": (["--norm=rms"], "marian", "--norm rms"),
        "glu": (["--ffn=glu"], "marian", "--ffn glu"),
        "kv": (["--kv-heads=1"], "huggingface", "--kv-heads"),
        "narrow": (["--heads=3", "--d-k=5", "--d-v=5"], "huggingface", "--d-k or --d-v"),
        "moe": (["--ffn=moe", "--expert-every=1"], "huggingface", "--ffn moe"),
        "plain": ([], "marian", "only --positions t2t-sinusoidal"),
        "start": (["--positions=t2t-sinusoidal"], "marian", "must start from a zero vector"),
        "gelu": (["--positions=t2t-sinusoidal", "--activation=gelu"], "marian", "--activation gelu"),
    }
    for name, (flags, format, told) in wrong.items():
        run = tmp_path / name
        assert call("train", f"--data={data}", f"--output={run}", *sizes, *flags, "--no-valid-bleu").code == 0
        assert_refused(call("export", f"--format={format}", "--model", run, "--output", tmp_path / "x"), 2, told)
        assert not (tmp_path / "x").exists()


def test_a_full_disk_leaves_no_export(pieces, importing, tmp_path, call):
    write_huggingface(tmp_path / "hf", pieces, {**POST, **ALL, **SWISH})
    assert importing(tmp_path / "hf").code == 0
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 16_384):
        flags = ["--format=huggingface", "--model", tmp_path / "out", "--output", tmp_path / "disk/x"]
        assert_refused(call("export", *flags), 5, "No space left")
        assert list((tmp_path / "disk").iterdir()) == []


# Files of strangers


def write_marian(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    entries = ["</s>", "<unk>", *sorted({word for line in TEXT for word in line.split()})]
    settings = settings_of(**NETWORKS[0])
    folder.mkdir()
    (folder / "v.yml").write_text(yaml.safe_dump({entry: i for i, entry in enumerate(entries)}))
    (folder / "decoder.yml").write_text(yaml.safe_dump({"vocabs": ["v.yml", "v.yml"]}))
    content = np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)
    arrays = arrays_of(settings, len(entries), len(entries))
    np.savez(folder / "m.npz", **arrays, **{"special:model.yml": content})


@pytest.mark.parametrize("toolkit", ["huggingface", "fairseq", "ctranslate2", "marian"])
def test_a_flipped_or_missing_part_of_any_file_is_an_error_or_harmless(toolkit, pieces, importing, tmp_path):
    folder, chance = tmp_path / "x", random.Random(3)
    if toolkit == "huggingface":
        write_huggingface(folder, pieces, {**POST, **SWISH})
    elif toolkit == "fairseq":
        write_fairseq(folder, {**POST, **ALL, **RELU})
    elif toolkit == "ctranslate2":
        write_early_ctranslate2(folder)
    else:
        write_marian(folder)
    codes = Counter()
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for _ in range(12):
            start, length = chance.randrange(len(whole)), chance.choice([1, 1, 4, 100])
            middle = chance.choice([b"", bytes(chance.randrange(256) for _ in range(length))])
            path.write_bytes(whole[:start] + middle + whole[start + length :])
            result = importing(folder, *LANGUAGES, "--overwrite")
            codes[result.code] += 1
            is_missing = result.code == 5 and "No such file" in result.err  # another name in decoder.yml
            assert result.code in (0, 2, 4) or is_missing, (path.name, start, middle, result.err)
        path.write_bytes(whole)
    assert codes[4] > 10


def test_tensors_that_are_not_plain_numbers_are_errors(importing, tmp_path):
    write_fairseq(tmp_path / "fs", {**POST, **ALL, **RELU})
    file = tmp_path / "fs/checkpoint_best.pt"
    content = torch.load(file, weights_only=False)
    name = "encoder.layers.0.fc1.weight"
    good = content["model"][name]
    wrong = {
        "sparse": good.to_sparse(),
        "complex": good.to(torch.complex64),
        "repeats": good[:1, :1].expand(40_000, 40_000),
        "meta": good.to("meta"),
        "empty": good[:0],
        "list": [1, 2],
    }
    for tensor in wrong.values():
        torch.save(content | {"model": content["model"] | {name: tensor}}, file)
        assert_refused(importing(tmp_path / "fs"), 4, "fc1.weight")
    parameter = torch.nn.Parameter(good)
    unused = good[:1, :1].expand(40_000, 40_000)
    torch.save(content | {"model": content["model"] | {name: parameter, "unused": unused}}, file)
    assert importing(tmp_path / "fs").code == 0


def test_settings_that_imply_gigabytes_are_errors(importing, tmp_path):
    write_marian(tmp_path / "m")
    lists = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(9))
    (tmp_path / "m/decoder.yml").write_text(lists)
    result = importing(tmp_path / "m", *LANGUAGES)
    assert_refused(result, 4, "aliases")
    for content in ("a: .inf", "</s>: [0]", "</s>: 5\n<unk>: 1", "</s>: 0\n<unk>: 1\na: -3"):
        write = tmp_path / "m/v.yml"
        write.write_text(content)
        assert_refused(importing(tmp_path / "m", *LANGUAGES, "--vocab", write), 4, "v.yml")
