"""Runs the members of an in-process cluster, each on a thread with an event loop of its own.

The members are real brokers and a real coordination server. Only their end differs from that of a process: a
kill first closes the member's files, sockets and ZooKeeper session, so that nothing its cancelled tasks still
do has an effect. A pause blocks the member's loop.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, TypeVar

from kalda.broker.process.faulty_links import Endpoint
from kalda.broker.server import BrokerServer
from kalda.common.public import public
from kalda.faults import BrokerEffect
from kalda.faults.state import Faults
from kalda.runtime.clock import OffsetClock
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.event_loop import new_event_loop
from kalda.runtime.system.runtime import system_runtime
from kalda.settings import BrokerConfig
from kalda.testing.cluster_files import CrashableFileSystem
from kalda.testing.cluster_network import Network
from kalda.testing.security import SecuredCluster
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import SessionExpiredError
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


@public
class ClusterError(Exception):
    """A `Cluster` could not do what it was asked to; the message names the member and the reason.

    Raised where a broker does not start or stop in time, is not in the state that a method needs (`kill` of a
    broker that does not run), or does not exist, where a condition does not come true in time, and at the end
    of the ``with`` block where a broker failed by itself.
    """


class MemberThread:
    """One run of a member; the next start makes a new object."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.failure: BaseException | None = None
        """Why the member ended without a stop or a kill."""
        self.cluster: object = None
        """The cluster that the member belongs to; what the member logs is reported there."""
        self._thread: Final = _ThreadOfMember(self)
        self._ready: Final = threading.Event()
        """Set when the member serves, and when it has ended."""
        self._gate: Final = threading.Event()
        self._gate.set()
        self._is_begun: Final = threading.Event()
        self._is_killed = False
        # Of the thread; set when it has begun.
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None]
        self._stopping: asyncio.Event

    @property
    def is_running(self) -> bool:
        """Whether the member has not ended; a paused one is running."""
        return self._thread.is_alive()

    @property
    def is_serving(self) -> bool:
        """Whether the member has started and has not ended."""
        return self._ready.is_set() and self.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the member is paused."""
        return not self._gate.is_set()

    def begin(self) -> None:
        """Start the thread; `wait_ready` must follow."""
        self._thread.start()

    def wait_ready(self, timeout_seconds: float) -> None:
        """Return when the member serves.

        Raises:
            ClusterError: it did not start, or not in time.
        """
        if not self._ready.wait(timeout_seconds):
            self.kill()
            raise ClusterError(f"{self.name} does not serve after {timeout_seconds:g} s")
        if not self.is_running or self.failure is not None:
            self._thread.join()
            raise ClusterError(f"{self.name} did not start: {_reason(self.failure)}") from self.failure

    def stop(self, timeout_seconds: float) -> None:
        """Shut the member down.

        Raises:
            ClusterError: it has ended by itself, is paused, or does not end in time and was killed.
        """
        if self.is_paused:
            raise ClusterError(f"{self.name} is paused, so it cannot shut down; resume it or kill it")
        self._call(lambda: self._stopping.set())
        self._thread.join(timeout_seconds)
        if self.is_running:
            self.kill()
            raise ClusterError(f"{self.name} did not end within {timeout_seconds:g} s; it was killed")
        if self.failure is not None:
            raise ClusterError(f"{self.name} failed: {_reason(self.failure)}") from self.failure

    def kill(self) -> None:
        """End the member at once, paused or not, as ``kill -9`` would."""
        self._is_begun.wait()
        self._is_killed = True
        if self.is_paused:
            self._open_gate()
        else:
            self._call(self._die)
        self._thread.join(_KILL_SECONDS_MAX)
        if self.is_running:
            logger.error("%s was killed, but some of its tasks do not end", self.name)

    def pause(self) -> None:
        """Suspend the member, as SIGSTOP would; returns when its loop is blocked."""
        stands_still = threading.Event()
        self._gate.clear()
        self._shut_gate()
        self._call(self._stand_still, stands_still)
        if not stands_still.wait(_PAUSE_SECONDS_MAX):
            self._open_gate()
            raise ClusterError(f"{self.name} is too busy to be paused")

    def resume(self) -> None:
        """Resume the member."""
        self._open_gate()

    # For subclasses.

    async def _main(self) -> None:
        """Start the member, call `_serve`, shut it down; a kill calls `_crash` and cancels this."""
        raise NotImplementedError

    def _crash(self) -> None:
        """Close the files, sockets and session that the end of a process closes; runs on the loop."""
        raise NotImplementedError

    def _shut_gate(self) -> None:
        """Block other threads of the member too."""

    def _open_gate(self) -> None:
        self._gate.set()

    async def _serve(self) -> None:
        """Report that the member serves, and return when `stop` is called."""
        self._ready.set()
        await self._stopping.wait()

    # On the thread.

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._run_main())
        except asyncio.CancelledError:
            logger.debug("%s was killed", self.name)
        except Exception as error:
            if not self._is_killed:
                self.failure = error
        finally:
            self._ready.set()

    async def _run_main(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_begun.set()
        await self._main()

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        self._is_begun.wait()
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            logger.debug("%s has ended already", self.name)

    def _die(self) -> None:
        self._crash()
        self._task.cancel()

    def _stand_still(self, stands_still: threading.Event) -> None:
        stands_still.set()
        self._gate.wait()
        if self._is_killed:
            self._die()


class _ThreadOfMember(threading.Thread):
    def __init__(self, member: MemberThread) -> None:
        super().__init__(target=member._run, name=f"kalda-{member.name}", daemon=True)
        self.member: Final = member


def cluster_of_this_thread() -> object:
    """Return the cluster whose member runs on the calling thread; None for other threads."""
    thread = threading.current_thread()
    return thread.member.cluster if isinstance(thread, _ThreadOfMember) else None


class BrokerThread(MemberThread):
    """A broker."""

    def __init__(
        self, config: BrokerConfig, network: Network, zookeeper: str, faults: Faults | None = None
    ) -> None:
        super().__init__(f"broker-{config.broker_id}")
        self._faults = faults
        self._clock: Final = OffsetClock(SystemClock())
        self._config: Final = config
        self._zookeeper: Final = zookeeper
        self._endpoint: Final[Endpoint] = network.endpoint(config.broker_id)
        self._files: Final = CrashableFileSystem()
        self._session: EnsembleClient | None = None
        self._server: BrokerServer | None = None

    @property
    def server(self) -> BrokerServer:
        """The broker, once it serves; other threads may read its state but not change it."""
        assert self._server is not None, f"{self.name} has not started"
        return self._server

    def submit(self, call: Callable[[BrokerServer], Awaitable[T]]) -> "Future[T]":
        """Call a function with the broker on the broker's loop, from another thread."""

        async def run() -> T:
            return await call(self.server)

        self._is_begun.wait()
        coroutine = run()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise ClusterError(f"{self.name} has ended already") from None

    def set_disk_fault(self, fault: BrokerEffect | None) -> None:
        """Let calls for the log directories fail, or succeed again."""
        self._files.fault = fault

    def jump_clock(self, milliseconds: int) -> None:
        """Set the broker's wall clock forward or back."""
        self._clock.offset_ms += milliseconds

    def set_faults(self, faults: Faults | None) -> None:
        """Apply faults to the requests that the broker gets; return when it does, unless it is paused."""
        self._faults = faults
        if self._server is None or self.is_paused:
            # A paused broker has them when it goes on.
            self._call(self._put_faults)
            return
        done = threading.Event()

        def put() -> None:
            self._put_faults()
            done.set()

        self._call(put)
        done.wait(_FAULTS_SECONDS_MAX)

    def _put_faults(self) -> None:
        if self._server is not None:
            self._server.set_faults(self._faults)

    @property
    def session_id(self) -> int:
        """The id of the broker's session with the coordination server."""
        assert self._session is not None, f"{self.name} has no session"
        return self._session.session_id

    async def _main(self) -> None:
        async with EventLoopExecutor(asyncio.get_running_loop()) as executor:
            for _ in range(_STARTS_MAX):
                if not await self._is_session_lost_at_start(executor):
                    return
                logger.info("%s starts again: its session ended before it served", self.name)
            raise ClusterError(f"its session ended before it served, {_STARTS_MAX} times")

    async def _is_session_lost_at_start(self, executor: EventLoopExecutor) -> bool:
        """Start the broker, and return False at its end; True if its session ended before it served.

        All members share one interpreter: on a machine with much other work a broker that reads its files may
        get no turn for longer than its session lasts.
        """
        is_lost = False
        try:
            await self._serve_with(executor)
        except* SessionExpiredError:
            if self._ready.is_set() or self._is_killed:
                raise
            is_lost = True
        finally:
            if self._session is not None and not self._is_killed:
                await self._session.close()
        return is_lost

    async def _serve_with(self, executor: EventLoopExecutor) -> None:
        self._session = await EnsembleClient.connect(
            self._zookeeper,
            session_timeout_ms=self._config.zookeeper_session_timeout_ms,
            connection_timeout_ms=self._config.zookeeper_connection_timeout_ms
            or self._config.zookeeper_session_timeout_ms,
            connect=self._endpoint.connect,
        )
        self._server = BrokerServer(
            self._config,
            self._session,
            runtime=replace(system_runtime(executor, self._files), clock=self._clock),
            dialer=self._endpoint,
            faults=self._faults,
        )
        async with asyncio.TaskGroup() as tasks:
            await self._server.start(tasks)
            await self._serve()
            await self._server.stop()

    def _crash(self) -> None:
        self._files.crash()
        if self._server is not None:
            self._server.abort()
        self._endpoint.leave()
        if self._session is not None:
            self._session.abandon()

    def _shut_gate(self) -> None:
        self._endpoint.hold()

    def _open_gate(self) -> None:
        self._endpoint.release()
        super()._open_gate()


