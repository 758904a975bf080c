"""Declares the settings of the producer, with Kafka's names and the defaults of Apache Kafka 4.x.

`ProducerOptions` lists the same names in snake case, for keyword arguments; a test keeps the two equal.
Options that are Python objects (serializers, partitioner, interceptors) are in `ProducerObjects`.

Idempotence is on by default and is never switched off silently when the program asked for it, because a
program that relies on it would get duplicates.
"""

from typing import Final, Literal

from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import ClientConfigError
from kalda.common.config_def import NON_EMPTY, at_least, between, one_of
from kalda.common.public import public
from kalda.common.settings import HIGH, INT_MAX, LOW, boolean, integer, long, string
from kalda.records.compression import Compression
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

Acks = Literal["all", "-1", "0", "1", -1, 0, 1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

IN_FLIGHT_MAX_FOR_IDEMPOTENCE: Final = 5
"""Brokers remember the last five batches of a producer, so they recognise no more duplicates than these."""


class ProducerConfig(CommonClientConfig):
    """The settings of a producer."""

    acks = string(
        "all",
        "How many acknowledgements a record needs: `all` in-sync replicas (also -1), 1 (the leader) or 0 "
        "(none: offsets are not known and records may be lost unnoticed).",
        one_of("all", "-1", "0", "1"),
        importance=LOW,
    )
    batch_size = integer(
        16_384,
        "The size in bytes up to which records for one partition are collected in a batch. 0 sends each "
        "alone.",
        at_least(0),
    )
    buffer_memory = long(
        33_554_432,
        "The bytes of records that may wait to be sent. When they are used up, `send` blocks for "
        "`max.block.ms`.",
        at_least(0),
        importance=HIGH,
    )
    compression_type = string(
        "none",
        "The codec of batches.",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
    )
    compression_gzip_level = integer(-1, "The level of gzip: 1 to 9, or -1 for its default.", between(-1, 9))
    compression_lz4_level = integer(9, "The level of lz4: 1 to 17.", between(1, 17))
    compression_zstd_level = integer(3, "The level of zstd: -131072 to 22.", between(-131_072, 22))
    delivery_timeout_ms = integer(
        120_000,
        "How long after `send` a record may at most be on its way, retries included. At least `linger.ms` + "
        "`request.timeout.ms`.",
        at_least(0),
    )
    enable_idempotence = boolean(
        True,
        "Whether brokers drop the duplicates that retries cause. Needs `acks`=all, `retries` above 0 and at "
        "most 5 `max.in.flight.requests.per.connection`.",
        importance=LOW,
    )
    linger_ms = long(
        5, "How long a batch waits for more records before it is sent although it is not full.", at_least(0)
    )
    max_block_ms = long(
        60_000,
        "How long `send`, `partitions_for` and the methods of transactions may block, for memory or "
        "metadata.",
        at_least(0),
    )
    max_in_flight_requests_per_connection = integer(
        5,
        "How many requests to one broker may wait for responses. Above 1, retries without idempotence can "
        "change the order of records.",
        at_least(1),
        importance=LOW,
    )
    max_request_size = integer(
        1_048_576, "The size in bytes of the largest request, and of the largest record.", at_least(0)
    )
    metadata_max_idle_ms = long(
        300_000,
        "After how long without a record the producer forgets the metadata of a topic.",
        at_least(5_000),
        importance=LOW,
    )
    partitioner_adaptive_partitioning_enable = boolean(
        True,
        "Whether records without a key prefer partitions whose brokers are fast (KIP-794).",
        importance=LOW,
    )
    partitioner_availability_timeout_ms = long(
        0,
        "After how long a broker that takes no requests gets no more records without a key; 0 for never.",
        at_least(0),
        importance=LOW,
    )
    partitioner_ignore_keys = boolean(
        False, "Whether records with a key are distributed as if they had none.", importance=LOW
    )
    retries = integer(
        INT_MAX,
        "How often a batch is sent again after an error that may pass. `delivery.timeout.ms` is the better "
        "limit.",
        between(0, INT_MAX),
        importance=HIGH,
    )
    transaction_timeout_ms = integer(
        60_000,
        "After how long without progress the coordinator aborts a transaction.",
        at_least(1),
        importance=LOW,
    )
    transaction_two_phase_commit_enable = boolean(
        False,
        "Whether transactions are part of a two-phase commit, so that only the program ends them (KIP-939).",
        importance=LOW,
    )
    transactional_id = string(
        None,
        "The name under which a producer continues the transactions of an earlier process. None for a "
        "producer without transactions.",
        NON_EMPTY,
        importance=LOW,
    )

    @property
    def acks_number(self) -> int:
        """`acks` as requests carry it: -1, 0 or 1."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression(self) -> Compression:
        """The codec of `compression.type`."""
        return Compression[self.compression_type.upper()]

    @property
    def compression_level(self) -> int | None:
        """The level of the codec, None for its default."""
        match self.compression:
            case Compression.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case Compression.LZ4:
                return self.compression_lz4_level
            case Compression.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    def check_rules(self) -> None:
        """Check the rules between settings, and switch idempotence off where the program's settings exclude
        it.

        Raises:
            ClientConfigError: the first rule that is broken.
        """
        super().check_rules()
        if self.compression_gzip_level == 0:
            raise ClientConfigError("`compression.gzip.level`=0 is not allowed: it takes -1 or 1 to 9")
        self._check_delivery_timeout()
        self._check_idempotence()
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ClientConfigError(
                "`transactional.id` needs `enable.idempotence`=true; remove the settings that exclude it"
            )
        if self.transaction_two_phase_commit_enable and "transaction_timeout_ms" in vars(self):
            raise ClientConfigError(
                "`transaction.timeout.ms` has no meaning with `transaction.two.phase.commit.enable`=true: "
                "only the program ends such a transaction; remove one of the two"
            )

    def _check_delivery_timeout(self) -> None:
        needed = min(self.linger_ms + self.request_timeout_ms, INT_MAX)
        if self.delivery_timeout_ms >= needed:
            return
        if "delivery_timeout_ms" in vars(self):
            raise ClientConfigError(
                f"`delivery.timeout.ms`={self.delivery_timeout_ms} is below `linger.ms` + "
                f"`request.timeout.ms` = {needed}; raise it, or lower one of the others"
            )
        logger.warning(
            "delivery.timeout.ms is raised from its default to %d, linger.ms + request.timeout.ms", needed
        )
        self.delivery_timeout_ms = needed

    def _check_idempotence(self) -> None:
        if not self.enable_idempotence:
            return
        conflict = None
        if self.acks_number != -1:
            conflict = f"`acks`={self.acks}; it needs all"
        elif self.retries == 0:
            conflict = "`retries`=0; it needs retries"
        in_flight_max = self.max_in_flight_requests_per_connection
        if in_flight_max > IN_FLIGHT_MAX_FOR_IDEMPOTENCE and conflict is None:
            raise ClientConfigError(
                f"`max.in.flight.requests.per.connection`={self.max_in_flight_requests_per_connection} "
                f"is above {IN_FLIGHT_MAX_FOR_IDEMPOTENCE}, which idempotence allows; lower it, or set "
                "`enable.idempotence`=false"
            )
        if conflict is None:
            return
        if "enable_idempotence" in vars(self) or self.transactional_id is not None:
            raise ClientConfigError(
                f"idempotence is excluded by {conflict}, or set `enable.idempotence`=false"
            )
        logger.info("Idempotence is off because of %s.", conflict)
        self.enable_idempotence = False


@public
class ProducerOptions(CommonClientOptions, total=False):
    """The settings as keyword arguments; `ProducerConfig` documents them."""

    acks: Acks
    batch_size: int
    buffer_memory: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: CompressionType
    compression_zstd_level: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    transactional_id: str | None
