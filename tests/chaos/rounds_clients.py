"""The clients that a long run's load, readers and copiers use: librdkafka's, or Kalda's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.acknowledged_load import AcknowledgedLoad, LibrdkafkaAcknowledgedLoad, read_partition
from tests.chaos.copier_clients import KALDA, LIBRDKAFKA
from tests.chaos.kalda_clients import KaldaAcknowledgedLoad, KaldaLoad, KaldaReader, kalda_read_partition
from tests.chaos.ordered_load import CheckingReader, LibrdkafkaLoad, LibrdkafkaReader, OrderedLoad


@dataclass(frozen=True, slots=True)
class RoundsClients:
    """One client library."""

    name: str
    """As in `tests.chaos.copier_clients`."""
    load: Callable[..., OrderedLoad]
    reader: Callable[..., CheckingReader]
    acknowledged_load: Callable[..., AcknowledgedLoad]
    read_partition: Callable[[str, str, int], dict[int, int]]
    """Returns the number in each record of a partition, by offset; takes the address, topic and partition."""


CLIENTS: Final = {
    LIBRDKAFKA: RoundsClients(
        LIBRDKAFKA, LibrdkafkaLoad, LibrdkafkaReader, LibrdkafkaAcknowledgedLoad, read_partition
    ),
    KALDA: RoundsClients(KALDA, KaldaLoad, KaldaReader, KaldaAcknowledgedLoad, kalda_read_partition),
}
