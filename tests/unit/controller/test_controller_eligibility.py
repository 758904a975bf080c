"""Brokers that must not be elected: who is controller then, and when."""

import pytest

from kalda.controller import driver
from tests.unit.controller.stage import Stage, topic, until


async def test_a_broker_that_is_not_eligible_leaves_the_election_to_others(stage: Stage) -> None:
    first = await stage.start(1)
    second = await stage.start(2, is_eligible=lambda: False)
    third = await stage.start(3)
    await first.stop()
    await until(lambda: third.driver.is_active)
    await until(lambda: second.driver.controller_id == 3)
    assert not second.driver.is_active


async def test_a_controller_that_is_not_eligible_any_more_resigns(stage: Stage) -> None:
    """What it has begun is continued by its successor, and it takes part again once it may."""
    eligible = {1}
    first = await stage.start(1, is_eligible=lambda: 1 in eligible)
    second = await stage.start(2, is_eligible=lambda: 2 in eligible)
    await first.cluster.create_topics([topic("t", (1, 2))])
    eligible = {2}
    first.driver.on_eligibility_changed()
    second.driver.on_eligibility_changed()
    await until(lambda: second.driver.is_active and first.driver.controller_id == 2)
    assert (False, 2) == (first.driver.is_active, second.driver.epoch)
    await until(lambda: bool(second.driver.statistics().global_partition_count))
    eligible = {1}
    second.driver.on_eligibility_changed()
    first.driver.on_eligibility_changed()
    await until(lambda: first.driver.is_active and second.driver.controller_id == 1)


async def test_a_broker_becomes_eligible_while_there_is_no_controller(stage: Stage) -> None:
    """The last broker of Apache Kafka died: its registration may go after its `/controller`."""
    first = await stage.start(1)
    is_eligible = False
    second = await stage.start(2, is_eligible=lambda: is_eligible)
    await first.stop()
    await until(lambda: second.driver.controller_id is None)
    is_eligible = True
    second.driver.on_eligibility_changed()
    await until(lambda: second.driver.is_active)


async def test_a_cluster_whose_eligible_brokers_do_nothing_gets_a_controller(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused broker is registered until its session ends, or for ever if only its controller hangs."""
    monkeypatch.setattr(driver, "UNATTENDED_SECONDS", 0)
    first = await stage.start(1)
    second = await stage.start(2, is_eligible=lambda: False)
    await first.stop()
    await until(lambda: second.driver.is_active)
    second.driver.on_eligibility_changed()
    await until(lambda: not second.driver.is_active)
    # No other broker wants to be controller.
    await until(lambda: second.driver.is_active)
