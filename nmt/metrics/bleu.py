"""BLEU (Papineni et al., 2002) as computed by sacreBLEU, with a check that its tokenizer is available."""

from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from nmt import UserError, register
from nmt.errors import ResourceError, quoted, unknown
from nmt.metrics.options import BleuOptions
from nmt.metrics.sacrebleu import SacreBleuMetric
from nmt.options import AUTO
from nmt.text.languages import base_language

TOKENIZER_PACKAGES: Final = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
TOKENIZERS_OF_LANGUAGES: Final = {  # from sacreBLEU, or "char" where words are not separated by spaces
    **dict.fromkeys(("zh", "zho", "cmn", "yue", "wuu", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"), "char"),
}


def language_tokenizer(language: str) -> str:
    """The BLEU tokenizer for a language, whether or not it is installed."""
    return TOKENIZERS_OF_LANGUAGES.get(base_language(language), "13a")


def installed_tokenizer(language: str) -> str:
    """The BLEU tokenizer for a language, or `char` if that tokenizer needs packages that are not installed."""
    name = language_tokenizer(language)
    if name not in TOKENIZER_PACKAGES:
        return name
    module = import_module(f"sacrebleu.tokenizers.tokenizer_{name.replace('-', '_')}")
    return "char" if module.MeCab is None else name


@register("metric", "bleu", BleuOptions)
class Bleu(SacreBleuMetric):
    """BLEU, 0 to 100: n-gram precision with a brevity penalty."""

    options: BleuOptions

    @property
    def tokenizer(self) -> str:
        """The name of the tokenizer: the one from --tokenize, or the default for the language."""
        given = self.options.tokenize
        return installed_tokenizer(self.options.target_lang or self.language) if given == AUTO else given

    def check(self) -> None:
        """Raise UserError for an unknown tokenizer or a missing package, or ResourceError for a missing tokenizer model."""
        _ = self.corpus_metric

    @cached_property
    def sentence_metric(self) -> Any:
        """BLEU with effective n-gram order, as sacreBLEU recommends for sentences."""
        return self.build(effective_order=True)

    def build(self, effective_order: bool = False) -> Any:
        from sacrebleu.metrics import BLEU

        name = self.tokenizer
        if name not in BLEU.TOKENIZERS:
            raise unknown("BLEU tokenizer", name, BLEU.TOKENIZERS)
        _check_tokenizer_model(name)
        try:
            return BLEU(tokenize=name, lowercase=self.options.lowercase, force=True, effective_order=effective_order)
        except (ImportError, RuntimeError, OSError) as error:
            if name in TOKENIZER_PACKAGES:
                raise UserError(
                    f"BLEU tokenizer '{name}' needs packages that are not installed "
                    f"(run `pip install '{TOKENIZER_PACKAGES[name]}'`)"
                ) from error
            raise ResourceError(f"BLEU tokenizer '{name}' failed: {quoted(error)}") from error


def _check_tokenizer_model(name: str) -> None:
    """Raise ResourceError if a tokenizer's model file is missing. sacreBLEU's own download is not pinned and has no timeout."""
    from sacrebleu.tokenizers import tokenizer_spm

    if name in tokenizer_spm.SPM_MODELS:
        address = tokenizer_spm.SPM_MODELS[name]["url"]
        file = Path(tokenizer_spm.SACREBLEU_DIR, "models", address.rpartition("/")[2])
        if not file.is_file():
            raise ResourceError(
                f"{quoted(file)}: the model for BLEU tokenizer '{name}' is missing (download it from {address})"
            )
