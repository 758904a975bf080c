"""The broker's metadata of its cluster: topics and brokers, feature levels, and its own registration.

The controller sends the metadata; ZooKeeper keeps registration and features. The package uses no other
package of the broker.
"""
