"""How `kalda doctor` looks at the machine that it runs on."""

import os
import threading
from pathlib import Path

import pytest

from kalda.tools.doctor import read_machine as module
from kalda.tools.doctor.read_machine import _mount, _text, read_machine

MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:5 / /data rw,noatime shared:2 - xfs /dev/sdb1 rw
31 30 0:6 / /data/with\\040blank rw shared:3 - tmpfs tmpfs rw
32 30 0:7 / /data rw,noatime shared:4 - nfs4 server:/x rw
malformed
"""


def test_the_mount_of_a_directory_is_the_nearest_one_above_it() -> None:
    """Of two mounts at one point the later one is in force."""
    assert ("ext4", frozenset({"rw", "relatime"})) == _mount(Path("/database"), MOUNTS)
    assert "nfs4" == _mount(Path("/data/broker-0"), MOUNTS)[0]
    assert "tmpfs" == _mount(Path("/data/with blank/x"), MOUNTS)[0]
    assert (None, frozenset()) == _mount(Path("/x"), "")


def test_a_directory_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "other").mkdir()
    missing = tmp_path / "missing"
    machine = read_machine([tmp_path, missing], None, {"max.connections": "100"})

    here, absent = machine.directories
    assert here.problem is None
    assert here.fsync_count > 0
    assert here.fsync_median_ms is not None
    assert ["orders-0", "other"] == sorted(each.name for each in tmp_path.iterdir())
    assert absent.problem is not None
    assert 1 == machine.partitions
    assert 100 == machine.connections_max


def test_a_volume_that_hangs_does_not_hang_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS server may die between two looks at the same directory, or with the keystore on it."""
    released = threading.Event()
    listdir, stat = os.listdir, os.stat

    def hang(path: object, *arguments: object, **options: object) -> None:
        if threading.current_thread() is threading.main_thread():
            pytest.fail(f"{path} is looked at outside the time limit")
        released.wait()
        raise OSError("released")

    monkeypatch.setattr(module, "_SECONDS", 0.05)
    keystore = tmp_path / "keystore.pem"
    monkeypatch.setattr(os, "listdir", lambda path: hang(path) if path == tmp_path else listdir(path))
    monkeypatch.setattr(
        os,
        "stat",
        lambda path, **options: hang(path) if str(path) == str(keystore) else stat(path, **options),
    )
    try:
        machine = read_machine([tmp_path], None, {"ssl.keystore.location": str(keystore)})
    finally:
        released.set()
    problems = [each.problem for each in machine.directories] + [
        each.problem for each in machine.secret_files
    ]
    assert ["no answer within 0 seconds"] * 2 == problems


def test_text_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    """A mount point may have any bytes in its name."""
    file = tmp_path / "mountinfo"
    file.write_bytes(b"/\xff")
    assert "/\udcff" == _text(file)
    assert _text(tmp_path / "absent") is None


def test_a_name_with_a_null_byte_is_no_directory() -> None:
    (facts,) = read_machine([Path("/data\0")], None, {"ssl.keystore.location": "\0"}).directories
    assert "embedded null byte" == facts.problem


def test_files_with_secrets_are_those_that_the_settings_name(tmp_path: Path) -> None:
    key, config = tmp_path / "key.pem", tmp_path / "server.properties"
    key.write_text("key")
    key.chmod(0o644)
    config.write_text("ssl.key.password=x")
    config.chmod(0o600)
    properties = {"listener.name.a.ssl.keystore.location": str(key), "ssl.key.password": "x"}
    found = {each.path: each for each in read_machine([], config, properties).secret_files}

    assert {str(key): 0o644, str(config): 0o600} == {path: each.mode for path, each in found.items()}
    assert "passwords" == found[str(config)].what
