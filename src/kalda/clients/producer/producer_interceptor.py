"""Defines the port for interceptors, and runs a chain of them.

An interceptor watches and may change records; it must not be able to stop a producer. So its exceptions are
logged and never raised, and the chain goes on with the record as it was before.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.common.public import public
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_IGNORED: Final = "%s.%s of a producer interceptor raised an exception; it is ignored"
_NOT_A_RECORD: Final = "%s.on_send of a producer interceptor returned %r, not a ProducerRecord; it is ignored"


@public
class ProducerInterceptor(Protocol):
    """Sees each record before it is serialised, and each result."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, the given one or a changed copy. Called in the thread of `send`."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Take the result of a record, before its `on_delivery`; called on the loop's thread, so be quick.

        For a record that `send` refused, the call comes from `send`, with the offset -1.
        """
        ...

    def close(self) -> None:
        """Called when the producer is closed."""
        ...


class ProducerInterceptors:
    """The interceptors of one producer, in the order of the option `interceptors`."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors: Final = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after all interceptors."""
        for interceptor in self._interceptors:
            try:
                returned: object = interceptor.on_send(record)
            except Exception:
                logger.warning(_IGNORED, type(interceptor).__name__, "on_send", exc_info=True)
                continue
            if isinstance(returned, ProducerRecord):
                record = returned
            else:
                logger.warning(_NOT_A_RECORD, type(interceptor).__name__, returned)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Pass a result to all interceptors."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                logger.warning(_IGNORED, type(interceptor).__name__, "on_acknowledgement", exc_info=True)

    def close(self) -> None:
        """Close all interceptors."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                logger.warning(_IGNORED, type(interceptor).__name__, "close", exc_info=True)
