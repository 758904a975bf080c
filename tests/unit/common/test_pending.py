"""Values that arrive later: what is made of them, and how failures are passed on."""

import weakref

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather


def test_what_is_made_of_a_value_arrives_with_it() -> None:
    pending: Pending[int] = Pending()
    made = pending.then(lambda done: done.value + 1)
    assert not made.is_done
    pending.complete(1)
    assert 2 == made.value


def test_what_is_there_already_is_made_use_of_at_once() -> None:
    assert "1" == Pending.of(1).then(lambda done: str(done.value)).value


def test_a_failure_is_passed_on() -> None:
    pending: Pending[int] = Pending()
    made = pending.then(lambda done: done.value + 1)
    pending.fail(OSError("no space"))
    with pytest.raises(OSError, match="no space"):
        _ = made.value


def test_a_failure_can_be_made_a_value() -> None:
    pending: Pending[int] = Pending()
    made = pending.then(lambda done: 0 if done.error is not None else done.value)
    pending.fail(OSError("no space"))
    assert 0 == made.value


def test_a_fault_of_ours_fails_the_answer_and_not_who_completes_it() -> None:
    """Who completes it may be in the middle of something, with others still to be answered."""
    pending: Pending[int] = Pending()
    made = pending.then(lambda done: done.value // 0)
    pending.complete(1)
    assert isinstance(made.error, ZeroDivisionError)


def test_many_are_one_when_the_last_is_there_in_the_order_asked_for() -> None:
    parts: list[Pending[str]] = [Pending(), Pending(), Pending.of("c")]
    whole = gather(parts, lambda done: "".join("?" if each.error else each.value for each in done))
    parts[1].fail(OSError())
    assert not whole.is_done
    parts[0].complete("a")
    assert "a?c" == whole.value


def test_none_of_many_are_there_at_once() -> None:
    nothing: list[Pending[int]] = []
    assert 0 == gather(nothing, len).value


def test_a_refusal_leaves_nothing_for_the_garbage_collector() -> None:
    """Tens of thousands of refusals in one request would otherwise be as many cycles."""

    def failing(error: Exception) -> Pending[int]:
        pending: Pending[int] = Pending()
        try:
            raise error
        except Exception as raised:
            pending.fail(raised)
        return pending.then(lambda done: done.value)

    refused = failing(ApiError(ErrorCode.NOT_COORDINATOR))
    assert refused.error is not None
    assert refused.error.__traceback__ is None
    failed = failing(ValueError("a bug"))
    assert failed.error is not None
    assert failed.error.__traceback__ is not None, "whoever logs it needs to know where it came from"


def test_what_completes_a_value_is_not_kept_by_it() -> None:
    class Completing:
        def __init__(self) -> None:
            self.pending: Pending[int] = Pending()
            self.pending.on_abandoned = self.abandon

        def abandon(self) -> None:
            pass

    completing = Completing()
    completing.pending.complete(1)
    watched = weakref.ref(completing)
    del completing
    assert watched() is None
