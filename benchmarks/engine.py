"""Run one translation engine in a separate process, for benchmarks/translate.py.

    python benchmarks/engine.py JOB        # JOB: a JSON object; `engine` is nmt, nmt-ctranslate2, ctranslate2 or eole

It repeatedly reads a number of lines, then the lines, and answers with as many lines. It runs in the virtual
environment of its engine, so imports are inside the functions.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Translate = Callable[[list[str]], list[str]]


def nmt(job: dict[str, Any]) -> Translate:
    """Replicas that share the threads. A search ends with as many hypotheses as the beam size, as in the other engines."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # set as by the command, before numpy is imported
    from nmt import registry
    from nmt.translate.options import TranslatorOptions
    from nmt.translators import open_translator

    options: dict[str, Any] = {}
    if job["length"]:
        options = {"min_length": job["length"] - 1, "max_len_a": 0.0, "max_len_b": job["length"] - 1}
    if job["beam"] > 1:
        options |= {"beam_size": job["beam"], "length_penalty": "average", "alpha": 1.0, "stop": "full"}
    decoder = registry.choose("decoder", "beam" if job["beam"] > 1 else "greedy", options)
    settings = TranslatorOptions(
        engine="ctranslate2" if job["engine"] == "nmt-ctranslate2" else "torch",
        batch_tokens=job["batch"] or "auto",
        device="cpu",
        replicas=job["replicas"],
        precision=job["weights"],
        shortlist=job["shortlist"] or None,
        threads=job["threads"],
    )
    translator = open_translator([job["model"]], settings, decoder)
    translator.engine.without_scores()  # as for the text printed by the command
    return lambda lines: [translation.text for translation in translator.translate(lines)]


def ctranslate2(job: dict[str, Any]) -> Translate:
    """One worker per thread, which gives the most sentences per second."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # it would be imported if installed, for converters
    import ctranslate2 as library

    from nmt.artefact import Artefact
    from nmt.text.pipeline import Pipeline

    pipeline = Pipeline.load(Artefact(Path(job["model"]), "ctranslate2"))
    source, target = pipeline.source, pipeline.target
    threads = {"inter_threads": job["threads"], "intra_threads": 1, "max_queued_batches": -1}
    engine = library.Translator(job["model"], compute_type=job["weights"], **threads)
    options = {
        "beam_size": job["beam"],
        "length_penalty": 1.0,
        "max_batch_size": job["batch"],
        "use_vmap": bool(job["shortlist"]),
    }
    if job["length"]:
        options |= {"min_decoding_length": job["length"], "max_decoding_length": job["length"]}
    piece = [source.piece(token) for token in range(source.size)]
    number = {target.piece(token): token for token in range(target.size)}

    def translate(lines: list[str]) -> list[str]:
        pieces = [[piece[token] for token in row] for row in source.encode_batch(lines).rows()]
        found = engine.translate_batch(pieces, **options)
        return [target.decode([number[piece] for piece in one.hypotheses[0]]) for one in found]

    return translate


def eole(job: dict[str, Any]) -> Translate:
    """One process with all threads, the only way on a CPU. Input and output lines are in subwords."""
    import torch
    from eole.config.run import PredictConfig
    from eole.inference_engine import InferenceEnginePY

    torch.set_num_threads(job["threads"])
    options = {"model_path": job["model"], "src": "-", "world_size": 1, "gpu_ranks": [], "batch_size": job["batch"]}
    options |= {"beam_size": job["beam"], "length_penalty": "avg", "alpha": 1.0, "top_k": int(job["beam"] == 1)}
    if job["length"]:
        options |= {"min_length": job["length"], "max_length": job["length"], "max_length_ratio": 0}
    engine = InferenceEnginePY(PredictConfig(**options))
    return lambda lines: [candidates[0] for candidates in engine.infer_list(lines)[2]]


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)  # an engine's own output must not mix with translations
    questions = os.fdopen(0, encoding="utf-8", newline="\n", closefd=False)
    translate = {"nmt": nmt, "nmt-ctranslate2": nmt, "ctranslate2": ctranslate2, "eole": eole}[job["engine"]](job)
    while count := questions.readline():
        lines = [questions.readline().removesuffix("\n") for _ in range(int(count))]
        answers.writelines(line + "\n" for line in translate(lines))
        answers.flush()


if __name__ == "__main__":
    main()
