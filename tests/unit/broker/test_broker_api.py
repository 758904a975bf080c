"""The contract between dispatch and handlers."""

import pytest

from kalda.broker.requests.api import ApiHandler, Pending, error_codes
from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol import codec, registry
from kalda.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kalda.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.property.protocol.declared_messages import filled


class TestPending:
    def test_callbacks_run_once_in_order_and_late_ones_at_once(self) -> None:
        pending = Pending[int]()
        seen: list[tuple[str, int]] = []
        pending.add_done(lambda done: seen.append(("first", done.value)))
        pending.add_done(lambda done: seen.append(("second", done.value)))
        pending.complete(7)
        pending.add_done(lambda done: seen.append(("late", done.value)))
        assert [("first", 7), ("second", 7), ("late", 7)] == seen

    def test_failure_is_raised_where_the_value_is_asked_for(self) -> None:
        pending = Pending[int]()
        pending.fail(ValueError("on purpose"))
        with pytest.raises(ValueError, match="on purpose"):
            _ = pending.value

    def test_second_completion_is_our_bug(self) -> None:
        """Answering twice would shift every later answer of the connection by one."""
        pending = Pending[int]()
        pending.complete(1)
        with pytest.raises(AssertionError, match="once"):
            pending.complete(2)
        with pytest.raises(AssertionError, match="once"):
            pending.fail(ValueError())

    def test_abandoning_after_completion_does_nothing(self) -> None:
        pending = Pending[int]()
        abandoned: list[bool] = []
        pending.on_abandoned = lambda: abandoned.append(True)
        pending.complete(1)
        pending.abandon()
        assert [] == abandoned


class TestApiHandler:
    def test_advertises_what_it_serves_unless_told_otherwise(self) -> None:
        plain = ApiHandler(
            access=None,
            key=ApiKey.METADATA,
            versions=(1, 5),
            build=lambda _: lambda *_: None,
            error_response=max,
        )
        wider = ApiHandler(
            access=None,
            key=ApiKey.PRODUCE,
            versions=(3, 9),
            advertised=(0, 9),
            build=lambda _: lambda *_: None,
            error_response=max,
        )
        assert (1, 5) == plain.versions_advertised
        assert (0, 9) == wider.versions_advertised

    @pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.key.title)
    def test_refuses_in_every_version(self, handler: ApiHandler) -> None:
        """Old versions lack the error of the whole response; it must not keep the answer from being sent."""
        spec = registry.spec(handler.key)
        low, high = handler.versions
        for version in range(low, high + 1):
            request = filled(spec.request_class, version)
            refused = handler.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version)
            if refused is not None:
                codec.encode(refused, version)

    def test_has_exactly_one_way_of_handling(self) -> None:
        with pytest.raises(AssertionError, match="one way"):
            ApiHandler(access=None, key=ApiKey.METADATA, versions=(0, 1), error_response=max)


class TestErrorCodes:
    def test_code_at_the_top_is_found(self) -> None:
        assert [15] == error_codes(FindCoordinatorResponse(error_code=15))
        assert [] == error_codes(FindCoordinatorResponse())

    def test_codes_of_the_items_are_found(self) -> None:
        topics = [CreatableTopicResult(name="a", error_code=code) for code in (0, 36, 0, 17)]
        assert [36, 17] == error_codes(CreateTopicsResponse(topics=topics))
