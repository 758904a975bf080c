"""Runs the cells that it reads from stdin, a JSON list, in a Jupyter kernel, and prints what they show.

A process of its own: ZeroMQ's sockets stay open as long as the process that used them.
"""

import json
import sys
from typing import Any

from jupyter_client.manager import start_new_kernel


def show(message: dict[str, Any]) -> None:
    """Print an output of a cell."""
    print(message["content"].get("data", ""))


def main() -> None:
    """Exit with 1 at the first cell that fails, with its traceback on stderr."""
    manager, client = start_new_kernel(startup_timeout=60)
    try:
        for cell in json.load(sys.stdin):
            reply = client.execute_interactive(cell, timeout=60, output_hook=show)["content"]
            if reply["status"] != "ok":
                sys.exit("\n".join([cell, *reply.get("traceback", [])]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
