# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads record batches into the buffers of Arrow columns and into tuples, and writes them, in compiled code.

`columnar_compiled`, `columnar_encode_compiled`, `record` and the consumer's `record_decoder` call this module. The
same is done by `columnar_numpy` and `columnar_encode_numpy` with numpy, and for rows in plain Python; they define what is
right. A function here returns None or -1 for anything that it does not accept, and the caller then runs the numpy
code, which raises the error. So this module may accept less than the numpy code, never more.

Each read is compared with the end of the record, and each write with the end of its buffer, before it
happens. The bytes come from the network, and no exception follows a wrong access. Raise `INTERFACE` here and
in `implementation` when the arguments of a function change: an extension that an editable install left behind
must not be called in a new way.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    # What every class that Python code defines allocates with: an instance with room for so many items.
    object PyType_GenericAlloc(type cls, Py_ssize_t count)
    int64_t PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

INTERFACE = 8

cdef enum:
    # Below this many bytes a pass is shorter than a switch to another thread and back.
    NOGIL_BYTES_MIN = 65536
    # Arrow keeps values of up to 12 bytes inside the view and points to longer ones.
    INLINE_SIZE = 12
    # The fields of a section, see `scan`.
    SECTION_FIELDS = 7
    # The fields of a row, see `decode_rows`.
    ROW_FIELDS = 11
    # The fields of a record, see `decode_records`.
    RECORD_FIELDS = 6
    # As in `kalda.records.record`, which names the number.
    HEADERS_MAX = 1000000
    # The length -1 as a varint.
    NULL_LENGTH = 1
    BATCH_HEADER_SIZE = 61
    # The attributes of a batch that is compressed, transactional or a control batch.
    NOT_PLAIN = 0x37
    # Larger ones are faster where several instructions run at a time.
    INLINE_CRC_SIZE_MAX = 4096
    # The digits that `sort_values` sorts by.
    DIGIT_BITS = 11
    DIGITS = 2048

# The sum of two such numbers has 64 bits.
cdef int64_t NUMBER_MAX = <int64_t>1 << 62
# The cleaner's place of a record: this times its offset, and its start in the batch. The largest has 63 bits.
cdef int64_t PLACES_PER_OFFSET = <int64_t>1 << 31
cdef uint64_t OFFSET_SPAN_MAX = <uint64_t>1 << 31

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


cdef struct RecordFields:
    # A record as it is encoded; -1 bytes or fewer are a null.
    const uint8_t *end
    uint64_t timestamp_delta
    int64_t delta
    const uint8_t *key
    int64_t key_size
    const uint8_t *value
    int64_t value_size
    int64_t header_count


cdef inline const uint8_t *read_record(
    const uint8_t *at, const uint8_t *section_end, RecordFields *fields
) noexcept nogil:
    """Read a record up to its headers; return where they begin, NULL if the record is not valid."""
    cdef int64_t size
    at = read_varint(at, section_end, &size)
    if at is NULL or size < 1 or size > section_end - at:
        return NULL
    fields.end = at + size
    # The attributes byte is unused in format 2 and skipped.
    at = read_varlong(at + 1, fields.end, &fields.timestamp_delta)
    if at is NULL:
        return NULL
    at = read_varint(at, fields.end, &fields.delta)
    if at is NULL:
        return NULL
    at = read_field(at, fields.end, &fields.key, &fields.key_size)
    if at is NULL:
        return NULL
    at = read_field(at, fields.end, &fields.value, &fields.value_size)
    if at is NULL:
        return NULL
    at = read_varint(at, fields.end, &fields.header_count)
    if at is NULL or fields.header_count < 0 or 2 * fields.header_count > fields.end - at:
        return NULL
    if fields.header_count == 0 and at != fields.end:
        return NULL
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
    cdef int64_t count = section[2]
    cdef uint64_t base_offset = <uint64_t>section[3]
    cdef uint64_t base_timestamp = <uint64_t>section[4]
    cdef bint is_appended = section[5] != 0
    cdef int64_t offset, row
    cdef RecordFields fields
    cdef Totals passed
    memset(&passed, 0, sizeof(Totals))
    while count > 0:
        count -= 1
        at = read_record(at, section_end, &fields)
        if at is NULL:
            return False
        offset = <int64_t>(base_offset + <uint64_t>fields.delta)
        if offset < first or offset > last:
            if reads_headers and fields.header_count and not scan_headers(at, fields.end, fields.header_count, &passed):
                return False
            at = fields.end
            continue
        row = totals.rows
        totals.rows += 1
        columns.offsets[row] = offset
        columns.timestamps[row] = section[6] if is_appended else <int64_t>(base_timestamp + fields.timestamp_delta)
        columns.timestamp_types[row] = is_appended
        columns.key_starts[row] = <int32_t>(fields.key - data)
        if fields.key_size < 0:
            columns.key_starts[row] = -1
            totals.key_nulls += 1
        else:
            totals.key_bytes += fields.key_size
        columns.key_ends[row + 1] = <int32_t>totals.key_bytes
        columns.value_starts[row] = <int32_t>(fields.value - data)
        if fields.value_size < 0:
            columns.value_starts[row] = -1
            totals.value_nulls += 1
        else:
            totals.value_bytes += fields.value_size
        columns.value_ends[row + 1] = <int32_t>totals.value_bytes
        if reads_headers:
            columns.header_starts[row] = <int32_t>(at - data)
            if fields.header_count and not scan_headers(at, fields.end, fields.header_count, totals):
                return False
            columns.header_ends[row + 1] = <int32_t>totals.headers
        at = fields.end
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


cdef inline uint8_t *write_varint(uint8_t *at, uint64_t raw) noexcept nogil:
    """Write a zigzag varint; at most 10 bytes."""
    while raw > 0x7F:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int64_t varint_size(uint64_t raw) noexcept nogil:
    cdef int64_t size = 1
    while raw > 0x7F:
        size += 1
        raw >>= 7
    return size


cdef struct Field:
    # Values of a ``binary`` column from the first row on. `ends` is NULL where the column is missing: all nulls.
    const int32_t *ends
    const uint8_t *data
    int64_t data_size
    const uint8_t *validity
    int64_t first_bit


cdef inline bint read_value(const Field *field, int64_t row, const uint8_t **start, int64_t *size) noexcept nogil:
    """Find a row's value, -1 bytes for a null; return whether it lies in the data."""
    cdef int64_t bit = field.first_bit + row
    if field.ends is NULL or (field.validity is not NULL and not field.validity[bit >> 3] >> (bit & 7) & 1):
        size[0] = -1
        return True
    start[0] = field.data + field.ends[row]
    size[0] = <int64_t>field.ends[row + 1] - field.ends[row]
    return field.ends[row] >= 0 and size[0] >= 0 and field.ends[row + 1] <= field.data_size


cdef struct Row:
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    int64_t key_size
    int64_t value_size
    int64_t headers_size
    # Zigzag forms of the fields, and of the record's length.
    uint64_t raw_time
    uint64_t raw_key
    uint64_t raw_value
    uint64_t raw_size


cdef struct Rows:
    Field keys
    Field values
    Field headers
    const int64_t *times
    int64_t count


cdef inline int64_t read_row(const Rows *rows, int64_t index, Row *row) noexcept nogil:
    """Fill `row`; return the bytes of its record, or -1 if a value lies outside its column."""
    cdef int64_t size
    if not (
        read_value(&rows.keys, index, &row.key, &row.key_size)
        and read_value(&rows.values, index, &row.value, &row.value_size)
        and read_value(&rows.headers, index, &row.headers, &row.headers_size)
    ):
        return -1
    row.raw_time = zigzag(<int64_t>(<uint64_t>rows.times[index] - <uint64_t>rows.times[0]))
    row.raw_key = zigzag(row.key_size)
    row.raw_value = zigzag(row.value_size)
    # The attributes are a byte.
    size = 1 + varint_size(row.raw_time) + varint_size(zigzag(index))
    size += varint_size(row.raw_key) + varint_size(row.raw_value)
    size += row.key_size if row.key_size > 0 else 0
    size += row.value_size if row.value_size > 0 else 0
    # Without headers a record ends with their count, 0.
    size += row.headers_size if row.headers_size > 0 else 1
    row.raw_size = zigzag(size)
    return varint_size(row.raw_size) + size


