"""Adds entries to a model's vocabularies while data is prepared: listed words, learnt entries and the context separator."""

from collections import Counter
from pathlib import Path

from nmt import register
from nmt.errors import quoted
from nmt.extensions.vocabularies.extension import extended, given_entries, is_tag, with_symbols
from nmt.extensions.vocabularies.preparations.options import ExtensionOptions
from nmt.log import log
from nmt.preparations.base import CountWords, Preparation
from nmt.symbols import SEPARATOR
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline, Side


@register("preparation", "extension", ExtensionOptions)
class Extension(Preparation):
    """Adds entries to the end of the --vocabulary model's vocabularies."""

    def change(self, pipeline: Pipeline, count_words: CountWords) -> Pipeline:
        """See Preparation."""
        o = self.options
        path = Path(o.extend_with) if o.extend_with else None
        if path is not None:  # done first, so that the text steps leave the tags unchanged
            pipeline = with_symbols(pipeline, list(filter(is_tag, read_lines(path))))
        given = given_entries(path, pipeline) if path is not None else []
        both = {0: pipeline.source, 1: pipeline.target}
        vocabularies = []
        for sides in [both] if pipeline.joint else [{number: side} for number, side in both.items()]:
            steps = {number: side.prepare for number, side in sides.items()}
            counts = count_words(steps) if o.extend else Counter[str]()
            old = next(iter(sides.values())).vocabulary
            more = [SEPARATOR] if o.context and 0 in sides else []
            vocabularies.append(extended(old, [*given, *more], counts, o.extend))
            if added := vocabularies[-1].size - old.size:
                log.info(f"{quoted(o.vocabulary)}: added {added:,} entries to the existing {old.size:,}")
        source, target = (
            Side(side.settings, vocabulary, side.prepare.truecaser)
            for side, vocabulary in ((pipeline.source, vocabularies[0]), (pipeline.target, vocabularies[-1]))
        )
        return Pipeline(source, target, pipeline.joint)
