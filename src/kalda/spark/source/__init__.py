"""The source `kalda` of Spark: topics as rows of batch and streaming queries.

`options` says what a query asks for, `discovery` which partitions and offsets that means, `plan` and `limits`
how they become tasks, and `range_reader` reads one task's range on an executor. `reader` has the classes that
Spark drives.
"""