cdef int64_t measure_rows(const Rows *rows) noexcept nogil:
    """Return the bytes of all records, or -1 if a value lies outside its column."""
    cdef int64_t index, size, total = 0
    cdef Row row
    for index in range(rows.count):
        size = read_row(rows, index, &row)
        if size < 0:
            return -1
        total += size
    return total


cdef bint write_rows(const Rows *rows, uint8_t *at, int64_t room) noexcept nogil:
    """Write the records, which take `room` bytes; return whether they did."""
    cdef const uint8_t *end = at + room
    cdef int64_t index, size
    cdef Row row
    for index in range(rows.count):
        size = read_row(rows, index, &row)
        if size < 0 or size > end - at:
            return False
        at = write_varint(at, row.raw_size)
        at[0] = 0
        at = write_varint(write_varint(at + 1, row.raw_time), zigzag(index))
        at = write_varint(at, row.raw_key)
        if row.key_size > 0:
            memcpy(at, row.key, row.key_size)
            at += row.key_size
        at = write_varint(at, row.raw_value)
        if row.value_size > 0:
            memcpy(at, row.value, row.value_size)
            at += row.value_size
        if row.headers_size > 0:
            memcpy(at, row.headers, row.headers_size)
            at += row.headers_size
        else:
            at[0] = 0
            at += 1
    return at == end


