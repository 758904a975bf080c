"""`kalda start` as a program sees it: the ready line, exit codes, one line for what an operator can mend."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import kalda
from kalda.testing import KaldaProcess

COMMAND = (sys.executable, "-m", "kalda.cli")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; for what does not start."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def refused(*arguments: str) -> str:
    """Run a command that must fail, and return its one line without log lines."""
    done = run(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "" == done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kalda: ")]
    return line


def test_stdout_is_exactly_the_ready_line_and_a_signal_ends_it_with_0(tmp_path: Path) -> None:
    """Programs wait for this line, so nothing may come before it and nothing after."""
    process = subprocess.Popen(
        [*COMMAND, "start", "--dir", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert str(process.pid) == (tmp_path / "pid").read_text().strip()
        word, ready, bootstrap, zookeeper = line.split()
        assert ("kalda", "ready") == (word, ready)
        for name, address in (("bootstrap=", bootstrap), ("zookeeper=", zookeeper)):
            host, _, port = address.removeprefix(name).rpartition(":")
            socket.create_connection((host, int(port))).close()
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    assert (0, "") == (process.returncode, rest)
    assert not (tmp_path / "pid").exists()
    assert (tmp_path / "broker-0" / ".kafka_cleanshutdown").exists()


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path) as first:
        line = refused("start", "--dir", str(tmp_path), "--port", "0")
        assert f"process {first.pid}" in line


def test_a_killed_process_leaves_nothing_that_hinders_a_start(tmp_path: Path) -> None:
    process = KaldaProcess(tmp_path)
    process.start()
    process.kill()
    process.start()
    process.stop()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("start", "--dir", str(tmp_path), "--port", str(port))
        assert f"127.0.0.1:{port}: Address already in use" in line


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"cannot use directory {tmp_path / 'file'}" in refused("start", "--dir", str(tmp_path / "file"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert str(tmp_path) in refused("start", "--dir", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--set", "num.partitions=zero"], "`num.partitions`=zero"),
        (["--set", "no.such.setting=1"], "`no.such.setting`"),
        (["--set", "num.partitions"], "num.partitions"),
        (["--brokers", "3", "--set", "listeners=PLAINTEXT://:9092"], "`listeners`"),
        (["--brokers", "3", "--port", "65534"], "--brokers=3"),
        (["--config", "/nonexistent/server.properties"], "/nonexistent/server.properties"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_is_made(
    tmp_path: Path, arguments: list[str], part: str
) -> None:
    assert part in refused("start", "--dir", str(tmp_path / "data"), *arguments)
    assert not (tmp_path / "data").exists()


def test_set_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1\nnum.partitions=7\n")
    command = [*COMMAND, "start", "--dir", str(tmp_path / "data"), "--config", str(file)]
    with subprocess.Popen(
        [*command, "--set", "listeners=PLAINTEXT://localhost:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("kalda ready bootstrap=localhost:")
        process.terminate()
    assert 0 == process.returncode


def test_a_zoo_cfg_says_where_the_coordination_server_is(tmp_path: Path) -> None:
    """dataDir and clientPort, unless the command line says otherwise."""
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path / 'data'}\nclientPort=0\ntickTime=2000\n")
    with subprocess.Popen(
        [*COMMAND, "zookeeper", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("kalda ready zookeeper=127.0.0.1:")
        assert f"{process.pid}\n" == (tmp_path / "data" / "pid").read_text()
        process.terminate()
    assert 0 == process.returncode
    assert "`tickTime`=0" in refused("zookeeper", "--dir", str(tmp_path), "--set", "tickTime=0")


def test_the_version_is_told() -> None:
    assert f"kalda {kalda.__version__}\n" == run("--version").stdout
