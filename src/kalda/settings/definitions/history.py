"""Declares how a cluster records the changes of its metadata. All are Kalda's own."""

from kalda.common.config_def import at_least
from kalda.common.settings import LOW, Settings, boolean, integer, long

_WEEK_MS = 7 * 24 * 60 * 60 * 1000


class HistoryConfig(Settings):
    """The topic `__cluster_history`, which `kalda cluster history` reads."""

    kalda_cluster_history_enable = boolean(
        True,
        "Whether the broker records in `__cluster_history` who changes metadata of the cluster: topics, "
        "settings, ACLs, users, leaders. What a broker changes without it is found later and has no author. "
        "Kalda's own.",
    )
    kalda_cluster_history_retention_ms = long(
        _WEEK_MS,
        "How long the topic keeps changes; in force when the first change creates it, later as "
        "`retention.ms` of the topic, which is a day more. Kalda's own.",
        at_least(60_000),
    )
    kalda_cluster_history_retention_bytes = long(
        256 * 1024 * 1024,
        "The size of the topic above which the oldest changes are deleted before their time, -1 for none; in "
        "force when the topic is created, later as `retention.bytes` of the topic. Kalda's own.",
        at_least(-1),
        importance=LOW,
    )
    kalda_cluster_history_replication_factor = integer(
        3,
        "Replicas of the topic; as many as there are live brokers of Kalda when it is created, at most this "
        "number. Kalda's own.",
        at_least(1),
    )
