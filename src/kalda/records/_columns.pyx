# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads record batches into the buffers of Arrow columns, and writes them from such buffers, in compiled code.

`columnar_compiled` calls this module; `columnar_numpy` and `columnar_encode` do the same with numpy and define what is
right. A function here returns None or -1 for anything that it does not accept, and the caller then runs the numpy
code, which raises the error. So this module may accept less than the numpy code, never more.

What a maintainer must not break: each read is compared with the end of the record, and each write with the end of its
buffer, before it happens. The bytes come from the network, and no exception follows a wrong access. Raise `INTERFACE`
here and in `implementation` when the arguments of a function change: an extension that an editable install left
behind must not be called in a new way.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

INTERFACE = 1

cdef enum:
    # Below this many bytes a pass is shorter than a switch to another thread and back.
    NOGIL_BYTES_MIN = 65536
    # Arrow keeps values of up to 12 bytes inside the view and points to longer ones.
    INLINE_SIZE = 12
    # The fields of a section, see `scan`.
    SECTION_FIELDS = 7

cdef struct Totals:
    int64_t rows
    int64_t key_bytes
    int64_t key_nulls
    int64_t value_bytes
    int64_t value_nulls
    int64_t headers
    int64_t header_key_bytes
    int64_t header_value_bytes
    int64_t header_value_nulls

cdef struct Columns:
    int64_t *offsets
    int64_t *timestamps
    int32_t *timestamp_types
    int32_t *key_starts
    int32_t *key_ends
    int32_t *value_starts
    int32_t *value_ends
    int32_t *header_starts
    int32_t *header_ends


cdef class _Memory:
    """A buffer of another object, held as long as a call needs it."""

    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, owner, int64_t size_min, bint is_written=False):
        PyObject_GetBuffer(owner, &self.view, PyBUF_WRITABLE if is_written else PyBUF_SIMPLE)
        self.is_held = True
        if self.view.len < size_min:
            raise ValueError(f"a buffer has {self.view.len} bytes, {size_min} are needed")

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int64_t *value) noexcept nogil:
    """Read a 32-bit zigzag varint; return the position behind it, NULL if it is cut or longer than 5 bytes."""
    cdef uint32_t byte, raw
    cdef int shift
    if at >= end:
        return NULL
    raw = at[0]
    at += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if at >= end or shift > 28:
                return NULL
            byte = at[0]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int64_t><int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return at