cdef class _Column:
    """The buffers of one ``binary`` column, held as long as a call needs them."""

    cdef Field field
    cdef _Memory ends
    cdef _Memory data
    cdef _Memory validity

    def __cinit__(self, column, int64_t rows):
        memset(&self.field, 0, sizeof(Field))
        if column is None:
            return
        first, validity, ends, data = column
        cdef int64_t start = first
        if start < 0:
            raise ValueError("a column starts before its first row")
        self.ends = _Memory(ends, 4 * (start + rows + 1))
        self.field.ends = <const int32_t *>self.ends.view.buf + start
        if data is not None:
            self.data = _Memory(data, 0)
            self.field.data = <const uint8_t *>self.data.view.buf
            self.field.data_size = self.data.view.len
        if validity is not None:
            self.validity = _Memory(validity, (start + rows + 7) // 8)
            self.field.validity = <const uint8_t *>self.validity.view.buf
            self.field.first_bit = start


def encode_records(keys, values, headers, times, int64_t rows, int64_t prefix):
    """Return `prefix` unset bytes and behind them the records, with the offset deltas 0, 1, 2...

    Each column is a tuple of its first row, validity bits or None, ends and data or None, as Arrow lays out
    ``binary``; None stands for a column of nulls. `headers` holds the headers of each record as they are encoded, the
    count first. `times` are 64-bit integers.

    Return None if a column has other buffers than its rows need.
    """
    cdef _Column key_column = _Column(keys, rows)
    cdef _Column value_column = _Column(values, rows)
    cdef _Column header_column = _Column(headers, rows)
    cdef _Memory time_memory = _Memory(times, 8 * rows)
    cdef Rows source
    source.keys = key_column.field
    source.values = value_column.field
    source.headers = header_column.field
    source.times = <const int64_t *>time_memory.view.buf
    source.count = rows
    cdef int64_t size
    cdef bint is_written
    cdef uint8_t *start
    # With the GIL: to wait for it a second time could take longer than to measure.
    size = measure_rows(&source)
    if size < 0:
        return None
    batch = PyByteArray_FromStringAndSize(NULL, prefix + size)
    start = <uint8_t *>PyByteArray_AS_STRING(batch) + prefix
    if size < NOGIL_BYTES_MIN:
        is_written = write_rows(&source, start, size)
    else:
        with nogil:
            is_written = write_rows(&source, start, size)
    return batch if is_written else None


cdef int64_t measure_headers(
    const Field *lists, const Field *keys, const Field *values, int64_t entries, int64_t rows
) noexcept nogil:
    """Return the bytes of all rows' headers, or -1 if a key is null or a field lies outside its column."""
    cdef const uint8_t *start
    cdef int64_t row, slot, count, size, total = 0
    for row in range(rows):
        if not read_list(lists, row, entries, &slot, &count):
            return -1
        total += varint_size(zigzag(count))
        for slot in range(slot, slot + count):
            if not read_value(keys, slot, &start, &size) or size < 0:
                return -1
            total += varint_size(zigzag(size)) + size
            if not read_value(values, slot, &start, &size):
                return -1
            total += varint_size(zigzag(size)) + (size if size > 0 else 0)
    return total


cdef inline bint read_list(
    const Field *lists, int64_t row, int64_t entries, int64_t *first, int64_t *count
) noexcept nogil:
    """Find a row's entries, none for a null; return whether they exist."""
    cdef int64_t bit = lists.first_bit + row
    first[0] = 0
    count[0] = 0
    if lists.validity is not NULL and not lists.validity[bit >> 3] >> (bit & 7) & 1:
        return True
    first[0] = lists.ends[row]
    count[0] = <int64_t>lists.ends[row + 1] - first[0]
    return first[0] >= 0 and count[0] >= 0 and first[0] + count[0] <= entries


cdef bint write_headers(
    const Field *lists,
    const Field *keys,
    const Field *values,
    int64_t entries,
    int64_t rows,
    int32_t *ends,
    uint8_t *out,
    int64_t room,
) noexcept nogil:
    """Write the headers, which `measure_headers` has measured, and where those of each row end."""
    cdef uint8_t *at = out
    cdef const uint8_t *end = out + room
    cdef const uint8_t *start
    cdef int64_t row, slot, count, size
    ends[0] = 0
    for row in range(rows):
        if not read_list(lists, row, entries, &slot, &count) or varint_size(zigzag(count)) > end - at:
            return False
        at = write_varint(at, zigzag(count))
        for slot in range(slot, slot + count):
            if not read_value(keys, slot, &start, &size) or varint_size(zigzag(size)) + size > end - at:
                return False
            at = write_varint(at, zigzag(size))
            if size > 0:
                memcpy(at, start, size)
                at += size
            if not read_value(values, slot, &start, &size):
                return False
            if varint_size(zigzag(size)) + (size if size > 0 else 0) > end - at:
                return False
            at = write_varint(at, zigzag(size))
            if size > 0:
                memcpy(at, start, size)
                at += size
        ends[row + 1] = <int32_t>(at - out)
    return at == end


def encode_headers(lists, keys, values, int64_t entries, int64_t rows, ends):
    """Return the headers of each row as they are encoded, the count first, and fill `ends`.

    `lists` is the column of lists, without data; `keys` and `values` have `entries` rows. The columns are tuples as in
    `encode_records`. Return None if a key is null, or a column has other buffers than its rows need.
    """
    cdef _Column list_column = _Column(lists, rows)
    cdef _Column key_column = _Column(keys, entries)
    cdef _Column value_column = _Column(values, entries)
    cdef _Memory end_memory = _Memory(ends, 4 * rows + 4, True)
    cdef int64_t size
    cdef bint is_written
    cdef uint8_t *start
    if list_column.field.ends is NULL:
        return None
    with nogil:
        size = measure_headers(&list_column.field, &key_column.field, &value_column.field, entries, rows)
    if size < 0 or size > 0x7FFFFFFF:
        return None
    contents = PyByteArray_FromStringAndSize(NULL, size)
    start = <uint8_t *>PyByteArray_AS_STRING(contents)
    with nogil:
        is_written = write_headers(
            &list_column.field,
            &key_column.field,
            &value_column.field,
            entries,
            rows,
            <int32_t *>end_memory.view.buf,
            start,
            size,
        )
    return contents if is_written else None


cdef tuple read_header_tuples(const uint8_t *at, const uint8_t *end, int64_t count):
    """Return a record's headers as pairs of name and value; None if they are too many or do not end with the record."""
    cdef const uint8_t *start
    cdef int64_t size
    if count > HEADERS_MAX:
        return None
    headers = []
    while count > 0:
        count -= 1
        at = read_field(at, end, &start, &size)
        if at is NULL or size < 0:
            return None
        # Java replaces invalid UTF-8 too; a producer's bad header must not stop a consumer.
        name = PyUnicode_DecodeUTF8(<const char *>start, size, "replace")
        at = read_field(at, end, &start, &size)
        if at is NULL:
            return None
        headers.append((name, None if size < 0 else PyBytes_FromStringAndSize(<const char *>start, size)))
    return tuple(headers) if at == end else None


cdef inline void set_item(object row, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(row, index, item)


def decode_rows(
    bytes data,
    int64_t position,
    int64_t count,
    type row_type,
    topic,
    partition,
    timestamp_type,
    leader_epoch,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    key_deserializer,
    value_deserializer,
    list rows,
):
    """Add `count` records from `position` on to `rows`; return the position behind them.

    A row is an instance of `row_type`, a named tuple with the fields of `ConsumerRecord`. A deserializer is a function
    of bytes, or None. Return -1 with `rows` unchanged if a record is not valid, or a number passes 64 bits. What a
    deserializer raises is raised; `rows` may have grown then.
    """
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *data_end = begin + PyBytes_GET_SIZE(data)
    cdef const uint8_t *at
    cdef RecordFields fields
    cdef int64_t index, key_size, value_size, first = len(rows)
    cdef int64_t time_delta, last_delta = 0
    if not issubclass(row_type, tuple) or not 0 <= position <= PyBytes_GET_SIZE(data):
        raise ValueError("rows must be tuples, and start in the data")
    if not -NUMBER_MAX < base_offset < NUMBER_MAX or not -NUMBER_MAX < base_timestamp < NUMBER_MAX:
        return -1
    # Neighbours mostly have the same time.
    time = base_timestamp if append_time is None else append_time
    at = begin + position
    for index in range(count):
        at = read_record(at, data_end, &fields)
        if at is NULL:
            break
        if append_time is None:
            time_delta = <int64_t>fields.timestamp_delta
            if time_delta != last_delta:
                if not -NUMBER_MAX < time_delta < NUMBER_MAX:
                    break
                time = base_timestamp + time_delta
                last_delta = time_delta
        headers = ()
        if fields.header_count:
            headers = read_header_tuples(at, fields.end, fields.header_count)
            if headers is None:
                break
        key = None
        key_size = max(fields.key_size, -1)
        if key_size >= 0:
            key = PyBytes_FromStringAndSize(<const char *>fields.key, key_size)
        value = None
        value_size = max(fields.value_size, -1)
        if value_size >= 0:
            value = PyBytes_FromStringAndSize(<const char *>fields.value, value_size)
        if key_deserializer is not None and key_size >= 0:
            key = key_deserializer(key)
        if value_deserializer is not None and value_size >= 0:
            value = value_deserializer(value)
        offset = base_offset + fields.delta
        row = PyType_GenericAlloc(row_type, ROW_FIELDS)
        set_item(row, 0, topic)
        set_item(row, 1, partition)
        set_item(row, 2, offset)
        set_item(row, 3, time)
        set_item(row, 4, timestamp_type)
        set_item(row, 5, key)
        set_item(row, 6, value)
        set_item(row, 7, headers)
        set_item(row, 8, key_size)
        set_item(row, 9, value_size)
        set_item(row, 10, leader_epoch)
        rows.append(row)
        at = fields.end
    else:
        return at - begin
    del rows[first:]
    return -1


cdef inline uint8_t *write_bytes(uint8_t *at, const uint8_t *data, int64_t size) noexcept nogil:
    """Write a length and its bytes; -1 bytes are a null."""
    at = write_varint(at, zigzag(size))
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


def append_record(bytearray records, bytes time_field, int64_t offset_delta, key, value, bytes header_field):
    """Append one record to `records`; return its bytes.

    `time_field` is the byte of attributes and the timestamp delta, `header_field` the headers as they are encoded, the
    count first. Key and value are bytes-like or None. An exception leaves `records` unchanged.
    """
    cdef _Memory key_memory, value_memory
    cdef const uint8_t *key_data = NULL
    cdef const uint8_t *value_data = NULL
    cdef int64_t key_size = -1, value_size = -1, size, record_size
    cdef Py_ssize_t position = PyByteArray_GET_SIZE(records)
    cdef uint8_t *at
    if type(key) is bytes:
        key_data = <const uint8_t *>PyBytes_AS_STRING(key)
        key_size = PyBytes_GET_SIZE(key)
    elif key is not None:
        key_memory = _Memory(key, 0)
        key_data = <const uint8_t *>key_memory.view.buf
        key_size = key_memory.view.len
    if type(value) is bytes:
        value_data = <const uint8_t *>PyBytes_AS_STRING(value)
        value_size = PyBytes_GET_SIZE(value)
    elif value is not None:
        value_memory = _Memory(value, 0)
        value_data = <const uint8_t *>value_memory.view.buf
        value_size = value_memory.view.len
    size = PyBytes_GET_SIZE(time_field) + varint_size(zigzag(offset_delta)) + PyBytes_GET_SIZE(header_field)
    size += varint_size(zigzag(key_size)) + varint_size(zigzag(value_size))
    size += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
    record_size = varint_size(zigzag(size)) + size
    PyByteArray_Resize(records, position + record_size)
    at = <uint8_t *>PyByteArray_AS_STRING(records) + position
    at = write_varint(at, zigzag(size))
    memcpy(at, PyBytes_AS_STRING(time_field), PyBytes_GET_SIZE(time_field))
    at = write_varint(at + PyBytes_GET_SIZE(time_field), zigzag(offset_delta))
    at = write_bytes(at, key_data, key_size)
    at = write_bytes(at, value_data, value_size)
    memcpy(at, PyBytes_AS_STRING(header_field), PyBytes_GET_SIZE(header_field))
    return record_size


# CRC-32 (the polynomial of zlib), sixteen bytes at a time: entry k of a byte is its effect from k bytes before.
cdef uint32_t[16][256] CRC_TABLES

cdef void fill_crc_tables() noexcept nogil:
    cdef uint32_t crc
    cdef int byte, bit, table
    for byte in range(256):
        crc = byte
        for bit in range(8):
            crc = (crc >> 1) ^ (0xEDB88320U if crc & 1 else 0)
        CRC_TABLES[0][byte] = crc
    for byte in range(256):
        for table in range(1, 16):
            crc = CRC_TABLES[table - 1][byte]
            CRC_TABLES[table][byte] = (crc >> 8) ^ CRC_TABLES[0][crc & 0xFF]

fill_crc_tables()


cdef inline uint32_t crc32(const uint8_t *at, int64_t size) noexcept nogil:
    """Return the CRC-32 of bytes, as `zlib.crc32` does."""
    cdef uint32_t crc = 0xFFFFFFFFU
    cdef const uint8_t *end = at + size
    while end - at >= 16:
        crc ^= at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        crc = (
            CRC_TABLES[15][crc & 0xFF]
            ^ CRC_TABLES[14][(crc >> 8) & 0xFF]
            ^ CRC_TABLES[13][(crc >> 16) & 0xFF]
            ^ CRC_TABLES[12][crc >> 24]
            ^ CRC_TABLES[11][at[4]]
            ^ CRC_TABLES[10][at[5]]
            ^ CRC_TABLES[9][at[6]]
            ^ CRC_TABLES[8][at[7]]
            ^ CRC_TABLES[7][at[8]]
            ^ CRC_TABLES[6][at[9]]
            ^ CRC_TABLES[5][at[10]]
            ^ CRC_TABLES[4][at[11]]
            ^ CRC_TABLES[3][at[12]]
            ^ CRC_TABLES[2][at[13]]
            ^ CRC_TABLES[1][at[14]]
            ^ CRC_TABLES[0][at[15]]
        )
        at += 16
    while end - at >= 4:
        crc ^= at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        crc = (
            CRC_TABLES[3][crc & 0xFF]
            ^ CRC_TABLES[2][(crc >> 8) & 0xFF]
            ^ CRC_TABLES[1][(crc >> 16) & 0xFF]
            ^ CRC_TABLES[0][crc >> 24]
        )
        at += 4
    while at < end:
        crc = (crc >> 8) ^ CRC_TABLES[0][(crc ^ at[0]) & 0xFF]
        at += 1
    return ~crc


cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    #define HAS_CRC32C_INSTRUCTION __builtin_cpu_supports("sse4.2")
    /* Clang 14 and later have a feature of its own for the instruction; GCC before 11 does not know the name. */
    #if defined(__clang_major__) && __clang_major__ >= 14
    __attribute__((target("sse4.2,crc32")))
    #else
    __attribute__((target("sse4.2")))
    #endif
    static uint32_t crc32c_instructions(uint32_t crc, const uint8_t *at, int64_t size) {
        uint64_t word, wide = crc;
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            wide = _mm_crc32_u64(wide, word);
        }
        for (crc = (uint32_t)wide; size > 0; size--) crc = _mm_crc32_u8(crc, *at++);
        return crc;
    }
    #elif defined(__ARM_FEATURE_CRC32) || (defined(__aarch64__) && defined(__linux__) && !defined(__clang__))
    #include <arm_acle.h>
    #if defined(__ARM_FEATURE_CRC32)
    #define HAS_CRC32C_INSTRUCTION 1
    #else
    /* The first processors of the architecture need not have it: the kernel knows. */
    #include <sys/auxv.h>
    static int has_crc32c_instruction(void) {
        static int found = -1;
        if (found < 0) found = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
        return found;
    }
    #define HAS_CRC32C_INSTRUCTION has_crc32c_instruction()
    __attribute__((target("+crc")))
    #endif
    static uint32_t crc32c_instructions(uint32_t crc, const uint8_t *at, int64_t size) {
        uint64_t word;
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            crc = __crc32cd(crc, word);
        }
        for (; size > 0; size--) crc = __crc32cb(crc, *at++);
        return crc;
    }
    #else
    #define HAS_CRC32C_INSTRUCTION 0
    #define crc32c_instructions(crc, at, size) (crc)
    #endif
    """
    const bint HAS_CRC32C_INSTRUCTION
    uint32_t crc32c_instructions(uint32_t crc, const uint8_t *at, int64_t size) noexcept nogil


cdef inline uint32_t read_int32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t>read_int32(at) << 32 | read_int32(at + 4))


cdef struct Run:
    # The records that messages became, and what a batch has to know of them.
    uint8_t *at
    int64_t message_start
    int64_t message_end
    int64_t rows
    int64_t max_timestamp
    int64_t base_timestamp


cdef void write_run(
    Run *run, const uint8_t *limit, const uint8_t *data, int64_t size, int64_t position, int magic, int64_t bytes_max,
    int64_t room, int64_t first_delta
) noexcept nogil:
    """Write messages as records until one is not of the usual kind, or the records would pass `room` or `limit`."""
    cdef const uint8_t *at
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t overhead = 34 if magic else 26
    cdef int64_t end, length, key_size, value_size, timestamp = -1, record_size
    cdef uint64_t delta, offset_delta
    cdef uint8_t *start = run.at
    while position + overhead <= size:
        at = data + position
        length = <int32_t>read_int32(at + 8)
        end = position + 12 + length
        if (
            end - position < overhead
            or end - position > bytes_max
            or end > size
            or at[16] != magic
            or at[17] & 7
            or crc32(at + 16, end - position - 16) != read_int32(at + 12)
        ):
            return
        if magic:
            timestamp = read_int64(at + 18)
            # A time that no batch can hold has an error of its own.
            if timestamp < -1:
                return
        # So has one whose distance from the first one has more than 64 bits.
        if run.base_timestamp == -1 and timestamp == INT64_MAX:
            return
        at += overhead - 8
        key_size = <int32_t>read_int32(at)
        at += 4
        if key_size > data + end - at - 4:
            return
        key = at
        if key_size > 0:
            at += key_size
        value_size = <int32_t>read_int32(at)
        at += 4
        if (value_size if value_size > 0 else 0) != data + end - at:
            return
        value = at
        if (run.at - start) + (end - position) > room:
            return
        delta = zigzag(timestamp - run.base_timestamp) if run.base_timestamp >= -1 else 0
        offset_delta = zigzag(first_delta + run.rows)
        key_size = key_size if key_size >= 0 else -1
        value_size = value_size if value_size >= 0 else -1
        record_size = 2 + varint_size(delta) + varint_size(offset_delta)
        record_size += varint_size(zigzag(key_size)) + varint_size(zigzag(value_size))
        record_size += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
        if varint_size(zigzag(record_size)) + record_size > limit - run.at:
            return
        run.at = write_varint(run.at, zigzag(record_size))
        run.at[0] = 0
        run.at = write_varint(run.at + 1, delta)
        run.at = write_varint(run.at, offset_delta)
        run.at = write_bytes(run.at, key, key_size)
        run.at = write_bytes(run.at, value, value_size)
        run.at[0] = 0
        run.at += 1
        if run.base_timestamp < -1:
            run.base_timestamp = timestamp
        run.rows += 1
        run.max_timestamp = max(run.max_timestamp, timestamp)
        run.message_start = position
        run.message_end = end
        position = end


def append_messages(
    bytearray records, data, int64_t position, int magic, int64_t bytes_max, int64_t room, int64_t base_timestamp,
    int64_t first_delta
):
    """Append messages of a message set to `records`, up to the first that `message_set.iter_plain_messages` leaves out.

    Messages of at most `bytes_max` bytes are usual; those that are appended have at most `room` bytes, and are counted
    as they become records. Timestamps are relative to `base_timestamp`; below -1, the first message sets it. Returns where
    the last message starts and ends, how many there were, the largest timestamp (-1 without one) and the base.
    """
    cdef _Memory memory = _Memory(data, 0)
    cdef int64_t size = memory.view.len
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(records)
    cdef Run run
    if position < 0 or position > size or magic not in (0, 1):
        raise ValueError(f"position {position} of {size} bytes, format {magic}")
    run.message_start = run.message_end = position
    run.rows = 0
    run.max_timestamp = -1
    run.base_timestamp = base_timestamp
    # What is appended is no larger than its messages.
    cdef int64_t capacity = min(size - position, max(room, 0))
    PyByteArray_Resize(records, before + capacity)
    run.at = <uint8_t *>PyByteArray_AS_STRING(records) + before
    with nogil:
        write_run(
            &run, run.at + capacity, <const uint8_t *>memory.view.buf, size, position, magic, bytes_max, room,
            first_delta
        )
    PyByteArray_Resize(records, run.at - <uint8_t *>PyByteArray_AS_STRING(records))
    return (run.message_start, run.message_end), run.rows, run.max_timestamp, run.base_timestamp


cdef inline uint8_t *write_int32(uint8_t *at, uint32_t number) noexcept nogil:
    at[0] = number >> 24
    at[1] = number >> 16
    at[2] = number >> 8
    at[3] = number
    return at + 4


cdef inline uint8_t *write_int64(uint8_t *at, uint64_t number) noexcept nogil:
    return write_int32(write_int32(at, <uint32_t>(number >> 32)), <uint32_t>number)


cdef inline uint8_t *write_sized(uint8_t *at, const uint8_t *data, int64_t size) noexcept nogil:
    """Write a length of 32 bits and its bytes; fewer than 0 are a null."""
    at = write_int32(at, <uint32_t>max(size, -1))
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


cdef struct Messages:
    # The messages that records became, and what they have in common.
    uint8_t *at
    int magic
    int attributes
    bint is_relative
    bint is_appended
    int64_t append_time
    int64_t first_offset
    int64_t read
    int64_t rows
    bint has_start
    int64_t start_offset
    int64_t last_offset
    int64_t max_timestamp


cdef uint8_t *write_message(
    uint8_t *at, const Messages *messages, int64_t offset, int64_t timestamp, const RecordFields *fields
) noexcept nogil:
    cdef uint8_t *start = at
    at[16] = messages.magic
    at[17] = messages.attributes
    at += 18
    if messages.magic:
        at = write_int64(at, <uint64_t>timestamp)
    at = write_sized(at, fields.key, fields.key_size)
    at = write_sized(at, fields.value, fields.value_size)
    write_int64(start, <uint64_t>offset)
    write_int32(start + 8, <uint32_t>(at - start - 12))
    write_int32(start + 12, crc32(start + 16, at - start - 16))
    return at


cdef inline bint is_wrapped(int64_t total, int64_t base, int64_t delta) noexcept nogil:
    """Return whether a sum has more than 64 bits, as with the delta of a faulty producer."""
    return (total < base) != (delta < 0)


cdef const uint8_t *write_section(
    Messages *messages, const uint8_t *at, const uint8_t *section_end, int64_t count, int64_t base_offset,
    int64_t base_timestamp
) noexcept nogil:
    """Write records as messages up to the first that is not whole or cannot be one; return where that begins."""
    cdef const uint8_t *start
    cdef RecordFields fields
    cdef Totals passed
    cdef int64_t offset, timestamp
    memset(&passed, 0, sizeof(Totals))
    while messages.read < count:
        start = at
        at = read_record(at, section_end, &fields)
        if at is NULL or (fields.header_count and not scan_headers(at, fields.end, fields.header_count, &passed)):
            return start
        at = fields.end
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>fields.delta)
        if is_wrapped(offset, base_offset, fields.delta):
            return start
        timestamp = messages.append_time
        if not messages.is_appended:
            timestamp = <int64_t>(<uint64_t>base_timestamp + fields.timestamp_delta)
            if is_wrapped(timestamp, base_timestamp, <int64_t>fields.timestamp_delta):
                return start
        if offset < messages.first_offset:
            messages.read += 1
            continue
        if not messages.has_start:
            messages.has_start = True
            messages.start_offset = offset
        elif offset <= messages.last_offset:
            return start
        messages.at = write_message(
            messages.at, messages, offset - messages.start_offset if messages.is_relative else offset, timestamp, &fields
        )
        messages.read += 1
        messages.rows += 1
        messages.last_offset = offset
        messages.max_timestamp = max(messages.max_timestamp, timestamp)
    return at


def append_records_as_messages(
    bytearray target, data, int64_t position, int64_t count, int magic, bint is_relative, int64_t base_offset,
    int64_t base_timestamp, append_time, int64_t first_offset, start_offset, int64_t last_offset
):
    """Append the records from `position` on to the message set `target`, those with offsets from `first_offset` on.

    `data` are records of a batch, uncompressed, of which at most `count` are read. With `append_time`, it is the
    timestamp of every message; else the messages have those of the records. Offsets are written as they are, or
    relative to `start_offset`, which is the first one's where it is None; they follow `last_offset`. It stops before a
    record that is not whole or not valid, or whose offset does not increase. Returns where that begins, how many
    records were read, how many messages were appended, the first and the last offset and the largest timestamp of
    these.
    """
    cdef _Memory memory = _Memory(data, 0)
    cdef int64_t size = memory.view.len
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(target)
    cdef Messages messages
    if magic not in (0, 1) or not 0 <= position <= size or count < 0:
        raise ValueError(f"format {magic}, position {position} of {size} bytes, {count} records")
    messages.magic = magic
    messages.is_relative = is_relative
    messages.is_appended = append_time is not None
    messages.append_time = append_time if append_time is not None else -1
    messages.attributes = 8 if messages.is_appended and magic else 0
    messages.first_offset = first_offset
    messages.rows = messages.read = 0
    messages.has_start = start_offset is not None
    messages.start_offset = start_offset if start_offset is not None else -1
    messages.last_offset = last_offset
    messages.max_timestamp = -1
    # A record has at least 7 bytes, and its message at most 27 more than the record.
    PyByteArray_Resize(target, before + size - position + 27 * min(count, (size - position) // 7))
    messages.at = <uint8_t *>PyByteArray_AS_STRING(target) + before
    cdef const uint8_t *start = <const uint8_t *>memory.view.buf
    cdef const uint8_t *end
    if size < NOGIL_BYTES_MIN:
        end = write_section(&messages, start + position, start + size, count, base_offset, base_timestamp)
    else:
        with nogil:
            end = write_section(&messages, start + position, start + size, count, base_offset, base_timestamp)
    PyByteArray_Resize(target, messages.at - <uint8_t *>PyByteArray_AS_STRING(target))
    return (
        end - start, messages.read, messages.rows, messages.start_offset, messages.last_offset, messages.max_timestamp
    )


def read_plain(batch not None, checksum not None):
    """Return what `batch.read_plain` returns; `checksum` is CRC-32C.

    The header is read field by field: base offset 0, length 8, magic 16, CRC 17, attributes 21, last offset delta 23,
    base timestamp 27, maximum timestamp 35, producer id 43, base sequence 53, count 57.
    """
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef int32_t last_offset_delta
    cdef int64_t max_timestamp, producer_id
    cdef uint32_t crc
    cdef bint is_plain
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if view.len < 61:
            return None
        at = <const uint8_t *>view.buf
        last_offset_delta = <int32_t>read_int32(at + 23)
        max_timestamp = read_int64(at + 35)
        producer_id = read_int64(at + 43)
        crc = read_int32(at + 17)
        is_plain = (
            at[16] == 2
            and <int64_t><int32_t>read_int32(at + 8) + 12 == view.len
            and at[21] == 0
            and at[22] <= 4
            and read_int64(at) == 0
            and 0 <= last_offset_delta < 0x7FFFFFFF
            and <int32_t>read_int32(at + 57) == last_offset_delta + 1
            and (<int32_t>read_int32(at + 53) >= 0 or producer_id < 0)
            and max_timestamp >= read_int64(at + 27)
        )
    finally:
        PyBuffer_Release(&view)
    if not is_plain or checksum(memoryview(batch)[21:]) != crc:
        return None
    return last_offset_delta, max_timestamp, producer_id


def decode_records(
    bytes data, int64_t position, int64_t count, type record_type, timestamp_type, int64_t base_offset,
    int64_t base_timestamp, append_time, list records
):
    """Add `count` records from `position` on to `records`; return the position behind them.

    A record is an instance of `record_type`, a named tuple with the fields of `record.Record`. Return -1 with `records`
    unchanged if a record is not valid, or a number passes 64 bits.
    """
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *data_end = begin + PyBytes_GET_SIZE(data)
    cdef const uint8_t *at
    cdef RecordFields fields
    cdef int64_t index, time_delta, last_delta = 0
    cdef Py_ssize_t first = len(records)
    if not issubclass(record_type, tuple) or not 0 <= position <= PyBytes_GET_SIZE(data):
        raise ValueError("records must be tuples, and start in the data")
    if not -NUMBER_MAX < base_offset < NUMBER_MAX or not -NUMBER_MAX < base_timestamp < NUMBER_MAX:
        return -1
    # Neighbours mostly have the same time.
    time = base_timestamp if append_time is None else append_time
    at = begin + position
    for index in range(count):
        at = read_record(at, data_end, &fields)
        if at is NULL:
            break
        if append_time is None:
            time_delta = <int64_t>fields.timestamp_delta
            if time_delta != last_delta:
                if not -NUMBER_MAX < time_delta < NUMBER_MAX:
                    break
                time = base_timestamp + time_delta
                last_delta = time_delta
        headers = []
        if fields.header_count:
            pairs = read_header_tuples(at, fields.end, fields.header_count)
            if pairs is None:
                break
            headers = list(pairs)
        key = None
        if fields.key_size >= 0:
            key = PyBytes_FromStringAndSize(<const char *>fields.key, fields.key_size)
        value = None
        if fields.value_size >= 0:
            value = PyBytes_FromStringAndSize(<const char *>fields.value, fields.value_size)
        offset = base_offset + fields.delta
        record = PyType_GenericAlloc(record_type, RECORD_FIELDS)
        set_item(record, 0, offset)
        set_item(record, 1, time)
        set_item(record, 2, timestamp_type)
        set_item(record, 3, key)
        set_item(record, 4, value)
        set_item(record, 5, headers)
        records.append(record)
        at = fields.end
    else:
        return at - begin
    del records[first:]
    return -1


# What the cleaner of logs does once for each record or batch; see `kalda.storage.cleaner`.


cdef inline bint is_tombstone(const RecordFields *fields) noexcept nogil:
    return fields.value_size < 0


cdef inline bint has_usual_null(const RecordFields *fields) noexcept nogil:
    """Return whether a null value has the length -1 in one byte, the only one that the Python code looks for."""
    return fields.value_size >= 0 or (fields.value_size == -1 and (fields.value - 1)[0] == NULL_LENGTH)


cdef struct Noted:
    int64_t keyless
    bint has_tombstones


cdef bint note_section(
    dict places, const uint8_t *at, const uint8_t *end, int64_t count, int64_t place, int64_t key_size_max, shorten,
    Noted *noted
) except -1:
    """Set the place of each key; return whether the records are valid. If not, some places may be set."""
    cdef const uint8_t *first = at
    cdef const uint8_t *start
    cdef RecordFields fields
    while count > 0:
        count -= 1
        start = at
        if read_record(at, end, &fields) is NULL or not has_usual_null(&fields):
            return False
        if is_tombstone(&fields):
            noted.has_tombstones = True
        if fields.key_size < 0:
            noted.keyless += 1
        else:
            key = PyBytes_FromStringAndSize(<const char *>fields.key, fields.key_size)
            if fields.key_size > key_size_max:
                key = shorten(key)
            places[key] = place + (start - first)
        place += PLACES_PER_OFFSET
        at = fields.end
    return at == end


def note_keys(
    dict places, bytes data, int64_t position, int64_t end, int64_t count, place, int64_t key_size_max, shorten
):
    """Set the last place of each key of `count` records from `position` to `end`, as the cleaner's `note_keys` does.

    Keys of more than `key_size_max` bytes are replaced by what `shorten` returns for them. Return whether there are
    tombstones and how many records have no key, or None if a record is not valid; some places may be set then.
    """
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Noted noted
    noted.keyless = 0
    noted.has_tombstones = False
    if not 0 <= position <= end <= PyBytes_GET_SIZE(data) or not 0 <= count <= end - position:
        return None
    if count >= <int64_t>OFFSET_SPAN_MAX or not 0 <= place < (<int64_t>OFFSET_SPAN_MAX - count) * PLACES_PER_OFFSET:
        return None
    if not note_section(places, begin + position, begin + end, count, place, key_size_max, shorten, &noted):
        return None
    return noted.has_tombstones, noted.keyless


def scan_keys(bytes data, int64_t position, int64_t end, int64_t count):
    """Return keys, starts and the indices of tombstones of `count` records, as the cleaner's `scan_keys` does.

    Return None if a record is not valid.
    """
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *at = begin + position
    cdef RecordFields fields
    cdef int64_t index
    if not 0 <= position <= end <= PyBytes_GET_SIZE(data):
        return None
    keys = []
    starts = []
    tombstones = []
    for index in range(count):
        if read_record(at, begin + end, &fields) is NULL or not has_usual_null(&fields):
            return None
        starts.append(at - begin)
        keys.append(
            None if fields.key_size < 0 else PyBytes_FromStringAndSize(<const char *>fields.key, fields.key_size)
        )
        if is_tombstone(&fields):
            tombstones.append(index)
        at = fields.end
    return (keys, starts, tombstones) if at == begin + end else None


cdef struct BatchFields:
    # A batch as the cleaner sees it; its records are without gaps, transaction, marker and compression.
    int64_t end
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t producer_id
    int64_t count


cdef inline bint read_plain_batch(
    const uint8_t *data, int64_t size, int64_t position, int64_t first_dirty, BatchFields *batch
) noexcept nogil:
    """Read the header at `position`; return whether a whole batch of this kind is there."""
    cdef const uint8_t *at = data + position
    cdef int64_t length, delta
    if position < 0 or size - position < BATCH_HEADER_SIZE:
        return False
    length = <int32_t>read_int32(at + 8)
    delta = <int32_t>read_int32(at + 23)
    batch.end = position + 12 + length
    batch.base_offset = read_int64(at)
    batch.max_timestamp = read_int64(at + 35)
    batch.producer_id = read_int64(at + 43)
    batch.count = <int32_t>read_int32(at + 57)
    if (
        length < BATCH_HEADER_SIZE - 12
        or batch.end > size
        or at[16] != 2
        or at[22] & NOT_PLAIN
        or batch.base_offset < first_dirty
        or batch.count != delta + 1
        or batch.count < 1
        or batch.base_offset > INT64_MAX - batch.count
    ):
        return False
    batch.last_offset = batch.base_offset + delta
    return True


cdef bint has_right_crc(const uint8_t *batch, int64_t size, crc32c) except -1:
    """Return whether a batch of format 2 has the CRC of its bytes; a header must be there."""
    cdef const uint8_t *at = batch + 21
    size -= 21
    if HAS_CRC32C_INSTRUCTION and size <= INLINE_CRC_SIZE_MAX:
        return ~crc32c_instructions(0xFFFFFFFFU, at, size) == read_int32(batch + 17)
    return crc32c(PyMemoryView_FromMemory(<char *>at, size, PyBUF_READ)) == read_int32(batch + 17)


def map_batches(
    dict places, bytes chunk, int64_t position, int64_t first_dirty, int64_t room, int64_t key_size_max, shorten,
    list tombstone_batches, crc32c
):
    """Set the places of the keys of plain batches from `position` on, as the cleaner's `map_plain` does.

    Returns the position of the first batch that was not added, how many records had no key, the last offset that was
    added (-1 without one), and whether the batch at that position is for the general code; if not, `map_plain` has to
    look at it. `crc32c` computes the checksum of large batches.
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(chunk)
    cdef int64_t size = PyBytes_GET_SIZE(chunk)
    cdef int64_t last_offset = -1
    cdef BatchFields batch
    cdef Noted noted
    noted.keyless = 0
    while read_plain_batch(data, size, position, first_dirty, &batch):
        room -= batch.count
        if room < 0 or not has_right_crc(data + position, batch.end - position, crc32c):
            break
        noted.has_tombstones = False
        before = noted.keyless
        if (
            <uint64_t>batch.last_offset - <uint64_t>first_dirty >= OFFSET_SPAN_MAX
            or not note_section(
                places, data + position + BATCH_HEADER_SIZE, data + batch.end, batch.count,
                (batch.base_offset - first_dirty) * PLACES_PER_OFFSET, key_size_max, shorten, &noted
            )
        ):
            return position, before, last_offset, False
        if noted.has_tombstones:
            tombstone_batches.append(batch.base_offset)
            room -= 1
        last_offset = batch.last_offset
        position = batch.end
    return position, noted.keyless, last_offset, True


