"""Implements the producer, the consumer and the admin client: one asyncio core with synchronous facades.

It runs no broker and imports none; `kalda.net.client` connects to brokers. `kalda` exports what is public.

The core runs on one event loop. A synchronous class runs the core on a thread of its own (`loop_thread`).
Decisions (which batch to send, how to treat an error, which member gets a partition) are pure; thin drivers
do the I/O.
"""
