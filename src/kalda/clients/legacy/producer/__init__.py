"""The producer of Kafka 0.7 and 0.8: sync or async, with encoders, partitioners, handlers and callbacks.

`producer` is the class that programs use. What it sends goes through `partitioner` (which partition),
`event_queue` and `send_thread` (async only), `dispatcher` (which broker, and retries) and `sync_producer`
(one broker). `discovery` knows the brokers and leaders, from ZooKeeper or from a list of brokers.
"""
