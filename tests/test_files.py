"""A file is written whole, keeps its mode, and what is not a regular file is refused by name."""

import os
import stat
import threading

import pytest

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import atomic_write, check_writable, quote, remove_leftovers


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_keeps_its_mode_and_a_new_one_has_what_the_umask_allows(tmp_path):
    private, shared, new = (tmp_path / f"{name}.csv" for name in ("private", "shared", "new"))
    for path, mode in ((private, 0o600), (shared, 0o664)):
        path.write_bytes(b"old")
        path.chmod(mode)
    mask = os.umask(0o027)
    try:
        for path in (private, shared, new):
            atomic_write(path, b"data")
    finally:
        os.umask(mask)
    assert [mode_of(path) for path in (private, shared, new)] == [0o600, 0o664, 0o640]
    assert private.read_bytes() == new.read_bytes() == b"data"
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "private.csv", "shared.csv"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "there" / "file.csv"
    link.symlink_to(target)
    for data in (b"first", b"second"):
        atomic_write(link, data)
        assert link.is_symlink()
        assert target.read_bytes() == data
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with pytest.raises(FileNotWritten, match="is a link that leads back to itself"):
        atomic_write(loop, b"")


def test_what_is_not_a_regular_file_is_refused(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    link = tmp_path / "link.csv"
    link.symlink_to("/dev/null")
    for path, said in ((pipe, "it is a pipe"), (link, "it is a device")):
        with pytest.raises(FileNotWritten, match=rf"is not a regular file \({said}\)"):
            check_writable(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_remedy_is_quoted_for_the_shell(tmp_path):
    with pytest.raises(FileNotWritten) as refusal:
        check_writable(tmp_path / "my data; rm -r x" / "file.csv")
    assert refusal.value.remedy == f"mkdir -p '{tmp_path}/my data; rm -r x'"
    assert quote("it's") == """'it'"'"'s'"""


def test_file_and_folder_are_synced(tmp_path, monkeypatch):
    synced, plain = [], os.fsync

    def see(number):
        synced.append(stat.S_IFMT(os.fstat(number).st_mode))
        plain(number)

    monkeypatch.setattr("ffnprobe.files.os.fsync", see)
    atomic_write(tmp_path / "file.csv", b"data")
    assert synced == [stat.S_IFREG, stat.S_IFDIR]


def test_writers_of_one_name_do_not_meet(tmp_path):
    path, names = tmp_path / "file.csv", set()
    plain = os.replace

    def write(number):
        for _ in range(50):
            atomic_write(path, bytes([number]) * 1000)

    def see(source, target):
        names.add(os.fspath(source))
        plain(source, target)

    os.replace = see
    try:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.replace = plain
    assert len(names) == 200
    assert all(f".ffnprobe.{os.getpid()}." in name for name in names)
    assert len(set(path.read_bytes())) == 1
    assert os.listdir(tmp_path) == ["file.csv"]


def test_what_a_killed_process_left_is_swept(tmp_path):
    for name in (".ffnprobe.1.ab", "file.csv", ".hidden"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "file.csv"]
