"""Makes a `Kafka` or a `KafkaCluster` for fixtures of every scope."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kalda.common.public import public_in
from kalda.faults import Fault, FaultPlan
from kalda.testing.kafka import Kafka, KafkaCluster
from kalda.testing.kafka_mark import mark_of
from kalda.testing.security import Security
from kalda.testing.session_brokers import SessionBrokers


@public_in("kalda.testing")
class KafkaFactory:
    """Gives fixtures of wider scopes what `kafka` and `kafka_cluster` give a test.

    It is the fixture ``kafka_factory``, of the scope ``session``:

    Example:
        ```python
        @pytest.fixture(scope="module")
        def kafka(kafka_factory):
            with kafka_factory.kafka(brokers=3) as kafka:
                yield kafka
        ```
    """

    def __init__(self, brokers: SessionBrokers) -> None:
        self._brokers: Final = brokers

    @contextmanager
    def kafka(
        self,
        *,
        brokers: int = 1,
        settings: Mapping[str, str | int | float | bool] | None = None,
        security: str | Security | None = None,
        as_version: str | None = None,
        faults: str | Fault | FaultPlan | Sequence[str | Fault] | None = None,
    ) -> Iterator[Kafka]:
        """Give a part of a shared cluster for the block; the arguments are those of the mark.

        Raises:
            ValueError: an argument or a setting is not allowed.
            ClusterError: the cluster does not start.
        """
        with self._brokers.kafka_for(
            mark_of(_options(brokers, settings, security, as_version, faults))
        ) as kafka:
            yield kafka

    @contextmanager
    def cluster(
        self,
        *,
        brokers: int = 1,
        settings: Mapping[str, str | int | float | bool] | None = None,
        security: str | Security | None = None,
        as_version: str | None = None,
        faults: str | Fault | FaultPlan | Sequence[str | Fault] | None = None,
    ) -> Iterator[KafkaCluster]:
        """Give brokers of its own for the block; the arguments are those of the mark.

        Raises:
            ValueError: an argument or a setting is not allowed.
            ClusterError: the cluster does not start.
        """
        with self._brokers.cluster_for(
            mark_of(_options(brokers, settings, security, as_version, faults))
        ) as cluster:
            yield cluster


def _options(
    brokers: int,
    settings: Mapping[str, str | int | float | bool] | None,
    security: str | Security | None,
    as_version: str | None,
    faults: object,
) -> dict[str, object]:
    return {
        "brokers": brokers,
        "settings": settings,
        "security": security,
        "as_version": as_version,
        "faults": faults,
    }
