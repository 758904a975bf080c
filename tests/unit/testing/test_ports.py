"""Ports that tests give to servers: no process of the user gets one that another was given just before."""

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess, ports
from kalda.testing.ports import free_ports, free_ports_in_a_row


@pytest.fixture(autouse=True)
def shared_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the port given last, in a directory of the test's own."""
    monkeypatch.setattr(ports, "_DIRECTORY", tmp_path)
    return tmp_path / f"kalda-testing-ports-{os.getuid()}"


def test_no_process_gets_what_another_one_was_given(tmp_path: Path) -> None:
    program = """
import pathlib, sys
from kalda.testing import ports

ports._DIRECTORY = pathlib.Path(sys.argv[1])
print(*ports.free_ports(40))
"""
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    given = free_ports(40)
    for process in processes:
        output, _ = process.communicate()
        given += [int(port) for port in output.split()]
    assert 160 == len(set(given))


def test_ports_come_around_and_those_in_use_are_left_out(
    shared_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = free_ports_in_a_row(4)
    monkeypatch.setattr(ports, "_FIRST_PORT", first)
    monkeypatch.setattr(ports, "_LAST_PORT", first + 4)
    shared_file.write_text(f"{first + 2}")
    monkeypatch.setattr(ports, "_is_free", lambda port: port != first + 1)
    assert [first + 3, first, first + 2] == free_ports(3)
    assert first + 2 == free_ports_in_a_row(2)
    with pytest.raises(OSError, match="is free"):
        free_ports_in_a_row(3)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff\xfe", b"99999999999999999", b"-1"])
def test_any_content_of_the_file_is_taken(shared_file: Path, content: bytes) -> None:
    shared_file.write_bytes(content)
    one, other = free_ports(2)
    assert 15_000 <= one < 32_000
    assert one != other


def test_another_users_link_is_not_followed(shared_file: Path, tmp_path: Path) -> None:
    (tmp_path / "decoy").write_bytes(b"kept")
    shared_file.symlink_to(tmp_path / "decoy")
    with pytest.raises(OSError, match="symbolic links"):
        free_ports(1)
    assert b"kept" == (tmp_path / "decoy").read_bytes()


def test_port_that_a_server_listens_on_is_not_free() -> None:
    (port,) = free_ports(1)
    with closing(socket.create_server(("127.0.0.1", port))):
        assert not ports._is_free(port)
    assert ports._is_free(port)


def test_a_process_that_is_killed_finds_its_port_again(tmp_path: Path) -> None:
    """The system gives ports from 32768 on to connections, such as those of clients in search of brokers."""
    arguments = KaldaProcess(tmp_path / "data").arguments()
    assert 15_000 <= int(arguments[arguments.index("--port") + 1]) < 32_000
