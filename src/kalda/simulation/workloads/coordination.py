"""Clients read and write a few znodes: the history must be linearizable, and no watch may be lost."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from kalda.etcd.client import EtcdClient
from kalda.runtime.runtime import RUNTIME
from kalda.simulation.checks.linearizable import Call, Kind, Refusal, UndecidedError, Znode, is_linearizable
from kalda.simulation.checks.watches import SetWatches
from kalda.simulation.cluster import SESSION_TIMEOUT_MS
from kalda.simulation.world import World
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import BadVersionError, NodeExistsError, NoNodeError, ZooKeeperError
from kalda.zookeeper.port import ANY_VERSION, SessionState

_CLIENTS: Final = 3
_ZNODES: Final = 3
_PAUSE_SECONDS_MAX: Final = 1.6
_REFUSALS: Final = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.EXISTS,
    BadVersionError: Refusal.BAD_VERSION,
}


class Registers:
    """Znodes that are created, read, written and deleted, mostly under the version that was read."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._calls: Final[dict[str, list[Call]]] = {f"/register-{number}": [] for number in range(_ZNODES)}
        self._runs = 0
        self._written = 0

    async def set_up(self) -> None:
        """Create nothing: that is a part of the history."""

    def start(self) -> None:
        """Start the clients."""
        for number in range(_CLIENTS):
            self._world.start_client(f"zookeeper-client-{number}", partial(self._use, number))

    async def check(self) -> None:
        """Read each znode once more, and look for an order of all calls."""
        client = await self._connect()
        for path, calls in self._calls.items():
            await _Session(self._world, client, self._calls).read(path)
            try:
                if not is_linearizable(calls):
                    self._world.history.violate(
                        "znodes are linearizable", f"{path}: {_shortest_prefix(calls)}"
                    )
            except UndecidedError as error:
                self._world.history.note(f"linearizability of {path} is undecided: {error}")
        known = sum(call.is_known for calls in self._calls.values() for call in calls)
        self._world.history.note(f"{known} calls to znodes have an outcome, {self._written} wrote")
        await client.close()

    async def _connect(self) -> EnsembleClient | EtcdClient:
        runtime = RUNTIME.get()
        assert runtime is not None, "a workload runs on a simulated machine"
        return await self._world.cluster.connect(runtime, SESSION_TIMEOUT_MS)

    async def _use(self, number: int) -> None:
        self._runs += 1
        random = self._world.random(f"zookeeper-client-{number}.{self._runs}")
        client = await self._connect()
        session = _Session(self._world, client, self._calls)
        paths = list(self._calls)
        while not self._world.is_stopping:
            path = random.choice(paths)
            choice = random.random()
            if choice < 0.5:
                await session.read(path)
            else:
                self._written += 1
                data = f"{number}.{self._runs}.{self._written}".encode()
                # Most writes expect what this session read last, as the brokers' do.
                version = session.versions.get(path, ANY_VERSION) if random.random() < 0.9 else ANY_VERSION
                if choice < 0.85:
                    await session.write(path, data, version)
                else:
                    await session.delete(path, version)
            await asyncio.sleep(random.random() * _PAUSE_SECONDS_MAX)
        await client.close()


class _Session:
    """Makes calls, and notes their outcomes; knows which watches must have fired."""

    def __init__(
        self, world: World, client: EnsembleClient | EtcdClient, calls: dict[str, list[Call]]
    ) -> None:
        self._world: Final = world
        self._client: Final = client
        self._calls: Final = calls
        self.versions: Final[dict[str, int]] = {}
        """The versions that were read last."""
        self._watches: Final = SetWatches()
        self._last_change: Final[dict[str, int]] = {}
        client.add_state_listener(self._on_state)

    async def read(self, path: str) -> None:
        """Read a znode and watch it."""

        async def get() -> Znode:
            watch = self._watches.begin(path)
            data, stat = await self._client.get(path, watch=watch)
            problem = watch.answered(stat.mzxid)
            if problem is not None:
                self._world.history.violate("no watch is lost", problem)
            if stat.mzxid < self._last_change.get(path, 0):
                self._world.history.violate(
                    "a session never reads back in time",
                    f"{path}: {stat.mzxid:#x} after {self._last_change[path]:#x}",
                )
            self._last_change[path] = stat.mzxid
            self.versions[path] = stat.version
            return data, stat.version

        await self._call(path, Call(Kind.READ, self._world.now), get)

    async def write(self, path: str, data: bytes, version: int) -> None:
        """Change a znode, or create it where this session saw none."""
        if path not in self.versions:

            async def create() -> int:
                await self._client.create(path, data)
                self.versions[path] = 0
                return 0

            await self._call(path, Call(Kind.CREATE, self._world.now, data=data), create)
            return

        async def change() -> int:
            stat = await self._client.set(path, data, version)
            self.versions[path] = stat.version
            return stat.version

        call = Call(Kind.SET, self._world.now, data=data, version=version)
        await self._call(path, call, change)

    async def delete(self, path: str, version: int) -> None:
        """Delete a znode."""

        async def remove() -> int:
            await self._client.delete(path, version)
            self.versions.pop(path, None)
            return 0

        await self._call(path, Call(Kind.DELETE, self._world.now, version=version), remove)

    async def _call(self, path: str, call: Call, operation: Callable[[], Awaitable[Znode | int]]) -> None:
        calls = self._calls[path]
        index = len(calls)
        # A client that is killed leaves it like this: without an outcome.
        calls.append(call)
        try:
            result: Znode | int | Refusal = await operation()
        except tuple(_REFUSALS) as error:
            result = _REFUSALS[type(error)]
            if result is Refusal.NO_NODE:
                self.versions.pop(path, None)
            elif result is Refusal.EXISTS:
                self.versions[path] = ANY_VERSION
        except ZooKeeperError:
            return
        calls[index] = Call(call.kind, call.called, self._world.now, call.data, call.version, result)

    def _on_state(self, state: SessionState) -> None:
        if state is not SessionState.SUSPENDED and state is not SessionState.CONNECTED:
            self._watches.clear()


def _shortest_prefix(calls: list[Call]) -> str:
    """Describe where the history begins to be without an order."""
    ordered = sorted(calls, key=lambda call: call.called)
    for length in range(1, len(ordered) + 1):
        if not is_linearizable(ordered[:length]):
            return "; ".join(map(str, ordered[max(length - 8, 0) : length]))
    return "no order"
