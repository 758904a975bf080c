"""Checks what a caller may do with a topic before a request begins to be served."""

import asyncio
from collections import OrderedDict
from typing import Final

from kalda.clients.admin.topics import TopicDescription
from kalda.clients.errors import BrokerResponseError, UnknownTopicOrPartitionError, UnsupportedApiError
from kalda.common.errors import ErrorCode
from kalda.http.callers import Caller
from kalda.http.errors import HttpError
from kalda.security.acl.model import AclOperation

FRESH_SECONDS: Final = 5.0
"""How long a description counts: a right that was taken away still counts so long, where the brokers do not
check it themselves."""
KEPT_MAX: Final = 10_000


class TopicAccess:
    """Caches the topics that callers used recently, with the callers' permissions."""

    def __init__(self) -> None:
        self._known: Final[OrderedDict[tuple[str, str], tuple[float, TopicDescription]]] = OrderedDict()
        self._asked: Final[dict[tuple[str, str], asyncio.Task[TopicDescription]]] = {}

    async def check(
        self, caller: Caller, topic: str, operation: AclOperation, *, is_fresh: bool = False
    ) -> TopicDescription:
        """Return a topic that the caller may use; `is_fresh` asks the cluster in any case.

        Raises:
            HttpError: the topic does not exist (404), its name is not allowed (422), or the caller has no
                right to do this (403).
            ClientError: the cluster cannot be asked.
        """
        if is_fresh:
            self._known.pop((caller.principal, topic), None)
        description = await self._describe(caller, topic)
        operations = description.authorized_operations
        if operations is not None and operation not in operations:
            raise HttpError(403, f"{caller.principal} may not {operation.name.lower()} topic {topic}")
        return description

    def forget(self, topic: str) -> None:
        """Drop a topic whose state has changed, so that the next check asks the cluster."""
        for key in [each for each in self._known if each[1] == topic]:
            del self._known[key]

    async def _describe(self, caller: Caller, topic: str) -> TopicDescription:
        key = (caller.principal, topic)
        # The name of a caller is proven by the login only.
        await caller.authenticate()
        kept = self._known.get(key)
        if kept is not None and kept[0] > asyncio.get_running_loop().time():
            return kept[1]
        # One question for all requests that wait for its answer.
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.create_task(self._ask(caller, topic), name=f"look at {topic}")
            asked.add_done_callback(lambda task: self._answered(key, task))
        description = await asyncio.shield(asked)
        self._known[key] = (asyncio.get_running_loop().time() + FRESH_SECONDS, description)
        self._known.move_to_end(key)
        if len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return description

    def _answered(self, key: tuple[str, str], task: "asyncio.Task[TopicDescription]") -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # those who wait get it; with none left it is no error of this program

    async def _ask(self, caller: Caller, topic: str) -> TopicDescription:
        admin = await caller.admin()
        try:
            try:
                found = await admin.describe_topics([topic], include_authorized_operations=True)
            except UnsupportedApiError:
                found = await admin.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            raise HttpError(
                404, f"topic {topic} does not exist, or {caller.principal} may not see it"
            ) from None
        except BrokerResponseError as error:
            if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise HttpError(422, f"{topic!r} is not the name of a topic") from None
            raise
        return found[topic]
