"""The last value of each key, in hand-made histories."""

import pytest

from kalda.simulation.checks.last_values import KeyHistory, Value


def history(*sent: Value, acknowledged: int) -> KeyHistory:
    made = KeyHistory(list(sent))
    if acknowledged >= 0:
        made.acknowledge(acknowledged)
    return made


@pytest.mark.parametrize(
    ("sent", "acknowledged", "found"),
    [
        ([], -1, []),
        ([b"a"], -1, []),
        ([b"a"], -1, [b"a"]),
        ([b"a", b"b"], 0, [b"a"]),
        ([b"a", b"b"], 0, [b"b"]),
        ([b"a", b"b"], 1, [b"a", b"b"]),
        ([b"a", None], 1, []),
        ([b"a", None], 1, [None]),
        ([b"a", None], 0, []),
        ([b"a", None, b"c"], 2, [b"a", None, b"c"]),
    ],
)
def test_the_last_value_or_a_later_one_is_right(
    sent: list[Value], acknowledged: int, found: list[Value]
) -> None:
    assert history(*sent, acknowledged=acknowledged).problem(found) is None


@pytest.mark.parametrize(
    ("sent", "acknowledged", "found"),
    [
        ([b"a"], 0, []),
        ([b"a", b"b"], 1, [b"a"]),
        ([b"a", None], 1, [b"a"]),
        ([b"a", None, b"c"], 2, []),
        ([b"a"], -1, [b"x"]),
    ],
)
def test_an_older_value_or_none_is_found(sent: list[Value], acknowledged: int, found: list[Value]) -> None:
    assert "the last value is" in (history(*sent, acknowledged=acknowledged).problem(found) or "")


def test_another_order_is_found() -> None:
    made = history(b"a", b"b", b"c", acknowledged=2)
    assert "not in the order" in (made.problem([b"b", b"a", b"c"]) or "")
    assert "not in the order" in (made.problem([b"b", b"b", b"c"]) or "")
