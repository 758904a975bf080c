"""The reference page of the command line is that of the commands."""

from pathlib import Path

from kalda.tools.framework.registry import TOOLS
from kalda.tools.reference import PAGE, page, write_page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_the_committed_page_is_current(tmp_path: Path) -> None:
    """Else: python -m kalda.tools.reference docs/reference"""
    write_page(tmp_path)

    assert (tmp_path / PAGE).read_text() == (REFERENCE / PAGE).read_text()


def test_every_tool_has_a_section() -> None:
    text = page()

    for name in TOOLS:
        assert 1 == text.count(f"\n## `kalda {name}`\n"), name
