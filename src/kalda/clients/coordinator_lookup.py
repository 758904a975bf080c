"""Finds the brokers that coordinate groups and transactional ids, and remembers them (KIP-699).

It repeats nothing: a caller that gets an error retries, and forgets a coordinator that answers
NOT_COORDINATOR.
"""

import functools
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

from kalda.clients.errors import BrokerResponseError, ClientError, error_for
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.find_coordinator import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM_VERSION: Final = 4


class CoordinatorType(IntEnum):
    """The kinds of coordinators; the numbers are the protocol's."""

    GROUP = KEY_TYPE_GROUP
    TRANSACTION = KEY_TYPE_TRANSACTION


class CoordinatorPort(Protocol):
    """The part of a network client that a look-up uses."""

    async def send_to_any(
        self,
        request: VersionedRequest,
        response_class: type[FindCoordinatorResponse],
        *,
        timeout_ms: int | None = None,
    ) -> FindCoordinatorResponse:
        """Send a request to some broker."""
        ...

    def coordinator_found(self, broker_id: int, host: str, port: int) -> int:
        """Take a coordinator's address; return the node id of the connection to use."""
        ...


class CoordinatorLookup:
    """Caches the coordinators of groups and transactional ids, by key."""

    def __init__(self, port: CoordinatorPort) -> None:
        self._port: Final = port
        self._known: Final[dict[tuple[str, CoordinatorType], int]] = {}

    async def find(self, key: str, kind: CoordinatorType) -> int:
        """Return the node id of a key's coordinator, asking a broker unless it is known.

        Raises:
            BrokerResponseError: there is none now (retriable), or the client may not use the key.
            ClientError: no broker could be asked.
        """
        found = (await self.find_all((key,), kind))[key]
        if isinstance(found, ClientError):
            raise found
        return found

    async def find_all(self, keys: Iterable[str], kind: CoordinatorType) -> dict[str, int | ClientError]:
        """Return the coordinator of each key, or the error that stands in its place; raises as `find`."""
        found: dict[str, int | ClientError] = {}
        missing = []
        for key in keys:
            node_id = self._known.get((key, kind))
            if node_id is None:
                missing.append(key)
            else:
                found[key] = node_id
        while missing:
            build = functools.partial(_request, missing, kind)
            response = await self._port.send_to_any(
                VersionedRequest(ApiKey.FIND_COORDINATOR, build), FindCoordinatorResponse
            )
            answered = self._read(response, missing[0], kind)
            if not answered.keys() & set(missing):
                raise BrokerResponseError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"an answer to FindCoordinator left out {missing[0]!r}",
                )
            found.update(answered)
            # A broker before 2.8 answers for one key at a time.
            missing = [key for key in missing if key not in answered]
        return found

    def forget(self, key: str, kind: CoordinatorType) -> None:
        """Ask for the coordinator again before its next use."""
        self._known.pop((key, kind), None)

    def _read(
        self, response: FindCoordinatorResponse, first: str, kind: CoordinatorType
    ) -> dict[str, int | ClientError]:
        answers = [
            (each.key, each.error_code, each.error_message, each.node_id, each.host, each.port)
            for each in response.coordinators
        ]
        if response.error_code != ErrorCode.NONE or response.host:
            # Below version 4 one answer stands in the response itself.
            alone = (first, response.error_code, response.error_message)
            answers.append((*alone, response.node_id, response.host, response.port))
        found: dict[str, int | ClientError] = {}
        for key, code, message, broker_id, host, port in answers:
            if code != ErrorCode.NONE:
                noun = "group" if kind is CoordinatorType.GROUP else "transactional id"
                detail = f" ({message})" if message else ""
                found[key] = error_for(ErrorCode.of(code), f"coordinator of {noun} {key!r}{detail}")
            else:
                node_id = self._port.coordinator_found(broker_id, host, port)
                found[key] = self._known[key, kind] = node_id
        return found


def _request(keys: list[str], kind: CoordinatorType, version: int) -> FindCoordinatorRequest:
    if version >= BATCHED_FROM_VERSION:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    # Version 0 has groups only and no field for the type.
    return FindCoordinatorRequest(key=keys[0], key_type=kind)
