"""Files and folders appear whole or not at all, and are checked before they are believed (contract: "Files and folders")."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import small_disk
from forks import forked_nmt

from nmt import artefact
from nmt.artefact import Artefact, check_output, new_folder, remove_artefact, remove_leftovers
from nmt.errors import ArtefactError, LockedError, ResourceError, UserError
from nmt.files import check_output_file, new_file, write_file, write_output
from nmt.locks import Lock, holder_of
from nmt.runs import Checkpoints


def make(folder: Path, text: str = "words") -> Artefact:
    with new_folder(folder, "model", {"note": 1}) as temporary:
        (temporary / "sub").mkdir()
        write_file(temporary / "sub" / "a.txt", text.encode())
    return Artefact(folder, "model")


def test_an_artefact_holds_what_was_written_and_nothing_else(tmp_path):
    artefact = make(tmp_path / "m")
    assert artefact.path("sub/a.txt").read_text() == "words"
    assert artefact.manifest["note"] == 1
    assert sorted(os.listdir(tmp_path)) == ["m"]
    assert sorted(os.listdir(tmp_path / "m")) == ["manifest.json", "sub"]


def test_a_flipped_byte_is_found_even_with_unchanged_size(tmp_path):
    artefact = make(tmp_path / "m")
    (tmp_path / "m/sub/a.txt").write_text("wordz")
    with pytest.raises(ArtefactError, match="damaged"):
        artefact.path("sub/a.txt")


def test_a_rank_does_not_hash_the_files_that_its_launcher_has_checked(tmp_path, monkeypatch):
    checked = make(tmp_path / "m")
    monkeypatch.setenv("NMT_CHECKED", checked.digest)
    (tmp_path / "m/sub/a.txt").write_text("wordz")
    assert Artefact(tmp_path / "m", "model").path("sub/a.txt")
    monkeypatch.setenv("NMT_CHECKED", "that of another artefact")
    with pytest.raises(ArtefactError, match="damaged"):
        Artefact(tmp_path / "m", "model").path("sub/a.txt")


def test_a_file_of_another_size_or_a_missing_one_is_found_on_opening(tmp_path):
    make(tmp_path / "m")
    (tmp_path / "m/sub/a.txt").write_text("wor")
    with pytest.raises(ArtefactError, match="3 bytes instead of 5"):
        Artefact(tmp_path / "m", "model")
    (tmp_path / "m/sub/a.txt").unlink()
    with pytest.raises(ArtefactError, match="missing"):
        Artefact(tmp_path / "m", "model")


def test_a_folder_without_a_manifest_is_treated_as_missing(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(ArtefactError, match=r"no manifest\.json found; expected a model folder"):
        Artefact(tmp_path / "m", "model")


@pytest.mark.parametrize(
    "name", ["./sub/a.txt", "sub//a.txt", "sub/./a.txt", "sub/a.txt/", "sub/../sub/a.txt", ".", ""]
)
def test_a_manifest_that_lists_a_file_under_another_spelling_is_refused(name, tmp_path):
    make(tmp_path / "m")
    manifest = json.loads((tmp_path / "m/manifest.json").read_bytes())
    manifest["files"][name] = manifest["files"]["sub/a.txt"]
    (tmp_path / "m/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match=r"manifest\.json is damaged"):
        Artefact(tmp_path / "m", "model")


@pytest.mark.parametrize("key", ["sub/a.txt", "kind", "size"])
def test_a_manifest_with_a_key_twice_is_refused(key, tmp_path):
    make(tmp_path / "m")
    content = (tmp_path / "m/manifest.json").read_text()
    [line] = [line for line in content.split("\n") if line.strip().startswith(f'"{key}"')]
    again = '"sub/a.txt": {"size": 5, "sha256": "0"},' if line.endswith("{") else f"{line.rstrip(',')},"
    (tmp_path / "m/manifest.json").write_text(content.replace(line, f"{again}\n{line}"))
    with pytest.raises(ArtefactError, match=r"manifest\.json: not valid JSON: .* twice"):
        Artefact(tmp_path / "m", "model")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a" * 300])
def test_a_manifest_that_names_outside_or_impossible_files_is_refused(tmp_path, name):
    make(tmp_path / "m")
    manifest = json.loads((tmp_path / "m/manifest.json").read_bytes())
    manifest["files"] = {name: {"size": 1, "sha256": "0"}}
    (tmp_path / "m/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError):
        Artefact(tmp_path / "m", "model")


@pytest.mark.parametrize("name", ["sub/a.txt", "sub", "manifest.json"])
def test_a_link_in_place_of_a_file_or_an_inner_folder_is_refused(tmp_path, name):
    make(tmp_path / "m")
    (tmp_path / "m" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "m" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match=f"m/{name} is a symbolic link"):
        Artefact(tmp_path / "m", "model")


def test_the_wrong_kind_and_a_newer_format_are_refused(tmp_path):
    make(tmp_path / "m")
    with pytest.raises(ArtefactError, match=r"expected a data folder"):
        Artefact(tmp_path / "m", "prepared-data")
    manifest = json.loads((tmp_path / "m/manifest.json").read_bytes())
    (tmp_path / "m/manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ArtefactError, match="format 99"):
        Artefact(tmp_path / "m", "model")


def test_an_error_while_filling_leaves_the_old_folder_and_no_trace_of_the_new(tmp_path):
    make(tmp_path / "m", "old")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "m", "model", {}) as temporary:
        (temporary / "half").write_text("half")
        raise RuntimeError
    assert Artefact(tmp_path / "m", "model").path("sub/a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["m"]


KILLED = """
import sys, time
from pathlib import Path
from nmt.artefact import new_folder
with new_folder(Path(sys.argv[1]), "model", {}) as temporary:
    (temporary / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_no_output_and_its_leftovers_are_swept(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "m")], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    with pytest.raises(LockedError):  # while it lives nobody else may fill the same folder
        make(tmp_path / "m")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert not (tmp_path / "m").exists()
    make(tmp_path / "m")
    (tmp_path / ".x.partial").mkdir()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["m"]


