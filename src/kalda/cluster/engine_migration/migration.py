"""Performs the steps of a migration, one after the other, until the goal is reached.

Every step begins with a look at both engines, and every write to a marker names the version that was seen. So
a run that was killed, or that races with another one, changes nothing by mistake: the next look decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kalda.cluster import paths, schema
from kalda.cluster.engine_migration.decision import (
    Goal,
    MigrationError,
    Right,
    Side,
    Step,
    migration_of,
    next_step,
    real_cluster_id,
    right_engine,
)
from kalda.cluster.engine_migration.marker import (
    CLOSED_ID,
    MARKER,
    EngineClosedError,
    Marker,
    Phase,
    decode_marker,
    encode_marker,
)
from kalda.cluster.engine_migration.tree import (
    Tree,
    clear_tree,
    copy_ahead,
    copy_tree,
)
from kalda.common.types import ZERO_UUID, random_uuid, uuid_to_text
from kalda.runtime.random import Random
from kalda.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData, ZooKeeperClient

_ATTEMPTS_MAX: Final = 10
"""How often a step is repeated after a lost connection, or after another run was quicker."""

_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: its address as the user wrote it, and a session."""

    address: str
    client: ZooKeeperClient


@dataclass(slots=True)
class Copied:
    """The result of a copy."""

    znodes: int = 0
    """How many the source has."""
    written: int = 0
    """How many were created, changed or deleted in the target."""
    digest: str = ""
    """Of the copy when both engines were equal; empty if they were not compared."""


class Migration:
    """One run between two engines.

    Every method raises `MigrationError` if something stands in the way, and `ZooKeeperError` if an engine
    fails.
    """

    def __init__(
        self,
        source: Engine,
        target: Engine,
        random: Random,
        *,
        on_step: Callable[[Step], None] = lambda _: None,
        copies_access: bool = False,
    ) -> None:
        """With `copies_access`, access lists are copied; both engines must be `AclClient`."""
        self._source: Final = source
        self._target: Final = target
        self._random: Final = random
        self._on_step: Final = on_step
        self._has_access: Final = copies_access
        self._copy: Tree | None = None
        """What was copied; once the source is closed, what both engines had when they were read last."""
        self.copied: Final = Copied()

    async def status(self) -> Right:
        """Return which engine is right."""
        return right_engine(await _look(self._source), await _look(self._target))

    async def copy(self) -> Copied:
        """Copy ahead: the source is not changed and its cluster may run. May be repeated."""
        return await self._run(Goal.COPY)

    async def migrate(self) -> Copied:
        """Make the target the right engine, and open it."""
        return await self._run(Goal.FORWARD)

    async def back(self) -> Copied:
        """Make the source the right engine again.

        Before the switch that opens it and deletes the copy. After the switch it is a migration the other
        way: what the cluster changed since is copied back.
        """
        source, target = await _look(self._source), await _look(self._target)
        if _returns(source, target):
            if source.phase is Phase.LEFT and target.phase is Phase.ARRIVING:
                await self._run(Goal.FORWARD)
            reverse = Migration(
                self._target,
                self._source,
                self._random,
                on_step=self._on_step,
                copies_access=self._has_access,
            )
            return await reverse.migrate()
        return await self._run(Goal.BACK)

    async def _run(self, goal: Goal) -> Copied:
        failures = 0
        step = None
        while step is not Step.DONE:
            try:
                step = await self._next(goal)
            except (BadVersionError, NodeExistsError, NoNodeError, ConnectionLossError) as error:
                failures += 1
                self._copy = None
                if failures >= _ATTEMPTS_MAX:
                    raise MigrationError(f"failed {failures} times: {error}") from error
        return self.copied

    async def _next(self, goal: Goal) -> Step:
        """Look at both engines and do one step."""
        source, target = await _look(self._source), await _look(self._target)
        if source.phase is not Phase.LEAVING and goal is Goal.FORWARD:
            # What was copied while the source was open may be outdated.
            self._copy = None
        step = next_step(source, target, goal, is_copied=self._copy is not None)
        if step is not Step.DONE:
            self._on_step(step)
            await self._do(step, goal, source, target)
        return step

    async def _do(self, step: Step, goal: Goal, source: Side, target: Side) -> None:
        if step is Step.CLOSE_SOURCE:
            await self._require_topic_ids()
            await self._close_source(source, target)
        elif step is Step.CLAIM_TARGET:
            await self._claim_target(source, target)
        elif step is Step.COPY:
            copy = copy_ahead if goal is Goal.COPY else copy_tree
            tree, written = await copy(self._source.client, self._target.client, with_access=self._has_access)
            self._copy = tree
            self.copied.znodes = len(tree.znodes)
            self.copied.written += written
            self.copied.digest = "" if goal is Goal.COPY else tree.digest
        elif step is Step.SWITCH:
            await self._switch(source)
        elif step is Step.OPEN_TARGET:
            await self._open(self._target, target, Phase.ARRIVED)
        elif step is Step.OPEN_SOURCE:
            await self._open(self._source, source, None)
        else:
            assert step is Step.CLEAR_TARGET, f"{step} has no action"
            await self._clear_target(target)

    async def _close_source(self, source: Side, target: Side) -> None:
        marker = Marker(
            phase=Phase.LEAVING,
            migration=migration_of(source, target) or uuid_to_text(random_uuid(self._random)),
            cluster_id=real_cluster_id(source),
            source=self._source.address,
            target=self._target.address,
        )
        await self._source.client.multi(
            [_write_marker(source, marker), SetData(paths.CLUSTER_ID, schema.encode_cluster_id(CLOSED_ID))]
        )
        self._copy = None

    async def _claim_target(self, source: Side, target: Side) -> None:
        """Close the target; the order of writes is that of `_clear_target`, backwards."""
        client = self._target.client
        marker = Marker(
            phase=Phase.ARRIVING,
            migration=(
                source.marker.migration
                if source.marker is not None and source.phase is Phase.LEAVING
                else uuid_to_text(random_uuid(self._random))
            ),
            cluster_id=real_cluster_id(source),
            source=self._source.address,
            target=self._target.address,
        )
        closed = schema.encode_cluster_id(CLOSED_ID)
        operations: list[Operation] = [_write_marker(target, marker)]
        if target.cluster_id is None:
            operations.append(Create(paths.CLUSTER_ID, closed))
        else:
            operations.append(SetData(paths.CLUSTER_ID, closed))
        if await client.exists(paths.CLUSTER) is None:
            operations.insert(0, Create(paths.CLUSTER))
        await client.multi(operations)

    async def _switch(self, source: Side) -> None:
        assert source.marker is not None, "a source without a marker is not switched"
        assert self._copy is not None, "what was not compared is not switched"
        operations: list[Operation] = [_write_marker(source, replace(source.marker, phase=Phase.LEFT))]
        if self._copy.controller_epoch_version is not None:
            # A broker that was suspended all the time may become controller before it registers again.
            operations.append(Check(paths.CONTROLLER_EPOCH, self._copy.controller_epoch_version))
        await self._source.client.multi(operations)

    async def _open(self, engine: Engine, side: Side, phase: Phase | None) -> None:
        assert side.marker is not None, "an engine without a marker is open"
        marker: Operation = (
            Delete(MARKER, side.marker_version)
            if phase is None
            else _write_marker(side, replace(side.marker, phase=phase))
        )
        cluster_id = schema.encode_cluster_id(side.marker.cluster_id)
        await engine.client.multi([SetData(paths.CLUSTER_ID, cluster_id), marker])

    async def _clear_target(self, target: Side) -> None:
        """Delete the copy; the marker, which keeps brokers away, last."""
        client = self._target.client
        await clear_tree(client)
        operations: list[Operation] = [Delete(MARKER, target.marker_version)]
        if target.cluster_id is not None:
            operations.append(Delete(paths.CLUSTER_ID))
        await client.multi(operations)
        try:
            await client.delete(paths.CLUSTER)
        except (NotEmptyError, NoNodeError, ConnectionLossError):
            # An empty znode does no harm.
            return

    async def _require_topic_ids(self) -> None:
        """Refuse topics without an id: the id that a controller would give them depends on the engine."""
        client = self._source.client
        topics = await client.children(paths.TOPICS) if await client.exists(paths.TOPICS) else []
        entries = await client.get_many([paths.topic(topic) for topic in topics])
        found = schema.decode_each(topics, entries, lambda topic, entry: schema.decode_topic(topic, entry[0]))
        without = [topic for topic, assignment in found.items() if assignment.topic_id == ZERO_UUID]
        if without:
            named = ", ".join(without[:_NAMED_MAX])
            raise MigrationError(
                f"{len(without)} topics have no id yet ({named}): start the brokers at "
                f"{self._source.address} once, so that the controller gives them ids"
            )