class CoordinatorThread(MemberThread):
    """The coordination server."""

    def __init__(
        self, directory: str, port: int, config: ZooKeeperConfig, secured: SecuredCluster | None
    ) -> None:
        super().__init__("coordinator")
        self._secured: Final = secured
        self._directory: Final = directory
        self._port: Final = port
        self._config: Final = config
        self._files: Final = CrashableFileSystem()
        self._listener: ZooKeeperListener | None = None
        self._embedded: EmbeddedServer | None = None

    def expire_session(self, session_id: int) -> None:
        """End a session as if no heartbeat had come in time."""
        assert self._embedded is not None, "the coordination server has not started"
        self._call(self._embedded.server.close_session, session_id, _ignore)

    async def _main(self) -> None:
        clock = SystemClock()
        async with EventLoopExecutor(asyncio.get_running_loop()) as executor:
            embedded = EmbeddedServer(self._directory, filesystem=self._files, executor=executor, clock=clock)
            self._embedded = embedded
            embedded.start()
            try:
                if self._secured is not None:
                    await self._secured.add_users(await embedded.connect())
                self._listener = ZooKeeperListener(embedded.server, self._config, clock)
                await self._listener.listen("127.0.0.1", self._port)
                await self._serve()
                await self._listener.close()
            finally:
                if not self._is_killed:
                    await embedded.close()

    def _crash(self) -> None:
        self._files.crash()
        if self._listener is not None:
            self._listener.abort()


_STARTS_MAX: Final = 5
"""How often a broker begins to start whose sessions end before it serves."""

_KILL_SECONDS_MAX: Final = 30.0
"""How long the tasks of a killed member may take to end; what they do meanwhile has no effect."""

_PAUSE_SECONDS_MAX: Final = 30.0
"""How long a loop may be busy with one callback, on a machine that is busy, too."""


_FAULTS_SECONDS_MAX: Final = 30.0
"""How long a test waits until a busy broker applies faults."""


def _ignore(_: object) -> None:
    """Ignore how the end of a session went: it may have ended meanwhile."""


def _reason(failure: BaseException | None) -> str:
    """Return the message of a failure without the exception groups around it."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return str(failure) or repr(failure)
