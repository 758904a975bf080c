"""JSON of others: any bytes give a value or a `ValueError`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.received_json import loads_received


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
