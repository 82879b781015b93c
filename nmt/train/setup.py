"""Prepares a run: opens its data and device, and tries its criterion."""

import math
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from nmt import registry
from nmt.artefact import MANIFEST
from nmt.batch import Batch, MissingColumnError
from nmt.criteria.base import Criterion, Loss
from nmt.data.loader import to_batch
from nmt.data.plan import new_plan
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.device import Precision, autocast, choose_device
from nmt.dist import World
from nmt.errors import UserError, quoted, unknown
from nmt.metrics.bleu import installed_tokenizer
from nmt.models.base import Model
from nmt.nn import matmul
from nmt.options import AUTO
from nmt.runs import Checkpoints, saved_setting
from nmt.train.options import TrainOptions
from nmt.train.parallel import Objective, copied_buffers, put_buffers
from nmt.train.validation import Validation


class RunSetup:
    """The inputs of a run, known before its ranks connect. validation: None without a validation set"""

    def __init__(self, options: TrainOptions) -> None:
        """Raises UserError if the output cannot be a run folder, or if the device or the data cannot be used."""
        self.world, folder = World.from_environment(), Path(options.output)
        self.device = choose_device(options.device, self.world.local_rank)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.data, self.validation = open_data(options)
        if (tokenizer := _run_tokenizer(options)) == AUTO:
            tokenizer = installed_tokenizer(self.data.pipeline.target_lang)
        # A resumed run keeps its tokenizer, even if others have been installed since.
        self.options = replace(options, bleu_tokenize=tokenizer)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{quoted(folder)}: a file, but a run needs a folder (choose another --output)")
        if (folder / MANIFEST).exists():
            raise UserError(f"{quoted(folder)}: a model folder or data folder, not a run (choose another --output)")

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Context that connects the ranks and, if requested, enables tf32 matrix products until it ends."""
        before, precision = torch.get_float32_matmul_precision(), self.options.precision
        with self.world.joined(self.device.type, self.options.timeout), matmul.using(matmul.Products()):
            if precision == "tf32" and self.device.type != "cuda":
                kind = f"needs an NVIDIA GPU, but the device is {self.device}"
                raise UserError(f"--precision tf32 {kind} (use fp32 or bf16)")
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)


def open_data(options: TrainOptions) -> tuple[PreparedData, Validation | None]:
    """Open the data folder and its validation set, if it has one. The validation has its metrics, but no translator yet.

    Raises UserError if there are no training pairs, or if a validation set or a metric cannot be used.
    """
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: no training pairs (use nmt prepare --train)")
    new_plan(options, data.train)  # so that its errors appear before any work
    sets, name = data.valid, options.valid_set
    if name is not None and name not in sets:
        raise unknown("validation set", name, sets)
    dev: EvaluationSet | None = sets[name] if name is not None else next(iter(sets.values()), None)
    if dev is None:
        if options.patience is not None:
            raise UserError(f"--patience needs a validation set in {quoted(options.data)} (use nmt prepare --valid)")
        return data, None
    dev.check()  # a blank or damaged set would end the run at its first validation
    shared = registry.shared_values("metric", options)
    own = {"bleu": {"tokenize": _run_tokenizer(options)}}
    metrics = {
        name: registry.build(registry.choose("metric", name, shared | own.get(name, {}))) for name in options.metrics
    }
    for metric in metrics.values():
        metric.use_language(data.pipeline.target_lang)
        metric.check()
    return data, Validation(dev, metrics)


def _run_tokenizer(options: TrainOptions) -> str:
    """BLEU's tokenizer: the option's value, or the one in the newest checkpoint of the run."""
    newest = Checkpoints(Path(options.output)).all()[-1:] if options.bleu_tokenize == AUTO else []
    return next((name for path in newest if (name := saved_setting(path, "bleu_tokenize"))), options.bleu_tokenize)


def try_criterion(
    model: Model, criterion: Criterion, pairs: Batch, validation: Validation | None, precision: Precision
) -> Set[str]:
    """Try the criterion on training pairs and a validation pair, without gradients, and return the names of its scores.

    These are the trained parts of the loss and `nll`, as a validation computes them. Lower is better. Weights, buffers and the
    random state do not change. Raises UserError if the validation set lacks a column, or if counts differ from
    `Criterion.counts`.
    """
    device, objective, buffers = pairs.source.device, Objective(model, criterion), copied_buffers(model)
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(forked), torch.no_grad(), autocast(device, precision):
        loss: Loss = objective(pairs)
        for name, count in criterion.counts(pairs).items():
            if name in loss.trained and not math.isclose(
                counted := float(loss.trained[name].count), count, rel_tol=1e-4
            ):
                message = (
                    f"the loss part '{quoted(name)}' has the count {counted:g}, but counts() returns {float(count):g}"
                )
                raise UserError(f"{message} (make them equal; see `Criterion.counts`)")
        if validation is not None:
            model.eval()
            try:
                loss = objective(to_batch(validation.dev.corpus, next(validation.dev.batches(1))).to(device))
            except MissingColumnError as error:
                column, name = quoted(error.name), quoted(validation.dev.name)
                advice = f'test `"{column}" in batch` in the criterion, or use nmt prepare --hold-out'
                raise UserError(f"validation set '{name}' has no column '{column}' ({advice})") from None
            finally:
                model.train()
    put_buffers(model, buffers)
    return loss.trained.keys() | (loss.reported.keys() & {"nll"})
