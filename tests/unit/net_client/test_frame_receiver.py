import struct
import tracemalloc

import pytest

from kalda.net.client.frame_receiver import OWN_CAPACITY, RETAINED_BYTES_MAX, SHARED_CAPACITY, FrameReceiver
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import Buffer


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(receiver: FrameReceiver, data: bytes, piece_bytes: int = 1 << 30) -> list[bytes]:
    """Receive as a socket would: never more than the room there is."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        room = receiver.room()
        count = min(len(room), piece_bytes, len(data) - position)
        room[:count] = data[position : position + count]
        frames += [bytes(frame) for frame in receiver.received(count)]
        position += count
    return frames


SIZES = (
    0,
    1,
    SHARED_CAPACITY - 5,
    SHARED_CAPACITY - 4,
    SHARED_CAPACITY - 3,
    SHARED_CAPACITY,
    OWN_CAPACITY,
    5 * OWN_CAPACITY + 1,
)


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_of_each_size_arrives_whole_between_two_small_ones(size: int) -> None:
    payloads = [b"before", bytes(index % 251 for index in range(size)), b"after"]

    frames = feed(FrameReceiver(), b"".join(framed(each) for each in payloads), 60_000)

    assert payloads == frames


def test_a_returned_frame_is_never_written_to_again() -> None:
    """Records of a fetch are views of their frame, and outlive the connection."""
    receiver = FrameReceiver()
    kept: list[Buffer] = []
    for data in (framed(b"a" * 10), framed(b"b" * SHARED_CAPACITY)):
        position = 0
        while position < len(data):
            room = receiver.room()
            count = min(len(room), len(data) - position)
            room[:count] = data[position : position + count]
            kept += receiver.received(count)
            position += count

    feed(receiver, framed(b"x" * SHARED_CAPACITY) + framed(b"y" * 100))

    assert [b"a" * 10, b"b" * SHARED_CAPACITY] == [bytes(each) for each in kept]


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101])
def test_a_size_outside_the_limits_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes; allowed are 0 to 100"):
        feed(FrameReceiver(frame_bytes_max=100), struct.pack(">i", size))


def test_memory_is_allocated_for_what_arrived_not_for_what_was_announced() -> None:
    receiver = FrameReceiver()
    tracemalloc.start()
    try:
        assert [] == feed(receiver, struct.pack(">i", 1 << 30) + b"x" * 1000)
        assert tracemalloc.get_traced_memory()[1] < 2 * OWN_CAPACITY
    finally:
        tracemalloc.stop()


def test_memory_is_reused_for_the_next_frame_unless_it_is_huge() -> None:
    receiver = FrameReceiver(reuses_memory=True)
    for size, is_kept in ((10, True), (1 << 20, True), (RETAINED_BYTES_MAX + 1, False), (1 << 20, True)):
        frame = feed_one(receiver, size)
        assert size == len(frame)
        assert not frame.readonly
        assert is_kept == (receiver.capacity >= size)


def test_a_frame_as_large_as_the_one_before_needs_no_other_memory() -> None:
    """Nor does one that is a little larger: a follower gets megabytes in each of its responses."""
    receiver = FrameReceiver(reuses_memory=True)
    feed_one(receiver, 1 << 20)
    before = receiver.room().obj
    for size in (1 << 20, (1 << 20) + 1000, 100):
        feed_one(receiver, size)
        assert before is receiver.room().obj


def test_reused_memory_holds_frames_of_any_size_one_after_the_other() -> None:
    receiver = FrameReceiver(reuses_memory=True)
    for size in (0, 1, 100_000, 5, 99_996, 100_000, 99_997, 5 * OWN_CAPACITY, 0, SHARED_CAPACITY):
        payload = bytes(index % 251 for index in range(size))
        assert [payload] == feed(receiver, framed(payload), 60_000)


def test_a_frame_in_reused_memory_ends_the_bytes_that_may_come() -> None:
    for size in (2, 100_000):
        receiver = FrameReceiver(reuses_memory=True)
        with pytest.raises(ProtocolError, match=f"1 bytes follow a response of {size} bytes"):
            feed(receiver, framed(bytes(size)) + b"x")


def feed_one(receiver: FrameReceiver, size: int) -> memoryview:
    receiver.room()[:4] = struct.pack(">i", size)
    frames = receiver.received(4)
    left = size
    while not frames:
        count = min(left, len(receiver.room()))
        left -= count
        frames = receiver.received(count)
    (frame,) = frames
    assert isinstance(frame, memoryview)
    return frame
