"""The clients that a long run's load, readers and copiers use: librdkafka's, or Kalda's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.copier_clients import KALDA, LIBRDKAFKA
from tests.chaos.kalda_clients import KaldaLoad, KaldaReader
from tests.chaos.ordered_load import CheckingReader, LibrdkafkaLoad, LibrdkafkaReader, OrderedLoad


@dataclass(frozen=True, slots=True)
class RoundsClients:
    """One client library."""

    name: str
    """As in `tests.chaos.copier_clients`."""
    load: Callable[..., OrderedLoad]
    reader: Callable[..., CheckingReader]


CLIENTS: Final = {
    LIBRDKAFKA: RoundsClients(LIBRDKAFKA, LibrdkafkaLoad, LibrdkafkaReader),
    KALDA: RoundsClients(KALDA, KaldaLoad, KaldaReader),
}
