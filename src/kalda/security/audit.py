"""Writes what an auditor asks for: who logged in, who was refused, who changed what.

One line of JSON for each event on a logger of its own, at a limited rate for each kind of event and
address. The lines hold no secret: no password, token, key or value of a setting.

    {"event":"login","outcome":"failure","address":"10.0.0.7","listener":"SASL_SSL","reason":"…"}
    {"event":"request","outcome":"denied","principal":"User:alice","operation":"Write","resource":"Topic:t",…}
    {"event":"change","outcome":"success","principal":"User:admin","request":"CreateTopics",…}
"""

import json
import logging
from typing import Final

from kalda.common.log_limiter import LogLimiter

logger: Final = logging.getLogger(__name__)

SUCCESS: Final = "success"
FAILURE: Final = "failure"
DENIED: Final = "denied"

LINE_LENGTH_MAX: Final = 3_500
"""Characters of a line. The formats of the process cut longer ones, and a cut line is no JSON any more: a
client could hide what it did behind a long name."""

_TEXT_LENGTH_MAX: Final = 256
"""Characters of one text at first; a topic's name has 249 at most. Fewer if the line gets too long."""


class AuditLog:
    """Writes the events of one broker."""

    def __init__(self) -> None:
        self._limiters: Final[dict[tuple[str, str], LogLimiter]] = {}

    def write(self, event: str, outcome: str, *, address: str, **fields: object) -> None:
        """Write one event; a field that is None is left out.

        Args:
            event: ``login``, ``request`` or ``change``.
            outcome: ``success``, ``failure`` or ``denied``.
            address: Of the client; events of one address are limited together.
            fields: What else is known, without secrets.
        """
        limiter = self._limiters.get((event, outcome))
        if limiter is None:
            limiter = self._limiters[event, outcome] = LogLimiter(logger)
        known = {name: value for name, value in fields.items() if value is not None}
        line = _line({"event": event, "outcome": outcome, "address": address, **known})
        limiter.log(logging.INFO, "%s", line, source=address)


def _line(fields: dict[str, object]) -> str:
    """Return the fields as JSON, their texts cut so that the line stays below its bound."""
    text_length_max = _TEXT_LENGTH_MAX
    while True:
        cut = {name: _cut(value, text_length_max) for name, value in fields.items()}
        line = json.dumps(cut, separators=(",", ":"), default=str)
        if len(line) <= LINE_LENGTH_MAX or text_length_max == 1:
            return line
        text_length_max //= 2


def _cut(value: object, length_max: int) -> object:
    if isinstance(value, list):
        return [_cut(each, length_max) for each in value]
    if isinstance(value, str) and len(value) > length_max:
        return f"{value[:length_max]}..."
    return value
