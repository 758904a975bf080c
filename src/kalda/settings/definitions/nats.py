"""Declares the settings of listeners that speak NATS's protocol; the defaults are nats-server's."""

from kalda.common.config_def import at_least, between
from kalda.common.settings import LOW, Settings, boolean, integer, string_list


class NatsConfig(Settings):
    """The limits of NATS's clients."""

    kalda_nats_jetstream_enable = boolean(
        False,
        "Whether NATS listeners serve JetStream: streams over topics, consumers and key-value buckets. "
        "Kalda's own.",
    )
    kalda_nats_max_connections = integer(
        65_536,
        "The most connections of NATS's clients at one time; a further one is refused. Kalda's own.",
        at_least(1),
    )
    kalda_nats_max_payload = integer(
        1_048_576,
        "The most bytes of a message of NATS, with its headers. Kalda's own.",
        between(1, 64 * 1024 * 1024),
    )
    kalda_nats_max_pending = integer(
        64 * 1024 * 1024,
        "The most bytes that wait for a NATS client; one that reads too slowly is disconnected. Kalda's own.",
        at_least(1024),
    )
    kalda_nats_max_subscriptions = integer(
        65_536,
        "The most subscriptions of one connection of NATS; nats-server has no limit. Kalda's own.",
        at_least(1),
    )
    kalda_nats_ping_interval_ms = integer(
        120_000,
        "A NATS client that was silent for this long gets a PING; after two without an answer it is "
        "disconnected. Kalda's own.",
        at_least(100),
        importance=LOW,
    )
    kalda_nats_subjects = string_list(
        (),
        "Which subjects of NATS are topics: rules SUBJECT:TOPIC or SUBJECT:TOPIC:KEY, of which the first "
        "that fits decides. What is published to such a subject is written to the topic, and subscribers "
        "get the records of the topic. $1 in the topic or the key stands for the first wildcard of the "
        "subject, `>` is the last one; each wildcard must be in one of them. An example: "
        "`orders.*:orders:$1,audit:audit`. All brokers should have the same rules. Kalda's own.",
    )
