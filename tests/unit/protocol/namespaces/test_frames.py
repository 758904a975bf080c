"""Names in frames that are easy to get wrong; properties compare the frames with the messages."""

import pytest

from kalda.protocol import codec
from kalda.protocol.messages.produce import ProduceRequest, TopicProduceData
from kalda.protocol.namespaces.frames import produce_request
from kalda.protocol.namespaces.namespace import Namespace


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("name", ["", ".", "..", "orders"])
def test_a_transactional_id_may_be_what_a_topic_may_not(version: int, name: str) -> None:
    """A producer's transaction must be found under the name that InitProducerId gave it."""
    request = ProduceRequest(transactional_id=name, topic_data=[TopicProduceData(name=name)])
    frame = memoryview(bytearray(codec.encode(request, version)))
    found = produce_request(Namespace("7"), lambda _: False, frame, 0, version)
    stored = codec.decode(ProduceRequest, version, found)
    assert (f"ns-7-{name}" if name else "") == stored.transactional_id
    assert (f"ns-7-{name}" if name == "orders" else name) == stored.topic_data[0].name
