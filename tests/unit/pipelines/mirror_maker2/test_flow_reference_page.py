"""The reference page of replication flows is what the parser checks with."""

from pathlib import Path

from kalda.pipelines.mirror_maker2.reference import PAGE, page

DOCS = Path(__file__).resolve().parents[4] / "docs" / "reference"


def test_the_page_lists_every_setting() -> None:
    """Write it again with ``python -m kalda.pipelines.mirror_maker2.reference docs/reference``."""
    assert page() == (DOCS / PAGE).read_text(encoding="utf-8")
