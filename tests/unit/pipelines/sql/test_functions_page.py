"""The how-to of direct execution names the functions that there are."""

import re
from pathlib import Path

from kalda.pipelines.sql.functions import FUNCTIONS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "direct-execution.md"


def test_the_page_lists_all_functions() -> None:
    listed = PAGE.read_text(encoding="utf-8").partition("<!-- functions -->")[2].partition("<!-- end -->")[0]
    assert sorted(FUNCTIONS) == re.findall(r"`(\w+)`", listed)
