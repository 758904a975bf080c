import struct

from hypothesis import given
from hypothesis import strategies as st

from kalda.net.client.frame_receiver import SHARED_CAPACITY, FrameReceiver
from kalda.protocol.wire_format import Buffer

OWN_CAPACITY = 2 * SHARED_CAPACITY
"""Smaller than the real one, so that frames outgrow it often."""

SIZES = st.one_of(
    st.integers(0, 50),
    st.integers(SHARED_CAPACITY - 10, SHARED_CAPACITY + 10),
    st.integers(OWN_CAPACITY - 10, 5 * OWN_CAPACITY),
)


@given(
    sizes=st.lists(SIZES, max_size=4),
    pieces=st.lists(st.integers(1, 300_000), min_size=1, max_size=20).filter(lambda them: sum(them) > 10_000),
)
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    payloads = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(each)) + each for each in payloads)
    receiver = FrameReceiver(own_capacity=OWN_CAPACITY)
    frames: list[Buffer] = []
    position = turn = 0
    while position < len(stream):
        room = receiver.room()
        assert len(room) > 0
        # Bounded by what arrived: a doubled buffer, or the first size of one.
        assert len(room) <= max(4 * position, OWN_CAPACITY)
        count = min(len(room), pieces[turn % len(pieces)], len(stream) - position)
        room[:count] = stream[position : position + count]
        frames += receiver.received(count)
        position += count
        turn += 1

    assert payloads == [bytes(frame) for frame in frames]
