"""Hugging Face's MarianMTModel: read, written, and compared by the package transformers."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch

from nmt import register
from nmt.checkpoint import LoadedModel
from nmt.extensions.toolkits.comparison import compare_export, random_lines
from nmt.extensions.toolkits.huggingface_reader import HUGGINGFACE_CONFIG, read_huggingface
from nmt.extensions.toolkits.huggingface_writer import write_huggingface
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles
from nmt.options import NoOptions


@register("toolkit", "huggingface", NoOptions)
class HuggingFace(Toolkit):
    """Hugging Face's Marian models: a folder of MarianMTModel and MarianTokenizer."""

    order: ClassVar[int] = 2
    package: ClassVar[str] = "transformers"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / HUGGINGFACE_CONFIG).is_file()

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        return read_huggingface(path, files)

    def write(self, loaded: LoadedModel, output: Path) -> str:
        write_huggingface(loaded, output)
        compare_export(self, loaded, output)
        return ""

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model = transformers.MarianMTModel.from_pretrained(imported.place, local_files_only=True).eval()
        eos = model.config.eos_token_id
        for source, target in random_lines(imported.source, imported.target):
            labels = torch.tensor([[*imported.target.rows[target], eos]])
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([[*imported.source.rows[source], eos]]), labels=labels).logits
            yield ScoredPair(source, target, logits.log_softmax(-1).gather(2, labels[..., None]).flatten().tolist())
