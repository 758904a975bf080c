"""Declares the settings of groups, most of which override a broker's setting for one group (KIP-848,
KIP-1240)."""

import re
from typing import Final

from kalda.common.config_def import ConfigValue, Validator, at_least, between, one_of
from kalda.common.iso_duration import parse_duration_ms
from kalda.common.settings import Settings, boolean, integer, string

WAIT_MAX_MS: Final = 7 * 86_400_000
"""A week: a record that waits is in flight, and the group keeps its offset."""

_TOPIC_NAME: Final = re.compile("[A-Za-z0-9._-]{1,249}")


def _is_offset_reset(value: ConfigValue) -> bool:
    text = str(value)
    if text.startswith("by_duration:"):
        duration_ms = parse_duration_ms(text.removeprefix("by_duration:"))
        return duration_ms is not None and duration_ms >= 0
    return text in ("earliest", "latest")


def _is_dead_letter_topic(value: ConfigValue) -> bool:
    text = str(value)
    return not text or (
        _TOPIC_NAME.fullmatch(text) is not None and not text.startswith(("__", "..")) and text != "."
    )


class GroupOverrides(Settings):
    """The settings that a group can override."""

    consumer_assignment_interval_ms = integer(
        1000,
        "The least time between two target assignments of a consumer group; 0: each change of the group is "
        "assigned at once (KIP-1263).",
        at_least(0),
    )
    consumer_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval that the members of a consumer group are given.", at_least(1)
    )
    consumer_session_timeout_ms = integer(
        45000, "Session timeout of the members of a consumer group.", at_least(1)
    )
    errors_deadletterqueue_copy_record_enable = boolean(
        False,
        "Whether the dead letters of a share group have the key, the value and the headers of the records "
        "(KIP-1191).",
    )
    errors_deadletterqueue_topic_name = string(
        "",
        "The topic for records that a share group rejects or gives up; empty: they are dropped. The topic "
        "needs `errors.deadletterqueue.group.enable` (KIP-1191).",
        Validator("empty or a topic's name that does not begin with __", _is_dead_letter_topic),
    )
    kalda_share_delivery_at_enable = boolean(
        False,
        "Whether a record is delivered at the time in its header `kalda.delivery.at`, in milliseconds since "
        "1970, if it has one. Kalda's own.",
    )
    kalda_share_delivery_delay_ms = integer(
        0,
        "How long after its timestamp a record is delivered at the earliest; records that were produced "
        "together wait together. Kalda's own.",
        between(0, WAIT_MAX_MS),
    )
    kalda_share_key_order_enable = boolean(
        False,
        "Whether a record is delivered only when all records before it in its partition with the same key "
        "are done; set it while the group is empty. Kalda's own.",
    )
    kalda_share_redelivery_backoff_max_ms = integer(
        0,
        "If it is above `kalda.share.redelivery.backoff.ms`, the wait of a record doubles with each delivery "
        "up to this; else all waits are alike. Kalda's own.",
        between(0, WAIT_MAX_MS),
    )
    kalda_share_redelivery_backoff_ms = integer(
        0,
        "How long a record waits before its next delivery after a member has released it, or has not "
        "acknowledged it in time; 0: not at all. Kalda's own.",
        between(0, WAIT_MAX_MS),
    )
    share_assignment_interval_ms = integer(
        1000, "The least time between two target assignments of a share group.", at_least(0)
    )
    share_auto_offset_reset = string(
        "latest",
        "Where a partition begins that a share group has not read: earliest, latest, or by_duration: with an "
        "ISO-8601 duration before now.",
        Validator("earliest, latest or by_duration:PnDTnHnMn.nS", _is_offset_reset),
    )
    share_delivery_count_limit = integer(
        5, "How often a record of a share group is delivered before it is given up.", at_least(2)
    )
    share_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval that the members of a share group are given.", at_least(1)
    )
    share_isolation_level = string(
        "read_uncommitted",
        "Whether a share group gets records of open and aborted transactions, too.",
        one_of("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks = integer(
        2000, "The most records of a partition that are in flight to a share group.", at_least(100)
    )
    share_record_lock_duration_ms = integer(
        30000, "How long a record stays locked by a share consumer.", at_least(1000)
    )
    share_renew_acknowledge_enable = boolean(
        True, "Whether members of a share group may renew the locks of records (KIP-1222)."
    )
    share_session_timeout_ms = integer(45000, "Session timeout of the members of a share group.", at_least(1))


_WITHOUT_BROKER_SETTING: Final = frozenset(
    (
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.topic.name",
        "kalda.share.delivery.at.enable",
        "kalda.share.delivery.delay.ms",
        "kalda.share.key.order.enable",
        "kalda.share.redelivery.backoff.max.ms",
        "kalda.share.redelivery.backoff.ms",
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
    )
)

GROUP_SYNONYMS: Final = {
    key.name: f"group.{key.name}"
    for key in GroupOverrides.definitions().values()
    if key.name not in _WITHOUT_BROKER_SETTING
}
"""The broker's setting that a group's setting overrides."""
