"""The tables of docs/reference/upgrade-contract.md are those of the code."""

import functools
import re
from pathlib import Path
from typing import Final

import pytest

from kalda.broker.metadata import features
from kalda.broker.requests.handlers import HANDLERS
from kalda.cluster import schema
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.coordinator.coordinator_record import read_version
from kalda.coordinator.group.classic.classic_group import group_metadata_record
from kalda.coordinator.group.consumer import consumer_group_records as consumer_records
from kalda.coordinator.group.offset_records import (
    OFFSET_COMMIT_KEY_VERSIONS,
    OffsetAndMetadata,
    offset_commit_record,
)
from kalda.coordinator.group.share import share_group_records
from kalda.coordinator.share import share_records
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.events import ring_file as events_ring_file
from kalda.events.ring import EVENT_FILES
from kalda.pipelines.mirror.mirror_maker_records import Heartbeat
from kalda.protocol.messages import consumer_group_records as messages
from kalda.protocol.messages import share_group_records as share_messages
from kalda.protocol.messages.group_records import GroupMetadataValue, OffsetCommitValue
from kalda.protocol.messages.share_state_records import ShareSnapshotValue, ShareUpdateValue
from kalda.protocol.messages.transaction_log import TransactionLogValue
from kalda.protocol.schema import Message
from kalda.security.acl import znodes as acl_znodes
from kalda.security.sasl import delegation_token
from kalda.spark.sink import markers
from kalda.storage import checkpoints, producer_snapshot, transaction_index
from kalda.storage.file_names import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MISSING_OFFSETS_FILE,
    PARTITION_METADATA_FILE,
    PRODUCER_SNAPSHOT_SUFFIX,
    READ_NONCE_FILE,
    REPLACED_DIRECTORIES_FILE,
    TRANSACTION_INDEX_SUFFIX,
)
from kalda.zookeeper.server import snapshot, txn_log

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs/reference/upgrade-contract.md").read_text()
LINK: Final = re.compile(r"\[`([a-z0-9_/]+\.py)`\]\(\.\./\.\./src/kalda/([^)]+)\)")
VALUES: Final = re.compile(
    r"FILE|[0-9]+(?:-[0-9]+)?|orders|/feature|/brokers/ids/|…|: |transaction\.version=|OffsetCommitValue"
    r"|__consumer_offsets-"
)
"""What messages of the page have in place of values."""


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table of a section, without those of its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(cell: str) -> list[str]:
    """Return what a cell has in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def numbers(cell: str) -> list[int]:
    """Return the numbers of a cell, up to its first semicolon."""
    return [int(each) for each in re.findall(r"[0-9]+", cell.partition(";")[0])]


def test_modules_are_where_the_page_says() -> None:
    found = LINK.findall(PAGE)
    assert len(found) > 40
    for module, path in found:
        assert path == module


def test_features_and_their_levels() -> None:
    listed = {named(name)[0]: tuple(numbers(levels)) for name, levels, _ in rows("Features")}
    assert features.SUPPORTED == listed


def test_znodes_and_their_versions() -> None:
    listed = {
        named(path)[0]: (numbers(written)[-1:], numbers(read)[-1:])
        for path, _, written, read in rows("In coordination")
    }
    expected = {kind.value: ([version], [version]) for kind, version in schema.VERSIONS.items()}
    assert expected == {path: found for path, found in listed.items() if path in expected}
    others = {paths: found[0][:1] for paths, found in listed.items() if paths not in expected and found[0]}
    assert {
        "/feature": [features._ZNODE_VERSION],
        "/kafka-acl/TYPE/NAME": [acl_znodes._VERSION],
        "/delegation_token/tokens/ID": [delegation_token._VERSION],
        "/consumers/…": [1],
    } == others


def test_requests_between_brokers_and_their_versions() -> None:
    served = {each.key.title: each.versions for each in HANDLERS}
    listed = {name: tuple(numbers(versions)) for name, _, _, versions in rows("Between brokers")}
    assert listed == {name: served[name] for name in listed}


TRANSACTION: Final = TransactionMetadata("t", 1, 0, 1000, TransactionState.EMPTY, update_ms=0)
SHARE_PARTITION: Final = share_records.SharePartitionKey("g", ZERO_UUID, 0)
COMMITTED: Final = OffsetAndMetadata(1, -1, "", 0)
WRITTEN_RECORDS: Final = {
    "committed offset": (
        offset_commit_record("g", "t", 0, COMMITTED),
        offset_commit_record("g", "t", 0, COMMITTED._replace(expire_timestamp_ms=5)),
    ),
    "classic group": (group_metadata_record("g", GroupMetadataValue(protocol_type="consumer")),),
    "consumer group": (consumer_records.group_epoch_record("g", 1),),
    "share group": (share_group_records.group_record("g", 1, 0),),
    "share partition": (
        share_records.snapshot_record(SHARE_PARTITION, share_records.Snapshot(0, PartitionState(1, 0), 0, 0)),
        share_records.update_record(SHARE_PARTITION, share_records.Update(0, 0, 0, 0, ())),
    ),
    "transactional id": (
        transaction_log.encode(TRANSACTION, 0),
        transaction_log.encode(TRANSACTION, 1),
    ),
}
RECORD_CLASSES: Final[dict[str, tuple[type[Message], ...]]] = {
    "committed offset": (OffsetCommitValue,),
    "classic group": (GroupMetadataValue,),
    "consumer group": tuple(
        each
        for name, each in vars(messages).items()
        if name.startswith("ConsumerGroup") and name.endswith("Value")
    ),
    "share group": tuple(
        each
        for name, each in vars(share_messages).items()
        if name.startswith("ShareGroup") and name.endswith("Value")
    ),
    "share partition": (ShareSnapshotValue, ShareUpdateValue),
    "transactional id": (TransactionLogValue,),
}


def test_records_of_internal_topics_and_their_versions() -> None:
    found = set()
    for what, keys, _, written, read in rows("In internal topics"):
        kind = next((kind for kind in WRITTEN_RECORDS if kind in what), None)
        if kind is None:
            assert "markers" in what
            continue
        found.add(kind)
        records = WRITTEN_RECORDS[kind]
        # The first numbers of the parts of the cell: "3; 1 for a commit with a retention of its own".
        parts = [int(re.findall("[0-9]+", part)[0]) for part in written.split(";")]
        assert parts == [read_version(record.value or b"") for record in records], kind
        assert {read_version(record.key) for record in records} <= set(numbers(keys)), kind
        for each in RECORD_CLASSES[kind]:
            known = each.SCHEMA.versions
            assert [known.lowest, known.highest] == [min(numbers(read)), max(numbers(read))], each
    assert set(WRITTEN_RECORDS) == found


def test_keys_of_consumer_groups() -> None:
    known = [value for name, value in vars(consumer_records).items() if name.endswith("_KEY")]
    (keys,) = [keys for what, keys, *_ in rows("In internal topics") if "consumer group" in what]
    assert sorted(known) == numbers(keys)
    (keys,) = [keys for what, keys, *_ in rows("In internal topics") if "committed offset" in what]
    assert list(OFFSET_COMMIT_KEY_VERSIONS) == numbers(keys)


def file_versions() -> dict[str, int]:
    """Return the version of each file as the code writes it."""
    offsets = checkpoints.format_offset_checkpoint_lines(
        [checkpoints.offset_checkpoint_line(TopicPartition("t", 0), 1)]
    )
    epochs = checkpoints.format_leader_epochs([(0, 0)])
    properties = checkpoints.format_meta_properties(checkpoints.MetaProperties("c", 1))

    def text(data: bytes) -> int:
        return int(data.split(b"\n")[0].rpartition(b" ")[2])

    return {
        PRODUCER_SNAPSHOT_SUFFIX: int.from_bytes(producer_snapshot.format_snapshot(())[:2]),
        TRANSACTION_INDEX_SUFFIX: transaction_index._VERSION,
        "leader-epoch-checkpoint": text(epochs),
        "recovery-point-offset-checkpoint": text(offsets),
        MISSING_OFFSETS_FILE: text(epochs),
        PARTITION_METADATA_FILE: text(checkpoints.format_partition_metadata(ZERO_UUID)),
        META_PROPERTIES_FILE: int(re.findall(rb"version=(\d+)", properties)[0]),
        CLEAN_SHUTDOWN_FILE: checkpoints._VERSION,
        "zookeeper/version-2/log.*": int.from_bytes(txn_log._FILE_HEADER[4:8]),
        "zookeeper/version-2/snapshot.*": int.from_bytes(snapshot._FILE_HEADER[4:8]),
    }


def test_files_and_their_versions() -> None:
    listed = {named(names)[0]: numbers(written)[:1] for names, _, written, *_ in rows("On disk")}
    expected = {name: [version] for name, version in file_versions().items()}
    assert expected == {name: found for name, found in listed.items() if name in expected}
    assert {REPLACED_DIRECTORIES_FILE, READ_NONCE_FILE} <= listed.keys()
    assert [events_ring_file.VERSION] == listed[EVENT_FILES[0]]


def test_state_of_pipelines_and_its_versions() -> None:
    listed = {what: written for what, _, _, written, _ in rows("Pipelines, mirrors and Spark")}
    assert str(markers.VERSION) == listed["markers of an exactly-once sink"]
    assert str(markers.VERSION) == listed["decisions of an exactly-once sink"]
    heartbeat = Heartbeat("a", "b", 0).value()
    assert str(read_version(heartbeat)) == next(
        written for what, written in listed.items() if "MirrorMaker 2" in what
    )


@functools.cache
def messages_of_sources() -> str:
    """Return all sources, with the parts of each text in one line."""
    sources = "".join(path.read_text() for path in sorted((ROOT / "src" / "kalda").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", sources)


@pytest.mark.parametrize("row", rows("Refusals"), ids=lambda row: str(row[0]))
def test_messages_are_those_of_the_code(row: list[str]) -> None:
    parts = [part.strip() for part in VALUES.split(named(row[1])[0]) if len(part.strip()) > 10]
    assert parts
    assert not [part for part in parts if part not in messages_of_sources()]
