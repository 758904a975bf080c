"""Records the history of the cluster's metadata, on the broker that leads ``__cluster_history``.

It moves the notes of all brokers into the topic and adds what is seen without a note: states of partitions,
registrations, the controller. What is recorded is decided by `kalda.cluster.history`. It uses
`internal_topics` and `metadata`.
"""
