"""BLEU under several definitions, including that of Vaswani et al. (2017)."""

from collections.abc import Sequence
from dataclasses import replace

from nmt import register
from nmt.cli.scores import as_rows, as_table
from nmt.errors import UserError, quoted
from nmt.evaluations.base import Evaluation, System
from nmt.extensions.scores.evaluations.options import PaperOptions
from nmt.extensions.scores.metrics.options import PaperBleuOptions
from nmt.extensions.scores.metrics.paper_bleu import PaperBleu, check_language, language_of
from nmt.metrics.base import Lines, Metric, References


@register("evaluation", "paper", PaperOptions)
class PaperDefinitions(Evaluation):
    """Computes BLEU as sacreBLEU defines it, and as Vaswani et al. (2017) do."""

    order = 1
    uses_metrics = False

    def check_language(self, language: str) -> None:
        check_language(self.options.target_lang or language)

    def text(
        self,
        systems: Sequence[System],
        references: References,
        sources: Lines | None,
        metrics: Sequence[tuple[str, Metric]],
    ) -> str:
        paper = PaperBleu(PaperBleuOptions(target_lang=self._language(systems)))
        scores = [
            [
                (name, replace(score, signature=score.signature + self.changes))
                for name, score in paper.definitions(system.lines, references)
            ]
            for system in systems
        ]
        return (as_rows if self.options.json else as_table)(systems, scores)

    def _language(self, systems: Sequence[System]) -> str:
        """The target language given by the option, or else by the model or the names of the references."""
        language = self.options.target_lang or systems[0].language
        if language is None:
            endings = {language_of(path) for path in self.options.reference} - {None}
            language = endings.pop() if len(endings) == 1 else None
        if language is None:
            names = ", ".join(map(quoted, self.options.reference))
            raise UserError(f"--paper cannot tell the target language from the name of {names} (add --target-lang)")
        return language
