"""Calls a user's interceptors; their exceptions are logged and change nothing, as in Java's client."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kalda.clients.consumer.rebalance_listener import ConsumerInterceptor
from kalda.clients.values import ConsumerRecord, OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)


class Interceptors:
    """The interceptors of one consumer, called in order."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors: Final = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Return the records for the application; each interceptor gets the result of the one before."""
        for interceptor in self._interceptors:
            try:
                records = list(interceptor.on_consume(records))
            except Exception:
                logger.exception(
                    "on_consume of %s failed; its records are passed on.", type(interceptor).__name__
                )
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report offsets that were committed."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                logger.exception("on_commit of %s failed.", type(interceptor).__name__)

    def close(self) -> None:
        """Report that the consumer closes."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                logger.exception("close of %s failed.", type(interceptor).__name__)
