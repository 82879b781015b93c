"""Translate lines of stdin with Argos Translate and an nmt model, for benchmarks/placeholders.py --other.

    python benchmarks/argos.py --model FOLDER --export FOLDER [--html] < lines > translations

--model is a model folder with one subword model, and --export its export by `nmt export --format ctranslate2`. Needs the
packages argostranslate, translatehtml and beautifulsoup4. The sentence splitter of Argos downloads a model, so each line counts
as one sentence here. Lines are written as XML; with --html they go through translatehtml, otherwise as text.
"""

import argparse
import html
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any


def argos_modules() -> tuple[Any, Any]:
    """The modules for packages and for translation, without the libraries that split sentences."""
    splitter: Any = ModuleType("minisbd")
    splitter.SBDetect, splitter.models = None, ModuleType("models")
    sys.modules |= {"stanza": ModuleType("stanza"), "minisbd": splitter}
    from argostranslate import package, translate  # type: ignore[import-not-found]

    return package, translate


class WholeLines:
    def split_sentences(self, text: str) -> list[str]:
        return [text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--export", type=Path, required=True)
    parser.add_argument("--html", action="store_true")
    given = parser.parse_args()
    package, translate = argos_modules()
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(given.export, folder / "model")
        shutil.copy(given.model / "pipeline/joint.model", folder / "sentencepiece.model")
        (folder / "metadata.json").write_text(json.dumps({"from_code": "en", "to_code": "de"}))
        (folder / "stanza").mkdir()  # selects a splitter that loads nothing before its first text
        languages = translate.Language("en", "English"), translate.Language("de", "German")
        translator = translate.PackageTranslation(*languages, package.Package(folder))
        translator.sentencizer = WholeLines()
        for line in sys.stdin.read().splitlines():
            if given.html:
                from translatehtml import translate_html  # type: ignore[import-not-found]

                result = str(translate_html(translator, line))
            else:
                result = html.escape(translator.translate(html.unescape(line)), quote=False)
            print(" ".join(result.split()), flush=True)


if __name__ == "__main__":
    main()
