"""Kalda as the message broker of Celery and other programs on kombu: a queue is a topic with a share group.

``import kalda.celery`` makes kombu know URLs ``kalda://host:port``. Where a program cannot import it, the
setting ``broker_transport="kalda.celery:Transport"`` does the same. Needs the extra ``[celery]``.
"""

from kalda.common.extras import missing_package

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    raise missing_package("kalda.celery", "celery", error) from error

from kalda.celery.kombu_transport import Channel, Transport

__all__ = ["Channel", "Transport"]

TRANSPORT_ALIASES["kalda"] = "kalda.celery:Transport"
