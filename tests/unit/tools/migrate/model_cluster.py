"""A model of a cluster of three brokers, for tests of a roll."""

from kalda.common.types import TopicPartition
from kalda.tools.migrate.walk import BrokerPlan, Offsets, Plan, Seen, Software

KAFKA, KALDA = Software.KAFKA, Software.KALDA
ORDERS = TopicPartition("orders", 0)


def broker_plan(broker_id: int) -> BrokerPlan:
    return BrokerPlan(
        broker_id=broker_id,
        host=f"h{broker_id}",
        stop={KAFKA: f"stop kafka {broker_id}", KALDA: f"stop kalda {broker_id}"},
        start={KAFKA: f"start kafka {broker_id}", KALDA: f"start kalda {broker_id}"},
    )


PLAN = Plan(cluster_id="c", brokers=tuple(map(broker_plan, (1, 2, 3))), wait_seconds=100)


class ModelCluster:
    """Brokers that start and stop at once when a command is run; commands may be repeated."""

    def __init__(self, software: Software = KAFKA) -> None:
        self.brokers: dict[int, Software] = dict.fromkeys((1, 2, 3), software)
        self.controller = 1
        self.end = 10
        self.commands: list[str] = []

    def run(self, command: str) -> None:
        step, software, broker_id = command.split()
        self.commands.append(command)
        if step == "start":
            self.brokers[int(broker_id)] = Software(software)
        elif self.brokers.get(int(broker_id)) == software:
            del self.brokers[int(broker_id)]
            if self.controller == int(broker_id):
                self.controller = min(self.brokers)
        self.end += 1

    def seen(self) -> Seen:
        replicas = (1, 2, 3)
        return Seen(
            cluster_id="c",
            controller_id=self.controller,
            brokers=self.brokers,
            partitions={ORDERS: replicas},
            isr={ORDERS: tuple(each for each in replicas if each in self.brokers)},
            min_in_sync={"orders": 2},
            offsets=Offsets({ORDERS: self.end}, {"readers": {ORDERS: self.end - 5}}),
        )
