"""Defines the errors of JetStream's API, with nats-server's codes and texts."""

from typing import Final


class JetStreamError(Exception):
    """A request of JetStream's API is refused."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code: Final = code
        """As an HTTP status."""
        self.err_code: Final = err_code
        self.description: Final = description

    def as_json(self) -> dict[str, object]:
        """Return the value of `error` in a response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


def bad_request() -> JetStreamError:
    """Return the error of a request that contradicts itself, or that is not served."""
    return JetStreamError(400, 10003, "bad request")


def invalid_json() -> JetStreamError:
    """Return the error of a body that is not JSON, or whose values have other types."""
    return JetStreamError(400, 10025, "invalid JSON")


def invalid_stream(description: str) -> JetStreamError:
    """Return the error of a stream configuration."""
    return JetStreamError(500, 10052, description)


def stream_not_found() -> JetStreamError:
    """Return the error of a stream that does not exist."""
    return JetStreamError(404, 10059, "stream not found")


def consumer_not_found() -> JetStreamError:
    """Return the error of a consumer that does not exist."""
    return JetStreamError(404, 10014, "consumer not found")


def message_not_found() -> JetStreamError:
    """Return the error of a message that does not exist."""
    return JetStreamError(404, 10037, "no message found")


def unavailable() -> JetStreamError:
    """Return the error of a stream that this broker does not serve now."""
    return JetStreamError(503, 10008, "JetStream system temporarily unavailable")


def no_resources() -> JetStreamError:
    """Return the error of a limit of this broker."""
    return JetStreamError(503, 10023, "insufficient resources")


def not_permitted() -> JetStreamError:
    """Return the error of a client without the right."""
    return JetStreamError(403, 10039, "JetStream not enabled for account")


def store_failed(description: str) -> JetStreamError:
    """Return the error of a message that could not be stored."""
    return JetStreamError(503, 10077, description)


def wrong_last_sequence(last: int) -> JetStreamError:
    """Return the error of a message that expects another last sequence."""
    return JetStreamError(400, 10071, f"wrong last sequence: {last}")
