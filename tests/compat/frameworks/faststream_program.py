"""Reads orders with FastStream and writes one result for each; the first argument names the broker class."""

import asyncio
import importlib
import os
import sys

from faststream import AckPolicy, FastStream

name = os.environ["NAME"]
broker = importlib.import_module(sys.argv[1]).KafkaBroker(os.environ["BOOTSTRAP"])


@broker.subscriber(
    f"{name}-orders", group_id=name, auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
)
@broker.publisher(f"{name}-results")
async def answer(order: dict) -> dict:
    """Return the order's customer and number."""
    return {"customer": order["customer"], "number": order["number"]}


if __name__ == "__main__":
    asyncio.run(FastStream(broker).run())
