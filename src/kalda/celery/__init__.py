"""Kalda as the message broker of Celery and other programs on kombu: a queue is a topic with a share group.

kombu knows URLs ``kalda://host:port`` wherever this package is installed: it is an entry point of kombu's.
``import kalda.celery`` does the same for a program that uses `kombu.connection` and nothing else of kombu.
Needs the extra ``[celery]``.
"""

from typing import TYPE_CHECKING, Any, Final

from kalda.common.extras import missing_package

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    raise missing_package("kalda.celery", "celery", error) from error

if TYPE_CHECKING:
    from kalda.celery.kombu_transport import Channel, Transport

__all__ = ["Channel", "Transport"]

TRANSPORT_ALIASES["kalda"] = "kalda.celery:Transport"
NO_SERIALIZER: Final = (None, None, "application/x-kalda")
"""The value of the entry point ``kombu.serializers``, which has kombu import this module.

kombu has no entry points for transports. This serializer has no encoder and no decoder, so that it adds none.
"""


def __getattr__(name: str) -> Any:
    """Import the transport when it is used: kombu is not whole yet when it loads its entry points."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kalda.celery import kombu_transport

    return getattr(kombu_transport, name)
