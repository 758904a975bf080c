"""Client quotas, sans-IO: which one applies to a client, how fast it is used, how long a client must wait.

`entity` names what a quota is set for and finds it in ZooKeeper's layout, `settings` lists the kinds of
quotas, `rate` measures, `client_quotas` joins them: the shares that clients use up.
"""
