"""Arguments of the tools of `kalda mcp` that no request can carry."""

from typing import Any

import pytest

from kalda.tools.mcp.reads import CallError, ReadTools, config_resource
from kalda.tools.mcp.writes import WriteTools


@pytest.fixture
def tools() -> ReadTools:
    return ReadTools(None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["9" * 5_000, "2147483648", "²", "٣", "-1", "x"])
def test_what_is_no_broker_id_is_refused(name: str) -> None:
    with pytest.raises(CallError):
        config_resource("broker", name)


@pytest.mark.parametrize("arguments", [{"start_timestamp_ms": 2**63}, {"start_timestamp_ms": -5}])
async def test_times_that_cannot_be_are_refused(tools: ReadTools, arguments: dict[str, Any]) -> None:
    with pytest.raises(CallError, match="start_timestamp_ms"):
        await tools.read_records("t", **arguments)
    with pytest.raises(CallError, match="start_timestamp_ms"):
        await tools.search_records("t", "x", **arguments)


async def test_a_reset_to_a_time_that_cannot_be_is_refused() -> None:
    with pytest.raises(CallError, match="timestamp_ms"):
        await WriteTools(None).reset_offsets("g", "t", timestamp_ms=2**63)  # type: ignore[arg-type]
