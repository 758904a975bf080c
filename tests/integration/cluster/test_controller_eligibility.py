"""`kalda.controller.eligible` while a cluster runs: the controller moves, and there always is one."""

from kalda import Admin, AlterConfigOp, AlterConfigOpType, ConfigResource, ConfigResourceType
from kalda.testing import Cluster
from tests.integration.cluster.helpers import wait_until

NAME = "kalda.controller.eligible"


def test_the_controller_is_where_it_may_be() -> None:
    with Cluster(brokers=2) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        first = cluster.controller_id()
        second = 1 - first

        def alter(broker_id: int, operation: AlterConfigOpType, value: str | None = None) -> None:
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
            admin.incremental_alter_configs({resource: [AlterConfigOp(NAME, operation, value)]})

        alter(first, AlterConfigOpType.SET, "false")
        wait_until(lambda: cluster.controller_id() == second)
        # No broker is eligible now, so that both are: the cluster keeps its controller.
        alter(second, AlterConfigOpType.SET, "false")
        alter(first, AlterConfigOpType.DELETE)
        wait_until(lambda: cluster.controller_id() == first)

        resource = ConfigResource(ConfigResourceType.BROKER, str(second))
        entry = admin.describe_configs({resource: [NAME]}).results[resource][NAME]
        assert ("false", False) == (entry.value, entry.is_read_only)
        cluster.stop(first)
        wait_until(lambda: cluster.controller_id() == second)
