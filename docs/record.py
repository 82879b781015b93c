"""Record the first hour of a new user in a terminal: `make recording CORPUS=FOLDER`.

CORPUS holds train, valid and test, each as .en.gz and .de.gz. A bash in a pseudo-terminal gets the keys of each scene,
and docs/recording.md shows what the terminal showed, as text or as a picture in docs/images. Needs pyte.
"""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
COLUMNS, ROWS, HISTORY_ROWS = 110, 46, 500
FIRST_LINES, LAST_LINES = 22, 8  # of a long capture
PROMPT = "$ "
TAB, END_OF_INPUT, CLEAR_LINE = "\t", "\x04", "\x15"
# The template of rich without the fonts that a browser would fetch.
TEMPLATE = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S).replace("Fira Code", "monospace")
INTRODUCTION = """# A recording: from a checkout to a translation

<!-- `make recording` writes this page. -->

This page shows the terminal of a new user who follows the [tutorial](tutorial.md) with a corpus of everyday sentences
([Tatoeba](https://tatoeba.org), CC-BY 2.0). Waiting times and the middle of long output are omitted. `nmt.git` stands for
the address of the project, and `text` is the folder with the corpus. The machine, a
Xeon with two cores, also ran other programs. The recording is from DATE. Later versions have more commands and presets, and
some of their messages are worded differently.

"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Keys that are typed in a terminal, and how the page shows what follows.

    heading: of the section that begins here
    sentence: what the page says first
    steps: (keys, seconds to wait after them) in turn; None waits for the prompt
    leave: keys that bring the prompt back afterwards
    picture: name of the picture of the screen; without one the page shows the text
    terminal: 0, or 1 for a second terminal
    """

    heading: str = ""
    sentence: str = ""
    steps: tuple[tuple[str, float | None], ...]
    leave: str = ""
    picture: str = ""
    terminal: int = 0


def typed(*lines: str, **given: Any) -> Scene:
    """A scene of commands that end."""
    return Scene(steps=tuple((line + "\n", None) for line in lines), **given)


TRAIN = "nmt train data --output run --preset transformer-mini --max-minutes 15 --threads 1"
SCENES = [
    typed("git clone nmt.git nmt", "cd nmt", "make setup", ". .venv/bin/activate", heading="Install"),
    typed("nmt", sentence="`nmt` without arguments lists the commands.", picture="commands"),
    Scene(
        sentence="After `nmt --install-completion`, TAB completes commands, flags, names and files.",
        steps=(
            ("nmt --install-completion bash\n", None),
            (". ~/.bashrc\n", None),
            (f"nmt train --preset {TAB}{TAB}", 3),
            (f"transformer-m{TAB}--max-u{TAB}", 3),
        ),
        leave=CLEAR_LINE,
    ),
    typed("nmt train --max-updats 5", sentence="All errors are reported at once, followed by the corrected command."),
    typed("ls text", "zcat text/train.en.gz | wc -l", heading="Look at the corpus"),
    typed("nmt doctor text/train.en.gz text/train.de.gz --valid text/valid --test text/test"),
    typed(
        "nmt prepare text/train.en.gz text/train.de.gz --valid text/valid --output data",
        heading="Prepare and train",
    ),
    typed(TRAIN + " --dry-run", sentence="A dry run estimates the time, the memory and the cost of the training."),
    Scene(sentence="After a minute and a half:", steps=((TRAIN + "\n", 90),), picture="training"),
    Scene(
        sentence="In a second terminal, at the same time:",
        steps=((". .venv/bin/activate\n", None), ("nmt status run\n", None)),
        terminal=1,
    ),
    Scene(sentence="After ten minutes:", steps=(("", 500),), picture="training-later"),
    Scene(sentence="At the end:", steps=(("", None),)),
    typed("nmt plot run", picture="plot"),
    typed("nmt average run --last 3 --output model", heading="Translate"),
    Scene(
        sentence="In a terminal, `nmt translate` shows a prompt.",
        steps=(
            ("nmt translate --model model\n", 45),
            ("Where is the next bus stop?\n", 8),
            ("I would like to have a cup of coffee, please.\n", 8),
            ("My brother bought a new car yesterday.\n", 8),
        ),
        leave=END_OF_INPUT,
        picture="prompt",
    ),
    typed(
        "nmt translate --model model text/test.en.gz --output test.de",
        "head -3 test.de",
        sentence="To translate a file:",
    ),
    typed("nmt evaluate test.de text/test.de.gz"),
]


