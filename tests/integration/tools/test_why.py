"""`kalda why` on a cluster of three brokers: the first cause comes first."""

import kalda
from kalda.testing import Cluster
from tests.integration.tools.commands import Commands


def test_killed_broker_is_the_first_cause_while_it_is_down_and_after() -> None:
    with Cluster(brokers=3) as cluster, kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([kalda.NewTopic("orders", replica_assignments={0: [1, 2, 0]})])
        cluster.wait_in_sync("orders")
        tool = Commands(cluster.bootstrap)

        cluster.kill(1, expire_session=True)
        cluster.wait_until(lambda: 2 == admin.describe_topics(["orders"])["orders"].partitions[0].leader_id)
        down = tool("why", "partition", "orders-0", "--json").json
        assert "broker 1 was no longer registered" in down["incidents"][0]["first_cause"]
        assert "does not answer" in down["incidents"][0]["first_cause"]
        assert "Broker 1 did not answer" in down["remarks"][0]

        cluster.start(1)
        cluster.wait_in_sync("orders")
        up = tool("why", "partition", "orders-0").stdout
        first = next(line for line in up.splitlines() if line.startswith("1. "))
        assert "Broker 1 had ended without a shutdown" in first
        assert "instead of broker 1" in up
        assert "Next: kalda why broker 1" in up

        wrong = tool.run("why", "partition", "orders-9")
        assert 2 == wrong.code
        assert "topic orders has no partition 9" in wrong.stderr