def sort_values(dict places, numbers):
    """Fill `numbers`, a buffer of 64-bit integers, with the values of `places`, ascending.

    Return whether `places` has as many values as the buffer and all of them are from 0 to the largest of 63 bits.
    """
    cdef int64_t count = len(places)
    cdef _Memory memory = _Memory(numbers, 8 * count, True)
    cdef _Memory other = _Memory(bytearray(8 * count), 8 * count, True)
    cdef uint64_t *source = <uint64_t *>memory.view.buf
    cdef uint64_t *target = <uint64_t *>other.view.buf
    cdef uint64_t different = 0
    cdef int64_t index = 0, digit, total, ended
    cdef int64_t ends[DIGITS]
    cdef int shift, overflow
    cdef int64_t value
    if memory.view.len != 8 * count:
        return False
    for number in places.values():
        value = PyLong_AsLongLongAndOverflow(number, &overflow)
        if overflow or value < 0 or index >= count:
            return False
        source[index] = value
        different |= source[index] ^ source[0]
        index += 1
    # By one digit after the other, from the lowest on; a digit that all numbers share needs no pass.
    for shift in range(0, 64, DIGIT_BITS):
        if not (different >> shift) & (DIGITS - 1):
            continue
        memset(ends, 0, sizeof(ends))
        for index in range(count):
            ends[(source[index] >> shift) & (DIGITS - 1)] += 1
        total = 0
        for digit in range(DIGITS):
            ended = ends[digit]
            ends[digit] = total
            total += ended
        for index in range(count):
            digit = (source[index] >> shift) & (DIGITS - 1)
            target[ends[digit]] = source[index]
            ends[digit] += 1
        source, target = target, source
    if source != <uint64_t *>memory.view.buf:
        memcpy(target, source, 8 * count)
    return True


