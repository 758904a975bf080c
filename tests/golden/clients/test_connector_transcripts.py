"""Golden transcripts: what old consumers read and write in ZooKeeper, and decide, when their group changes.

To write the outcome of every transcript again after a wanted change:
``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/clients``, then review the diff.
"""

from pathlib import Path

import pytest

from tests.golden.clients.connector_player import Player
from tests.golden.transcripts import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "connector").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_the_consumers_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is one scenario; a change of behaviour shows as a diff that a person can judge."""
    for module in ("offset_storage", "rebalancer", "stream_feeder", "stream_reading"):
        monkeypatch.setattr(f"kalda.clients.legacy.consumer.{module}.jittered", lambda seconds, _: seconds)
    player = Player()
    text = path.read_text(encoding="utf-8")
    try:
        assert text == replay(path, player.play)
    finally:
        player.close()


def test_there_are_transcripts() -> None:
    """A wrong path would make the test above pass for no file."""
    assert len(TRANSCRIPTS) >= 8
