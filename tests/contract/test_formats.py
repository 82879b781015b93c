"""Formats of documents: each comes in one file, and `nmt translate` reads and writes it."""

from nmt import registry
from nmt.cli.main import run

PROPERTIES = '''
from nmt import opt, options_class, register
from nmt.formats.base import Format


@options_class
class PropertiesOptions:
    property_divider: str = opt("=", "what stands between a key and its text")


class Properties:
    def __init__(self, text, divider):
        self.divider, self.rows = divider, [line.partition(divider) for line in text.splitlines()]

    def texts(self, languages):
        assert languages.source and languages.target
        return [text for _, _, text in self.rows]

    def write(self, translations, warnings):
        rows = zip(self.rows, translations, strict=True)
        self.rows = [(key, divider, translation.text) for (key, divider, _), translation in rows]

    def content(self):
        return "".join(f"{key}{divider}{text}\\n" for key, divider, text in self.rows).encode()


@register("format", "properties", PropertiesOptions)
class PropertiesFormat(Format):
    """Keys and their texts."""

    settings = {"split": True}

    def read(self, path):
        return Properties(path.read_text(), self.options.property_divider)
'''


def test_a_format_from_one_file_is_read_and_written(trained, tmp_path, capfd):
    (tmp_path / "properties.py").write_text(PROPERTIES)
    (tmp_path / "a.properties").write_text("first:ban kit\nsecond:Lora mus. Ban kit.\n")
    (tmp_path / "lines").write_text("ban kit\nLora mus. Ban kit.\n")
    words = [
        "translate",
        f"--model={trained}",
        "--threads=1",
        "--engine=torch",
        f"--plugin={tmp_path / 'properties.py'}",
    ]
    try:
        assert run([*words, f"--input={tmp_path / 'lines'}", "--split"]) == 0
        first, second = capfd.readouterr().out.splitlines()
        flags = ["--format=properties", "--property-divider=:", f"--input={tmp_path / 'a.properties'}"]
        assert run([*words, *flags]) == 0
        assert capfd.readouterr().out == f"first:{first}\nsecond:{second}\n"
    finally:
        del registry._shelf.parts["format", "properties"]
