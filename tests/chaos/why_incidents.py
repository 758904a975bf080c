"""Injects incidents into clusters and checks that `kalda why` names the true cause first.

Run it with ``python -m tests.chaos.why_incidents [NAME...]``. Each incident runs on a cluster of its own,
causes one thing, asks about its effect, and compares the first sentence of the answer. The exit code is the
number of incidents whose cause was not named first.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

import kalda
from kalda.cli import app
from kalda.testing import Cluster, Security

Inject = Callable[["Site"], None]


class Incident(NamedTuple):
    """What is done, what is asked, and the beginning of the first cause that is right."""

    name: str
    inject: Inject
    question: tuple[str, ...]
    cause: str
    settings: Mapping[str, str] = MappingProxyType({})
    security: Security | None = None
    brokers: int = 3


class Site:
    """A cluster with a topic ``orders`` of one partition, led by broker 1, and an administrator."""

    def __init__(self, cluster: Cluster, admin: kalda.Admin, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.admin = admin
        self.config = config
        self.open = ExitStack()
        """What stays open until the question is answered."""

    def produce(self, count: int, *, topic: str = "orders", size: int = 10, **settings: Any) -> None:
        with kalda.Producer(**{**self.config, **settings}) as producer:
            for number in range(count):
                producer.send(topic, key=b"k", value=b"%d" % number + b"x" * size).result(30)

    def partition(self) -> kalda.TopicPartitionInfo | None:
        with suppress(kalda.ClientError):
            return self.admin.describe_topics(["orders"])["orders"].partitions[0]
        return None

    def leader(self) -> int:
        found = self.partition()
        return -1 if found is None else found.leader_id

    def wait_leader(self, *leaders: int) -> None:
        self.cluster.wait_until(lambda: self.leader() in leaders, 40, f"a leader of {leaders}")

    def wait_isr(self, count: int) -> None:
        self.cluster.wait_until(
            lambda: (found := self.partition()) is not None and count == len(found.isr),
            60,
            f"{count} in-sync replicas",
        )

    def wait_events(self, *kinds: str) -> None:
        def has_all() -> bool:
            found = self.admin.describe_events(outcomes=True, timeout_ms=5_000).results.values()
            return set(kinds) <= {event.kind for each in found for event in each.events}

        self.cluster.wait_until(has_all, 60, f"events {kinds}")


def kill_and_start(site: Site) -> None:
    site.cluster.kill(1, expire_session=True)
    site.wait_leader(2)
    site.cluster.start(1)
    site.wait_isr(3)


def kill(site: Site) -> None:
    site.cluster.kill(1, expire_session=True)
    site.wait_leader(2)


def kill_controller(site: Site) -> None:
    victim = site.cluster.controller_id()
    site.cluster.kill(victim, expire_session=True)
    site.cluster.wait_until(lambda: site.cluster.controller_id() != victim, 40)
    site.wait_isr(2)
    site.cluster.start(victim)
    site.wait_isr(3)


def stop(site: Site) -> None:
    site.cluster.stop(1)
    site.wait_leader(2)


def expire(site: Site) -> None:
    site.cluster.expire_session(1)
    site.wait_events("session-expired", "leader-changed")


def pause(site: Site) -> None:
    site.cluster.pause(1)
    site.wait_leader(2)
    time.sleep(2)
    site.cluster.resume(1)
    site.wait_isr(3)
    site.wait_events("process-stalled")


def full_disk(site: Site) -> None:
    site.cluster.fill_disk(1)
    with kalda.Producer(**site.config) as producer:
        producer.send("orders", value=b"x" * 1000).result(60)
    site.wait_leader(2, 0)


def failed_disk(site: Site) -> None:
    site.cluster.apply_faults("disk:fail@1")
    with kalda.Producer(**site.config) as producer:
        producer.send("orders", value=b"x").result(60)
    site.wait_leader(2)
    site.wait_events("broker-left", "directory-failed")


def set_back(site: Site) -> None:
    site.cluster.apply_faults("clock:jump=-2h@1")
    with suppress(kalda.ClientError):
        site.produce(1)
    site.wait_events("clock-changed", "records-refused")


def cut_off(site: Site) -> None:
    site.cluster.partition({1}, {0, 2, "coordinator"})
    site.wait_leader(2)
    site.cluster.heal()
    site.wait_isr(3)
    site.wait_events("session-expired")


def follower_cut_off(site: Site) -> None:
    site.cluster.partition({1}, {2})
    site.produce(3, acks="1")
    site.wait_isr(2)


def preferred(site: Site) -> None:
    site.cluster.stop(1)
    site.wait_leader(2)
    site.cluster.start(1)
    site.wait_isr(3)
    time.sleep(1)
    site.admin.elect_leaders(kalda.ElectionType.PREFERRED, [kalda.TopicPartition("orders", 0)])
    site.wait_leader(1)


def consumer(site: Site, **settings: Any) -> kalda.Consumer[Any, Any]:
    return kalda.Consumer(
        **{**site.config, "group_id": "readers", "auto_offset_reset": "earliest", **settings}
    )


def member_leaves(site: Site) -> None:
    first = site.open.enter_context(consumer(site))
    first.subscribe(["orders"])
    first.poll(5)
    with consumer(site, client_id="second") as second:
        second.subscribe(["orders"])
        for _ in range(10):
            first.poll(0.2)
            second.poll(0.2)
    site.wait_events("member-left")


def member_stalls(site: Site) -> None:
    slow = site.open.enter_context(
        consumer(site, client_id="slow", max_poll_interval_ms=1000, session_timeout_ms=6000)
    )
    slow.subscribe(["orders"])
    slow.poll(5)
    site.wait_events("member-left")


def transaction_times_out(site: Site) -> None:
    producer = kalda.Producer(**site.config, transactional_id="payments", transaction_timeout_ms=1000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", value=b"x").result(30)
    site.wait_events("transaction-aborted")
    producer.close(0)


def zombie(site: Site) -> None:
    first = kalda.Producer(**site.config, transactional_id="payments")
    first.init_transactions()
    with kalda.Producer(**site.config, transactional_id="payments") as second:
        second.init_transactions()
    first.begin_transaction()
    with suppress(kalda.ClientError):
        first.send("orders", value=b"x").result(30)
        first.commit_transaction()
    site.wait_events("producer-refused")
    first.close(0)


def takes_over_open(site: Site) -> None:
    first = kalda.Producer(**site.config, transactional_id="payments")
    first.init_transactions()
    first.begin_transaction()
    first.send("orders", value=b"x").result(30)
    with kalda.Producer(**site.config, transactional_id="payments") as second:
        second.init_transactions()
    with suppress(kalda.ClientError):
        first.commit_transaction()
    site.wait_events("producer-refused")
    first.close(0)


def quota(site: Site) -> None:
    site.admin.alter_client_quotas(
        [kalda.QuotaAlteration(kalda.quota_entity({"client-id": "greedy"}), {"producer_byte_rate": 2000.0})]
    )
    time.sleep(1)
    site.produce(20, size=1000, client_id="greedy", linger_ms=0)
    site.wait_events("client-throttled")


def topic(site: Site, **configs: str) -> None:
    site.admin.create_topics(
        [kalda.NewTopic("logs", replica_assignments={0: [0]}, config={**configs, "segment.bytes": "2000"})]
    )


def retention_by_size(site: Site) -> None:
    topic(site, **{"retention.bytes": "4000"})
    site.produce(40, topic="logs", size=300)
    site.wait_events("records-deleted")


def retention_by_time(site: Site) -> None:
    topic(site, **{"retention.ms": "1000"})
    site.produce(20, topic="logs", size=300)
    site.wait_events("records-deleted")


def retention_lowered(site: Site) -> None:
    topic(site)
    site.produce(20, topic="logs", size=300)
    site.admin.incremental_alter_configs(
        {
            kalda.ConfigResource(kalda.ConfigResourceType.TOPIC, "logs"): [
                kalda.AlterConfigOp.set("retention.ms", 1000)
            ]
        }
    )
    site.wait_events("records-deleted")


def delete_records(site: Site) -> None:
    site.produce(10)
    site.admin.delete_records({kalda.TopicPartition("orders", 0): 5})


def compaction(site: Site) -> None:
    topic(site, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    site.produce(40, topic="logs", size=300)
    site.wait_events("records-compacted")


def delete_topic(site: Site) -> None:
    site.produce(3)
    site.admin.delete_topics(["orders"])
    site.wait_events("topic-deleted")


def never_written(site: Site) -> None:
    site.produce(3)


def aborted(site: Site) -> None:
    with kalda.Producer(**site.config, transactional_id="payments") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", value=b"x").result(30)
        producer.abort_transaction()
    site.wait_events("transaction-aborted")


def wrong_password(site: Site) -> None:
    login = site.config["sasl_jaas_config"].replace('password="', 'password="not-')
    with suppress(kalda.ClientError), kalda.Admin(**{**site.config, "sasl_jaas_config": login}) as admin:
        admin.list_topics()
    site.wait_events("login-failed")


def denied(site: Site) -> None:
    properties = site.cluster.client_config("bob", library="kalda")
    config: dict[str, Any] = {name.replace(".", "_"): value for name, value in properties.items()}
    with suppress(kalda.ClientError), kalda.Admin(**config) as admin:
        admin.delete_topics(["orders"])
    site.wait_events("access-denied")


def too_many_connections(site: Site) -> None:
    admins = []
    with suppress(kalda.ClientError):
        for _ in range(12):
            admins.append(kalda.Admin(**{**site.config, "default_api_timeout_ms": 1000}))
            admins[-1].list_topics()
    for admin in admins:
        admin.close()
    site.wait_events("connection-refused")


CLEANER = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "0",
}
PARTITION: Final = ("partition", "orders-0")

INCIDENTS: Final = (
    Incident("broker killed, up again", kill_and_start, PARTITION, "Broker 1 had ended without a shutdown"),
    Incident(
        "broker killed, down",
        kill,
        PARTITION,
        r"The( new)? controller noticed that broker 1 .*does not answer",
    ),
    Incident("controller killed", kill_controller, PARTITION, "Broker [02] had ended without a shutdown"),
    Incident(
        "broker stopped",
        stop,
        ("broker", "1"),
        r"The controller moved leaderships off broker 1|Broker 1 was shut",
    ),
    Incident(
        "session expired",
        expire,
        PARTITION,
        "(The coordination session of broker 1|Broker 1 lost its connection)",
    ),
    Incident("broker paused", pause, PARTITION, "Broker 1 stood still"),
    Incident("disk full", full_disk, PARTITION, "Log directory .* of broker 1 is full"),
    Incident(
        "only log directory fails", failed_disk, PARTITION, "Log directory .* of broker 1 failed: .*ended"
    ),
    Incident(
        "clock set back",
        set_back,
        ("topic", "orders"),
        "The clock of broker 1 went back by 7200 s",
        {"log.message.timestamp.after.max.ms": "3600000"},
    ),
    Incident("broker cut off", cut_off, PARTITION, "Broker 1 lost its connection to coordination"),
    Incident(
        "follower cut off",
        follower_cut_off,
        PARTITION,
        "Broker 2 could not fetch from the leader, broker 1",
        {
            "replica.lag.time.max.ms": "2000",
            "replica.socket.timeout.ms": "1000",
            "replica.fetch.wait.max.ms": "500",
        },
    ),
    Incident("preferred election", preferred, PARTITION, "An operator asked for the election of preferred"),
    Incident("member leaves", member_leaves, ("group", "readers"), r"Member .*second.* left group readers"),
    Incident(
        "member does not poll",
        member_stalls,
        ("group", "readers"),
        r"Member .*slow.* left group readers: .*poll",
    ),
    Incident(
        "transaction times out",
        transaction_times_out,
        ("producer", "payments"),
        'The transaction of transactional id "payments" was aborted: it was open for longer',
        {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    ),
    Incident(
        "zombie producer",
        zombie,
        ("producer", "payments"),
        'The producer of transactional id "payments" got epoch',
    ),
    Incident(
        "open transaction taken over",
        takes_over_open,
        ("producer", "payments"),
        'The transaction of transactional id "payments" was aborted: another producer began',
    ),
    Incident("quota", quota, ("client", "greedy"), "A quota of client greedy was set"),
    Incident(
        "retention by size",
        retention_by_size,
        ("record", "logs-0@0"),
        "Retention .* exceeds retention.bytes",
        CLEANER,
    ),
    Incident(
        "retention by time",
        retention_by_time,
        ("record", "logs-0@0"),
        "Retention .* older than retention.ms",
        CLEANER,
    ),
    Incident(
        "retention lowered",
        retention_lowered,
        ("record", "logs-0@0"),
        "Settings of topics/logs were changed",
        CLEANER,
    ),
    Incident("delete-records", delete_records, ("record", "orders-0@2"), "A client deleted offsets 0 to 4"),
    Incident("compaction", compaction, ("record", "logs-0@1"), "Compaction kept", CLEANER),
    Incident("topic deleted", delete_topic, ("record", "orders-0@1"), "Topic orders was deleted"),
    Incident(
        "never written",
        never_written,
        ("record", "orders-0@99"),
        "orders-0@99 is not in the log, which ends before",
    ),
    Incident(
        "aborted by its producer",
        aborted,
        ("record", "orders-0@0"),
        "The transaction .* its producer aborted it",
    ),
    Incident(
        "wrong password",
        wrong_password,
        ("client", "127.0.0.1"),
        "A login from 127.0.0.1",
        security=Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", users=("bob",)),
        brokers=1,
    ),
    Incident(
        "denied by ACLs",
        denied,
        ("client", "bob"),
        "User bob from 127.0.0.1 was denied",
        security=Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", users=("bob",)),
        brokers=1,
    ),
    Incident(
        "too many connections",
        too_many_connections,
        ("client", "127.0.0.1"),
        "Broker 0 refused connections from 127.0.0.1: max.connections.per.ip=6",
        {"max.connections.per.ip": "6"},
        brokers=1,
    ),
)


def run(incident: Incident) -> tuple[bool, str]:
    """Inject one incident; return whether its cause came first, and what came first."""
    with Cluster(
        incident.brokers,
        settings={"auto.leader.rebalance.enable": "false", **incident.settings},
        security=incident.security,
    ) as cluster:
        config: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        if incident.security is not None:
            properties = cluster.client_config("admin", library="kalda")
            config = {name.replace(".", "_"): value for name, value in properties.items()}
        with kalda.Admin(**config) as admin:
            replicas = [1, 2, 0] if incident.brokers == 3 else [0]
            admin.create_topics([kalda.NewTopic("orders", replica_assignments={0: replicas})])
            cluster.wait_in_sync("orders")
            while incident.brokers > 1 and cluster.controller_id() == 1:
                # What happens to broker 1 is reported by another one.
                cluster.restart(1)
                admin.elect_leaders(kalda.ElectionType.PREFERRED, outcomes=True)
                cluster.wait_in_sync("orders")
            site = Site(cluster, admin, config)
            incident.inject(site)
        options = [f"--command-property={name.replace('_', '.')}={value}" for name, value in config.items()]
        done = CliRunner().invoke(
            app, ["why", *incident.question, "--json", *options], catch_exceptions=False
        )
        site.open.close()
    if done.exit_code:
        return False, done.output
    document = json.loads(done.stdout)
    incidents = document["incidents"]
    first = incidents[0]["first_cause"] if incidents else " ".join((*document["facts"], *document["remarks"]))
    return re.match(incident.cause, first) is not None, first


def main(names: list[str]) -> int:
    """Run the incidents whose names contain one of the words, or all."""
    chosen = [each for each in INCIDENTS if not names or any(name in each.name for name in names)]
    failed = 0
    for incident in chosen:
        began = time.monotonic()
        try:
            is_right, first = run(incident)
        except Exception as error:
            is_right, first = False, f"{type(error).__name__}: {error}"
        failed += not is_right
        mark = "named first" if is_right else "NOT NAMED"
        print(f"{incident.name:28} {mark:12} {time.monotonic() - began:5.1f} s  {first}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} causes were named first")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
