"""A program: a server that runs out of file descriptors, in a process where nothing else opens or closes any.

It prints one JSON object: connections held under the limit, connections accepted after it, whether a new
client is served, and the log lines about it.
"""

import asyncio
import json
import logging
import os
import resource
import socket

from kalda.net import socket_server as server_module
from kalda.net.server import Server, ServerConfig
from tests.integration.net.test_hostile_peers import echo, is_served, until

FREE_DESCRIPTORS = 4
CLIENTS = 12


class Lines(logging.Handler):
    """Keeps the messages that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def limit_with_free(count: int) -> int:
    """Return the RLIMIT_NOFILE under which just `count` descriptors are free."""
    limit = 0
    while count:
        count -= not is_open(limit)
        limit += 1
    return limit


async def main() -> None:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    # A shorter rest than the Final one keeps the program short.
    setattr(server_module, "ACCEPT_PAUSE_SECONDS", 0.05)  # noqa: B010
    server = Server(ServerConfig(socket_listen_backlog_size=100), echo)
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
    # The kernel completes these; the server sees them when the loop runs again.
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with_free(FREE_DESCRIPTORS), hard))
    await asyncio.sleep(0.3)
    held = server.statistics().connections
    for client in clients[:8]:
        client.close()
    await until(lambda: server.statistics().accepted == CLIENTS)
    accepted = server.statistics().accepted
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for client in clients[8:]:
        client.close()
    served = await is_served(port)
    await server.close(drain_seconds=0.1)
    about = [message for message in lines.messages if "cannot accept" in message]
    print(json.dumps({"held": held, "accepted": accepted, "served": served, "lines": about}))


if __name__ == "__main__":
    asyncio.run(main())
