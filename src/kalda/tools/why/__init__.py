"""`kalda why`: why something in a cluster is as it is, from the events that its brokers keep."""
