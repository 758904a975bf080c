# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parses request headers, the usual Produce and Fetch requests and what followers fetch, and builds Produce's usual
response, in compiled code.

`request_header`, `produce`, `fetch` and `fetch_response` in this package call this module where it was built; plain
Python defines what is right. A function returns None for anything but the usual message, and the caller then runs the
Python code, which raises the error. So this module may accept less than the Python code, never more.

Each read is compared with the end of the frame before it happens. The bytes come from the network. Raise
`INTERFACE` here and in `implementation` when the arguments of a function change.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

INTERFACE = 5

cdef int64_t ELEMENTS_MAX = 50000
"""That of `wire`: no request that names more topics and partitions is a usual one."""

cdef int64_t PARTITIONS_MAX = 25000
"""That of `produce`."""


cdef inline int16_t read_int16(const uint8_t *at) noexcept nogil:
    return <int16_t>(<uint16_t>at[0] << 8 | at[1])


cdef inline int32_t read_int32(const uint8_t *at) noexcept nogil:
    return <int32_t>(<uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3])


cdef inline int64_t read_int64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>read_int32(at) << 32 | <uint32_t>read_int32(at + 4))


cdef inline uint8_t *write_int16(uint8_t *at, uint32_t number) noexcept nogil:
    at[0] = number >> 8 & 0xFF
    at[1] = number & 0xFF
    return at + 2


cdef inline uint8_t *write_int32(uint8_t *at, uint32_t number) noexcept nogil:
    at[0] = number >> 24
    at[1] = number >> 16 & 0xFF
    at[2] = number >> 8 & 0xFF
    at[3] = number & 0xFF
    return at + 4


cdef inline uint8_t *write_int64(uint8_t *at, uint64_t number) noexcept nogil:
    return write_int32(write_int32(at, <uint32_t>(number >> 32)), <uint32_t>number)


def read_header(frame not None, bytes client_id):
    """Return what `request_header.read_usual_header` does."""
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Py_ssize_t size
    if client_id is None:
        return None
    size = PyBytes_GET_SIZE(client_id)
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    data = <const uint8_t *>view.buf
    try:
        if (
            view.len < 10 + size
            or read_int16(data + 8) != size
            # ControlledShutdown v0 has no client id.
            or (read_int16(data) == 7 and not read_int16(data + 2))
            or memcmp(data + 10, PyBytes_AS_STRING(client_id), size)
        ):
            return None
        return read_int16(data), read_int16(data + 2), read_int32(data + 4), 10 + size
    finally:
        PyBuffer_Release(&view)


cdef struct Produce:
    # A request with one partition and without a transactional id; positions are from the frame's start.
    int16_t acks
    int32_t timeout_ms
    int64_t name
    int64_t name_size
    int32_t index
    int64_t records
    int64_t records_size


cdef bint read_plain(const uint8_t *data, int64_t at, int64_t end, Produce *found) noexcept nogil:
    """Read a request of versions 3-8."""
    if end - at < 14:
        return False
    found.acks = read_int16(data + at + 2)
    found.timeout_ms = read_int32(data + at + 4)
    found.name_size = read_int16(data + at + 12)
    if read_int16(data + at) != -1 or read_int32(data + at + 8) != 1 or found.name_size < 0:
        return False
    found.name = at + 14
    at = found.name + found.name_size
    if end - at < 12:
        return False
    found.index = read_int32(data + at + 4)
    found.records_size = read_int32(data + at + 8)
    found.records = at + 12
    return read_int32(data + at) == 1 and 0 <= found.records_size <= end - found.records