def filter_batches(
    bytes chunk, int64_t position, places, int64_t at, int64_t first_dirty, int64_t latest_offset, tombstone_batches,
    last_records
):
    """Decide on plain batches from `position` on, as the cleaner's `PlainBatchFilter.filter` does.

    `places` are 64-bit integers, ascending; `at` is the index of the first that was not passed. Returns the position
    of the first batch without a decision, the index behind the places of those before it, how many records they have
    and how many of them stay, and the spans of the batches that are kept.
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(chunk)
    cdef int64_t size = PyBytes_GET_SIZE(chunk)
    cdef _Memory memory = _Memory(places, 0)
    cdef const int64_t *values = <const int64_t *>memory.view.buf
    cdef int64_t values_count = memory.view.len // 8
    cdef int64_t records_read = 0, written = 0, alive, behind, whole_from = position
    cdef bint has_tombstones = bool(tombstone_batches), has_last_records = bool(last_records)
    cdef BatchFields batch
    if at < 0:
        raise ValueError(f"index {at} of {values_count} places")
    spans = []
    while read_plain_batch(data, size, position, first_dirty, &batch):
        if (
            batch.last_offset > latest_offset
            or <uint64_t>batch.last_offset - <uint64_t>first_dirty >= OFFSET_SPAN_MAX
        ):
            break
        behind = (batch.last_offset + 1 - first_dirty) * PLACES_PER_OFFSET
        alive = 0
        while alive < batch.count and at + alive < values_count and values[at + alive] < behind:
            alive += 1
        if alive == batch.count:
            if has_tombstones and batch.base_offset in tombstone_batches:
                break
            written += batch.count
        elif alive or (has_last_records and batch.producer_id in last_records):
            break
        else:
            if whole_from < position:
                spans.append((whole_from, position))
            whole_from = batch.end
        at += alive
        records_read += batch.count
        position = batch.end
    if whole_from < position:
        spans.append((whole_from, position))
    return position, at, records_read, written, spans


def index_batches(
    bytes chunk, list spans, int64_t position, int64_t last_entry, int64_t interval, int64_t largest_timestamp,
    int64_t largest_offset
):
    """Pass the batches of `spans` and find which of them a segment's indexes need, as `CleanedSegment.note` does.

    Returns the position behind the batches, the last one that has an entry, the largest timestamp with its offset, and
    for each entry the last offset of the batch, its position, and the largest timestamp so far with its offset.
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(chunk)
    cdef int64_t size = PyBytes_GET_SIZE(chunk), at, end
    cdef BatchFields batch
    entries = []
    for at, end in spans:
        while at < end:
            if not read_plain_batch(data, size, at, 0, &batch):
                raise ValueError(f"no plain batch at {at}")
            if batch.max_timestamp > largest_timestamp:
                largest_timestamp = batch.max_timestamp
                largest_offset = batch.last_offset
            if position - last_entry > interval:
                entries.append((batch.last_offset, position, largest_timestamp, largest_offset))
                last_entry = position
            position += batch.end - at
            at = batch.end
    return position, last_entry, largest_timestamp, largest_offset, entries


