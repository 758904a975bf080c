"""Serves a cluster over HTTP: schema registry, gateway and console, in one process beside the brokers.

It is a client of the cluster like any other, so it runs beside Kalda and beside Apache Kafka. Its state is in
topics, and any number of processes may serve one cluster.
"""
