"""The ports through which Kalda uses its machine: time, randomness, network, files, background work.

`kalda.runtime.system` implements them with the operating system. Only it imports `socket`, `selectors`,
`threading`, `time` and `random` for brokers, ZooKeeper servers and clients. The package imports nothing else
of Kalda.
"""
