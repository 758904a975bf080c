"""Keeps the broker's metadata of its cluster: topics, brokers, feature levels, and its own registration.

The controller sends the metadata; ZooKeeper keeps registration and features. The package decides no
leadership. It uses no other package of the broker; outside it uses the values of `kalda.controller.effects`,
the files of `kalda.storage`, `kalda.cluster`, and sessions of `kalda.zookeeper.port`.
"""