class Terminal:
    """A bash in a pseudo-terminal, and its screen."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=HISTORY_ROWS)
        self._stream = pyte.ByteStream(self._screen)
        process, self._master = pty.fork()
        if process == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--noprofile", "--rcfile", environment["HOME"] + "/.bashrc"], environment)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.wait(None)

    def type(self, keys: str) -> None:
        for key in keys:
            os.write(self._master, key.encode())
            self.wait(0.02)

    def wait(self, seconds: float | None) -> None:
        """Draw what arrives within some seconds, or until the prompt stands there."""
        end = time.monotonic() + (seconds or 0)
        while self._draw(0.5) if seconds is None else time.monotonic() < end:
            if seconds is not None:
                self._draw(max(0.0, end - time.monotonic()))

    def _draw(self, seconds: float) -> bool:
        """Draw what arrives next; whether there is no prompt afterwards."""
        if select.select([self._master], [], [], seconds)[0]:
            self._stream.feed(os.read(self._master, 1 << 16))
            return True
        return self._screen.display[self._screen.cursor.y].rstrip() != PROMPT.rstrip()

    def lines(self) -> list[Text]:
        """What was shown since `clear`, without the empty lines and the prompt at its end."""
        rows = [*self._screen.history.top, *(self._screen.buffer[row] for row in range(ROWS))]
        lines = [line_of(row) for row in rows]
        while lines and lines[-1].plain in ("", PROMPT.rstrip()):
            lines.pop()
        return lines

    def clear(self) -> None:
        """Begin with an empty screen, with the prompt in its first line if it stands there."""
        self._screen.history.top.clear()
        self._screen.erase_in_display(2)
        self._screen.cursor_position()
        self._screen.draw(PROMPT)


def line_of(row: Any) -> Text:
    """A row of a screen of pyte as text of rich."""
    line = Text()
    for column in range(COLUMNS):
        cell = row[column]
        styles = [name for name in ("bold", "reverse") if getattr(cell, name)]
        styles += [color(cell.fg)] if cell.fg != "default" else []
        styles += [f"on {color(cell.bg)}"] if cell.bg != "default" else []
        line.append(cell.data, " ".join(styles))
    line.rstrip()
    return line


def color(name: str) -> str:
    """The name in rich for a color of pyte."""
    name = name.replace("brown", "yellow")
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else re.sub("^bright", "bright_", name)


def shortened(lines: list[Text]) -> list[str]:
    """The lines as text; many lines without their middle."""
    texts = [line.plain for line in lines]
    return texts if len(texts) <= FIRST_LINES + LAST_LINES else [*texts[:FIRST_LINES], "...", *texts[-LAST_LINES:]]


def save_picture(name: str, lines: list[Text]) -> None:
    with Path(os.devnull).open("w") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True, color_system="truecolor")
        for line in lines:
            console.print(line, no_wrap=True, crop=True)
    svg = console.export_svg(title="", code_format=TEMPLATE, unique_id=name)
    (DOCS / "images" / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", svg, flags=re.M), encoding="utf-8")


def play(scene: Scene, terminal: Terminal) -> str:
    """Type the keys of a scene: its part of the page."""
    if any(keys for keys, _ in scene.steps):
        terminal.clear()
    for keys, seconds in scene.steps:
        print(f"{time.strftime('%H:%M:%S')} {keys.strip()}", file=sys.stderr)
        terminal.type(keys)
        terminal.wait(seconds)
    lines = terminal.lines()
    if scene.picture:
        save_picture(scene.picture, lines)
        shown = f"![{scene.sentence or scene.steps[0][0].strip()}](images/{scene.picture}.svg)"
    else:
        shown = "```text\n" + "".join(f"{line}\n" for line in shortened(lines)) + "```"
    if scene.leave:
        terminal.type(scene.leave)
        terminal.wait(None)
    return "\n\n".join(part for part in (f"## {scene.heading}" if scene.heading else "", scene.sentence, shown) if part)


def main(corpus: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "nmt.git").symlink_to(DOCS.parent)
        (home / ".bashrc").write_text(f"PS1='{PROMPT}'\n")
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environment |= {"VIRTUAL_ENV_DISABLE_PROMPT": "1", "PIP_QUIET": "3"}
        terminals = [Terminal(home, environment)]
        parts = []
        introduction = INTRODUCTION.replace("DATE", time.strftime("%Y-%m-%d"))
        for scene in SCENES:
            if scene.terminal == len(terminals):
                terminals.append(Terminal(home / "nmt", environment))
            parts.append(play(scene, terminals[scene.terminal]).replace(folder, "~"))
            if (home / "nmt").exists() and not (home / "nmt" / "text").exists():
                shutil.copytree(corpus, home / "nmt" / "text")
            (DOCS / "recording.md").write_text(introduction + "\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
