"""Runs a whole cluster in virtual time, from a seed: the real code on simulated machines.

A schedule is a cluster, workloads and a plan of faults, all drawn from one seed (`schedule`). `run` carries
it out and returns what went wrong; `runner` runs many schedules in child processes, and `shrink` makes the
plan of a failed one as short as it can be.

Brokers, controller, coordinators, the coordination server and the clients are the real ones. They see the
simulated machine through the ports of `kalda.runtime`: an event loop for each process (`event_loop`), which
one scheduler lets run in virtual time (`scheduler`), a network that delays, cuts and resets (`network`), and
disks that fill, fail and lose what was not synced (`disk`). No thread, socket, file or real time is used.

`workloads` are programs that use the cluster, each on the machine of the clients; `checks` are what must hold
while it runs and in the end.
"""
