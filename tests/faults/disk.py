"""A small ext4 file system in a file, which can lose its power: what was not written to the device is gone. Needs root."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SIZE_MB: Final = 32


class Disk:
    """A file system mounted at a folder. image: the file that holds it, next to a second one"""

    def __init__(self, folder: Path) -> None:
        self.folder, self.image = folder, folder.with_suffix(".image")
        with self.image.open("wb") as file:
            file.truncate(SIZE_MB << 20)
        _run("mkfs.ext4", "-q", "-F", self.image)
        folder.mkdir(exist_ok=True)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", self.image, self.folder)

    def sync(self) -> None:
        """Write everything to the device."""
        _run("sync", "--file-system", self.folder)

    def lose_power(self) -> None:
        """Mount what the device holds, without what the system still had to write to it."""
        found = self.image.with_suffix(".found")
        _run("cp", "--sparse=always", self.image, found)
        self.unmount()
        found.rename(self.image)
        self._mount()

    def unmount(self) -> None:
        _run("umount", self.folder)


def can_mount(folder: Path) -> bool:
    """Whether a disk can be made below a folder."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    try:
        Disk(folder / "probe").unmount()
        return True
    except subprocess.CalledProcessError:
        return False


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
