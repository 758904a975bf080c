"""`kalda migrate`: replaces the brokers of an Apache Kafka cluster in ZooKeeper mode by Kalda's, and back.

`settings_checks`, `directory_checks` and `cluster_checks` turn facts into verdicts without I/O; `walk`
decides the next step of a roll. The readers, `driver` and `command` do the I/O.
"""
