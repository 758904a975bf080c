"""The port for connections on real sockets."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from kalda.runtime.network import Network, Stream, StreamListener, readers_of, receive, send_all
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.network import SYSTEM_NETWORK

NETWORK: Network = SYSTEM_NETWORK


async def readable(stream: Stream | StreamListener) -> None:
    """Return when the loop finds something to read or to accept."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    readers_of(loop).add_reader(stream.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        readers_of(loop).remove_reader(stream.fileno())


async def connected() -> tuple[Stream, Stream]:
    """Return both ends of a connection."""
    listener = await NETWORK.listen("127.0.0.1", 0, send_buffer_bytes=65_536)
    try:
        ours = await NETWORK.connect("127.0.0.1", listener.port, timeout_seconds=30)
        await readable(listener)
        theirs, (host, port) = listener.accept_stream()
    finally:
        listener.close()
    assert "127.0.0.1" == host
    assert port > 0
    return ours, theirs


async def received(stream: Stream, size: int) -> bytes:
    """Return the next bytes of a stream."""
    found = bytearray()
    buffer = bytearray(65_536)
    while len(found) < size:
        await readable(stream)
        count = stream.recv_into(buffer)
        assert count, f"the stream ended after {len(found)} bytes"
        found += buffer[:count]
    return bytes(found)


async def test_a_listener_without_a_connection_would_block() -> None:
    listener = await NETWORK.listen("127.0.0.1", 0)
    with pytest.raises(BlockingIOError):
        listener.accept_stream()
    listener.close()


async def test_bytes_arrive_in_order_by_every_way_to_send() -> None:
    ours, theirs = await connected()
    with pytest.raises(BlockingIOError):
        theirs.recv_into(bytearray(1))
    assert 3 == ours.send(b"one")
    assert 3 == ours.send(b"two", ours.MORE)
    sent = ours.sendmsg([b"", b"three", memoryview(b"four")])
    assert sent in (5, 9)
    expected = b"onetwothreefour"[: 6 + sent]
    assert expected == await received(theirs, len(expected))
    ours.close()
    theirs.close()
    assert ours.fileno() < 0


async def test_a_file_is_sent_from_a_position_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    content = os.urandom(700_000)
    path.write_bytes(content)
    file = OsFileSystem().open(str(path))
    ours, theirs = await connected()
    reader = asyncio.create_task(received(theirs, 600_000))
    loop = asyncio.get_running_loop()
    position = 100_000
    while position < len(content):
        try:
            sent = ours.send_file(file, position, 1_000_000)
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(ours.fileno(), writable.set)
            await writable.wait()
            loop.remove_writer(ours.fileno())
            continue
        assert sent > 0
        position += sent
    assert content[100_000:] == await reader
    assert 0 == ours.send_file(file, len(content), 10)
    ours.close()
    theirs.close()


async def test_a_stream_has_ended_once_its_peer_is_gone_and_nothing_is_left() -> None:
    ours, theirs = await connected()
    assert not theirs.has_ended()
    ours.send(b"x")
    ours.close()
    await readable(theirs)
    assert not theirs.has_ended()
    assert b"x" == theirs.recv(10)
    await readable(theirs)
    assert theirs.has_ended()
    assert 0 == theirs.recv_into(bytearray(1))
    theirs.close()


async def test_accepted_streams_send_at_once_and_notice_dead_peers() -> None:
    ours, theirs = await connected()
    with socket.socket(fileno=os.dup(theirs.fileno())) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 0.0 == sock.gettimeout() or os.get_blocking(sock.fileno()) is False
    ours.close()
    theirs.close()


async def test_an_address_is_its_own_address_and_an_unknown_name_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "127.0.0.1" == await NETWORK.address_of("127.0.0.1")

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert await NETWORK.address_of("unknown.invalid") is None


async def test_a_port_in_use_cannot_be_bound() -> None:
    listener = await NETWORK.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await NETWORK.listen("127.0.0.1", listener.port)
    listener.close()


async def test_what_does_not_fit_is_sent_when_the_peer_has_received() -> None:
    ours, theirs = await connected()
    data = os.urandom(3_000_000)
    sending = asyncio.create_task(send_all(ours, data))
    found = bytearray()
    while len(found) < len(data):
        found += await receive(theirs, 100_000)
    await sending
    assert data == found
    ours.close()
    assert b"" == await receive(theirs, 10)
    theirs.close()
