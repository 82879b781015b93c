"""Gradients of updates on small random batches, for tests of criteria and of updates."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from nmt.batch import Batch
from nmt.checkpoint import save_model, weights_of
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.data.loader import Position, UpdateBatches
from nmt.dist import World
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.report.losses import Stats
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary
from nmt.train.parallel import Objective, part_counts
from nmt.train.update import LossScale, Updater

OPTIONS = TransformerOptions(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, heads=2, dropout=0.0)
_SIDE = Side(SideSettings("en", "nfc", False, False, "none", "none"), WordVocabulary([f"w{i}" for i in range(26)]))
PIPELINE = Pipeline(_SIDE, _SIDE, True)
VOCABULARIES = Vocabularies(*PIPELINE.sizes, True)
NO_LIMIT = 1 << 30


def sentences(rows: int, longest: int) -> Batch:
    """Rows of 1 to `longest` words, the longest first."""
    lengths = [max(1, longest * (rows - i) // rows) for i in range(rows)]
    source = torch.zeros(rows, longest + 1, dtype=torch.int64)
    for row, length in zip(source, lengths, strict=True):
        row[: length + 1] = torch.tensor([*torch.randint(4, 30, (length,)).tolist(), 2])
    return Batch(source, functional.pad(source, (1, 0), value=1))


def data_of(*batches: Batch, idle: int = 0, tokens: int | None = None) -> UpdateBatches:
    """An update of these micro-batches, the last `idle` of which do not count. tokens: target tokens of all ranks"""
    nothing = np.zeros(0, dtype=np.int64)
    own = sum(int(batch.num_target_tokens) for batch in batches[: len(batches) - idle])
    return UpdateBatches(list(batches), idle, own if tokens is None else tokens, nothing, nothing, Position(), False)


class Recorder(torch.optim.SGD):
    """Steps nowhere and keeps the gradients."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module.parameters(), lr=0.0)
        self.gradients: list[torch.Tensor] = []

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self.gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]


def transformer(options: TransformerOptions = OPTIONS) -> Transformer:
    torch.manual_seed(7)
    return Transformer(options, VOCABULARIES).train()


def save_teacher(folder: Path, seed: int = 3, pipeline: Pipeline = PIPELINE) -> Transformer:
    """Save a model of random weights, and return it."""
    model = transformer()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.3)
    save_model(folder, weights_of(model), ModelFacts.of("transformer", model.options, VOCABULARIES), pipeline, {})
    return model.eval()


def objective_of(options: TransformerOptions = OPTIONS) -> Objective:
    model = transformer(options)
    return Objective(model, CrossEntropy(CrossEntropyOptions(), CriterionContext(PIPELINE, model))).train()


class TooSmall(nn.Module):
    """A device that holds so many tokens: memory runs out before or after the work, as on real ones."""

    def __init__(self, inner: Objective, tokens: int, behind: bool) -> None:
        super().__init__()
        self.inner, self.tokens, self.behind, self.tried = inner, tokens, behind, []

    def forward(self, batch: Batch) -> Loss:
        self.tried.append(batch.cells)
        fits = batch.cells <= self.tokens
        if not fits and not self.behind:
            raise torch.OutOfMemoryError("CUDA out of memory")
        trained, reported = self.inner(batch)
        term = trained["loss"]
        return Loss({"loss": Term(term.total if fits else _RunsOut.apply(term.total), term.count)}, reported)


class Counting(TooSmall):
    """Counts its passes, those without enough memory too."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("table", torch.zeros(1), persistent=False)

    def forward(self, batch):
        self.passes += 1
        self.table = torch.zeros(len(self.table) + 1)  # as one of positions grows
        return super().forward(batch)


class _RunsOut(torch.autograd.Function):
    """The identity, whose gradient does not fit."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")


def gradient(
    objective: nn.Module,
    data: UpdateBatches,
    max_micro_batch_tokens: int = NO_LIMIT,
    scale: LossScale | None = None,
    precision: str = "fp32",
    world: World | None = None,
    clip_norm: float = 0.0,
) -> tuple[Stats, list[torch.Tensor]]:
    """The statistics of an update that changes no weight, and the gradient of each parameter; none if it was skipped."""
    counts = part_counts(objective.model, objective.criterion) if isinstance(objective, Objective) else None
    updater = Updater(objective, recorder := Recorder(objective), world or World(), precision, clip_norm, counts)
    return updater(data, 3, max_micro_batch_tokens, scale), recorder.gradients


def assert_close(found: list[torch.Tensor], wanted: list[torch.Tensor], tolerance: float) -> None:
    """Compare tensors with a tolerance relative to the largest number of each."""
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max()))
