from pathlib import Path

import pytest

from kalda.clients.reference import CLIENT_PAGE, LEGACY_PAGE, write_pages

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("page", [CLIENT_PAGE, LEGACY_PAGE])
def test_the_committed_pages_are_current(page: str, tmp_path: Path) -> None:
    """Else: python -m kalda.clients.reference docs/reference"""
    write_pages(tmp_path)

    assert (tmp_path / page).read_text() == (REFERENCE / page).read_text()
