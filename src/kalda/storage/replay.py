"""Producer state from the log itself: after a crash, after a truncation, when a snapshot is missing."""

from kalda.records.batch import BatchHeader
from kalda.records.control import read_end_transaction_marker
from kalda.storage.producer_state import ProducerState
from kalda.storage.segment import Segment


def replay_producers(state: ProducerState, segments: tuple[Segment, ...], end_offset: int) -> None:
    """Bring `state` from its end offset to `end_offset` by walking the batches between."""
    for segment in segments:
        following = state.end_offset
        if segment is not segments[-1] and segments[segments.index(segment) + 1].base_offset <= following:
            continue
        found = segment.find_batch(following)
        for position, header in segment.records.iter_headers(found.position) if found else ():
            if header.base_offset >= end_offset:
                break
            replay_batch(state, segment, position, header)
    state.end_offset = end_offset


def replay_batch(state: ProducerState, segment: Segment, position: int, header: BatchHeader) -> None:
    """Take one batch of the log into `state`, and a missing aborted transaction into the segment's index."""
    if header.producer_id >= 0:
        if header.is_control:
            batch = segment.records.read_batch(position, header.size)
            marker = read_end_transaction_marker(batch, 0, header)
            completed = None if marker is None else state.add_marker(header, marker, header.base_offset)
            if completed is not None:
                if completed.is_aborted and segment.transaction_index.ends_before(header.base_offset):
                    segment.transaction_index.append(state.aborted_transaction(completed))
                state.complete(completed)
        else:
            state.add_batch(header, header.base_offset, header.last_offset)
    state.end_offset = header.next_offset
