from pathlib import Path

from kalda.clients.documentation import CLIENT_PAGE, write_page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_the_committed_page_is_current(tmp_path: Path) -> None:
    """Else: python -m kalda.clients.documentation docs/reference"""
    write_page(tmp_path)

    assert (tmp_path / CLIENT_PAGE).read_text() == (REFERENCE / CLIENT_PAGE).read_text()
