"""Rebuilds a log's producer state from its batches, after a crash or a truncation."""

from kalda.records.batch import CONTROL_FLAG, BatchHeader, Buffer
from kalda.records.control import EndTransactionMarker, read_end_transaction_marker
from kalda.storage.log_segment import LogSegment
from kalda.storage.producer_state_manager import ProducerStateManager
from kalda.storage.transaction_index import TransactionIndex


def rebuild_producer_state(
    state: ProducerStateManager, segments: tuple[LogSegment, ...], end_offset: int, now_ms: int
) -> None:
    """Rebuild `state` up to `end_offset` after a truncation, from a snapshot and the batches after it."""
    state.truncate_and_load(segments[0].base_offset, end_offset, now_ms)
    replay_batches(state, segments, end_offset)


def replay_batches(state: ProducerStateManager, segments: tuple[LogSegment, ...], end_offset: int) -> None:
    """Advance `state` from its end offset to `end_offset` by replaying the batches between."""
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following <= state.end_offset:
            continue
        found = segment.find_batch(state.end_offset)
        for position, header in segment.records.iter_headers(found.position) if found else ():
            if header.base_offset >= end_offset:
                break
            batch = segment.records.read_batch(position, header.size) if header.is_control else b""
            replay_batch(state, segment, header, batch)
    state.end_offset = end_offset


def replay_batch(
    state: ProducerStateManager, segment: LogSegment, header: BatchHeader, batch: Buffer
) -> None:
    """Replay one batch of the log into `state`, and add an aborted transaction to the index if missing.

    Only the header of a data batch is read, so its bytes may be empty.
    """
    if header.producer_id >= 0:
        marker = read_end_transaction_marker(batch, 0, header) if header.is_control else None
        update_producers(
            state, segment.transaction_index, header, marker, header.base_offset, header.last_offset
        )
    state.end_offset = header.next_offset


def update_producers(
    state: ProducerStateManager,
    index: TransactionIndex,
    header: BatchHeader,
    marker: EndTransactionMarker | None,
    first_offset: int,
    last_offset: int,
) -> None:
    """Update `state` with a producer's batch at these offsets; add an aborted transaction to `index` once."""
    if marker is not None:
        completed = state.add_marker(header, marker, first_offset)
        if completed is not None:
            if completed.is_aborted and index.ends_before(first_offset):
                index.append(state.aborted_transaction(completed))
            state.complete(completed)
    elif not header.attributes & CONTROL_FLAG or header.is_barrier:
        state.add_batch(header, first_offset, last_offset)
