"""Reasons of rejections that are exceptions: type and message, within the bound, whatever the message is."""

import pytest

from kalda.clients.share.acknowledgements import reason_of
from kalda.protocol.messages.share_acknowledge import REJECT_REASON_MAX


class SilentError(Exception):
    """Its message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("too late"), "ValueError: too late"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (SilentError(), "SilentError"),
        (ValueError("a\x00\x1b[2J\nb"), "ValueError: a\x00\x1b[2J\nb"),
        (OSError("\udcff"), "OSError: \\udcff"),
        (KeyError("x" * 5000), "KeyError: '" + "x" * (REJECT_REASON_MAX - 11)),
        (OSError("é" * 5000), "OSError: " + "é" * ((REJECT_REASON_MAX - 9) // 2)),
    ],
)
def test_a_reason_has_the_type_and_the_message(error: BaseException, reason: str) -> None:
    assert reason == reason_of(error)
    assert len(reason.encode()) <= REJECT_REASON_MAX
