"""Applies the faults of a plan to a simulated cluster, and reverts them: `Operator`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from kalda.faults import BrokerEffect, BrokerFault, Fault, LinkEffect, LinkFault
from kalda.faults.model import ALL, CLIENTS, CONTROLLER, COORDINATOR
from kalda.simulation import plan as plans
from kalda.simulation.cluster import CLIENT_HOST, ZOOKEEPER_HOST, SimulatedCluster, host_of
from kalda.simulation.damage import flip_bit
from kalda.simulation.disk import SimulatedDisk
from kalda.simulation.history import History
from kalda.simulation.machine import Machine, SimulatedProcess
from kalda.storage.file_names import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT_FILE

_Member: TypeAlias = int | str
"""A broker's id, or the coordination server."""

_Undo: TypeAlias = Callable[[], object]


class Operator:
    """Carries out faults. A fault without effect, such as a kill of a process that is down, is skipped.

    A loss of power of a broker is left out as well unless every partition has all replicas in sync, and what
    would take another copy is left out until that is so again: Kafka does not promise that records which no
    disk has survive the loss of every copy in memory. What the coordination server has acknowledged is on its
    disk.

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
        self._is_fragile = False
        """Whether a broker that lost power may not have everything again."""
        self._damaged: Final[set[_Member]] = set()
        """Those with a flipped bit that was not looked for yet."""
        self._busy: Final[set[_Member]] = set()
        """Those whose process is down or stands still."""
        self._effects: Final[dict[BrokerEffect, Callable[[BrokerFault, _Member], _Undo | None]]] = {
            BrokerEffect.KILL: self._kill,
            BrokerEffect.POWER_LOSS: self._lose_power,
            BrokerEffect.PAUSE: self._pause,
            BrokerEffect.STOP: self._stop,
            BrokerEffect.SESSION_EXPIRY: self._expire,
            BrokerEffect.FULL_DISK: partial(self._break_disk, "is_full"),
            BrokerEffect.FAILING_DISK: partial(self._break_disk, "is_failing"),
            BrokerEffect.READ_ONLY_DISK: partial(self._break_disk, "is_read_only"),
            BrokerEffect.SLOW_DISK: self._slow_disk,
            BrokerEffect.FLIPPED_BIT: self._flip_bit,
            BrokerEffect.CLOCK_JUMP: self._jump,
            BrokerEffect.KILL_CLIENT: self._end_client,
        }

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault, and schedule its end."""
        begun = [] if self._is_too_much(fault) else self._begin(fault)
        undone = [undo for undo in begun if undo is not None]
        if not undone:
            self._history.note(f"left out: {plans.text(fault)}")
            return
        self._history.note(f"begins: {plans.text(fault)}")
        self._count += 1
        number = self._count

        def undo_all() -> None:
            for undo in undone:
                undo()

        self._open[number] = (fault, undo_all)
        self._cluster.scheduler.call_later(plans.duration(fault), partial(self._end, number))

    def _is_too_much(self, fault: Fault) -> bool:
        """Whether a fault that loses data would coincide with another fault, or follow it too soon."""
        self._is_fragile = self._is_fragile and not self._is_all_in_sync()
        if _is_harmless(fault):
            return False
        if isinstance(fault, BrokerFault) and fault.effect in _COSTS_A_COPY:
            return not all(_is_harmless(each) for each, _ in self._open.values())
        return self._is_fragile

    def _begin(self, fault: Fault) -> list[_Undo | None]:
        if isinstance(fault, LinkFault):
            pairs = [
                (one, other)
                for one in self._members(fault.one)
                for other in self._members(fault.other)
                if one != other
            ]
            hosts = {(_host(one), _host(other)): None for one, other in pairs}
            if not fault.is_one_way:
                hosts |= {(other, one): None for one, other in list(hosts)}
            begin = self._cut if fault.effect is LinkEffect.CUT else self._slow_link
            return [begin(fault, *pair) for pair in hosts]
        assert isinstance(fault, BrokerFault), "a plan for a simulation has been checked"
        effect = self._effects[fault.effect]
        if fault.effect is BrokerEffect.KILL_CLIENT:
            return [effect(fault, fault.broker)]
        return [effect(fault, member) for member in self._members(fault.broker, fault.leader_of)]

    def _members(self, name: _Member, leader_of: tuple[str, int] | None = None) -> Sequence[_Member]:
        # A broker that starts has no services yet.
        servers = [each for each in self._cluster.servers.items() if self._cluster.is_serving(each[0])]
        if name == ALL:
            return list(self._cluster.brokers)
        if name == CONTROLLER:
            return [broker_id for broker_id, server in servers if server.services.controller.is_active][:1]
        if leader_of is not None:
            return [
                broker_id
                for broker_id, server in servers
                for name, partition in server.services.replica_manager.partitions.items()
                if tuple(name) == leader_of and partition.is_leader
            ][:1]
        return [name]

    def end_all(self) -> None:
        """End every fault now."""
        for number in list(self._open):
            self._end(number)

    def restart_ended(self) -> None:
        """Start the brokers that ended by themselves, as an init system does."""
        for broker_id, process in list(self._cluster.brokers.items()):
            if process.has_ended and broker_id not in self._busy:
                self._history.note(f"broker-{broker_id} ended by itself: {process.failure!r}")
                self._cluster.start_broker(broker_id)

    def _end(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            fault, undo = found
            undo()
            self._history.note(f"ends: {plans.text(fault)}")

    # Processes.

    def _kill(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        process = self._running(member)
        if process is None:
            return None
        process.kill()
        return self._restart_later(member)

    def _lose_power(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        process = self._running(member)
        if process is None or (member != COORDINATOR and not self._is_all_in_sync()):
            return None
        self._is_fragile = self._is_fragile or member != COORDINATOR
        process.kill()
        process.machine.disk.lose_power()
        return self._restart_later(member)

    def _stop(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        if self._running(member) is None or not self._cluster.is_serving(_broker_id(member)):
            return None
        self._cluster.stop_broker(_broker_id(member))
        return self._restart_later(member)

    def _restart_later(self, member: _Member) -> _Undo:
        self._busy.add(member)

        def restart() -> None:
            self._busy.discard(member)
            # A stop may take longer than the fault lasts; then it is cut short.
            self._process(member).kill()
            if member == COORDINATOR:
                self._cluster.start_zookeeper()
            else:
                self._cluster.start_broker(_broker_id(member))

        return restart

    def _pause(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        process = self._running(member)
        if process is None:
            return None
        self._busy.add(member)
        process.loop.hold()

        def go_on() -> None:
            self._busy.discard(member)
            process.loop.release()

        return go_on

    def _expire(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        if COORDINATOR in self._busy or self._running(member) is None:
            return None
        return _nothing if self._cluster.expire_session(_broker_id(member)) else None

    def _end_client(self, fault: BrokerFault, number: _Member) -> _Undo | None:
        return _nothing if self._kill_client(int(number), plans.duration(fault)) else None

    # Machines.

    def _break_disk(self, how: str, fault: BrokerFault, member: _Member) -> _Undo | None:
        disk: SimulatedDisk = self._machine(member).disk
        if getattr(disk, how):
            return None
        setattr(disk, how, True)
        return partial(setattr, disk, how, False)

    def _flip_bit(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        if self._running(member) is None or not self._is_all_in_sync():
            return None
        disk: SimulatedDisk = self._machine(member).disk
        path = flip_bit(disk, disk.random)
        if path is None:
            return None
        self._history.note(f"a bit of {path} flips")
        self._is_fragile = True
        self._damaged.add(member)

        def recover() -> None:
            # Without its recovery points, a broker that ended reads its whole log when it starts.
            self._damaged.discard(member)
            self._is_fragile = True
            self._busy.discard(member)
            self._process(member).kill()
            for directory in self._cluster.log_directories:
                for name in (RECOVERY_POINT_CHECKPOINT_FILE, CLEAN_SHUTDOWN_FILE):
                    disk.remove(f"{directory}/{name}")
            self._cluster.start_broker(_broker_id(member))

        return recover

    def _slow_disk(self, fault: BrokerFault, member: _Member) -> _Undo | None:
        process = self._running(member)
        if process is None or process.background.seconds_more:
            return None
        process.background.seconds_more = (fault.milliseconds or 0) / 1000
        return partial(setattr, process.background, "seconds_more", 0.0)

    def _jump(self, fault: BrokerFault, member: _Member) -> _Undo:
        clock = self._machine(member).clock
        step = fault.milliseconds or 0
        clock.jump(step)
        return partial(clock.jump, -step)

    # Links.

    def _cut(self, fault: LinkFault, source: str, target: str) -> _Undo | None:
        internet = self._cluster.internet
        if internet.is_cut(source, target):
            return None
        internet.cut(source, target)
        return partial(internet.heal, source, target)

    def _slow_link(self, fault: LinkFault, source: str, target: str) -> _Undo:
        self._cluster.internet.slow_down(source, target, (fault.value or 0) / 1000)
        return partial(self._cluster.internet.slow_down, source, target, 0.0)

    # The cluster.

    def _process(self, member: _Member) -> SimulatedProcess:
        process = (
            self._cluster.zookeeper if member == COORDINATOR else self._cluster.brokers[_broker_id(member)]
        )
        assert process is not None, f"{member} was never started"
        return process

    def _machine(self, member: _Member) -> Machine:
        return self._process(member).machine

    def _running(self, member: _Member) -> SimulatedProcess | None:
        process = self._process(member)
        return None if process.has_ended or member in self._busy else process

    def _is_all_in_sync(self) -> bool:
        cluster = self._cluster
        if self._busy or self._damaged or not all(map(cluster.is_serving, cluster.brokers)):
            return False
        hosted = [
            partition
            for server in cluster.servers.values()
            for partition in server.services.replica_manager.partitions.values()
        ]
        if any(partition.log.missing.is_withheld for partition in hosted):
            return False
        led = [partition for partition in hosted if partition.is_leader]
        # A partition without a leader may have one replica in sync only.
        return {each.topic_partition for each in hosted} == {each.topic_partition for each in led} and all(
            set(partition.isr) == set(partition.replicas) for partition in led
        )


def _is_harmless(fault: Fault) -> bool:
    """Whether a fault takes no replica away."""
    if isinstance(fault, LinkFault):
        return fault.effect is not LinkEffect.CUT or CLIENTS in (fault.one, fault.other)
    return isinstance(fault, BrokerFault) and fault.effect in _HARMLESS


_COSTS_A_COPY: Final = (BrokerEffect.POWER_LOSS, BrokerEffect.FLIPPED_BIT)
_HARMLESS: Final = (BrokerEffect.KILL_CLIENT, BrokerEffect.CLOCK_JUMP, BrokerEffect.SLOW_DISK)


def _broker_id(member: _Member) -> int:
    assert isinstance(member, int), f"{member} is no broker"
    return member


def _host(member: _Member) -> str:
    if member == CLIENTS:
        return CLIENT_HOST
    return ZOOKEEPER_HOST if member == COORDINATOR else host_of(_broker_id(member))


def _nothing() -> None:
    """Do nothing: the fault ends by itself."""
