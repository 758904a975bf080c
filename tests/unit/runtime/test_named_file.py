"""A file that a user names is read whatever it is, but neither without end nor for ever."""

import os
import socket
import threading
from pathlib import Path

import pytest

from kalda.common.properties import read_properties
from kalda.runtime.system import named_file
from kalda.runtime.system.named_file import BYTES_MAX, read_named_file


def test_files_and_links_to_them(tmp_path: Path) -> None:
    """Kubernetes mounts secrets as links."""
    (tmp_path / "file").write_bytes(b"a=1")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "empty").touch()
    for name, content in (("file", b"a=1"), ("link", b"a=1"), ("empty", b"")):
        assert content == read_named_file(str(tmp_path / name))
    assert {"a": "1"} == read_properties(tmp_path / "link")
    assert b"" == read_named_file(os.devnull)


def test_a_pipe_of_a_shell(tmp_path: Path) -> None:
    """``--command-config <(vault read …)`` names one; its writer may end before the file is opened."""
    content = b"password=secret\n" * 10_000
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, content)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    assert content == read_named_file(f"/dev/fd/{reading}")
    writer.join()
    os.close(reading)
    reading, writing = os.pipe()
    os.write(writing, b"a=1")
    os.close(writing)
    assert b"a=1" == read_named_file(f"/dev/fd/{reading}")
    os.close(reading)


def test_a_pipe_without_a_writer_is_refused(tmp_path: Path) -> None:
    """A command waited for it for ever, and so did a broker whose settings named it."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TimeoutError, match=r"nothing came in time.*fifo"):
        read_named_file(str(tmp_path / "fifo"), wait_seconds=0)


def test_a_pipe_that_does_not_end_is_refused(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a=1")
    with pytest.raises(TimeoutError, match="nothing came in time"):
        read_named_file(f"/dev/fd/{reading}", wait_seconds=0)
    os.close(writing)
    os.close(reading)


def test_what_has_no_end_is_refused(tmp_path: Path) -> None:
    """Reading it filled the memory."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    for path in (tmp_path / "large", Path("/dev/zero")):
        with pytest.raises(OSError, match=f"Has more than {BYTES_MAX} bytes"):
            read_named_file(str(path))


def test_sockets_and_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("socket", "."):
            with pytest.raises(OSError, match=r"No such device|Is a directory"):
                named_file.read_named_file(path)
