"""Defines the errors of checks of payloads."""

from typing import Final

REASON_CHARACTERS_MAX: Final = 300
"""Longer reasons are cut: they become error messages of a response, one for each record."""


class BadPayloadError(ValueError):
    """A value is not what its schema or its framing demands.

    Args:
        reason: What was found and what is expected.
        path: The field, such as ``customer.address[2].zip``; empty for the value itself.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        text = f"{path}: {reason}" if path else reason
        super().__init__(
            text if len(text) <= REASON_CHARACTERS_MAX else text[: REASON_CHARACTERS_MAX - 3] + "..."
        )
        self.path = path


class UnusableSchemaError(ValueError):
    """A registered schema cannot be used for checks; the message says why."""
