"""Does to a simulated cluster what a plan says, and undoes it: `Operator`."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from kalda.simulation.cluster import ZOOKEEPER_HOST, SimulatedCluster, host_of
from kalda.simulation.history import History
from kalda.simulation.machine import Machine, SimulatedProcess
from kalda.simulation.plan import Fault

SLOW_LINK_SECONDS: Final = 0.4
SLOW_DISK_SECONDS: Final = 0.5
CLOCK_JUMP_MS: Final = 3_600_000

ZOOKEEPER: Final = "zookeeper"

_Undo: TypeAlias = Callable[[], object]


class Operator:
    """Carries out faults. A fault that would be none, such as a kill of what is down, is left out.

    A loss of power is left out as well unless every partition has all replicas in sync: Kafka does not
    promise that records which no disk has survive the loss of every copy in memory.

    Args:
        kill_client: Ends the client of a number and starts it again after so many seconds; returns whether
            there is one.
    """

    def __init__(
        self, cluster: SimulatedCluster, history: History, kill_client: Callable[[int, float], bool]
    ) -> None:
        self._cluster: Final = cluster
        self._history: Final = history
        self._kill_client: Final = kill_client
        self._open: Final[dict[int, tuple[Fault, _Undo]]] = {}
        """The faults that last, by number, with what ends them."""
        self._count = 0
        self._busy: Final[set[str]] = set()
        """Machines whose process is down or stands still."""
        self._kinds: Final[dict[str, Callable[[Fault], _Undo | None]]] = {
            "kill": self._kill,
            "power": self._lose_power,
            "pause": self._pause,
            "stop": self._stop,
            "expire": self._expire,
            "full": self._fill,
            "slow-disk": self._slow_disk,
            "clock": self._jump,
            "cut": lambda fault: self._cut(fault, both_ways=True),
            "cut-one-way": lambda fault: self._cut(fault, both_ways=False),
            "slow-link": self._slow_link,
            "kill-client": self._end_client,
        }

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault, and schedule its end."""
        self._count += 1
        number = self._count
        undo = self._kinds[fault.kind](fault)
        if undo is None:
            self._history.note(f"left out: {fault}")
            return
        self._history.note(f"begins: {fault}")
        self._open[number] = (fault, undo)
        self._cluster.scheduler.call_later(fault.seconds, partial(self._end, number))

    def end_all(self) -> None:
        """End every fault now."""
        for number in list(self._open):
            self._end(number)

    def restart_ended(self) -> None:
        """Start the brokers that ended by themselves, as an init system does."""
        for broker_id, process in list(self._cluster.brokers.items()):
            if process.has_ended and f"broker-{broker_id}" not in self._busy:
                self._history.note(f"broker-{broker_id} ended by itself: {process.failure!r}")
                self._cluster.start_broker(broker_id)

    def _end(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            fault, undo = found
            undo()
            self._history.note(f"ends: {fault}")

    # Processes.

    def _kill(self, fault: Fault) -> _Undo | None:
        process = self._running(fault)
        if process is None:
            return None
        process.kill()
        return self._restart_later(fault)

    def _lose_power(self, fault: Fault) -> _Undo | None:
        process = self._running(fault)
        if process is None or not self._is_all_in_sync():
            return None
        process.kill()
        process.machine.disk.lose_power()
        return self._restart_later(fault)

    def _stop(self, fault: Fault) -> _Undo | None:
        process = self._running(fault)
        name = fault.targets[0]
        if process is None or name == ZOOKEEPER or not self._cluster.is_serving(_broker_id(name)):
            return None
        self._cluster.stop_broker(_broker_id(name))
        return self._restart_later(fault)

    def _restart_later(self, fault: Fault) -> _Undo:
        name = fault.targets[0]
        self._busy.add(name)

        def restart() -> None:
            self._busy.discard(name)
            # A stop may take longer than the fault lasts; then it is cut short.
            self._process(name).kill()
            if name == ZOOKEEPER:
                self._cluster.start_zookeeper()
            else:
                self._cluster.start_broker(_broker_id(name))

        return restart

    def _pause(self, fault: Fault) -> _Undo | None:
        process = self._running(fault)
        if process is None:
            return None
        name = fault.targets[0]
        self._busy.add(name)
        process.loop.hold()

        def go_on() -> None:
            self._busy.discard(name)
            process.loop.release()

        return go_on

    def _expire(self, fault: Fault) -> _Undo | None:
        name = fault.targets[0]
        if ZOOKEEPER in (name, *self._busy) or self._running(fault) is None:
            return None
        return _nothing if self._cluster.expire_session(_broker_id(name)) else None

    def _end_client(self, fault: Fault) -> _Undo | None:
        number = int(fault.targets[0].removeprefix("client-"))
        return _nothing if self._kill_client(number, fault.seconds) else None

    # Machines.

    def _fill(self, fault: Fault) -> _Undo | None:
        disk = self._machine(fault.targets[0]).disk
        if disk.is_full:
            return None
        disk.is_full = True
        return partial(setattr, disk, "is_full", False)

    def _slow_disk(self, fault: Fault) -> _Undo | None:
        process = self._running(fault)
        if process is None or process.background.seconds_more:
            return None
        process.background.seconds_more = SLOW_DISK_SECONDS
        return partial(setattr, process.background, "seconds_more", 0.0)

    def _jump(self, fault: Fault) -> _Undo:
        clock = self._machine(fault.targets[0]).clock
        step = CLOCK_JUMP_MS if self._count % 2 else -CLOCK_JUMP_MS
        clock.offset_ms += step
        return partial(clock.jump, -step)

    # Links.

    def _cut(self, fault: Fault, *, both_ways: bool) -> _Undo | None:
        one, other = map(_host, fault.targets)
        internet = self._cluster.internet
        pairs = [(one, other), (other, one)] if both_ways else [(one, other)]
        if any(internet.is_cut(*pair) for pair in pairs):
            return None
        for pair in pairs:
            internet.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                internet.heal(*pair)

        return heal

    def _slow_link(self, fault: Fault) -> _Undo:
        one, other = map(_host, fault.targets)
        self._cluster.internet.slow_down(one, other, SLOW_LINK_SECONDS)
        return partial(self._cluster.internet.slow_down, one, other, 0.0)

    # The cluster.

    def _process(self, name: str) -> SimulatedProcess:
        process = (
            self._cluster.zookeeper if name == ZOOKEEPER else self._cluster.brokers.get(_broker_id(name))
        )
        assert process is not None, f"{name} was never started"
        return process

    def _machine(self, name: str) -> Machine:
        return self._process(name).machine

    def _running(self, fault: Fault) -> SimulatedProcess | None:
        name = fault.targets[0]
        process = self._process(name)
        return None if process.has_ended or name in self._busy else process

    def _is_all_in_sync(self) -> bool:
        cluster = self._cluster
        if self._busy or not all(map(cluster.is_serving, cluster.brokers)):
            return False
        return all(
            set(partition.isr) == set(partition.replicas)
            for server in cluster.servers.values()
            for partition in server.services.replica_manager.partitions.values()
            if partition.is_leader
        )


def _broker_id(name: str) -> int:
    return int(name.removeprefix("broker-"))


def _host(name: str) -> str:
    return ZOOKEEPER_HOST if name == ZOOKEEPER else host_of(_broker_id(name))


def _nothing() -> None:
    """End what ends by itself."""
