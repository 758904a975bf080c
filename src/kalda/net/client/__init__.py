"""Connects clients to brokers: one blocking connection, and a client of a whole cluster.

It is no producer or consumer: it joins no group and keeps no position. Spark's data source is its user.
"""
