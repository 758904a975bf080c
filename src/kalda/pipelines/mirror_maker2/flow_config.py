"""Declares the settings of one replication flow, with the names of MirrorMaker 2 (KIP-382).

Defaults are MirrorMaker's, except where its own wait or ask for brokers that a small cluster does not have:
topics and groups are looked for twice a minute, not every ten minutes, and the numbers of replicas are the
target's default.
"""

from typing import Final

from kalda.common.config_def import NON_EMPTY, Validator, at_least, list_of, one_of
from kalda.common.settings import HIGH, LOW, Settings, boolean, integer, string, string_list

DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_POLICIES: Final = {each.rpartition(".")[2]: each for each in (DEFAULT_POLICY, IDENTITY_POLICY)}
_REPLICAS: Final = "the target's default unless it is set (brokers 2.4 and newer have one)"
_SECONDS: Final = at_least(1)


class FlowConfig(Settings):
    """The settings of one flow, such as those behind ``A->B.``."""

    enabled = boolean(False, "Whether records are copied.", importance=HIGH)
    topics = string_list(
        (".*",), "Names of topics, or Java regular expressions, that are copied.", importance=HIGH
    )
    topics_exclude = string_list(
        (r".*[\-\.]internal", r".*\.replica", "__.*"), "Those that are not.", importance=HIGH
    )
    groups = string_list(
        (".*",), "Groups, or Java regular expressions, whose offsets are translated.", importance=HIGH
    )
    groups_exclude = string_list(
        ("console-consumer-.*", "connect-.*", "__.*"), "Those whose offsets are not.", importance=HIGH
    )
    config_properties_exclude = string_list(
        (
            r"follower\.replication\.throttled\.replicas",
            r"leader\.replication\.throttled\.replicas",
            r"unclean\.leader\.election\.enable",
            r"min\.insync\.replicas",
        ),
        "Settings of topics, or regular expressions, that copies do not get. Those of timestamps are never "
        "copied, because a copy has the timestamps of the original.",
    )
    replication_policy_class = string(
        DEFAULT_POLICY,
        "What copies are called: `DefaultReplicationPolicy` puts the source and the separator before the "
        "name, `IdentityReplicationPolicy` keeps it.",
        Validator(
            f"{' or '.join(_POLICIES)}, with or without its package",
            lambda value: value in _POLICIES or value in _POLICIES.values(),
        ),
        importance=HIGH,
    )
    replication_policy_separator = string(".", "What stands between the source and the name.", NON_EMPTY)
    replication_policy_internal_topic_separator_enabled = boolean(
        True,
        "Whether the separator is also that of the topic of checkpoints; else it is a dot.",
        importance=LOW,
    )
    exactly_once_source_support = string(
        None,
        "`enabled` copies exactly once, by transactions, and refuses a target older than 2.5; `disabled` "
        "copies at least once; else it depends on the target. May also stand behind the target's name.",
        one_of("enabled", "disabled", "preparing"),
        importance=HIGH,
    )
    replication_factor = integer(None, f"Replicas of copies; {_REPLICAS}.", at_least(1))
    offset__syncs_topic_replication_factor = integer(
        None, f"Replicas of the topic of offset syncs; {_REPLICAS}.", at_least(1)
    )
    checkpoints_topic_replication_factor = integer(
        None, f"Replicas of the topic of checkpoints; {_REPLICAS}.", at_least(1)
    )
    heartbeats_topic_replication_factor = integer(
        None, f"Replicas of the topic of heartbeats; {_REPLICAS}.", at_least(1)
    )
    refresh_topics_enabled = boolean(True, "Whether new topics and partitions are looked for.")
    refresh_topics_interval_seconds = integer(30, "Between two looks.", _SECONDS)
    sync_topic_configs_enabled = boolean(True, "Whether copies have the settings of their originals.")
    sync_topic_configs_interval_seconds = integer(
        600, "Between two comparisons of settings; each look for topics is one, too.", _SECONDS
    )
    sync_topic_acls_enabled = boolean(
        True,
        "Whether ACLs of mirrored topics are copied: those on their very names that allow what "
        "`sync.topic.acls.operations` lists, where All becomes Read, and all that deny it. Clusters without "
        "ACLs are passed over.",
    )
    sync_topic_acls_operations = string_list(
        ("Read", "Describe", "DescribeConfigs"),
        "The operations that copied ACLs allow or deny. Kalda's own: MirrorMaker leaves out only Write.",
        list_of("Read", "Describe", "DescribeConfigs", "Write", "Create", "Delete", "Alter", "AlterConfigs"),
    )
    sync_topic_acls_interval_seconds = integer(
        600, "Between two comparisons of ACLs; each look for topics is one, too.", _SECONDS
    )
    emit_checkpoints_enabled = boolean(
        True, "Whether translated offsets of groups are written to the topic of checkpoints."
    )
    emit_checkpoints_interval_seconds = integer(60, "Between two rounds of checkpoints.", _SECONDS)
    sync_group_offsets_enabled = boolean(
        False, "Whether translated offsets are committed in the target, for groups without members there."
    )
    sync_group_offsets_interval_seconds = integer(60, "Between two rounds of commits.", _SECONDS)
    emit_heartbeats_enabled = boolean(
        True,
        "Whether heartbeats are written to the topic `heartbeats` of the target; also where `enabled` is "
        "false, for the flow that copies them back.",
    )
    emit_heartbeats_interval_seconds = integer(1, "Between two heartbeats.", _SECONDS)
    heartbeats_replication_enabled = boolean(
        True, "Whether the topic `heartbeats` of the source is copied, whatever `topics` says."
    )
    consumer_auto_offset_reset = string(
        "earliest",
        "Where partitions begin that exist when the flow runs for the first time; later ones begin at the "
        "earliest offset. May also stand behind the source's name.",
        one_of("earliest", "latest"),
    )

    @property
    def is_identity(self) -> bool:
        """Whether copies have the names of the originals."""
        policy = self.replication_policy_class
        return _POLICIES.get(policy, policy) == IDENTITY_POLICY


RENAMED: Final = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Names before Kafka 2.7."""

WITHOUT_EFFECT: Final = (
    "admin.timeout.ms",
    "connector.class",
    "consumer.poll.timeout.ms",
    "dedicated.mode.enable.internal.rest",
    "emit.offset-syncs.enabled",
    "group.id",
    "listeners",
    "metric.reporters",
    "name",
    "offset-syncs.topic.location",
    "offset.flush.interval.ms",
    "offset.flush.timeout.ms",
    "offset.lag.max",
    "plugin.path",
    "refresh.groups.enabled",
    "refresh.groups.interval.seconds",
    "tasks.max",
    "use.defaults.from",
)
"""Settings of MirrorMaker that change nothing: offsets are translated exactly and their syncs are part of the
transactions of the target, groups are looked for with each round of checkpoints, and there is no Connect
worker."""

WITHOUT_EFFECT_PREFIXES: Final = (
    "config.storage.",
    "errors.",
    "header.converter",
    "key.converter",
    "listeners.",
    "metrics.context.",
    "offset.storage.",
    "rest.",
    "status.storage.",
    "task.",
    "value.converter",
    "worker.",
)
"""Settings of Connect, which stores its own state in topics; a mirror keeps its progress in the target's."""

REPLACEABLE_CLASSES: Final = {
    "topic.filter.class": "DefaultTopicFilter",
    "group.filter.class": "DefaultGroupFilter",
    "config.property.filter.class": "DefaultConfigPropertyFilter",
    "forwarding.admin.class": "ForwardingAdmin",
}
"""Settings that name Java classes, and the only class of which the behaviour is built in."""
