"""JSON of others: any bytes give a value or a `ValueError`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.received_json import BODY_VALUES_MAX, loads_body, loads_received


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        rb'{"\ud800":1}',
        rb'["\udc00\ud800"]',
        b'"\xed\xa0\x80"',
        b"\xff",
        "1" * 5000,
        "1e999",
        "NaN",
        "[-Infinity]",
    ],
)
def test_what_cannot_be_read_or_sent_is_an_error(data: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"deep|surrogate|Expecting|decode|digits|finite"):
        loads_received(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
    )
)
def test_what_can_be_sent_is_read(value: object) -> None:
    assert (
        value
        == loads_received(json.dumps(value))
        == loads_received(json.dumps(value, ensure_ascii=False).encode())
    )


@given(st.binary())
def test_junk_is_a_value_error(data: bytes) -> None:
    try:
        loads_received(data)
    except ValueError:
        return


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"[]," * BODY_VALUES_MAX + b"1]",
        b"[" + b'{"a":1},' * BODY_VALUES_MAX + b"1]",
        b"[" + b"1," * BODY_VALUES_MAX + b"1]",
        b'"' + b"\\n" * 4_000_000 + b'"',
    ],
)
def test_a_body_that_takes_long_to_read_is_refused(data: bytes) -> None:
    """8 MB of empty lists held up all clients for a second, and took 300 MB."""
    for each in (data, data.decode()):
        with pytest.raises(ValueError, match="allowed in one request"):
            loads_body(each)


def test_a_body_of_one_long_text_is_read() -> None:
    assert "x" * 8_000_000 == loads_body(b'"' + b"x" * 8_000_000 + b'"')