def copy_records(bytes data, int64_t start, int64_t end, places, int64_t base_timestamp, int64_t highest):
    """Return the records at `places` in a batch whose records lie between `start` and `end`, and a timestamp.

    `places` are 64-bit integers, ascending. The timestamp is the largest of the records; the search begins with the
    last one and ends at a record that has `highest` or more. Return None if a place or a record is not valid.
    """
    cdef _Memory memory = _Memory(places, 0)
    cdef const int64_t *values = <const int64_t *>memory.view.buf
    cdef int64_t count = memory.view.len // 8, index, size, timestamp, found = -1
    cdef const uint8_t *begin
    cdef const uint8_t *data_end
    cdef const uint8_t *at
    cdef const uint8_t *record
    cdef const uint8_t *run_start
    cdef const uint8_t *run_end
    cdef uint8_t *out
    cdef uint64_t delta
    if not 0 <= start <= end <= PyBytes_GET_SIZE(data):
        return None
    begin = <const uint8_t *>PyBytes_AS_STRING(data) + start
    data_end = begin + (end - start)
    records = PyByteArray_FromStringAndSize(NULL, end - start)
    out = <uint8_t *>PyByteArray_AS_STRING(records)
    run_start = run_end = begin
    for index in range(count):
        # Each record begins behind the one before, so that together they fit into `records`.
        size = values[index] & (PLACES_PER_OFFSET - 1)
        if size >= end - start or begin + size < run_end:
            return None
        record = begin + size
        at = read_varint(record, data_end, &size)
        if at is NULL or size < 1 or size > data_end - at:
            return None
        if record != run_end:
            memcpy(out, run_start, run_end - run_start)
            out += run_end - run_start
            run_start = record
        run_end = at + size
    memcpy(out, run_start, run_end - run_start)
    out += run_end - run_start
    for index in range(count - 1, -1, -1):
        at = read_varint(begin + (values[index] & (PLACES_PER_OFFSET - 1)), data_end, &size)
        if read_varlong(at + 1, data_end, &delta) is NULL:
            return None
        timestamp = <int64_t>(<uint64_t>base_timestamp + delta)
        if is_wrapped(timestamp, base_timestamp, <int64_t>delta):
            return None
        if timestamp > found:
            found = timestamp
            if found >= highest:
                break
    PyByteArray_Resize(records, out - <uint8_t *>PyByteArray_AS_STRING(records))
    return records, found


