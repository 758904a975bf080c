"""Writes heartbeats to the target of a flow, whatever its copying does (KIP-382).

Copies of the topic ``heartbeats`` in other clusters show which clusters are upstream, over how many hops, and
how old what they have of them is.
"""

import logging
import threading
import time
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import ClientConfigError, ClientError, UnsupportedApiError
from kalda.clients.producer.producer import Producer
from kalda.common.backoff import jittered
from kalda.pipelines.mirror.mirror_maker_records import Heartbeat
from kalda.pipelines.mirror.policy import HEARTBEATS_TOPIC
from kalda.pipelines.mirror.topic_sync import create_if_missing
from kalda.pipelines.mirror_maker2.flow_file import Flow, HeartbeatOptions
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

_BACKOFF_S: Final = 5.0
_STOP_WAIT_S: Final = 1.0
"""How long a stop waits at most: a cluster may be away, and the last heartbeat is of no use to anyone."""
_TIMEOUTS: Final = {"request.timeout.ms": "10000", "delivery.timeout.ms": "20000", "max.block.ms": "10000"}
"""Where the file sets none of them; they depend on each other."""
_PERMANENT: Final = (ClientConfigError, UnsupportedApiError)


class Heartbeats:
    """Writes heartbeats in a thread, from `start` to `stop`."""

    def __init__(self, flow: Flow, options: HeartbeatOptions) -> None:
        self._flow: Final = flow
        self._options: Final = options
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._main, name=f"heartbeats-{flow.name}", daemon=True)
        self._is_failing = False
        self.error: Exception | None = None
        """Why the thread ended; None while it runs, and for a regular end."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"heartbeats of {self._flow.name}"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def request_stop(self) -> None:
        """Write no more heartbeats; callable from a signal handler."""
        self._stop.set()

    def stop(self, wait_s: float) -> None:
        """Write no more, and wait until the thread has ended."""
        self._stop.set()
        self._thread.join(min(wait_s, _STOP_WAIT_S))

    def _main(self) -> None:
        while not self._stop.is_set():
            try:
                self._run()
            except _PERMANENT as error:
                self.error = error
                logger.error("%s are not written: %s", self.name, error)
                return
            except ClientError as error:
                # Once for each time that the target is away, or refuses them.
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(level, "%s cannot be written: %s", self.name, error)
                self._is_failing = True
                self._stop.wait(jittered(_BACKOFF_S, SYSTEM_RANDOM))
            except Exception as error:
                self.error = error
                raise

    def _producer_settings(self) -> dict[str, str]:
        own = self._flow.target_settings.for_producer()
        return own if _TIMEOUTS.keys() & own.keys() else _TIMEOUTS | own

    def _run(self) -> None:
        settings = self._flow.target_settings
        named = {"client.id": f"kalda-heartbeats-{self._flow.name}"}
        with Admin.from_config(settings.for_admin() | named) as admin:
            config = {"cleanup.policy": "compact"}
            topic = NewTopic(HEARTBEATS_TOPIC, 1, self._options.replication_factor, config=config)
            create_if_missing(admin, topic)
        with Producer.from_config(self._producer_settings() | named) as producer:
            while not self._stop.is_set():
                beat = Heartbeat(self._flow.source, self._flow.target, time.time_ns() // 1_000_000)
                sent = producer.send(
                    HEARTBEATS_TOPIC,
                    beat.value(),
                    key=beat.key(),
                    partition=0,
                    timestamp_ms=beat.timestamp_ms,
                )
                # The next one waits for this one, so that no queue grows while the target is away.
                sent.result()
                self._is_failing = False
                self._stop.wait(self._options.interval_s)
