"""The simulated network: order, cuts, resets and windows."""

from collections.abc import Callable
from random import Random

import pytest

from kalda.runtime.network import Stream
from kalda.simulation.event_loop import SimulatedEventLoop, new_simulated_loop
from kalda.simulation.network import BREAK_SECONDS, WINDOW_BYTES, Link, SimulatedInternet, SimulatedNetwork
from kalda.simulation.scheduler import Scheduler

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"


class Hosts:
    """Two hosts with a connection between them."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.internet = SimulatedInternet(self.scheduler, Random(seed))
        self.server_loop = self._loop()
        self.client_loop = self._loop()
        self.server = SimulatedNetwork(self.internet, self.server_loop, SERVER)
        self.client = SimulatedNetwork(self.internet, self.client_loop, CLIENT)

    def _loop(self) -> SimulatedEventLoop:
        return new_simulated_loop(self.scheduler, self.internet.watched)

    def wait(self, seconds: float = 0.1) -> None:
        self.scheduler.run_until(lambda: False, seconds)

    def connect(self, timeout_seconds: float = 5.0) -> tuple[Stream, Stream]:
        accepted: list[Stream] = []

        async def serve() -> None:
            listener = await self.server.listen(SERVER, 9092)
            self.server_loop.add_reader(
                listener.fileno(), lambda: accepted.append(listener.accept_stream()[0])
            )

        self.server_loop.create_task(serve())
        self.wait()
        task = self.client_loop.create_task(
            self.client.connect(SERVER, 9092, timeout_seconds=timeout_seconds)
        )
        self.scheduler.run_until(lambda: task.done() and bool(accepted), timeout_seconds + 1)
        return task.result(), accepted[0]


def _received(stream: Stream) -> bytes:
    data = b""
    while True:
        try:
            piece = stream.recv(1024 * 1024)
        except BlockingIOError:
            return data
        if not piece:
            return data
        data += piece


@pytest.mark.parametrize("seed", range(5))
def test_nothing_overtakes_within_a_connection(seed: int) -> None:
    hosts = Hosts(seed)
    one, other = hosts.connect()
    for number in range(200):
        one.send(b"%03d" % number)

    hosts.wait()

    assert b"".join(b"%03d" % number for number in range(200)) == _received(other)


def test_bytes_wait_for_a_cut_link_to_heal() -> None:
    hosts = Hosts()
    one, other = hosts.connect()
    hosts.internet.cut(CLIENT, SERVER)
    one.send(b"request")
    other.send(b"the other way is open")
    hosts.wait(1.0)
    assert (b"", b"the other way is open") == (_received(other), _received(one))

    hosts.internet.heal(CLIENT, SERVER)
    hosts.wait()

    assert b"request" == _received(other)


def test_a_connection_breaks_if_the_cut_lasts() -> None:
    hosts = Hosts()
    one, _ = hosts.connect()
    hosts.internet.cut(CLIENT, SERVER)
    one.send(b"lost")
    hosts.wait(BREAK_SECONDS + 1)

    with pytest.raises(TimeoutError):
        one.send(b"more")


def test_connecting_over_a_cut_link_times_out() -> None:
    hosts = Hosts()
    hosts.internet.cut(SERVER, CLIENT)

    with pytest.raises(TimeoutError):
        hosts.connect(timeout_seconds=2.0)


def test_a_request_for_a_connection_is_sent_again_until_the_link_heals() -> None:
    hosts = Hosts()
    hosts.internet.cut(SERVER, CLIENT)
    hosts.scheduler.call_at(1.5, lambda: hosts.internet.heal(SERVER, CLIENT))

    hosts.connect(timeout_seconds=30.0)

    # The first request was lost at 0.1 s, the second one second later; the third arrives.
    assert 3 == pytest.approx(hosts.scheduler.now, abs=0.2)


def test_a_process_that_has_ended_sends_no_request_for_a_connection_again() -> None:
    hosts = Hosts()
    listener = hosts.server_loop.create_task(hosts.server.listen(SERVER, 9092))
    hosts.internet.cut(CLIENT, SERVER)
    hosts.client_loop.create_task(hosts.client.connect(SERVER, 9092, timeout_seconds=30.0))
    hosts.wait()

    hosts.client.end()
    hosts.client_loop.end()
    hosts.internet.heal(CLIENT, SERVER)
    hosts.wait(10.0)

    with pytest.raises(BlockingIOError):
        listener.result().accept_stream()


def test_connecting_to_nobody_is_refused() -> None:
    hosts = Hosts()
    task = hosts.client_loop.create_task(hosts.client.connect(SERVER, 1, timeout_seconds=5.0))
    hosts.scheduler.run_until(task.done, 5.0)

    with pytest.raises(ConnectionRefusedError):
        task.result()


def test_the_end_of_a_process_resets_its_connections() -> None:
    hosts = Hosts()
    one, other = hosts.connect()
    other.send(b"not read in time")
    hosts.server.end()
    hosts.wait()

    with pytest.raises(ConnectionResetError):
        one.recv(10)


def test_a_closed_stream_ends_behind_its_bytes() -> None:
    hosts = Hosts()
    one, other = hosts.connect()
    one.send(b"last words")
    one.close()
    hosts.wait()

    assert b"last words" == other.recv(100)
    assert b"" == other.recv(100)


def test_a_full_window_blocks_until_the_peer_reads() -> None:
    hosts = Hosts()
    one, other = hosts.connect()
    assert WINDOW_BYTES == one.send(bytes(WINDOW_BYTES + 10))
    with pytest.raises(BlockingIOError):
        one.send(b"more")
    hosts.wait()

    assert WINDOW_BYTES == len(_received(other))
    assert 4 == one.send(b"more")


def test_a_slow_link_delays_one_direction() -> None:
    hosts = Hosts()
    one, other = hosts.connect()
    hosts.internet.slow_down(CLIENT, SERVER, 0.4)
    one.send(b"slow")
    other.send(b"fast")
    hosts.wait(0.2)
    assert (b"", b"fast") == (_received(other), _received(one))
    hosts.wait(0.3)

    assert b"slow" == _received(other)


def test_a_seed_fixes_the_moments_of_deliveries() -> None:
    def deliveries() -> list[tuple[float, Link, int]]:
        hosts = Hosts(3)
        seen: list[tuple[float, Link, int]] = []
        note: Callable[[Link, int], None] = lambda link, size: seen.append(  # noqa: E731
            (hosts.scheduler.now, link, size)
        )
        hosts.internet.on_delivery = note
        one, other = hosts.connect()
        for size in range(1, 30):
            one.send(bytes(size))
            other.send(bytes(size))
        hosts.wait(1.0)
        return seen

    assert deliveries() == deliveries()
    assert 58 == len(deliveries())
