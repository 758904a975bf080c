"""Security of coordination: SASL DIGEST-MD5 as ZooKeeper speaks it, and the files that name users and stores.

Both sides use it: our ZooKeeper server (`kalda.zookeeper.server`) and the brokers and tools as its clients.
Sans-IO.
"""
