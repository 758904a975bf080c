import pytest

from kalda.clients.coordinator_lookup import CoordinatorLookup, CoordinatorType
from kalda.clients.errors import BrokerResponseError
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.virtual_time import run_virtual

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION


class ScriptedPort:
    """Brokers of one version; `errors` are the codes of keys."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.requests: list[FindCoordinatorRequest] = []
        self.errors: dict[str, ErrorCode] = {}
        self.is_deaf = False

    async def send_to_any(
        self,
        request: VersionedRequest,
        response_class: type[FindCoordinatorResponse],
        *,
        timeout_ms: int | None = None,
    ) -> FindCoordinatorResponse:
        built = request.build(self.version)
        assert isinstance(built, FindCoordinatorRequest)
        self.requests.append(built)
        if self.version < 4:
            return FindCoordinatorResponse(
                error_code=int(self.errors.get(built.key, ErrorCode.NONE)),
                error_message="why" if built.key in self.errors else None,
                node_id=7,
                host=built.key,
                port=1,
            )
        keys = [] if self.is_deaf else built.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=7,
                    host=key,
                    port=1,
                    error_code=int(self.errors.get(key, ErrorCode.NONE)),
                    error_message=None,
                )
                for key in keys
            ]
        )

    def coordinator_found(self, broker_id: int, host: str, port: int) -> int:
        return 100 + broker_id


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_coordinator_is_asked_for_once(version: int) -> None:
    port = ScriptedPort(version)
    lookup = CoordinatorLookup(port)

    async def main() -> None:
        assert 107 == await lookup.find("g", GROUP)
        assert 107 == await lookup.find("g", GROUP)

    run_virtual(main())
    assert 1 == len(port.requests)


def test_many_keys_take_one_request_where_the_broker_knows_how() -> None:
    """KIP-699."""
    new, old = ScriptedPort(4), ScriptedPort(3)

    async def main() -> None:
        for port in (new, old):
            found = await CoordinatorLookup(port).find_all(["a", "b", "c"], GROUP)
            assert {"a": 107, "b": 107, "c": 107} == found

    run_virtual(main())
    assert [["a", "b", "c"]] == [each.coordinator_keys for each in new.requests]
    assert ["a", "b", "c"] == [each.key for each in old.requests]


def test_groups_and_transactional_ids_of_one_name_are_apart() -> None:
    port = ScriptedPort(4)
    lookup = CoordinatorLookup(port)

    async def main() -> None:
        await lookup.find("x", GROUP)
        await lookup.find("x", TRANSACTION)

    run_virtual(main())
    assert [0, 1] == [each.key_type for each in port.requests]


@pytest.mark.parametrize("version", [3, 4])
def test_an_error_belongs_to_its_key_and_is_not_remembered(version: int) -> None:
    port = ScriptedPort(version)
    port.errors["bad"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    lookup = CoordinatorLookup(port)

    async def main() -> None:
        found = await lookup.find_all(["bad", "good"], TRANSACTION)
        assert 107 == found["good"]
        assert isinstance(found["bad"], BrokerResponseError)
        with pytest.raises(BrokerResponseError, match="coordinator of transactional id 'bad'") as caught:
            await lookup.find("bad", TRANSACTION)
        assert caught.value.is_retriable
        del port.errors["bad"]
        assert 107 == await lookup.find("bad", TRANSACTION)

    run_virtual(main())


def test_a_forgotten_coordinator_is_asked_for_again() -> None:
    port = ScriptedPort(4)
    lookup = CoordinatorLookup(port)

    async def main() -> None:
        await lookup.find("g", GROUP)
        lookup.forget("g", GROUP)
        lookup.forget("never seen", GROUP)
        await lookup.find("g", GROUP)

    run_virtual(main())
    assert 2 == len(port.requests)


def test_an_answer_that_leaves_the_key_out_is_an_error_not_a_loop() -> None:
    port = ScriptedPort(4)
    port.is_deaf = True

    async def main() -> None:
        with pytest.raises(BrokerResponseError, match="FindCoordinator left out 'g'"):
            await CoordinatorLookup(port).find("g", GROUP)

    run_virtual(main())
