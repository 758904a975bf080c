"""Identifies the author of a change: a broker acting for itself, as controller, or for a client's request.

The dispatcher keeps the request that a task serves in `REQUESTER`. A write of that task is made for it, and
so are writes of tasks that it starts. What another task does for the request sets the variable itself.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

TEXT_MAX: Final = 256
"""The longest name of an author, in characters: each change has it, and clients choose theirs."""

NO_EPOCH: Final = -1
"""The controller epoch of a change that was not made as controller."""


@dataclass(frozen=True, slots=True)
class RequestAuthor:
    """A request of a client."""

    api: str
    """The name of the API, e.g. ``CreateTopics``."""
    user: str
    """The principal, e.g. ``User:alice``."""
    client_id: str | None
    host: str
    """The client's address, without the port."""


@dataclass(frozen=True, slots=True)
class Author:
    """The broker that made a change, and what it made it for."""

    broker: int | None
    """None for a broker that has no id yet."""
    controller_epoch: int = NO_EPOCH
    """The epoch of the controller that made the change; -1 if it was not made as controller."""
    request: RequestAuthor | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields that are set, as JSON values."""
        value: dict[str, object] = {"broker": self.broker}
        if self.controller_epoch != NO_EPOCH:
            value["controller_epoch"] = self.controller_epoch
        if self.request is not None:
            value["request"] = self.request.api
            value["user"] = _cut(self.request.user)
            value["client_id"] = None if self.request.client_id is None else _cut(self.request.client_id)
            value["host"] = self.request.host
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> "Author":
        """Return what `to_json` wrote; fields of other types count as not set."""
        broker, epoch, api = value.get("broker"), value.get("controller_epoch"), value.get("request")
        client_id = value.get("client_id")
        request = None
        if isinstance(api, str):
            request = RequestAuthor(
                _cut(api),
                _text(value.get("user")),
                _cut(client_id) if isinstance(client_id, str) else None,
                _text(value.get("host")),
            )
        return cls(
            broker if isinstance(broker, int) else None,
            epoch if isinstance(epoch, int) else NO_EPOCH,
            request,
        )

    def __str__(self) -> str:
        """Describe the author in a word or two, for a table."""
        if self.request is not None:
            return f"{self.request.user} ({self.request.api})"
        if self.controller_epoch != NO_EPOCH:
            return f"controller {self.broker}, epoch {self.controller_epoch}"
        return "a broker" if self.broker is None else f"broker {self.broker}"


class Requester(Protocol):
    """A request that is being served."""

    def author(self) -> RequestAuthor:
        """Describe the request. Called only if something is changed for it."""
        ...


REQUESTER: Final[ContextVar[Requester | None]] = ContextVar("requester", default=None)
"""The request that the current task serves, if any."""


def requester_details() -> dict[str, str]:
    """Return who asked for what the current task does, as details of an event; empty for a broker."""
    requester = REQUESTER.get()
    return {} if requester is None else author_details(requester.author())


def author_details(author: RequestAuthor) -> dict[str, str]:
    """Return the author of a request as details of an event."""
    return {"by_user": author.user, "by_client": author.client_id or "", "by_host": author.host}


def _text(value: object) -> str:
    return _cut(value) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
