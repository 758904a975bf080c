"""A start that fails leaves the disk as it was, and never takes what is not its own."""

import logging
import socket
from pathlib import Path

import pytest

from kalda.broker.process.errors import ProcessError
from kalda.broker.process.lifecycle import SHARED_LOCK_NAME, ProcessDirectory, Termination, run
from kalda.broker.process.ports import WantedPort, ports_of, require_free
from kalda.broker.process.start_log import Announcement
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.settings import BrokerConfig

ANNOUNCEMENT = Announcement("a test", [])


def start(directory: ProcessDirectory, *made: Path, is_ready: bool = False) -> int:
    """Run a process that makes these files and then fails."""

    async def main(termination: Termination) -> int:
        for path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        if is_ready:
            termination.ready("zookeeper=nowhere")
        raise ProcessError("it failed")

    return run(directory, main, announcement=ANNOUNCEMENT)


def files(path: Path) -> list[str]:
    return sorted(each.relative_to(path).as_posix() for each in path.rglob("*"))


def test_directories_that_were_made_are_gone(tmp_path: Path) -> None:
    data, logs = tmp_path / "a" / "b" / "data", tmp_path / "logs"
    directory = ProcessDirectory(data, others=[logs, data / "broker-0"])
    assert 1 == start(directory, data / "zookeeper" / "log.1", logs / "meta.properties")
    assert [] == files(tmp_path)


def test_a_directory_that_was_there_keeps_what_it_had(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    for file in (data / "mine", data / "zookeeper" / "snapshot.0", logs / "notes"):
        file.parent.mkdir(exist_ok=True, parents=True)
        file.touch()
    before = files(tmp_path)
    directory = ProcessDirectory(data, others=[logs])
    assert 1 == start(directory, data / "broker-0" / "meta.properties", logs / "meta.properties")
    assert before == files(tmp_path)


def test_a_broker_that_was_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    directory = ProcessDirectory(tmp_path, SHARED_LOCK_NAME)
    assert 1 == start(directory, tmp_path / "new-0" / "partition.metadata")
    assert ["meta.properties", "new-0", "new-0/partition.metadata"] == files(tmp_path)


def test_records_are_never_taken_back(tmp_path: Path) -> None:
    """A cluster's first broker may have served before the last one failed."""
    log = tmp_path / "data" / "broker-0" / "t-0" / "00000000000000000000.log"
    assert 1 == start(ProcessDirectory(tmp_path / "data"), log, tmp_path / "data" / "zookeeper" / "x")
    assert ["broker-0", "broker-0/t-0", f"broker-0/t-0/{log.name}"] == files(tmp_path / "data")


def test_a_process_that_was_ready_keeps_everything(tmp_path: Path) -> None:
    file = tmp_path / "data" / "zookeeper" / "log.1"
    assert 1 == start(ProcessDirectory(tmp_path / "data"), file, is_ready=True)
    assert file.exists()


def test_the_directory_of_another_process_is_not_touched(tmp_path: Path) -> None:
    held = tmp_path / "data" / "held"
    with ProcessDirectory(tmp_path / "data"):
        held.touch()
        before = files(tmp_path)
        assert 1 == start(ProcessDirectory(tmp_path / "data"))
        assert before == files(tmp_path)


def test_a_log_directory_that_another_process_uses_is_not_touched(tmp_path: Path) -> None:
    """Two brokers that are given one new directory: the one that lost must not remove the other's."""
    logs = tmp_path / "logs"
    directory = ProcessDirectory(tmp_path / "data", others=[logs])
    logs.mkdir()
    lock = OsFileSystem().lock(str(logs / ".lock"))
    assert not isinstance(lock, int)
    assert 1 == start(directory, logs / "meta.properties")
    assert [".lock", "meta.properties"] == files(logs)
    lock.release()


def test_what_cannot_become_a_directory_leaves_no_parents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert 1 == start(ProcessDirectory(tmp_path / "file"))
    assert 1 == start(ProcessDirectory(tmp_path / "file" / "data"))
    assert 1 == start(ProcessDirectory(tmp_path / "new" / ("x" * 300)))
    assert ["file"] == files(tmp_path)
    first, second, third = capsys.readouterr().err.splitlines()
    assert f"kalda: cannot use directory {tmp_path / 'file'}: it is not a directory" == first
    assert f"kalda: cannot use directory {tmp_path / 'file' / 'data'}: Not a directory" == second
    assert "File name too long" in third


def test_a_port_in_use_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_: Termination) -> int:
        raise AssertionError("it must not run")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = [WantedPort("listener X", "127.0.0.1", port)]
        directory = ProcessDirectory(tmp_path / "data")
        assert 1 == run(directory, main, announcement=ANNOUNCEMENT, ports=wanted)
    assert (
        f"kalda: listener X cannot use 127.0.0.1:{port}: Address already in use\n" == capsys.readouterr().err
    )
    assert [] == files(tmp_path)


def test_port_0_is_always_free_and_an_unknown_host_never() -> None:
    require_free([WantedPort("listener X", "127.0.0.1", 0), WantedPort("listener Y", "no such host", 0)])
    with pytest.raises(ProcessError, match="listener Y cannot use no such host:1: "):
        require_free([WantedPort("listener Y", "no such host", 1)])


def test_the_ports_of_a_broker_are_those_of_its_listeners_and_metrics() -> None:
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://h:1", "metrics.port": "2"})
    assert [("h", 1), ("h", 2)] == [(each.host, each.port) for each in ports_of(config)]
    config = BrokerConfig.from_properties({"metrics.host": "127.0.0.1", "metrics.port": "2"})
    assert ("127.0.0.1", 2) == (ports_of(config)[-1].host, ports_of(config)[-1].port)


def test_the_first_line_names_version_directory_and_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        Announcement("kalda start", ["broker.id=3", "x.password=[hidden]"], ["num.io.threads"]).log(tmp_path)
        Announcement("kalda zookeeper", []).log(Path("relative"))
    first, warning, third = caplog.messages
    assert first.startswith("Kalda 0.1.0, kalda start, directory ")
    assert first.endswith(
        f"{tmp_path}; settings that differ from the defaults: broker.id=3, x.password=[hidden]"
    )
    assert "these settings have no effect in Kalda and are ignored: num.io.threads" == warning
    assert third.endswith(f"{Path.cwd() / 'relative'}; all settings have their defaults")
