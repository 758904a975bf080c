"""Counts orders by customer with Faust: a repartitioned stream and a table with a changelog topic."""

import os

import faust

name = os.environ["NAME"]
app = faust.App(
    name,
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    topic_partitions=4,
    datadir=os.environ["STATE"],
)
results = app.topic(f"{name}-results")
counts = app.Table("counts", default=int, partitions=4)


@app.agent(app.topic(f"{name}-orders"))
async def count(orders):
    """Write the customer's count with each order."""
    async for order in orders.group_by(lambda order: order["customer"], name="customer", partitions=4):
        counts[order["customer"]] += 1
        await results.send(value={**order, "count": counts[order["customer"]]})


if __name__ == "__main__":
    app.main()
