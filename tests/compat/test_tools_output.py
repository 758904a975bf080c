"""Our tools print what Apache Kafka's print of the same files."""

from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.compat.conftest import JavaTool
from tests.integration.tools.commands import Commands
from tests.integration.tools.test_dump_log import SETTINGS, fill


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dump") / "data"
    with KaldaProcess(directory, settings=SETTINGS) as process:
        fill(process.bootstrap)
    (found,) = directory.rglob("flights-0")
    return found.parent


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ("flights-0/*.log", ["--print-data-log"]),
        ("flights-0/*.log", []),
        ("flights-0/*.log", ["--deep-iteration", "--max-bytes", "1000"]),
        ("flights-0/*.log", ["--print-data-log", "--skip-record-metadata"]),
        ("flights-0/*index", []),
        ("flights-0/*index", ["--verify-index-only"]),
        ("flights-0/*[0-9].*index", ["--index-sanity-check"]),
        ("flights-0/*.snapshot", []),
        ("__consumer_offsets-0/*.log", ["--offsets-decoder"]),
        ("__transaction_state-0/*.log", ["--transaction-log-decoder"]),
    ],
)
def test_dump_log(log_directory: Path, java_tool: JavaTool, files: str, options: list[str]) -> None:
    """Scripts that read kafka-dump-log read kalda dump-log."""
    names = ",".join(map(str, sorted(log_directory.glob(files))))
    arguments = [*options, "--files", names]

    assert java_tool("kafka.tools.DumpLogSegments", *arguments) == Commands("")("dump-log", *arguments).stdout
