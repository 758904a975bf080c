"""Finds the files that the snapshots of an Iceberg table added and removed, oldest snapshot first.

A compaction of ours changes no row and is left out. This module finds files; `row_difference` compares their
rows.
"""

from collections.abc import Iterator

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from kalda.pipelines.tables.errors import TableError


def snapshot_changes(
    table: Table, since: int | None, until: int | None, operation: str
) -> Iterator[tuple[int, list[FileScanTask], list[FileScanTask]]]:
    """Return snapshot, removed and added files; `operation` is the property that marks compactions.

    Raises:
        TableError: A snapshot in between has expired, or removed rows by delete files.
    """
    for snapshot in snapshots_between(table, since, until):
        summary = snapshot.summary
        if summary is not None and (
            summary.operation is Operation.REPLACE
            or summary.additional_properties.get(operation) == "compact"
        ):
            continue
        added: list[FileScanTask] = []
        removed: list[FileScanTask] = []
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id:
                    continue
                if manifest.content is not ManifestContent.DATA:
                    raise TableError(
                        f"Snapshot {snapshot.snapshot_id} of the table {'.'.join(table.name())} removed rows "
                        "by delete files; set write.delete.mode=copy-on-write, or read the whole table"
                    )
                if entry.status is ManifestEntryStatus.ADDED:
                    added.append(FileScanTask(entry.data_file))
                elif entry.status is ManifestEntryStatus.DELETED:
                    removed.append(FileScanTask(entry.data_file))
        yield snapshot.snapshot_id, removed, added


def snapshots_between(table: Table, since: int | None, until: int | None) -> list[Snapshot]:
    """Return the snapshots after `since` up to `until`, oldest first."""
    snapshot = table.current_snapshot() if until is None else table.snapshot_by_id(until)
    path: list[Snapshot] = []
    while snapshot is not None and snapshot.snapshot_id != since:
        path.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
        if snapshot is None and (parent is not None or since is not None):
            raise TableError(
                f"Snapshots of the table {'.'.join(table.name())} before {path[-1].snapshot_id} expired; "
                "read the whole table once and go on from its snapshot"
            )
    path.reverse()
    return path