cdef enum ScanState:
    SCAN_SIZE, SCAN_ATTRIBUTES, SCAN_TIME, SCAN_DELTA, SCAN_KEY, SCAN_VALUE, SCAN_HEADERS, SCAN_HEADER_KEY, \
    SCAN_HEADER_VALUE

cdef enum ScanFault:
    SCAN_CORRUPT = 1, SCAN_OFFSET, SCAN_FOUND


cdef class RecordScanner:
    """Checks records that come in pieces, see `record_scanner.RecordScanner`."""

    cdef readonly int64_t index
    """Records that were read whole."""
    cdef readonly int fault
    cdef readonly int64_t found_delta
    """The offset delta of the record at fault, or of the one that was searched."""
    cdef readonly int64_t found_time
    cdef bint is_search
    cdef int64_t delta_min
    cdef readonly int64_t keyless_count
    cdef readonly int64_t time_count
    cdef readonly bint has_headers
    cdef readonly list named
    """Index and time of the records that are refused, None as the time of one without a key."""
    cdef bint require_keys
    cdef int64_t base_timestamp, low, high, wanted, named_max
    cdef bint is_appended
    cdef int64_t append_timestamp
    # The state between two pieces: what comes next, the bytes to pass before it, and the varint so far.
    cdef int state, shift
    cdef uint64_t raw
    cdef int64_t left, passed, headers_left
    cdef bint is_keyless
    cdef uint64_t time_delta
    cdef int64_t delta

    def __init__(
        self, int64_t count, int64_t base_timestamp, append_time, bint require_keys, int64_t low, int64_t high,
        int64_t named_max, delta_min=None
    ):
        self.wanted = count
        self.base_timestamp = base_timestamp
        self.is_appended = append_time is not None
        self.append_timestamp = append_time if append_time is not None else 0
        self.require_keys = require_keys
        self.low = low
        self.high = high
        self.named_max = named_max
        self.named = []
        self.is_search = delta_min is not None
        self.delta_min = delta_min if delta_min is not None else 0

    @property
    def is_between(self):
        """Whether no record has begun that has not ended."""
        return self.state == SCAN_SIZE and self.shift == 0

    def feed(self, piece):
        """Read a piece; return whether the records are valid so far."""
        cdef _Memory memory = _Memory(piece, 0)
        cdef const uint8_t *at = <const uint8_t *>memory.view.buf
        if memory.view.len < NOGIL_BYTES_MIN:
            self.scan(at, at + memory.view.len)
        else:
            with nogil:
                self.scan(at, at + memory.view.len)
        return not self.fault

    cdef void end_record(self) noexcept nogil:
        cdef int64_t timestamp
        cdef bint is_untimely = False
        if self.is_search:
            timestamp = self.append_timestamp
            if not self.is_appended:
                timestamp = <int64_t>(<uint64_t>self.base_timestamp + self.time_delta)
                is_untimely = is_wrapped(timestamp, self.base_timestamp, <int64_t>self.time_delta)
            if not is_untimely and timestamp >= self.low and self.delta >= self.delta_min:
                self.fault = SCAN_FOUND
                self.found_delta = self.delta
                self.found_time = timestamp
            self.index += 1
            self.state = SCAN_SIZE
            return
        if self.delta != self.index:
            self.fault = SCAN_OFFSET
            self.found_delta = self.delta
            return
        if self.require_keys and self.is_keyless:
            self.keyless_count += 1
            if self.keyless_count + self.time_count <= self.named_max:
                with gil:
                    self.named.append((self.index, None))
        elif self.low != -INT64_MAX - 1 or self.high != INT64_MAX:
            timestamp = self.append_timestamp
            if not self.is_appended:
                timestamp = <int64_t>(<uint64_t>self.base_timestamp + self.time_delta)
                # Beyond 64 bits it is outside all bounds.
                is_untimely = is_wrapped(timestamp, self.base_timestamp, <int64_t>self.time_delta)
            if is_untimely or (timestamp != -1 and not self.low <= timestamp <= self.high):
                self.time_count += 1
                if self.keyless_count + self.time_count <= self.named_max:
                    with gil:
                        time = self.append_timestamp
                        if not self.is_appended:
                            time = int(self.base_timestamp) + int(<int64_t>self.time_delta)
                        self.named.append((self.index, time))
        self.index += 1
        self.state = SCAN_SIZE

    cdef void scan(self, const uint8_t *at, const uint8_t *end) noexcept nogil:
        cdef RecordFields fields
        cdef Totals totals
        cdef const uint8_t *start
        cdef int64_t size, value
        cdef uint64_t byte
        while at < end and not self.fault:
            if self.state == SCAN_SIZE and self.shift == 0:
                if self.index == self.wanted:
                    self.fault = SCAN_CORRUPT
                    return
                # A record that is whole is read at once.
                start = read_record(at, end, &fields)
                if start is not NULL and (
                    not fields.header_count or scan_headers(start, fields.end, fields.header_count, &totals)
                ):
                    self.has_headers = self.has_headers or fields.header_count > 0
                    self.is_keyless = fields.key_size < 0
                    self.time_delta = fields.timestamp_delta
                    self.delta = fields.delta
                    self.end_record()
                    at = fields.end
                    continue
            if self.passed:
                size = min(self.passed, end - at)
                at += size
                self.passed -= size
                if self.passed:
                    return
                if self.ends():
                    continue
                if self.fault or at >= end:
                    return
            # One byte of a varint; those of a record count towards its size.
            byte = at[0]
            at += 1
            if self.state != SCAN_SIZE:
                if not self.left:
                    self.fault = SCAN_CORRUPT
                    return
                self.left -= 1
            if self.state == SCAN_ATTRIBUTES:
                self.state = SCAN_TIME
                continue
            self.raw |= (byte & 0x7F) << self.shift
            self.shift += 7
            if byte >= 0x80:
                if self.shift >= (70 if self.state == SCAN_TIME else 35):
                    self.fault = SCAN_CORRUPT
                    return
                continue
            self.take()

    cdef bint ends(self) noexcept nogil:
        """Return whether the record ended with the bytes that were passed."""
        if self.state == SCAN_HEADER_KEY and not self.headers_left:
            if self.left:
                self.fault = SCAN_CORRUPT
                return False
            self.end_record()
            return True
        return False

    cdef void skip(self, int64_t size) noexcept nogil:
        if size > self.left:
            self.fault = SCAN_CORRUPT
        elif size > 0:
            self.passed = size
            self.left -= size

    cdef void take(self) noexcept nogil:
        """Use a number that was read whole."""
        cdef uint64_t raw = self.raw
        cdef int64_t value = <int64_t><int32_t>((<uint32_t>raw >> 1) ^ (0 - (<uint32_t>raw & 1)))
        self.raw = 0
        self.shift = 0
        if self.state == SCAN_SIZE:
            if value < 1:
                self.fault = SCAN_CORRUPT
            self.left = value
            self.state = SCAN_ATTRIBUTES
        elif self.state == SCAN_TIME:
            self.time_delta = (raw >> 1) ^ (0 - (raw & 1))
            self.state = SCAN_DELTA
        elif self.state == SCAN_DELTA:
            self.delta = value
            self.state = SCAN_KEY
        elif self.state == SCAN_KEY:
            self.is_keyless = value < 0
            self.skip(value)
            self.state = SCAN_VALUE
        elif self.state == SCAN_VALUE:
            self.skip(value)
            self.state = SCAN_HEADERS
        elif self.state == SCAN_HEADERS:
            if value < 0 or 2 * value > self.left:
                self.fault = SCAN_CORRUPT
                return
            self.has_headers = self.has_headers or value > 0
            self.headers_left = value
            self.state = SCAN_HEADER_KEY
            self.ends()
        elif self.state == SCAN_HEADER_KEY:
            if value < 0:
                self.fault = SCAN_CORRUPT
                return
            self.skip(value)
            self.state = SCAN_HEADER_VALUE
        else:
            self.skip(value)
            self.headers_left -= 1
            self.state = SCAN_HEADER_KEY
            if not self.passed:
                self.ends()
