"""Golden transcripts: what a producer's transaction manager asks, and what follows from the responses.

To write the outcome of every transcript again after a wanted change:
``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/clients``, then review the diff.
"""

from pathlib import Path

import pytest

from tests.golden.clients.transaction_player import Player
from tests.golden.transcripts import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "transaction_manager").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_transaction_manager_does(path: Path) -> None:
    """Each file is one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, Player().play)


def test_there_are_transcripts() -> None:
    """A wrong path would make the test above pass for no file."""
    assert len(TRANSCRIPTS) >= 10
