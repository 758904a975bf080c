"""The producer's tools of the documents, by their names and options."""

import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests import forked_commands
from tests.integration.tools.commands import KALDA, Commands


@pytest.fixture
def properties(kalda: Commands, tmp_path: Path) -> Path:
    file = tmp_path / "producer.properties"
    file.write_text(f"broker.list=0:{kalda.bootstrap}\nrequest.required.acks=1\n")
    return file


def test_producer_shell_sends_lines(kalda: Commands, properties: Path) -> None:
    """The line is trimmed, and what was sent is printed as 0.7 printed it."""
    done = kalda(
        "legacy", "ProducerShell", "--props", properties, "--topic", "shell", stdin="one\n two ä \n\n"
    )
    assert "Sent: one (3 bytes)\nSent:  two ä  (6 bytes)\nSent:  (0 bytes)\n" == done.stdout
    assert "one\ntwo ä\n\n" == kalda("consume", "shell", "--partition", 0).stdout


def test_producer_shell_replaces_what_is_no_text(kalda: Commands, properties: Path) -> None:
    """As Java does: one bad line does not end the others."""
    command = [*KALDA, "legacy", "ProducerShell", "--props", str(properties), "--topic", "bytes"]
    done = forked_commands.run(command, input=b"a\xffb\nc", capture_output=True, check=True)
    assert "Sent: a\ufffdb (5 bytes)\nSent: c (1 bytes)\n" == done.stdout.decode()


def test_producer_shell_names_what_is_missing(kalda: Commands, tmp_path: Path) -> None:
    done = kalda.run("legacy", "ProducerShell", "--topic", "t")
    assert (2, True) == (done.code, "--props" in done.stderr)
    done = kalda.run("legacy", "ProducerShell", "--props", tmp_path / "missing", "--topic", "t")
    assert (2, True) == (done.code, "missing" in done.stderr)
    unknown = tmp_path / "unknown.properties"
    unknown.write_text("zk.conect=127.0.0.1:2181\n")
    done = kalda.run("legacy", "ProducerShell", "--props", unknown, "--topic", "t")
    assert (2, True) == (done.code, "did you mean `zk.connect`" in done.stderr)


@pytest.mark.parametrize("options", [[], ["--sync"], ["--new-producer"], ["--compression-codec", 3]])
def test_producer_performance_sends_all_and_prints_the_columns(
    kalda: Commands, options: list[str | int]
) -> None:
    topic = f"perf{len(options)}{options[0] if options else ''}"
    common = ["--broker-list", kalda.bootstrap, "--topics", topic, "--messages", "300", "--threads", "3"]
    done = kalda("legacy", "ProducerPerformance", *common, "--initial-message-id", 0, *options)
    header, line = done.stdout.splitlines()
    assert header.startswith("start.time, end.time, compression, message.size, batch.size, ")
    columns = line.split(", ")
    assert 9 == len(columns)
    assert ["3" if "--compression-codec" in options else "0", "100", "200", "0.03"] == columns[2:6]
    assert "300" == columns[7]
    values = kalda("consume", topic).stdout.splitlines()
    ids = sorted(int(each.split(":")[5]) for each in values)
    assert list(range(300)) == ids


def test_producer_performance_prints_detailed_lines_and_mistakes(kalda: Commands) -> None:
    common = ["legacy", "ProducerPerformance", "--broker-list", kalda.bootstrap, "--topics", "perf"]
    detailed = ["--messages", "100", "--show-detailed-stats", "--reporting-interval", "50", "--hide-header"]
    assert 2 == len(kalda(*common, *detailed).stdout.splitlines())
    done = kalda.run(*common, "--messages", 1, "--threads", 2)
    assert (2, True) == (done.code, "--messages=1 is less than --threads=2" in done.stderr)
    longer = ("--messages", 1, "--message-size", 1, "--initial-message-id", 0, "--sync")
    assert "1" == kalda(*common, *longer).stdout.splitlines()[1].split(", ")[7]
    done = kalda.run(*common, "--messages", 100_000, "--threads", 100_000)
    assert (2, True) == (done.code, "--threads=100000 is not allowed" in done.stderr)
    done = kalda.run(*common, "--messages", 1, "--compression-codec", 4)
    assert (2, True) == (done.code, "--compression-codec=4" in done.stderr)


def test_producer_performance_ends_on_ctrl_c(kalda: Commands) -> None:
    options = ["--broker-list", kalda.bootstrap, "--topics", "perf", "--messages", "1000000000", "--sync"]
    command = [*KALDA, "legacy", "ProducerPerformance", *options, "--show-detailed-stats"]
    with forked_commands.Popen[bytes](
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell without a terminal starts background commands, perhaps this test run, with SIGINT ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        for _ in range(2):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, failure = process.communicate(timeout=60)
    assert (1, b"\n") == (process.returncode, failure)
