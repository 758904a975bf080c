"""A producer whose broker is gone for a minute: its memory, and that nothing is lost.

``python -m benchmarks.clients_outage SIZE [SECONDS]`` starts a broker, kills it under load, and brings it
back within `delivery.timeout.ms`. The producer sends as fast as it can all the time, and keeps no future.
Memory is what this process holds above what it held before the kill.
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import create_topic
from benchmarks.footprint import memory_mb
from kalda import Producer
from kalda.clients.errors import BufferExhaustedError
from kalda.testing import KaldaProcess

BUFFER_MEMORY: Final = 32 * 1024 * 1024
"""The default of `buffer.memory`."""
_WARM_UP_RECORDS: Final = 50_000


def measure(size: int, seconds: float = 60.0) -> dict[str, float]:
    """Return what was sent, delivered and failed, and the memory in MB before, at most during, and after
    it."""
    counts = {"delivered": 0, "failed": 0, "refused": 0}

    def on_delivery(_metadata: object, error: BaseException | None) -> None:
        counts["delivered" if error is None else "failed"] += 1

    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        broker = KaldaProcess(Path(directory) / "data")
        with broker:
            create_topic(broker.bootstrap, "outage")
            value = bytes(size)
            sent = 0
            with Producer(
                bootstrap_servers=broker.bootstrap, max_block_ms=1_000, buffer_memory=BUFFER_MEMORY
            ) as producer:
                for _ in range(_WARM_UP_RECORDS):
                    producer.send("outage", value, on_delivery=on_delivery)
                    sent += 1
                producer.flush(timeout_s=60)
                before = most = memory_mb(os.getpid())
                broker.kill()
                mend = threading.Timer(seconds, broker.start)
                mend.start()
                end = time.monotonic() + seconds + 2
                while time.monotonic() < end:
                    try:
                        producer.send("outage", value, on_delivery=on_delivery)
                        sent += 1
                    except BufferExhaustedError:
                        counts["refused"] += 1
                        most = max(most, memory_mb(os.getpid()))
                most = max(most, memory_mb(os.getpid()))
                mend.join()
                producer.flush(timeout_s=120)
                after = memory_mb(os.getpid())
    return {"sent": sent, **counts, "before_mb": before, "most_mb": most, "after_mb": after}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)))
