"""What a consumer without a group assigns itself, and the errors that it alone meets."""

import asyncio
import re
from collections.abc import Callable

import pytest

from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.errors import BrokerResponseError, TlsError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.network_client import NetworkClient
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.unit.clients.metadata_responses import partition, response, topic


def snapshot(*topics: object) -> ClusterMetadata:
    return ClusterMetadata.from_response(response(*topics))  # type: ignore[arg-type]  # made by `topic`


def with_core(use: Callable[[ConsumerCore], None]) -> None:
    async def main() -> None:
        core = ConsumerCore(ConsumerConfig.from_options({"bootstrap_servers": "b:1"}), lambda: None)
        use(core)

    asyncio.run(main())


def names(core: ConsumerCore) -> list[str]:
    return sorted(map(str, core.subscription.assigned()))


def test_partitions_that_are_added_are_read_and_an_error_takes_none_away() -> None:
    """A topic whose leader moves keeps its positions."""

    def use(core: ConsumerCore) -> None:
        core.subscribe(["t", "u"])
        core._on_metadata(snapshot(topic("t", partition(0, 0, 1)), topic("x", partition(0, 0, 1))))
        assert ["t-0"] == names(core)
        core._on_metadata(
            snapshot(topic("t", error=ErrorCode.LEADER_NOT_AVAILABLE), topic("u", partition(0, 0, 1)))
        )
        assert ["t-0", "u-0"] == names(core)
        core._on_metadata(snapshot(topic("t", partition(0, 0, 1), partition(1, 0, 1))))
        assert ["t-0", "t-1", "u-0"] == names(core)
        core.subscribe(["u"])
        core.subscription_changed()
        assert ["u-0"] == names(core)

    with_core(use)


def test_a_caller_that_waits_for_records_is_woken_by_an_assignment() -> None:
    """It has to ask for the positions; until then, a loop over the consumer would wait for ever."""

    async def main() -> None:
        is_ready = asyncio.Event()
        core = ConsumerCore(ConsumerConfig.from_options({"bootstrap_servers": "b:1"}), is_ready.set)
        core.subscribe(["t"])
        core.took()
        assert not is_ready.is_set()
        core._on_metadata(snapshot(topic("t", partition(0, 0, 1))))
        assert is_ready.is_set()

    asyncio.run(main())


def test_a_pattern_takes_the_topics_that_match_but_internal_ones() -> None:
    def use(core: ConsumerCore) -> None:
        core.subscribe(re.compile("o.*|__c.*"))
        internal = topic("__consumer_offsets", partition(0, 0, 1))
        internal.is_internal = True
        core._on_metadata(snapshot(topic("orders", partition(0, 0, 1)), topic("users"), internal))
        assert ["orders-0"] == names(core)

    with_core(use)


def test_assigned_partitions_stay_those_that_the_user_assigned() -> None:
    def use(core: ConsumerCore) -> None:
        core.subscription.assign_from_user([TopicPartition("t", 1)])
        core._on_metadata(snapshot(topic("t", partition(0, 0, 1), partition(1, 0, 1))))
        assert ["t-1"] == names(core)

    with_core(use)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_topic_that_will_never_be_described_is_an_error(code: ErrorCode, is_assigned: bool) -> None:
    """Without a coordinator that refuses the group, polls would return nothing for ever."""

    def use(core: ConsumerCore) -> None:
        if is_assigned:
            core.subscription.assign_from_user([TopicPartition("t", 0)])
        else:
            core.subscribe(["t"])
        core._on_metadata(snapshot(topic("t", error=code), topic("other", error=code)))
        with pytest.raises(BrokerResponseError, match=f"topic t: {code.name}"):
            core.raise_error()
        core.raise_error()

    with_core(use)


def test_a_refused_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password, or plaintext to a TLS port; there is no group whose failure would say it."""
    monkeypatch.setattr(NetworkClient, "start", lambda _: None)

    async def main() -> None:
        core = ConsumerCore(ConsumerConfig.from_options({"bootstrap_servers": "b:1"}), lambda: None)
        core.start(None)
        assert core.metadata.on_failure is not None
        core.metadata.on_failure(TlsError("b:1 speaks TLS"))
        with pytest.raises(TlsError, match="b:1 speaks TLS"):
            core.raise_error()
        await core.close(1)

    asyncio.run(main())
