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
        line = json.dumps(
            {"event": event, "outcome": outcome, "address": address, **known},
            separators=(",", ":"),
            default=str,
        )
        limiter.log(logging.INFO, "%s", line, source=address)
