"""JetStream without I/O: configurations of streams and consumers, the index of a stream, and one consumer.

A stream is a topic with one partition: sequence n is the record at offset n - 1, whose key is the subject.
Topics, logs, znodes and timers are in `kalda.broker.nats.jetstream`.
"""