cdef inline const uint8_t *read_varlong(const uint8_t *at, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Read a 64-bit zigzag varint; return the position behind it, NULL if it is cut or longer than 10 bytes."""
    cdef uint64_t byte, raw
    cdef int shift
    if at >= end:
        return NULL
    raw = at[0]
    at += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if at >= end or shift > 63:
                return NULL
            byte = at[0]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = (raw >> 1) ^ (0 - (raw & 1))
    return at


cdef inline const uint8_t *read_field(
    const uint8_t *at, const uint8_t *end, const uint8_t **start, int64_t *size
) noexcept nogil:
    """Read a length and pass its bytes; return the position behind them, NULL if they pass `end`."""
    at = read_varint(at, end, size)
    if at is NULL:
        return NULL
    start[0] = at
    if size[0] > 0:
        if size[0] > end - at:
            return NULL
        at += size[0]
    return at


cdef bint scan_headers(const uint8_t *at, const uint8_t *end, int64_t count, Totals *totals) noexcept nogil:
    """Add a record's headers to `totals`; return whether they end where the record does."""
    cdef const uint8_t *start
    cdef int64_t size
    totals.headers += count
    while count > 0:
        count -= 1
        at = read_field(at, end, &start, &size)
        if at is NULL or size < 0:
            return False
        totals.header_key_bytes += size
        at = read_field(at, end, &start, &size)
        if at is NULL:
            return False
        if size < 0:
            totals.header_value_nulls += 1
        else:
            totals.header_value_bytes += size
    return at == end


cdef bint scan_section(
    const uint8_t *data,
    const int64_t *section,
    int64_t first,
    int64_t last,
    bint reads_headers,
    Columns *columns,
    Totals *totals,
) noexcept nogil:
    """Add the rows of one section with offsets from `first` to `last`; return whether it is valid."""
    cdef const uint8_t *at = data + section[0]
    cdef const uint8_t *section_end = data + section[1]
    cdef const uint8_t *end
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t count = section[2]
    cdef uint64_t base_offset = <uint64_t>section[3]
    cdef uint64_t base_timestamp = <uint64_t>section[4]
    cdef bint is_appended = section[5] != 0
    cdef int64_t size, delta, offset, key_size, value_size, header_count, row
    cdef uint64_t timestamp
    cdef Totals passed
    memset(&passed, 0, sizeof(Totals))
    while count > 0:
        count -= 1
        at = read_varint(at, section_end, &size)
        if at is NULL or size < 1 or size > section_end - at:
            return False
        end = at + size
        # The attributes byte is unused in format 2 and skipped.
        at = read_varlong(at + 1, end, &timestamp)
        if at is NULL:
            return False
        at = read_varint(at, end, &delta)
        if at is NULL:
            return False
        at = read_field(at, end, &key, &key_size)
        if at is NULL:
            return False
        at = read_field(at, end, &value, &value_size)
        if at is NULL:
            return False
        at = read_varint(at, end, &header_count)
        if at is NULL or header_count < 0 or 2 * header_count > end - at or (header_count == 0 and at != end):
            return False
        offset = <int64_t>(base_offset + <uint64_t>delta)
        if offset < first or offset > last:
            if reads_headers and header_count and not scan_headers(at, end, header_count, &passed):
                return False
            at = end
            continue
        row = totals.rows
        totals.rows += 1
        columns.offsets[row] = offset
        columns.timestamps[row] = section[6] if is_appended else <int64_t>(base_timestamp + timestamp)
        columns.timestamp_types[row] = is_appended
        columns.key_starts[row] = <int32_t>(key - data)
        if key_size < 0:
            columns.key_starts[row] = -1
            totals.key_nulls += 1
        else:
            totals.key_bytes += key_size
        columns.key_ends[row + 1] = <int32_t>totals.key_bytes
        columns.value_starts[row] = <int32_t>(value - data)
        if value_size < 0:
            columns.value_starts[row] = -1
            totals.value_nulls += 1
        else:
            totals.value_bytes += value_size
        columns.value_ends[row + 1] = <int32_t>totals.value_bytes
        if reads_headers:
            columns.header_starts[row] = <int32_t>(at - data)
            if header_count and not scan_headers(at, end, header_count, totals):
                return False
            columns.header_ends[row + 1] = <int32_t>totals.headers
        at = end
    return at == section_end


cdef bint scan_sections(
    const uint8_t *data,
    const int64_t *sections,
    int64_t count,
    int64_t first,
    int64_t last,
    bint reads_headers,
    Columns *columns,
    Totals *totals,
) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        if not scan_section(
            data, sections + SECTION_FIELDS * index, first, last, reads_headers, columns, totals
        ):
            return False
    return True


def scan(data, sections, int64_t first, int64_t last, bint reads_headers, columns):
    """Validate the records of all sections and fill every column but those of bytes.

    `sections` holds seven 64-bit integers for each section: start, end, record count, base offset, base timestamp,
    whether the batch has log-append time, and that time. Rows with offsets from `first` to `last` are taken.
    `columns` are the buffers of `Columns`, in its order, each as large as the record counts ask for; those of ends
    have one entry more. The starts of a null are -1.

    Return the totals as a tuple, or None if the records are not valid.
    """
    cdef _Memory source = _Memory(data, 0)
    cdef _Memory section_memory = _Memory(sections, 0)
    cdef const int64_t *bounds = <const int64_t *>section_memory.view.buf
    cdef int64_t section_count = section_memory.view.len // (8 * SECTION_FIELDS)
    cdef const uint8_t *start = <const uint8_t *>source.view.buf
    cdef int64_t count = 0, index, size = 0
    cdef bint is_valid
    if source.view.len > 0x7FFFFFFF:
        return None
    for index in range(section_count):
        section = bounds + SECTION_FIELDS * index
        if not 0 <= section[0] <= section[1] <= source.view.len or not 0 <= section[2] <= section[1] - section[0]:
            return None
        count += section[2]
        size += section[1] - section[0]
    offsets, timestamps, timestamp_types, key_starts, key_ends, value_starts, value_ends, header_starts, header_ends = (
        columns
    )
    cdef _Memory offsets_memory = _Memory(offsets, 8 * count, True)
    cdef _Memory timestamps_memory = _Memory(timestamps, 8 * count, True)
    cdef _Memory types_memory = _Memory(timestamp_types, 4 * count, True)
    cdef _Memory key_starts_memory = _Memory(key_starts, 4 * count, True)
    cdef _Memory key_ends_memory = _Memory(key_ends, 4 * count + 4, True)
    cdef _Memory value_starts_memory = _Memory(value_starts, 4 * count, True)
    cdef _Memory value_ends_memory = _Memory(value_ends, 4 * count + 4, True)
    cdef _Memory header_starts_memory = _Memory(header_starts, 4 * count if reads_headers else 0, True)
    cdef _Memory header_ends_memory = _Memory(header_ends, 4 * count + 4 if reads_headers else 0, True)
    cdef Columns filled
    filled.offsets = <int64_t *>offsets_memory.view.buf
    filled.timestamps = <int64_t *>timestamps_memory.view.buf
    filled.timestamp_types = <int32_t *>types_memory.view.buf
    filled.key_starts = <int32_t *>key_starts_memory.view.buf
    filled.key_ends = <int32_t *>key_ends_memory.view.buf
    filled.value_starts = <int32_t *>value_starts_memory.view.buf
    filled.value_ends = <int32_t *>value_ends_memory.view.buf
    filled.header_starts = <int32_t *>header_starts_memory.view.buf
    filled.header_ends = <int32_t *>header_ends_memory.view.buf
    filled.key_ends[0] = 0
    filled.value_ends[0] = 0
    if reads_headers:
        filled.header_ends[0] = 0
    cdef Totals totals
    memset(&totals, 0, sizeof(Totals))
    if size < NOGIL_BYTES_MIN:
        is_valid = scan_sections(start, bounds, section_count, first, last, reads_headers, &filled, &totals)
    else:
        with nogil:
            is_valid = scan_sections(start, bounds, section_count, first, last, reads_headers, &filled, &totals)
    if not is_valid:
        return None
    return (
        totals.rows,
        totals.key_bytes,
        totals.key_nulls,
        totals.value_bytes,
        totals.value_nulls,
        totals.headers,
        totals.header_key_bytes,
        totals.header_value_bytes,
        totals.header_value_nulls,
    )


cdef bint gather(
    const uint8_t *data, int64_t data_size, const int32_t *starts, const int32_t *ends, int64_t rows, uint8_t *out
) noexcept nogil:
    cdef int64_t row, size
    for row in range(rows):
        size = ends[row + 1] - ends[row]
        if size > 0:
            if starts[row] < 0 or starts[row] + size > data_size or ends[row] < 0 or ends[row + 1] > ends[rows]:
                return False
            memcpy(out + ends[row], data + starts[row], size)
    return True


def copy_bytes(data, starts, ends, int64_t rows, out):
    """Copy the bytes of each row to `out`, where `ends` says; `out` holds exactly the last end's bytes."""
    cdef _Memory source = _Memory(data, 0)
    cdef _Memory starts_memory = _Memory(starts, 4 * rows)
    cdef _Memory ends_memory = _Memory(ends, 4 * rows + 4)
    cdef const int32_t *bounds = <const int32_t *>ends_memory.view.buf
    cdef _Memory target = _Memory(out, max(0, bounds[rows]), True)
    cdef bint is_valid
    if bounds[rows] < NOGIL_BYTES_MIN:
        is_valid = gather(
            <const uint8_t *>source.view.buf,
            source.view.len,
            <const int32_t *>starts_memory.view.buf,
            bounds,
            rows,
            <uint8_t *>target.view.buf,
        )
    else:
        with nogil:
            is_valid = gather(
                <const uint8_t *>source.view.buf,
                source.view.len,
                <const int32_t *>starts_memory.view.buf,
                bounds,
                rows,
                <uint8_t *>target.view.buf,
            )
    if not is_valid:
        raise ValueError("a row lies outside the data")


def fill_views(data, starts, ends, int64_t rows, out):
    """Fill the views of a ``binary_view`` column over `data`: 16 bytes for each row."""
    cdef _Memory source = _Memory(data, 0)
    cdef _Memory starts_memory = _Memory(starts, 4 * rows)
    cdef _Memory ends_memory = _Memory(ends, 4 * rows + 4)
    cdef _Memory target = _Memory(out, 16 * rows, True)
    cdef const uint8_t *bytes_at = <const uint8_t *>source.view.buf
    cdef const int32_t *first = <const int32_t *>starts_memory.view.buf
    cdef const int32_t *bounds = <const int32_t *>ends_memory.view.buf
    cdef uint8_t *view = <uint8_t *>target.view.buf
    cdef int64_t row
    cdef int32_t size
    for row in range(rows):
        size = bounds[row + 1] - bounds[row]
        memset(view, 0, 16)
        memcpy(view, &size, 4)
        if size > 0:
            if first[row] < 0 or first[row] + size > source.view.len:
                raise ValueError("a row lies outside the data")
            if size <= INLINE_SIZE:
                memcpy(view + 4, bytes_at + first[row], size)
            else:
                memcpy(view + 4, bytes_at + first[row], 4)
                memcpy(view + 12, first + row, 4)
        view += 16


def fill_validity(starts, int64_t rows, out):
    """Set the bit of each row whose start is not -1, and clear the others."""
    cdef _Memory starts_memory = _Memory(starts, 4 * rows)
    cdef _Memory target = _Memory(out, (rows + 7) // 8, True)
    cdef const int32_t *first = <const int32_t *>starts_memory.view.buf
    cdef uint8_t *bits = <uint8_t *>target.view.buf
    cdef int64_t row
    memset(bits, 0, (rows + 7) // 8)
    for row in range(rows):
        if first[row] >= 0:
            bits[row >> 3] |= 1 << (row & 7)


def fill_header_fields(data, starts, ends, int64_t rows, columns):
    """Fill the starts and ends of the headers' keys and values, of rows that `scan` has validated.

    `starts` and `ends` are the header columns of `scan`. `columns` are key starts, key ends, value starts and value
    ends; each has one entry for each header, those of ends one more. The start of a null is -1.
    """
    cdef _Memory source = _Memory(data, 0)
    cdef _Memory starts_memory = _Memory(starts, 4 * rows)
    cdef _Memory ends_memory = _Memory(ends, 4 * rows + 4)
    cdef const int32_t *first = <const int32_t *>starts_memory.view.buf
    cdef const int32_t *bounds = <const int32_t *>ends_memory.view.buf
    cdef int64_t slots = bounds[rows]
    key_starts, key_ends, value_starts, value_ends = columns
    cdef _Memory key_starts_memory = _Memory(key_starts, 4 * slots, True)
    cdef _Memory key_ends_memory = _Memory(key_ends, 4 * slots + 4, True)
    cdef _Memory value_starts_memory = _Memory(value_starts, 4 * slots, True)
    cdef _Memory value_ends_memory = _Memory(value_ends, 4 * slots + 4, True)
    cdef int32_t *key_start = <int32_t *>key_starts_memory.view.buf
    cdef int32_t *key_end = <int32_t *>key_ends_memory.view.buf
    cdef int32_t *value_start = <int32_t *>value_starts_memory.view.buf
    cdef int32_t *value_end = <int32_t *>value_ends_memory.view.buf
    cdef const uint8_t *begin = <const uint8_t *>source.view.buf
    cdef const uint8_t *end = begin + source.view.len
    cdef const uint8_t *at
    cdef const uint8_t *field
    cdef int64_t row, size, slot = 0
    cdef bint is_valid = True
    key_end[0] = 0
    value_end[0] = 0
    with nogil:
        for row in range(rows):
            if not is_valid or first[row] < 0 or first[row] > source.view.len or bounds[row + 1] > slots:
                is_valid = False
                break
            at = begin + first[row]
            while slot < bounds[row + 1]:
                at = read_field(at, end, &field, &size)
                if at is NULL or size < 0:
                    is_valid = False
                    break
                key_start[slot] = <int32_t>(field - begin)
                key_end[slot + 1] = <int32_t>(key_end[slot] + size)
                at = read_field(at, end, &field, &size)
                if at is NULL:
                    is_valid = False
                    break
                value_start[slot] = -1 if size < 0 else <int32_t>(field - begin)
                value_end[slot + 1] = <int32_t>(value_end[slot] + (0 if size < 0 else size))
                slot += 1
    if not is_valid:
        raise ValueError("headers changed after they were validated")
