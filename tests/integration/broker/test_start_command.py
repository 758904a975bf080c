"""`kalda start` as a program sees it: the ready line, exit codes, one line for what an operator can mend."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import kalda
from kalda.cli import app
from kalda.protocol.fast import implementation as of_requests
from kalda.records import implementation as of_records
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports_in_a_row
from tests import forked_commands

COMMAND = (sys.executable, "-m", "kalda")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; for what does not start."""
    return forked_commands.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


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
        line = refused("start", "--dir", str(tmp_path / "data"), "--port", str(port))
        assert f"127.0.0.1:{port}: Address already in use" in line
        line = refused("start", "--dir", str(tmp_path / "data"), "--port", "0", "--zookeeper-port", str(port))
        assert f"127.0.0.1:{port}: Address already in use" in line
        line = refused("start", "--dir", str(tmp_path / "data"), "--port", str(port), "--brokers", "2")
        assert f"127.0.0.1:{port}: Address already in use" in line
    assert not (tmp_path / "data").exists()


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
        (["--brokers", "3", "--set", "log.dirs=/a"], "`log.dirs`"),
        (["--brokers", "3", "--port", "65534"], "--brokers=3"),
        (["--port", "9093", "--set", "listeners=PLAINTEXT://127.0.0.1:9092"], "--port=9093 and `listeners`"),
        (["--set", "ssl.engine.factory.class=X"], "`ssl.engine.factory.class`=X needs the JVM's TLS"),
        (["--set", "process.roles=broker,controller"], "KRaft"),
        (["--brokers", "3", "--set", "process.roles=broker", "--set", "node.id=1"], "KRaft"),
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


def test_the_version_says_which_implementation_runs() -> None:
    assert of_requests.is_compiled == of_records.is_compiled(), "an extension is older than its source"
    expected = "compiled" if of_requests.is_compiled else "pure Python"
    assert f"kalda {kalda.__version__} ({expected})\n" == run("--version").stdout


@pytest.mark.parametrize("part", ["records", "requests"])
def test_the_version_says_which_part_is_compiled(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """An editable install may have one extension of an older source."""
    monkeypatch.setattr(of_requests, "is_compiled", part == "requests")
    monkeypatch.setattr(of_records, "is_compiled", lambda: part == "records")
    printed = CliRunner().invoke(app, ["--version"]).output
    assert f"kalda {kalda.__version__} ({part} compiled, the rest pure Python)\n" == printed


def test_plain_python_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KALDA_PURE_PYTHON", "1")
    assert f"kalda {kalda.__version__} (pure Python)\n" == run("--version").stdout


@pytest.mark.parametrize("command", [[], ["start"], ["broker"], ["zookeeper"]])
def test_every_command_has_help(command: list[str]) -> None:
    done = run(*command, "-h")
    assert 0 == done.returncode
    assert "Usage: kalda" in done.stdout
    assert "--log-level" in done.stdout
    assert done.stdout == run(*command, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["start", "--log-level", "loud"],
            "--log-level=loud is not allowed: it takes debug, info, warning or error",
        ),
        (["--log-format", "xml", "start"], "--log-format=xml is not allowed: it takes text or json"),
        (["start", "--port", "any"], "--port=any is not allowed: it takes an int, 0 to 65535"),
        (["start", "--brokers", "65"], "--brokers=65 is not allowed: it takes an int, 1 to 64"),
        (["broker", "--id", "-2"], "--id=-2 is not allowed: it takes an int, at least -1"),
        (["start", "--port"], "Option '--port' requires an argument; see `kalda -h`"),
        (["start", "--no-such"], "No such option '--no-such'; see `kalda start -h`"),
        (["stop"], "No such command 'stop'; did you mean 'topics'? See `kalda -h`"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], expected: str) -> None:
    """A box drawn around the reason cannot be searched for, and hides which value was found."""
    done = run(*arguments)
    assert (2, "") == (done.returncode, done.stdout)
    assert f"kalda: {expected}\n" == done.stderr


def test_options_are_read_in_any_case() -> None:
    assert "--brokers=0" in refused("start", "--log-level", "DEBUG", "--brokers", "0")


def test_the_log_begins_with_version_directory_and_settings(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data", settings={"num.partitions": "7", "num.io.threads": "9"}) as process:
        first, second, *_ = process.log().splitlines()
    assert f"Kalda {kalda.__version__}, kalda start, directory {tmp_path / 'data'}; settings" in first
    assert "num.partitions=7" in first
    assert "WARNING these settings have no effect in Kalda and are ignored: num.io.threads" in second


def test_every_line_of_all_processes_is_json_if_asked_for(tmp_path: Path) -> None:
    """The option may stand before the command; children inherit it, and a failure is an event as well."""
    command = [*COMMAND, "--log-format", "json", "start", "--log-level", "debug", "--brokers", "2"]
    port = free_ports_in_a_row(2)
    log = tmp_path / "log"  # a slow start writes more than a pipe holds, and the ready line would never come
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [*command, "--dir", str(tmp_path / "data"), "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("kalda ready bootstrap=")
        process.terminate()
        process.wait(timeout=60)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"kalda start", "broker 0", "broker 1"} <= {event["process"] for event in events}
    assert {"DEBUG", "INFO"} <= {event["level"] for event in events}
    assert "Kalda" in events[0]["message"]

    done = run("start", "--log-format", "json", "--set", "no.such=1")
    assert 2 == done.returncode
    (event,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert ("ERROR", "`no.such` is not a setting") == (event["level"], event["message"])
