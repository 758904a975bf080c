"""Requests that another server answers: one outcome for each, whatever happens to that server."""

from kalda.nats.carried_requests import (
    ANSWER_SECONDS_MAX,
    NOT_SERVED,
    WAITING_MAX,
    CarriedRequests,
    asking_server,
)
from kalda.nats.operations import Publish


class Asking:
    """The requests of server 3, and what came of them."""

    def __init__(self) -> None:
        self.requests = CarriedRequests(3, 100)
        self.outcomes: list[object] = []

    def add(self, name: str, to: int = 1, now: float = 0.0) -> bytes:
        reply = self.requests.add(
            to,
            lambda headers, payload: self.outcomes.append((name, headers, payload)),
            lambda: self.outcomes.append((name, "failed")),
            now,
        )
        assert reply is not None
        return reply

    def answer(self, reply: bytes, payload: bytes = b"", headers: bytes = b"", server: int = 1) -> None:
        self.requests.answer(server, Publish(reply, b"", headers, payload))


def test_an_answer_to_something_else_changes_nothing() -> None:
    """Whatever another broker sends."""
    asking = Asking()
    reply = asking.add("a")
    for subject in (
        b"",
        b"answer",
        b"answer 3 x",
        b"answer 3 ",
        b"answer 3 \xff",
        b"answer 3 " + b"9" * 5_000,
    ):
        asking.answer(subject)
    for reply_subject in (b"answer", b"answer 3", b"answer x 1", b"answer " + b"9" * 5_000 + b" 1"):
        assert asking_server(reply_subject) is None
    asking.answer(reply, b"1")
    assert [("a", b"", b"1")] == asking.outcomes


def test_answers_reach_those_who_asked_in_any_order() -> None:
    asking = Asking()
    first, second = asking.add("a"), asking.add("b")
    assert 3 == asking_server(first)
    asking.answer(second, b"2")
    asking.answer(first, b"1", b"NATS/1.0\r\n\r\n")
    assert [("b", b"", b"2"), ("a", b"NATS/1.0\r\n\r\n", b"1")] == asking.outcomes
    assert 0 == len(asking.requests)


def test_a_request_has_one_outcome() -> None:
    asking = Asking()
    reply = asking.add("a")
    asking.requests.lost(1)
    asking.answer(reply, b"late")
    asking.requests.lost(1)
    asking.requests.expire(1_000.0)
    assert [("a", "failed")] == asking.outcomes
    assert 1 == asking.requests.failure_count


def test_only_the_server_that_was_asked_answers() -> None:
    asking = Asking()
    reply = asking.add("a", to=2)
    asking.answer(reply, b"x", server=1)
    asking.requests.lost(1)
    assert [] == asking.outcomes
    asking.answer(reply, b"y", server=2)
    assert [("a", b"", b"y")] == asking.outcomes


def test_what_a_server_did_not_do_has_failed() -> None:
    asking = Asking()
    asking.answer(asking.add("a"), headers=NOT_SERVED)
    assert [("a", "failed")] == asking.outcomes


def test_a_request_without_an_answer_fails_in_bounded_time() -> None:
    asking = Asking()
    asking.add("a", now=1.0)
    late = asking.add("b", now=5.0)
    asking.requests.expire(1.0 + ANSWER_SECONDS_MAX)
    assert [("a", "failed")] == asking.outcomes
    asking.answer(late, b"x")
    assert [("a", "failed"), ("b", b"", b"x")] == asking.outcomes


def test_the_requests_that_wait_are_bounded() -> None:
    asking = Asking()
    replies = [asking.add("x", to=number % 5) for number in range(WAITING_MAX)]
    assert asking.requests.add(1, lambda headers, payload: None, lambda: None, 0.0) is None
    asking.answer(replies[1])
    asking.add("y")


def test_no_subject_of_a_client_asks_a_server() -> None:
    for subject in (b"answer", b"answer.3.100", b"_INBOX.a", b""):
        assert asking_server(subject) is None