LOCKER = """
import sys, time
from pathlib import Path
from nmt.locks import Lock
lock = Lock(Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(60)
"""


def test_a_taken_over_lock_stays_with_its_holder_and_an_orphaned_lock_is_ignored(tmp_path):
    first = Lock(tmp_path / "new")
    (tmp_path / "new/.lock").unlink()
    second = Lock(tmp_path / "new")
    first.close()
    assert (tmp_path / "new/.lock").exists()
    second.close()
    third = Lock(tmp_path / "other")
    third.close()
    assert not (tmp_path / "other").exists()


def test_a_writer_that_fails_keeps_its_lock_until_its_files_are_gone(tmp_path, monkeypatch):
    look, found = (
        "import sys; from pathlib import Path; from nmt.locks import holder_of; print(holder_of(Path(sys.argv[1])))",
        [],
    )
    empty = artefact._empty

    def seen(folder):
        done = subprocess.run([sys.executable, "-c", look, folder / ".lock"], capture_output=True, text=True)
        found.append((done.stdout.strip(), [path.name for path in folder.iterdir()]))
        empty(folder)

    monkeypatch.setattr(artefact, "_empty", seen)
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out", "data", {}) as folder:
        (folder / "large").write_text("text")
        raise ZeroDivisionError
    assert str(os.getpid()) in found[-1][0] and "large" in found[-1][1]
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_not_taken_for_a_folder_in_use(tmp_path, monkeypatch):
    def without_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "held").write_text("host pid 1")
    monkeypatch.setattr("fcntl.lockf", without_locks)
    assert holder_of(tmp_path / "held") is None
    with pytest.raises(ResourceError, match="No locks available"):
        Lock(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", LOCKER, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(LockedError, match=f"pid {holder.pid}"):
        Lock(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    Lock(tmp_path).close()


def test_a_full_disk_is_reported_with_path_and_bytes_and_leaves_nothing(tmp_path):
    with small_disk(tmp_path, 1 << 20):
        make(tmp_path / "m", "old")
        with pytest.raises(ResourceError, match=r"free; make space"):
            make(tmp_path / "m", "x" * 2_000_000)
        assert Artefact(tmp_path / "m", "model").path("sub/a.txt").read_text() == "old"
        assert os.listdir(tmp_path) == ["m"]


def test_removing_never_follows_a_link(tmp_path):
    make(tmp_path / "m")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    remove_artefact(tmp_path / "link")
    assert os.listdir(tmp_path) == ["m"]
    with pytest.raises(NotADirectoryError):
        remove_artefact(tmp_path / "m/manifest.json")
    assert (tmp_path / "m/manifest.json").exists()


def test_an_output_folder_with_a_strangers_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="did not write"):
        check_output(tmp_path, "model", overwrite=True)
    make(tmp_path / "m")
    with pytest.raises(UserError, match="already exists"):
        check_output(tmp_path / "m", "model", overwrite=False)
    check_output(tmp_path / "m", "model", overwrite=True)
    with pytest.raises(UserError, match="is a model folder"):
        check_output(tmp_path / "m", "prepared-data", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("existed", [False, True])
def test_only_overwrite_replaces_a_folder_that_another_command_has_finished_in_the_meantime(
    existed, overwrite, tmp_path
):
    make(tmp_path / "other", "of the other")
    if existed:
        (tmp_path / "m").mkdir()
    check_output(tmp_path / "m", "model", overwrite)
    shutil.copytree(tmp_path / "other", tmp_path / "m", dirs_exist_ok=True)
    if overwrite:
        make(tmp_path / "m", "own")
    else:
        with pytest.raises(UserError, match="already exists"):
            make(tmp_path / "m", "own")
    content = Artefact(tmp_path / "m", "model").path("sub/a.txt").read_text()
    assert content == ("own" if overwrite else "of the other")
    assert sorted(os.listdir(tmp_path)) == ["m", "other"] and not (tmp_path / "m/.lock").exists()


OUTPUTS = {
    "prepare": ["prepare", "CORPUS", "--source-lang=en", "--target-lang=de", "--subword=none"],
    "average": ["average", "RUN", "--last=2"],
    "export to int8": ["export", "RUN", "--format=int8"],
    "export to CTranslate2": ["export", "RUN", "--format=ctranslate2"],
    "recipes": ["recipes", "toy"],
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_of_two_commands_that_write_one_new_folder_at_once_one_fails(command, data, trained, tmp_path):
    given = {"RUN": str(trained), "CORPUS": str(data.parent / "train")}
    words = [forked_nmt(), *(given.get(word, word) for word in OUTPUTS[command]), f"--output={tmp_path / 'new'}"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(words, **pipes) for _ in range(2)]
    told = [process.communicate(timeout=120) for process in both]
    first, second = sorted(process.returncode for process in both)
    assert first == 0 and second in (2, 6), told
    [kind] = {json.loads((tmp_path / "new/manifest.json").read_bytes())["kind"]}
    Artefact(tmp_path / "new", kind).check()
    assert os.listdir(tmp_path) == ["new"]


def test_overwriting_and_removing_leave_a_users_own_files_and_name_them(tmp_path, capsys):
    make(tmp_path / "m", "old")
    (tmp_path / "m/sub/notes.txt").write_text("precious")
    (tmp_path / "m/extra.txt").write_text("own")
    (tmp_path / "m/link").symlink_to("/etc/passwd")
    with new_folder(tmp_path / "m", "model", {}) as temporary:
        write_file(temporary / "extra.txt", b"new")
    assert Artefact(tmp_path / "m", "model").path("extra.txt").read_text() == "new"
    assert (tmp_path / "m/extra.txt~").read_text() == "own"
    assert (tmp_path / "m/sub/notes.txt").read_text() == "precious" and (tmp_path / "m/link").is_symlink()
    told = capsys.readouterr().err
    assert all(name in told for name in ("extra.txt", "sub/notes.txt", "link")) and "did not write were kept: " in told
    remove_artefact(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["extra.txt~", "link", "sub"] and os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("moment", ["before the rename", "after it", "while it is removed"])
def test_an_interrupted_replacement_is_finished_later_without_loss(tmp_path, moment):
    make(tmp_path / "m", "old")
    (tmp_path / "m/notes.txt").write_text("precious")
    (tmp_path / "m").rename(tmp_path / ".m.replaced.partial")
    if moment != "before the rename":
        make(tmp_path / "n", "new")
        (tmp_path / "n").rename(tmp_path / "m")
    if moment == "while it is removed":
        (tmp_path / ".m.replaced.partial/sub/a.txt").unlink()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["m"] and (tmp_path / "m/notes.txt").read_text() == "precious"
    text = "old" if moment == "before the rename" else "new"
    assert Artefact(tmp_path / "m", "model").path("sub/a.txt").read_text() == text


def test_a_path_that_cannot_be_removed_causes_a_warning(tmp_path, capsys, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    for update in (1, 2):
        with new_folder(checkpoints.path(update), "checkpoint", {}) as temporary:
            write_file(temporary / "a.txt", b"")

    def refuse(path, target):
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        checkpoints.prune(1, 0)
    assert "checkpoints/update-1 cannot be removed: Operation not permitted" in capsys.readouterr().err
    assert len(checkpoints.all()) == 2


WRITER = """
import sys, time
from pathlib import Path
from nmt.files import new_file
with new_file(Path(sys.argv[1])) as file:
    for i in range(1000):
        file.write(sys.argv[2].encode() * 100)
        file.flush()
    print("written", flush=True)
    sys.stdin.readline()
"""


def test_the_last_of_two_writers_wins_completely_and_a_killed_one_is_swept(tmp_path):
    def start(letter):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "out"), letter]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"written\n"
        return writer

    writers = [start(letter) for letter in "abc"]
    assert len(os.listdir(tmp_path)) == 3  # three names
    writers[2].kill()
    writers[2].communicate()
    for writer, letter in zip(writers, "ab", strict=False):
        writer.communicate(b"\n")
        assert writer.returncode == 0 and (tmp_path / "out").read_text() == letter * 100_000
    write_file(tmp_path / "out", b"last")
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_under_a_temporary_name_is_never_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "a.txt").write_text("words")
    for name in (".m.partial", ".n.partial"):
        (tmp_path / name).symlink_to(precious)
    with pytest.raises(ResourceError, match="is a symbolic link"):
        make(tmp_path / "m")
    (tmp_path / ".out.1-0.partial").symlink_to(precious / "a.txt")
    write_file(tmp_path / "out", b"new")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked/.lock").symlink_to(precious / "a.txt")
    with pytest.raises(ResourceError, match=r"locked/\.lock cannot be written"):
        Lock(tmp_path / "locked")
    remove_leftovers(tmp_path)
    assert os.listdir(precious) == ["a.txt"] and (precious / "a.txt").read_text() == "words"
    assert sorted(os.listdir(tmp_path)) == ["locked", "out", "precious"]


def test_an_output_replaces_the_target_of_a_link_and_keeps_its_permissions(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o602)
    (tmp_path / "link").symlink_to("real")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    (tmp_path / "nowhere").symlink_to("made")
    write_output(tmp_path / "nowhere", b"new")
    assert (tmp_path / "made").read_text() == "new" and sorted(os.listdir(tmp_path)) == [
        "link",
        "made",
        "nowhere",
        "real",
    ]
    with pytest.raises(OSError, match="No space left") as failed:
        write_output(Path("/dev/full"), b"new")
    assert failed.value.filename == "/dev/full" and Path("/dev/full").is_char_device()


def test_an_output_is_checked_at_the_target_of_its_link(tmp_path):
    (tmp_path / "link").symlink_to("missing/file")
    with pytest.raises(ResourceError, match="missing cannot be written"):
        check_output_file(tmp_path / "link")
    (tmp_path / "loop").symlink_to("loop")
    check_output_file(tmp_path / "loop")
    write_output(tmp_path / "loop", b"new")
    assert (tmp_path / "loop").read_text() == "new"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_output_to_stdout_is_appended_to_a_file_opened_by_the_shell(tmp_path, name):
    (tmp_path / "out").write_text("old\n")
    program = f"from pathlib import Path; from nmt.files import write_output; write_output(Path({name!r}), b'new')"
    with (tmp_path / "out").open("a") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "old\nnew"
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout == b"new"
    assert Path("/dev/stdout").is_symlink()


def test_a_folder_keeps_its_permissions_and_is_private_while_it_is_filled(tmp_path):
    (tmp_path / "m").mkdir(mode=0o700)
    with new_folder(tmp_path / "m", "model", {}) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o700
    (tmp_path / "m").chmod(0o550)
    make(tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o750


HOLDER = """
import sys
from pathlib import Path
from nmt.locks import Lock
lock = Lock(Path(sys.argv[1]))
print(flush=True)
input()
"""


def test_a_folder_in_which_a_run_has_since_started_is_not_replaced(tmp_path):
    with pytest.raises(LockedError, match="m is in use by "), new_folder(tmp_path / "m", "model", {}) as temporary:
        (temporary / "a.txt").touch()
        (tmp_path / "m").mkdir()
        (tmp_path / "m/metrics.jsonl").touch()
        run = subprocess.Popen(
            [sys.executable, "-c", HOLDER, tmp_path / "m"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert run.stdout.readline()
    run.communicate(b"\n")
    assert sorted(os.listdir(tmp_path / "m")) == [".lock", "metrics.jsonl"] and os.listdir(tmp_path) == ["m"]
    with pytest.raises(UserError, match="n contains a run"), new_folder(tmp_path / "n", "model", {}):
        (tmp_path / "n").mkdir()
        (tmp_path / "n/metrics.jsonl").touch()
    assert os.listdir(tmp_path / "n") == ["metrics.jsonl"]


def test_a_mount_point_and_the_working_directory_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is the working directory"):
        check_output(Path(), "model", overwrite=False)
    with pytest.raises(UserError, match="/proc is a mount point"):
        check_output(Path("/proc"), "model", overwrite=False)


def test_leftovers_in_use_are_kept(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "m")], stdout=subprocess.PIPE)
    writer.stdout.readline()
    remove_leftovers(tmp_path)
    assert (tmp_path / ".m.partial/half").exists()
    writer.kill()
    writer.communicate()


def failure(code, name=None):
    return OSError(code, os.strerror(code), name)


@pytest.mark.parametrize("kind", [str, Path])
def test_an_input_error_is_not_reported_for_the_output(tmp_path, kind):
    source = kind(tmp_path / "dev.en")
    with pytest.raises(OSError, match=r"dev\.en") as told, new_file(tmp_path / "out.txt"):
        raise failure(errno.ESTALE, source)
    assert told.value.filename == source
    with pytest.raises(OSError, match=r"dev\.en") as told, new_folder(tmp_path / "m", "model", {}):
        raise failure(errno.ESTALE, source)
    assert told.value.filename == source
    with pytest.raises(ResourceError, match=r"out\.txt cannot be written"), new_file(tmp_path / "out.txt"):
        raise failure(errno.EIO)
    with pytest.raises(ResourceError, match="/m cannot be written"), new_folder(tmp_path / "m", "model", {}) as folder:
        raise failure(errno.EIO, str(folder / "model.safetensors"))
    assert not list(tmp_path.iterdir())


def test_an_error_while_renaming_a_folder_is_a_failed_write(tmp_path, monkeypatch):
    def put(temporary, final):
        raise failure(errno.EMFILE, str(final.parent))

    monkeypatch.setattr(artefact, "_put_in_place", put)
    with pytest.raises(ResourceError, match="/m cannot be written"), new_folder(tmp_path / "m", "model", {}):
        pass


def test_a_temporary_that_cannot_be_inspected_is_removed(tmp_path, monkeypatch):
    class Failing:  # the module, but for one function
        def __getattr__(self, name):
            return getattr(os, name)

        def fstat(self, handle):
            raise failure(errno.EIO)

    monkeypatch.setattr("nmt.files.os", Failing())
    with pytest.raises(ResourceError, match=r"out\.txt cannot be written"):
        write_file(tmp_path / "out.txt", b"text")
    assert not list(tmp_path.iterdir())


class _ClosesWithAnError:
    """A file whose `close` closes it and raises EIO."""

    def __init__(self, file):
        self.file, self.closed = file, False

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()
        self.closed = True
        raise failure(errno.EIO)


def test_an_error_while_closing_a_lock_does_not_fail_the_command(tmp_path):
    with Lock(tmp_path / "m") as lock:
        lock._file = _ClosesWithAnError(lock._file)
    with Lock(tmp_path / "m"):
        pass
