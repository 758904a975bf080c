"""Counts orders by customer with Quix Streams, exactly once: a repartitioned stream and its state."""

import os

from quixstreams import Application

name = os.environ["NAME"]
app = Application(
    broker_address=os.environ["BOOTSTRAP"],
    consumer_group=name,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    state_dir=os.environ["STATE"],
    commit_interval=0.5,
)


def count(order, state):
    """Return the order with its customer's count."""
    value = state.get("count", 0) + 1
    state.set("count", value)
    return {**order, "count": value}


orders = app.dataframe(app.topic(f"{name}-orders", value_deserializer="json"))
counted = orders.group_by("customer").apply(count, stateful=True)
counted.to_topic(app.topic(f"{name}-results", value_serializer="json"))

if __name__ == "__main__":
    app.run()
