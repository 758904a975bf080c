"""The committed offsets of a group, as a query starts from them."""

from types import SimpleNamespace

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.spark.source.group_offsets import GroupOffsets


def test_a_partition_that_cannot_be_read_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query, or a repaired checkpoint, would begin somewhere else in it without a word."""
    offsets = Outcomes(
        {TopicPartition("orders", 0): OffsetAndMetadata(7)},
        {TopicPartition("orders", 1): ClientError("not authorised")},
    )
    answer = Outcomes({"billing": offsets})
    admin = SimpleNamespace(list_consumer_group_offsets=lambda *_, **__: answer)
    monkeypatch.setattr(Admin, "from_config", lambda _: admin)

    with pytest.raises(ClientError, match="not authorised"):
        GroupOffsets({}, "billing").read()
