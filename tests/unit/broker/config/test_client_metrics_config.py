"""Subscriptions to client metrics are checked by Kafka's rules and with its codes (KIP-714)."""

import pytest

from kalda.broker.config.client_metrics import ClientMetricsConfig
from kalda.common.errors import ApiError, ErrorCode


def parse(name: str = "s", **settings: str) -> ClientMetricsConfig:
    return ClientMetricsConfig.parse(name, {key.replace("_", "."): text for key, text in settings.items()})


def test_the_defaults_are_kafkas() -> None:
    assert (300_000, frozenset(), {}) == (parse().interval_ms, parse().metrics, parse().match)


def test_lists_are_split_at_commas() -> None:
    found = parse(metrics="a., b.,", match=" client_id = app.* ,client_software_version=1[.]2")
    assert frozenset({"a.", "b."}) == found.metrics
    assert found.matches({"client_id": "app-1", "client_software_version": "1.2"})
    assert not found.matches({"client_id": "my-app", "client_software_version": "1.2"})
    assert not found.matches({"client_id": "app-1"})


@pytest.mark.parametrize("interval", ["100", "3600000"])
def test_the_bounds_of_the_interval_are_allowed(interval: str) -> None:
    assert int(interval) == parse(interval_ms=interval).interval_ms


@pytest.mark.parametrize("interval", ["99", "3600001", "-1", "x", "", "²", "1" * 5000])
def test_other_intervals_are_refused(interval: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(interval_ms=interval)
    assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(
    "match", ["", "client_id", "client_id=", "=a", "client_id=a=b", "topic=a", "client_id=(", "client_id=a,"]
)
def test_patterns_are_checked(match: str) -> None:
    with pytest.raises(ApiError, match="Illegal client matching pattern") as caught:
        parse(match=match)
    assert ErrorCode.INVALID_CONFIG == caught.value.code


def test_unknown_settings_and_an_empty_name_are_refused() -> None:
    for name, settings in (("s", {"other": "1"}), ("", {})):
        with pytest.raises(ApiError) as caught:
            parse(name, **settings)
        assert ErrorCode.INVALID_REQUEST == caught.value.code