def _returns(source: Side, target: Side) -> bool:
    """Return whether going back is a migration from `target` to `source`, begun or not."""
    return source.phase is Phase.LEFT or (
        source.marker is not None
        and target.marker is not None
        and target.phase in (Phase.LEAVING, Phase.LEFT)
        and source.marker.migration == target.marker.migration
    )


def _write_marker(side: Side, marker: Marker) -> Operation:
    """Return the operation that writes a marker if it is what it was."""
    data = encode_marker(marker)
    return Create(MARKER, data) if side.marker is None else SetData(MARKER, data, side.marker_version)


async def _look(engine: Engine) -> Side:
    """Read the state of an engine that decides the next step.

    Raises:
        MigrationError: the marker cannot be read.
    """
    client = engine.client
    marker, cluster_id = await client.get_many([MARKER, paths.CLUSTER_ID])
    try:
        decoded = None if marker is None else decode_marker(marker[0])
        found_id = None if cluster_id is None else schema.decode_cluster_id(cluster_id[0])
    except (EngineClosedError, schema.SchemaError) as error:
        raise MigrationError(f"{engine.address}: {error}") from None
    return Side(
        address=engine.address,
        marker=decoded,
        marker_version=-1 if marker is None else marker[1].version,
        cluster_id=found_id,
        brokers=tuple(paths.numbers(await _children(client, paths.BROKER_IDS))),
        has_controller=await client.exists(paths.CONTROLLER) is not None,
        has_cluster=cluster_id is not None or bool(await _children(client, paths.TOPICS)),
    )


async def _children(client: ZooKeeperClient, path: str) -> list[str]:
    try:
        return await client.children(path)
    except NoNodeError:
        return []
