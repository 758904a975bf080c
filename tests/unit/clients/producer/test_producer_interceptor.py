import logging
from dataclasses import replace

import pytest

from kalda.clients.producer.producer_interceptor import ProducerInterceptors
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_metadata import RecordMetadata


class _Interceptor:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=b"changed")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        pass

    def close(self) -> None:
        pass


class _Forgetful(_Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


def test_an_interceptor_that_returns_no_record_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """A forgotten `return` made `send` fail with an AttributeError."""
    interceptors = ProducerInterceptors([_Interceptor(), _Forgetful()])
    with caplog.at_level(logging.WARNING):
        record = interceptors.on_send(ProducerRecord(topic="orders", value=b"first"))
    assert b"changed" == record.value
    assert "_Forgetful.on_send of a producer interceptor returned None" in caplog.text
