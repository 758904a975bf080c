"""The search for an order of calls on a znode."""

import itertools
import math

import pytest

from kalda.simulation.checks.linearizable import (
    ANY,
    Call,
    Kind,
    Refusal,
    UndecidedError,
    Znode,
    apply,
    is_linearizable,
)


def read(called: float, returned: float, result: Znode | Refusal) -> Call:
    return Call(Kind.READ, called, returned, result=result)


def set_to(data: bytes, called: float, returned: float, result: int | Refusal, version: int = ANY) -> Call:
    return Call(Kind.SET, called, returned, data, version, result)


def created(data: bytes, called: float, returned: float) -> Call:
    return Call(Kind.CREATE, called, returned, data, result=0)


def test_a_history_without_calls_is_linearizable() -> None:
    assert is_linearizable([])


def test_calls_one_after_the_other_have_the_results_of_a_znode() -> None:
    history = [
        read(0, 1, Refusal.NO_NODE),
        created(b"a", 2, 3),
        read(4, 5, (b"a", 0)),
        set_to(b"b", 6, 7, 1, version=0),
        set_to(b"c", 8, 9, Refusal.BAD_VERSION, version=0),
        Call(Kind.DELETE, 10, 11, version=1, result=0),
        read(12, 13, Refusal.NO_NODE),
    ]
    assert is_linearizable(history)


def test_a_stale_read_is_found() -> None:
    history = [created(b"a", 0, 1), set_to(b"b", 2, 3, 1), read(4, 5, (b"a", 0))]
    assert not is_linearizable(history)


def test_a_read_beside_a_write_may_see_either() -> None:
    for seen in ((b"a", 0), (b"b", 1)):
        assert is_linearizable([created(b"a", 0, 1), set_to(b"b", 2, 5, 1), read(3, 4, seen)])


def test_two_reads_beside_a_write_do_not_go_back() -> None:
    history = [created(b"a", 0, 1), set_to(b"b", 2, 9, 1), read(3, 4, (b"b", 1)), read(5, 6, (b"a", 0))]
    assert not is_linearizable(history)


def test_a_lost_update_is_found() -> None:
    """Two writes that expect the same version do not both succeed."""
    history = [created(b"a", 0, 1), set_to(b"b", 2, 9, 1, version=0), set_to(b"c", 2, 9, 1, version=0)]
    assert not is_linearizable(history)


def test_a_write_without_an_outcome_may_happen_late_or_never() -> None:
    unknown = Call(Kind.SET, 2, math.inf, b"b", 0)
    assert is_linearizable([created(b"a", 0, 1), unknown, read(3, 4, (b"a", 0)), read(5, 6, (b"b", 1))])
    assert is_linearizable([created(b"a", 0, 1), unknown, read(3, 4, (b"a", 0))])


def test_a_write_without_an_outcome_happens_once() -> None:
    unknown = Call(Kind.SET, 2, math.inf, b"b")
    history = [created(b"a", 0, 1), unknown, read(3, 4, (b"b", 1)), read(5, 6, (b"b", 2))]
    assert not is_linearizable(history)


def test_a_read_without_an_outcome_says_nothing() -> None:
    assert is_linearizable([Call(Kind.READ, 0), created(b"a", 1, 2)])


def test_a_lost_acknowledged_write_is_found() -> None:
    assert not is_linearizable([created(b"a", 0, 1), read(2, 3, Refusal.NO_NODE)])


def test_the_answer_is_that_of_all_permutations() -> None:
    """The search agrees with trying every order, on all small histories of this form."""
    calls = [created(b"a", 0, 2), set_to(b"b", 1, 4, 1), read(3, 5, (b"a", 0)), read(3, 6, (b"b", 1))]
    for shift in itertools.product((0.0, 3.0), repeat=len(calls)):
        history = [
            Call(c.kind, c.called + s, c.returned + s, c.data, c.version, c.result)
            for c, s in zip(calls, shift, strict=True)
        ]
        assert _tries_all(history) == is_linearizable(history), history


def test_the_search_is_bounded() -> None:
    history = [Call(Kind.SET, 0, math.inf, bytes([number])) for number in range(12)]
    history += [created(b"a", 0, 1), read(2, 3, (b"never", 5))]
    with pytest.raises(UndecidedError):
        is_linearizable(history, steps_max=100)


def _tries_all(history: list[Call]) -> bool:
    for order in itertools.permutations(history):
        if any(a.called > b.returned for a, b in itertools.combinations(order, 2)):
            continue
        znode: Znode = None
        for call in order:
            znode, result = apply(znode, call)
            if result != call.result:
                break
        else:
            return True
    return False
