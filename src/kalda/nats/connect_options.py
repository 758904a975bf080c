"""Reads the options that a client sends with CONNECT."""

import json
from dataclasses import dataclass
from typing import Final, Self

from kalda.nats.parser import PARSER_ERROR, NatsProtocolError

PROTOCOL_MAX: Final = 1
"""The version of the protocol: 1 has `echo` and INFO at any time."""

_NAMES: Final = {
    "verbose": bool,
    "pedantic": bool,
    "echo": bool,
    "headers": bool,
    "no_responders": bool,
    "user": str,
    "pass": str,
    "account": str,
    "new_account": bool,
    "protocol": int,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of a client, with nats-server's defaults, which are in force until CONNECT arrives."""

    verbose: bool = True
    """Whether each operation is answered by `+OK`."""
    pedantic: bool = True
    """Whether a subject that nobody can subscribe to is an error."""
    echo: bool = True
    """Whether the client's own subscriptions get its own messages."""
    headers: bool = False
    no_responders: bool = False
    """Whether a request without a subscriber is answered at once."""
    user: str = ""
    password: str = ""
    wants_account: bool = False
    """Whether it asks for an account, which cannot be had by name."""

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the JSON of a CONNECT; unknown names are ignored.

        Raises:
            NatsProtocolError: it is malformed, or the options cannot go together.
        """
        try:
            sent = json.loads(text)
        except (ValueError, RecursionError):
            raise NatsProtocolError(PARSER_ERROR) from None
        if not isinstance(sent, dict):
            raise NatsProtocolError(PARSER_ERROR)
        found = {name: sent[name] for name in _NAMES if sent.get(name) is not None}
        if any(type(value) is not _NAMES[name] for name, value in found.items()):
            raise NatsProtocolError(PARSER_ERROR)
        if any(isinstance(value, str) and not _is_unicode(value) for value in found.values()):
            raise NatsProtocolError(PARSER_ERROR)
        if not 0 <= found.pop("protocol", 0) <= PROTOCOL_MAX:
            raise NatsProtocolError("invalid client protocol")
        if found.get("no_responders") and not found.get("headers"):
            raise NatsProtocolError("no responders requires headers support")
        account, is_new = found.pop("account", ""), found.pop("new_account", False)
        return cls(password=found.pop("pass", ""), wants_account=bool(account or is_new), **found)


def _is_unicode(text: str) -> bool:
    """Return whether no half of a surrogate pair stands alone, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