cdef bint read_flexible(const uint8_t *data, int64_t at, int64_t end, bint has_id, Produce *found) noexcept nogil:
    """Read a request of versions 9-13 without tagged fields; `has_id` from version 13 on."""
    cdef int64_t size = 0
    cdef int shift = 0
    if end - at < 9:
        return False
    found.acks = read_int16(data + at + 1)
    found.timeout_ms = read_int32(data + at + 3)
    # Counts and lengths are one more than they mean; a name of 127 bytes or more has a longer varint.
    if data[at] or data[at + 7] != 2:
        return False
    if has_id:
        found.name_size = 16
        found.name = at + 8
    else:
        if not 0 < data[at + 8] < 0x80:
            return False
        found.name_size = data[at + 8] - 1
        found.name = at + 9
    at = found.name + found.name_size
    if end - at < 6 or data[at] != 2:
        return False
    found.index = read_int32(data + at + 1)
    at += 5
    while True:
        if at >= end or shift > 28:
            return False
        size |= <int64_t>(data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            break
    found.records = at
    found.records_size = size - 1
    # Three sections of tagged fields end the partition, the topic and the request.
    if size < 1 or found.records_size > end - at - 3:
        return False
    at += found.records_size
    return not (data[at] or data[at + 1] or data[at + 2])


cdef bint is_plain_batch(const uint8_t *data, int64_t size) noexcept nogil:
    """Whether the records are one batch of format 2, neither transactional nor compressed by zstd."""
    # The batch's length without offset and length, its magic byte and the low byte of its attributes.
    return (
        size >= 61
        and read_int32(data + 8) + <int64_t>12 == size
        and data[16] == 2
        and data[22] & 7 != 4
        and not data[22] & 0x10
    )


def parse_produce(frame not None, int64_t position, int version):
    """Return what `produce.parse_usual` does for a body that begins at `position`; None for any other request."""
    cdef Py_buffer view
    cdef Produce found
    cdef bint is_usual, is_plain
    if version < 3:
        return None
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            return None
        if version >= 9:
            is_usual = read_flexible(<const uint8_t *>view.buf, position, view.len, version >= 13, &found)
        else:
            is_usual = read_plain(<const uint8_t *>view.buf, position, view.len, &found)
        if not is_usual:
            return None
        name = PyBytes_FromStringAndSize(<const char *>view.buf + found.name, found.name_size)
        is_plain = is_plain_batch(<const uint8_t *>view.buf + found.records, found.records_size)
    finally:
        PyBuffer_Release(&view)
    records = frame[found.records : found.records + found.records_size]
    return found.acks, found.timeout_ms, name, found.index, records, is_plain


def is_plain_records(records):
    """Whether the records of a partition are one batch of format 2, neither transactional nor compressed by zstd."""
    cdef Py_buffer view
    if records is None:
        return False
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return is_plain_batch(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list read_produced(frame, const uint8_t *data, int64_t at, int64_t end, int version, int64_t *partition_count):
    """Return the topics that begin at `at` and count their partitions; None if there is anything unusual."""
    cdef bint is_flexible = version >= 9
    cdef int64_t topic_count, count, topic, number, size, room
    cdef list topics, partitions
    partition_count[0] = 0
    topic_count = read_length(data, &at, end, is_flexible, 4)
    room = ELEMENTS_MAX - topic_count
    if topic_count < 0 or room < 0:
        return None
    topics = []
    for topic in range(topic_count):
        size = 16 if version >= 13 else read_length(data, &at, end, is_flexible, 2)
        if size < 0 or size > end - at:
            return None
        name = PyBytes_FromStringAndSize(<const char *>data + at, size)
        at += size
        count = read_length(data, &at, end, is_flexible, 4)
        room -= count
        partition_count[0] += count
        if count < 0 or room < 0 or partition_count[0] > PARTITIONS_MAX:
            return None
        partitions = []
        for number in range(count):
            if end - at < 4:
                return None
            index = read_int32(data + at)
            at += 4
            size = read_length(data, &at, end, is_flexible, 4)
            if size < 0 or size > end - at:
                return None
            partitions.append((index, frame[at : at + size]))
            at += size
            if is_flexible:
                if at >= end or data[at]:
                    return None
                at += 1
        if is_flexible:
            if at >= end or data[at]:
                return None
            at += 1
        topics.append((name, partitions))
    if is_flexible and (at >= end or data[at]):
        return None
    return topics


def parse_produce_topics(frame not None, int64_t position, int version):
    """Return the fields of a Produce request without tagged fields and nulls but that of the transactional id.

    They are the transactional id, acks, the timeout, the topics and how many partitions these have together. None for
    any other request.
    """
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef int64_t at = position, size, partition_count
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            return None
        data = <const uint8_t *>view.buf
        transactional_id = None
        if version >= 3:
            if view.len - at < 2:
                return None
            if version >= 9 and not data[at]:
                at += 1
            elif version < 9 and read_int16(data + at) == -1:
                at += 2
            else:
                size = read_length(data, &at, view.len, version >= 9, 2)
                if size < 0 or size > view.len - at:
                    return None
                transactional_id = PyBytes_FromStringAndSize(<const char *>data + at, size)
                at += size
        if view.len - at < 6:
            return None
        topics = read_produced(frame, data, at + 6, view.len, version, &partition_count)
        if topics is None:
            return None
        return transactional_id, read_int16(data + at), read_int32(data + at + 2), topics, partition_count
    finally:
        PyBuffer_Release(&view)


def single_success(
    int32_t correlation_id,
    int version,
    bytes topic not None,
    int32_t index,
    int64_t base_offset,
    int64_t log_append_time_ms,
    int64_t log_start_offset,
):
    """Return what `single_success_response` does for versions 5-13; None for another, or for a long name."""
    cdef Py_ssize_t length = PyBytes_GET_SIZE(topic), size
    cdef uint8_t *at
    if not 5 <= version <= 13 or length > (0x7E if version >= 9 else 0x7FFF):
        return None
    size = length + (50 if version >= 13 else 51 if version >= 9 else 58 if version >= 8 else 52)
    reply = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t *>PyBytes_AS_STRING(reply)
    at = write_int32(write_int32(at, <uint32_t>(size - 4)), <uint32_t>correlation_id)
    if version >= 9:
        # No tagged fields in the header, one topic, its name and one partition.
        at[0] = 0
        at[1] = 2
        at += 2
        if version < 13:
            # From version 13 on, the topic is an id, which has no length.
            at[0] = <uint8_t>(length + 1)
            at += 1
    else:
        at = write_int16(write_int32(at, 1), <uint32_t>length)
    memcpy(at, PyBytes_AS_STRING(topic), length)
    at += length
    if version >= 9:
        at[0] = 2
        at += 1
    else:
        at = write_int32(at, 1)
    at = write_int16(write_int32(at, <uint32_t>index), 0)
    at = write_int64(at, <uint64_t>base_offset)
    at = write_int64(at, <uint64_t>log_append_time_ms)
    at = write_int64(at, <uint64_t>log_start_offset)
    if version >= 9:
        # No record errors, no message, and the ends of the partition and of the topic.
        at[0] = 1
        at[1] = 0
        at[2] = 0
        at[3] = 0
        at += 4
    elif version >= 8:
        at = write_int16(write_int32(at, 0), 0xFFFF)
    # The throttle time.
    at = write_int32(at, 0)
    if version >= 9:
        at[0] = 0
    return reply


cdef int64_t read_count(const uint8_t *data, int64_t *at, int64_t end) noexcept nogil:
    """Move `at` past a varint of a compact array or string; return the count that it stands for, or -1.

    -1 is a null, a varint that ends too early or is too long, and a count of more bytes than there are.
    """
    cdef int64_t value = 0
    cdef int shift = 0
    while True:
        if at[0] >= end or shift > 28:
            return -1
        value |= <int64_t>(data[at[0]] & 0x7F) << shift
        shift += 7
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            break
    return value - 1 if value <= end - at[0] + 1 else -1


cdef int64_t read_length(
    const uint8_t *data, int64_t *at, int64_t end, bint is_flexible, int size
) noexcept nogil:
    """Move `at` past a count or a length, without the flexible versions of `size` bytes; -1 as in `read_count`."""
    cdef int64_t value
    if is_flexible:
        return read_count(data, at, end)
    if end - at[0] < size:
        return -1
    value = read_int16(data + at[0]) if size == 2 else read_int32(data + at[0])
    at[0] += size
    return value if value <= end - at[0] else -1


cdef list read_fetch_topics(const uint8_t *data, int64_t *position, int64_t end, make_partition):
    """Return the topics of a request from version 13 on; None if there are tagged fields or too few bytes."""
    cdef int64_t at = position[0], topic_count, count, topic, number, room
    cdef list topics, partitions
    topic_count = read_count(data, &at, end)
    room = ELEMENTS_MAX - topic_count
    if topic_count < 0 or room < 0:
        return None
    topics = []
    for topic in range(topic_count):
        if end - at < 16:
            return None
        key = PyBytes_FromStringAndSize(<const char *>data + at, 16)
        at += 16
        count = read_count(data, &at, end)
        room -= count
        if count < 0 or room < 0:
            return None
        partitions = []
        for number in range(count):
            # The fields and the end of the partition's tagged fields.
            if end - at < 33 or data[at + 32]:
                return None
            partitions.append(
                make_partition(
                    (
                        read_int32(data + at),
                        read_int32(data + at + 4),
                        read_int64(data + at + 8),
                        read_int32(data + at + 16),
                        read_int64(data + at + 20),
                        read_int32(data + at + 28),
                    )
                )
            )
            at += 33
        if at >= end or data[at]:
            return None
        at += 1
        topics.append((key, partitions))
    position[0] = at
    return topics


cdef tuple read_fetch(const uint8_t *data, int64_t at, int64_t end, int version, make_partition):
    cdef int32_t replica_id = -1
    cdef int64_t replica_epoch = -1, head, length
    if version < 15:
        if end - at < 4:
            return None
        replica_id = read_int32(data + at)
        at += 4
    head = at
    at += 21
    if at > end:
        return None
    topics = read_fetch_topics(data, &at, end, make_partition)
    # No partitions are forgotten, in an array that is not null.
    if topics is None or at >= end or data[at] != 1:
        return None
    at += 1
    length = read_count(data, &at, end)
    if length < 0 or length > end - at:
        return None
    rack = PyBytes_FromStringAndSize(<const char *>data + at, length)
    at += length
    if at >= end:
        return None
    if data[at]:
        # One tagged field, the replica state, of 13 bytes with the end of its own tagged fields.
        if version < 15 or end - at < 16 or data[at] != 1 or data[at + 1] != 1 or data[at + 2] != 13:
            return None
        replica_id = read_int32(data + at + 3)
        replica_epoch = read_int64(data + at + 7)
    return (
        replica_id,
        replica_epoch,
        read_int32(data + head),
        read_int32(data + head + 4),
        read_int32(data + head + 8),
        <int8_t>data[head + 12],
        read_int32(data + head + 13),
        read_int32(data + head + 17),
        topics,
        rack,
    )


def parse_fetch(frame not None, int64_t position, int version, make_partition):
    """Return the fields of a Fetch request from version 13 on; None for one with forgotten partitions or other tags.

    They are the replica's id and epoch, the longest wait, the least and most bytes, the isolation level, the id and
    epoch of the session, the topics and the rack. `make_partition` makes an entry from a tuple of its fields.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            return None
        return read_fetch(<const uint8_t *>view.buf, position, view.len, version, make_partition)
    finally:
        PyBuffer_Release(&view)


cdef list read_fetched(frame, const uint8_t *data, int64_t at, int64_t end, make_partition):
    cdef int64_t topic_count, count, topic, number, fields, size
    cdef list partitions = []
    topic_count = read_count(data, &at, end)
    if topic_count < 0:
        return None
    for topic in range(topic_count):
        if end - at < 16:
            return None
        topic_id = PyBytes_FromStringAndSize(<const char *>data + at, 16)
        at += 16
        count = read_count(data, &at, end)
        if count < 0:
            return None
        for number in range(count):
            fields = at
            at += 35
            # A null or empty list of aborted transactions lies between the offsets and the preferred replica.
            if at >= end or data[fields + 30] > 1:
                return None
            size = 0
            if data[at]:
                size = read_count(data, &at, end)
                if size < 0:
                    return None
            else:
                at += 1
            records = frame[at : at + size] if size else None
            at += size
            if at >= end or data[at]:
                return None
            at += 1
            partitions.append(
                make_partition(
                    (
                        topic_id,
                        read_int32(data + fields),
                        read_int16(data + fields + 4),
                        read_int64(data + fields + 6),
                        read_int64(data + fields + 22),
                        None,
                        records,
                    )
                )
            )
        if at >= end or data[at]:
            return None
        at += 1
    if at >= end or data[at]:
        return None
    return partitions


def parse_fetched(frame not None, int64_t position, make_partition):
    """Return the fields of a Fetch response of versions 13-17 without tagged fields and aborted transactions.

    They are the throttle time, the error, the session's id and the partitions. `make_partition` makes one from a tuple
    of its fields.
    """
    cdef Py_buffer view
    cdef const uint8_t *data
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len - 10:
            return None
        data = <const uint8_t *>view.buf
        partitions = read_fetched(frame, data, position + 10, view.len, make_partition)
        if partitions is None:
            return None
        return read_int32(data + position), read_int16(data + position + 4), read_int32(data + position + 6), partitions
    finally:
        PyBuffer_Release(&view)
