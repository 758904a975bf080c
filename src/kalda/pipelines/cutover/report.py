"""Describes what a cut-over carried over and what it cannot carry over."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.admin.groups import GroupType
from kalda.clients.admin.transactions import TransactionState
from kalda.clients.errors import ClientError
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.groups import is_of_consumers
from kalda.pipelines.cutover.journal import Cut, Journal, NotCarried, Phase
from kalda.pipelines.cutover.locate import How
from kalda.pipelines.mirror.offset_syncs import Run
from kalda.pipelines.mirror.policy import GROUP_PREFIX

KINDS: Final = (
    "transactional id",
    "group membership",
    "share group",
    "delegation token",
    "broker setting",
    "client metrics",
    "state store",
    "offset outside",
    "not listed",
)
"""The kinds of `NotCarried` that this module names."""


_WITHOUT_TOKENS: Final = (
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
)
"""The cluster has no tokens, or this client's connection is none that may ask for them."""


def left_behind(source: Admin, topics: Iterable[str]) -> list[NotCarried]:
    """Return what the source has and no cut-over carries; what cannot be listed is named as such.

    Raises:
        ClientError: no broker can be reached.
    """
    found: list[NotCarried] = []
    for name, find in (
        ("transactional ids", _transactional_ids),
        ("groups", _memberships),
        ("delegation tokens", _tokens),
        ("settings of brokers", _broker_settings),
        ("subscriptions to clients' metrics", _client_metrics),
    ):
        try:
            found += find(source)
        except ClientError as error:
            if error.code in _WITHOUT_TOKENS:
                continue
            if error.is_retriable:
                raise
            found.append(NotCarried("not listed", name, str(error)))
    stores = sorted(each for each in topics if each.endswith("-changelog"))
    found += [
        NotCarried(
            "state store",
            each,
            "the topic is copied; stores on disks of Kafka Streams have offsets of the source: delete them",
        )
        for each in stores
    ]
    return found


def moved_offsets(
    runs: Mapping[TopicPartition, Sequence[Run]], cuts: Mapping[TopicPartition, Cut]
) -> list[NotCarried]:
    """Return the partitions whose records have other offsets in the target.

    Offsets that applications keep outside of the cluster are wrong for those.
    """
    return [
        NotCarried(
            "offset outside",
            str(each),
            f"offset {cut.source} is {cut.target} in the target: offsets that are stored outside of the "
            "cluster are not valid there",
        )
        for each, cut in sorted(cuts.items())
        if cut.source != cut.target or any(run.source != run.target for run in runs.get(each, ()))
    ]


def document_of(journal: Journal, bootstrap: str) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "flow": journal.flow,
        "back": journal.is_back,
        "phase": journal.phase.value,
        "bootstrap": bootstrap,
        "reason": journal.reason,
        "pause_ms": journal.pause_ms,
        "fence": {"acls": len(journal.fence.acls), "quotas": len(journal.fence.quotas)},
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "source": cut.source, "target": cut.target}
            for each, cut in sorted(journal.cuts.items())
        ],
        "records_compared": journal.records,
        "groups": [
            {
                "group": each.group,
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "source": each.source,
                "target": each.target,
                "next_record": each.how,
            }
            for each in journal.places
        ],
        "carried": dict(journal.carried),
        "not_carried": [
            {"kind": each.kind, "name": each.name, "reason": each.reason} for each in journal.not_carried
        ],
    }


def lines_of(journal: Journal, bootstrap: str) -> list[str]:
    """Return the report as lines of text."""
    lines = [f"{journal.flow}: {_ENDS.get(journal.phase, f'at {journal.phase}')}"]
    if journal.phase is Phase.ABORTED and journal.reason:
        lines.append(f"reason: {journal.reason}")
    if journal.pause_ms is not None:
        lines.append(f"writers were held for {journal.pause_ms / 1000:.1f} s")
    if journal.phase is Phase.SWITCHED:
        same = sum(each.source == each.target for each in journal.cuts.values())
        lines.append(
            f"cut: {len(journal.cuts):,} partitions, {same:,} of them at the same offset on both sides; "
            f"{journal.records:,} records compared"
        )
    if journal.carried:
        lines.append(
            "carried: " + ", ".join(f"{count:,} {name}" for name, count in sorted(journal.carried.items()))
        )
    exact = sum(each.how in _EXACT for each in journal.places)
    if journal.places:
        lines.append(f"offsets of groups: {len(journal.places):,}, {exact:,} of them at the very next record")
    for kind in sorted({each.kind for each in journal.not_carried}):
        of_kind = [each for each in journal.not_carried if each.kind == kind]
        lines.append(f"not carried: {len(of_kind):,} x {kind}")
        lines += [f"  {each.name}: {each.reason}" for each in of_kind[:LISTED_MAX]]
        if len(of_kind) > LISTED_MAX:
            lines.append(f"  and {len(of_kind) - LISTED_MAX:,} more; --json lists all")
    if journal.phase is Phase.SWITCHED:
        lines.append(f"clients switch to bootstrap.servers={bootstrap}")
    return lines


_ENDS: Final = {
    Phase.CHECK: "checked; it can be cut over",
    Phase.SWITCHED: "cut over",
    Phase.ABORTED: "given up; writers go on in the source",
}
_EXACT: Final = (How.EXACT, How.END)
LISTED_MAX: Final = 20
"""Things of one kind that the text lists."""


def _transactional_ids(source: Admin) -> list[NotCarried]:
    return [
        NotCarried(
            "transactional id",
            each.transactional_id,
            "its producer begins again in the target"
            + (f"; its last transaction is {each.state.value}" if each.state in _OPEN else ""),
        )
        for each in source.list_transactions().all()
        if not each.transactional_id.startswith(GROUP_PREFIX)
    ]


_OPEN: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def _memberships(source: Admin) -> list[NotCarried]:
    found = []
    for each in source.list_groups().all():
        if each.type is GroupType.SHARE:
            found.append(NotCarried("share group", each.group_id, "its state is the source's"))
        elif not is_of_consumers(each):
            found.append(
                NotCarried("group membership", each.group_id, f"it is of protocol {each.protocol_type}")
            )
        elif each.type in (GroupType.CONSUMER, GroupType.STREAMS):
            found.append(
                NotCarried(
                    "group membership",
                    each.group_id,
                    f"a {each.type.value.lower()} group (KIP-848) begins with its offsets only; "
                    "members join again",
                )
            )
    return found


def _tokens(source: Admin) -> list[NotCarried]:
    return [
        NotCarried("delegation token", each.token_id, f"of {each.owner}; clients get a new one")
        for each in source.describe_delegation_tokens()
    ]


def _broker_settings(source: Admin) -> list[NotCarried]:
    resource = ConfigResource.broker()
    return [
        NotCarried("broker setting", each.name, f"the source has {each.value} for all brokers")
        for each in source.describe_configs([resource])[resource].values()
        if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]


def _client_metrics(source: Admin) -> list[NotCarried]:
    return [
        NotCarried("client metrics", each, "create it in the target by `kalda client-metrics`")
        for each in source.list_client_metrics_resources()
    ]
