"""Text, settings and averages for eole and JoeyNMT: the model, optimizer and subwords are those of equal.toml.

    peers.py split --pairs 160000 download/train text                   # the first pairs, and the last 500 for validation
    peers.py vocabulary --subwords joint.model --output FOLDER          # with the Python of nmt
    peers.py settings joeynmt --work WORK --max-length 128              # prints YAML; resumes from the newest checkpoint
    peers.py average --output OUTPUT CHECKPOINT...                      # with the Python of eole or JoeyNMT

WORK contains text/train, text/valid, subwords/ and a folder for each program. The shape of the model, the batches and the
optimizer are the constants below; equal.toml has the same. For a quick try, --set changes one of them: --set WIDTH=16.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

SHAPE = {"LAYERS": 3, "WIDTH": 256, "INNER": 1024, "HEADS": 4}
TRAINING = {"BATCH_TOKENS": 2048, "WARMUP": 500, "SAVE_EVERY": 100, "UPDATES": 1_000_000}
PEAK_RATE = 0.002
NUM_VALID = 500  # pairs
JOEYS_PADDING = 2.0  # its batches are not sorted by length: of twice as many cells, half are tokens
SPECIALS = ("<unk>", "<pad>", "<s>", "</s>")  # JoeyNMT's


def split(given: argparse.Namespace) -> None:
    """Write the first pairs of a corpus as `train`, and the last ones, which are far from them, as `valid`."""
    for side in ("en", "fr"):
        lines = Path(f"{given.corpus}.{side}").read_bytes().removesuffix(b"\n").split(b"\n")
        if len(lines) < given.pairs + NUM_VALID:
            raise SystemExit(f"{given.corpus}.{side} has {len(lines)} lines, fewer than {given.pairs} + {NUM_VALID}")
        for name, part in (("valid", lines[-NUM_VALID:]), ("train", lines[: given.pairs])):
            temporary = given.output / f".{name}.{side}"
            temporary.write_bytes(b"".join(line + b"\n" for line in part))
            temporary.replace(given.output / f"{name}.{side}")


def vocabulary(given: argparse.Namespace) -> None:
    """Write the pieces of a sentencepiece model in the order of their numbers, without control symbols."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(given.subwords))
    pieces = [model.id_to_piece(i) for i in range(len(model)) if not model.is_control(i) and not model.is_unknown(i)]
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "pieces.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    counted = (f"{piece}\t{len(pieces) - i}\n" for i, piece in enumerate(pieces))  # eole wants counts, in this order
    (given.output / "pieces.tsv").write_text("".join(counted), encoding="utf-8")
    (given.output / "joint.model").write_bytes(given.subwords.read_bytes())


def newest(folder: Path, pattern: str) -> Path | None:
    """The newest checkpoint of a run, from which it resumes."""
    found = [path for path in folder.glob(pattern) if not path.is_symlink()]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def eole(given: argparse.Namespace, size: dict[str, int]) -> dict[str, Any]:
    """Settings of `eole train`."""
    run = given.work / "eole/run"
    last = newest(run, "step_*/config.json")
    subwords = str(given.work / "subwords/joint.model")
    text = {name: str(given.work / "text" / name) for name in ("train", "valid")}
    files = {name: {"path_src": f"{prefix}.en", "path_tgt": f"{prefix}.fr"} for name, prefix in text.items()}
    length = {"src_seq_length": given.max_length, "tgt_seq_length": given.max_length}
    training = {
        "model_path": str(run),
        "train_steps": size["UPDATES"],
        "save_checkpoint_steps": size["SAVE_EVERY"],
        "valid_steps": 4 * size["SAVE_EVERY"],
        "keep_checkpoint": 10,
        "batch_type": "tokens",
        "batch_size": size["BATCH_TOKENS"],
        "valid_batch_size": size["BATCH_TOKENS"],
        "bucket_size": 32768,
        "num_workers": 0,
        "normalization": "tokens",
        "compute_dtype": given.precision,
        "use_amp": given.precision == "bf16",
        "optim": "adam",
        "adam_beta2": 0.98,
        "decay_method": "noam",  # the rate times the root of the width and the warm-up is the peak
        "learning_rate": PEAK_RATE * (size["WIDTH"] * size["WARMUP"]) ** 0.5,
        "warmup_steps": size["WARMUP"],
        "max_grad_norm": 1.0,
        "dropout": [0.1],
        "attention_dropout": [0.0],
        "label_smoothing": 0.1,
        "param_init_method": "xavier_uniform",
    }
    if last:
        training["train_from"] = str(last.parent)
    return {
        "seed": given.seed,
        "save_data": str(given.work / "eole/data"),
        "overwrite": True,
        "report_every": 50,
        "log_file": str(given.work / "eole/train.log"),
        "share_vocab": True,
        "src_vocab": str(given.work / "subwords/pieces.tsv"),
        "tgt_vocab": str(given.work / "subwords/pieces.tsv"),
        "vocab_size_multiple": 8,
        "transforms": ["sentencepiece", "filtertoolong"],
        "transforms_configs": {
            "sentencepiece": {"src_subword_model": subwords, "tgt_subword_model": subwords},
            "filtertoolong": length,
        },
        "data": {"corpus": files["train"], "valid": {**files["valid"], "transforms": ["sentencepiece"]}},
        "training": training,
        "model": {
            "architecture": "transformer",
            "hidden_size": size["WIDTH"],
            "layers": size["LAYERS"],
            "heads": size["HEADS"],
            "transformer_ff": size["INNER"],
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": size["WIDTH"], "position_encoding_type": "SinusoidalInterleaved"},
        },
    }


