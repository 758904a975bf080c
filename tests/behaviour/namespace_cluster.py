"""A cluster with one namespace, in a process of its own that obeys: the target of `targets.NamespaceTarget`.

    python namespace_cluster.py BROKERS DIRECTORY PROXY_PORTS '{"setting": "value", ...}'

It prints the ports of the namespace, then reads commands, ``kill 0``, ``start 0``, ``pause 0``, ``resume 0``,
and answers ``done`` to each. Clients get the ports of proxies instead of those of the brokers.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from kalda.cluster.schema import ListenerEndpoint
from kalda.testing import Cluster


def main() -> None:
    brokers, directory, proxies, settings = sys.argv[1:]
    ports = [int(port) for port in proxies.split(",")]

    def advertise(broker_id: int, endpoint: ListenerEndpoint) -> ListenerEndpoint:
        return replace(endpoint, port=ports[broker_id])

    with Cluster(int(brokers), directory=Path(directory), settings=json.loads(settings)) as cluster:
        cluster._namespaces.advertise = advertise
        with cluster.namespace() as space:
            print(space.bootstrap, flush=True)
            for line in sys.stdin:
                command, broker = line.split()
                {
                    "kill": cluster.kill,
                    "start": cluster.start,
                    "pause": cluster.pause,
                    "resume": cluster.resume,
                }[command](int(broker))
                print("done", flush=True)


if __name__ == "__main__":
    main()
