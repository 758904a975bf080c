"""The reference page of the command line is that of the commands."""

from pathlib import Path

from kalda.cli_reference import PAGE, page, servers, write_page
from kalda.cli_tools import TOOLS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_page_is_current(tmp_path: Path) -> None:
    """Else: python -m kalda.cli_reference docs/reference"""
    write_page(tmp_path)

    assert (tmp_path / PAGE).read_text() == (REFERENCE / PAGE).read_text()


def test_every_command_has_a_section() -> None:
    text = page()

    assert {"start", "broker", "zookeeper"} <= servers().keys()
    for name in (*servers(), *TOOLS):
        assert 1 == text.count(f"\n## `kalda {name}`\n"), name