def joeynmt(given: argparse.Namespace, size: dict[str, int]) -> dict[str, Any]:
    """Settings of `joeynmt train`, or with --model of `joeynmt translate`."""
    runs = given.work / "joeynmt"
    last = newest(runs, "run-*/*.ckpt")
    number = len(list(runs.glob("run-*"))) + (not given.model)  # it refuses or empties an existing folder
    side = {
        "level": "bpe",
        "tokenizer_type": "sentencepiece",
        "max_length": given.max_length,
        "voc_file": str(given.work / "subwords/pieces.txt"),
        "tokenizer_cfg": {"model_file": str(given.work / "subwords/joint.model")},
    }
    layers = {
        "type": "transformer",
        "num_layers": size["LAYERS"],
        "num_heads": size["HEADS"],
        "hidden_size": size["WIDTH"],
        "ff_size": size["INNER"],
        "embeddings": {"embedding_dim": size["WIDTH"], "scale": True, "dropout": 0.1},
        "dropout": 0.1,
        "layer_norm": "pre",
    }
    training = {
        "random_seed": given.seed,
        "optimizer": "adam",
        "adam_betas": [0.9, 0.98],
        "scheduling": "warmupinversesquareroot",
        "learning_rate": PEAK_RATE,
        "learning_rate_min": 0.0,
        "learning_rate_warmup": size["WARMUP"],
        "clip_grad_norm": 1.0,
        "label_smoothing": 0.1,
        "loss": "crossentropy",
        "normalization": "tokens",
        "batch_type": "token",
        "batch_size": int(JOEYS_PADDING * size["BATCH_TOKENS"]),
        "epochs": 1000,
        "updates": size["UPDATES"],
        "validation_freq": size["SAVE_EVERY"],
        "logging_freq": size["SAVE_EVERY"],
        "early_stopping_metric": "ppl",
        "keep_best_ckpts": 5,
        "print_valid_sents": [],
    }
    if last:
        training["load_model"] = str(last)
    # It always translates the validation set too; a single token of each sentence costs little.
    testing = {"batch_type": "token", "batch_size": 4096, "beam_size": 1, "max_output_length": 1, "eval_metrics": []}
    if given.model:
        testing = {"load_model": str(given.model), "batch_type": "sentence", "batch_size": 32, "beam_size": 5}
        testing |= {"beam_alpha": 1.0, "n_best": 1, "eval_metrics": [], "generate_unk": False}
    return {
        "name": "europarl-en-fr",
        "model_dir": str(runs / f"run-{number}"),
        "use_cuda": False,
        "random_seed": given.seed,
        "data": {
            "train": str(given.work / "text/train"),
            "dev": str(given.work / "text/valid"),
            "dataset_type": "plain",
            "special_symbols": {
                f"{kind}_{field}": value
                for number, (kind, token) in enumerate(zip(("unk", "pad", "bos", "eos"), SPECIALS, strict=True))
                for field, value in (("id", number), ("token", token))
            },
            "src": {"lang": "en", **side},
            "trg": {"lang": "fr", **side},
        },
        "training": training,
        "testing": testing,
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": size["WIDTH"] ** -0.5,
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": layers,
            "decoder": layers,
        },
    }


def average(given: argparse.Namespace) -> None:
    """Write the mean of the weights of checkpoints, in the format of the last one."""
    import torch

    def read(path: Path) -> dict[str, torch.Tensor]:
        if path.suffix == ".ckpt":
            return dict(torch.load(path, map_location="cpu", weights_only=True)["model_state"])
        from safetensors.torch import load_file

        return dict(load_file(path.parent / "model.00.safetensors"))

    weights = [read(path) for path in given.checkpoints]
    mean = {name: sum(each[name] for each in weights) / len(weights) for name in weights[-1]}
    last = given.checkpoints[-1]
    if last.suffix == ".ckpt":
        torch.save({"model_state": mean}, given.output)
        return
    import shutil

    from safetensors.torch import save_file

    shutil.copytree(last.parent, given.output, ignore=shutil.ignore_patterns("optimizer.pt"))
    save_file(mean, given.output / "model.00.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    action = actions.add_parser("split")
    action.add_argument("--pairs", type=int, required=True)
    action.add_argument("corpus", type=Path, help="prefix of the text")
    action.add_argument("output", type=Path, help="folder")
    action = actions.add_parser("vocabulary")
    action.add_argument("--subwords", type=Path, required=True)
    action.add_argument("--output", type=Path, required=True)
    action = actions.add_parser("settings")
    action.add_argument("program", choices=("eole", "joeynmt"))
    action.add_argument("--work", type=Path, required=True)
    action.add_argument("--max-length", type=int, required=True, help="longest training sentence in subwords")
    action.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of eole")
    action.add_argument("--seed", type=int, default=1)
    action.add_argument("--model", type=Path, help="translate with this model of JoeyNMT")
    action.add_argument("--set", nargs="*", default=[], metavar="NAME=N", help="change a number above")
    action = actions.add_parser("average")
    action.add_argument("--output", type=Path, required=True)
    action.add_argument("checkpoints", type=Path, nargs="+")
    given = parser.parse_args()
    if given.action == "settings":
        changed = {name: int(value) for name, _, value in (word.partition("=") for word in given.set)}
        settings = {"eole": eole, "joeynmt": joeynmt}[given.program](given, SHAPE | TRAINING | changed)
        json.dump(settings, sys.stdout, indent=2)  # JSON is YAML
        return
    {"split": split, "vocabulary": vocabulary, "average": average}[given.action](given)


if __name__ == "__main__":
    main()
