"""Dead letters: records that a pipeline could not process, kept with their cause in `<pipeline>.dlq`.

A dead letter is the original record (key, value, headers, timestamp) with headers that begin with ``dlq.``.
It is written in the commit of the batch that met it, so that good rows and dead letters together are all
records.
"""
