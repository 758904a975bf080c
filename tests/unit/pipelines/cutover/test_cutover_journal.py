"""The journal is read as it was written; anything else is refused."""

import json
from pathlib import Path

import pytest

from kalda.clients.admin.quotas import quota_entity
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.fence import planned_acls
from kalda.pipelines.cutover.journal import (
    Cut,
    Fence,
    FenceMethod,
    GroupPlace,
    Journal,
    JournalError,
    JournalFile,
    NotCarried,
    Phase,
    QuotaChange,
)

PARTITION = TopicPartition("orders", 3)
FULL = Journal(
    flow="a->b",
    source_id="s",
    target_id="t",
    is_back=True,
    phase=Phase.GROUPS,
    methods=(FenceMethod.QUOTA,),
    fence=planned_acls(["orders", "é"], ()),
    former_fence=Fence(
        quotas=(
            QuotaChange(quota_entity({"user": None, "client-id": None}), None, 1.0),
            QuotaChange(quota_entity({"user": "alice"}), 1e6, 1.0),
        )
    ),
    fenced_ms=5,
    open_ms=None,
    rounds=1,
    cuts={PARTITION: Cut(10, 12)},
    compared={PARTITION: Cut(9, 11)},
    places=(GroupPlace("g", PARTITION, 4, 5, "exact", "meta"),),
    records=7,
    carried={"groups": 1},
    not_carried=(NotCarried("user", "alice (SCRAM-SHA-256)", "no password"),),
    reason="none",
)


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal")
    assert file.read() is None
    file.write(FULL)
    assert FULL == file.read()


@pytest.mark.parametrize("member", sorted(json.loads('{"phase": 1, "cuts": 1, "fence": 1, "version": 1}')))
def test_a_journal_without_a_member_is_refused(tmp_path: Path, member: str) -> None:
    file = JournalFile(tmp_path / "journal")
    file.write(FULL)
    document = json.loads(file.path.read_text())
    for broken in ({**document, member: "x"}, {k: v for k, v in document.items() if k != member}):
        file.path.write_text(json.dumps(broken))
        with pytest.raises(JournalError, match="is no journal of a cut-over"):
            file.read()


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "\x00"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = JournalFile(tmp_path / "journal")
    file.path.write_text(text)
    with pytest.raises(JournalError, match="--journal"):
        file.read()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal")
    with file.lock(), pytest.raises(JournalError, match="runs a cut-over with"), file.lock():
        pass
    with file.lock():
        pass
