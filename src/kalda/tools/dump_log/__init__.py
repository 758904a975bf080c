"""`kalda dump-log`: prints the files of a log directory, as Kafka's ``kafka-dump-log`` does.

It reads files only; it never opens one for writing, so it is safe beside a running broker.
"""
