"""What `kalda.testing.Cluster` sets by itself."""

from kalda.testing import Cluster


def test_a_groups_first_rebalance_does_not_wait_unless_a_setting_says_so() -> None:
    """Kafka's own default is 3 seconds, which every test with a group would spend."""
    delay = "group.initial.rebalance.delay.ms"
    with Cluster(brokers=1) as cluster:
        assert 0 == cluster.server(0).services.config.group_initial_rebalance_delay_ms
    with Cluster(brokers=1, settings={delay: "5"}) as cluster:
        assert 5 == cluster.server(0).services.config.group_initial_rebalance_delay_ms
