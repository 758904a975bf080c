"""The producer's tools of the documents, by their names and options."""

from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands


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


def test_producer_shell_names_what_is_missing(kalda: Commands, tmp_path: Path) -> None:
    done = kalda.run("legacy", "ProducerShell", "--topic", "t")
    assert (2, True) == (done.code, "--props" in done.stderr)
    done = kalda.run("legacy", "ProducerShell", "--props", tmp_path / "missing", "--topic", "t")
    assert (2, True) == (done.code, "missing" in done.stderr)
    unknown = tmp_path / "unknown.properties"
    unknown.write_text("zk.conect=127.0.0.1:2181\n")
    done = kalda.run("legacy", "ProducerShell", "--props", unknown, "--topic", "t")
    assert (2, True) == (done.code, "did you mean `zk.connect`" in done.stderr)
