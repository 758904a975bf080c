"""Runs the long tests with faults by name, one after the other: ``python -m tests.chaos --list`` names them.

``python -m tests.chaos`` runs all of them, ``python -m tests.chaos cluster mirror --rounds 20`` two. An
option is passed on to the runs that take it, so that ``--seed`` replays them all. The first that fails ends
it.
"""

import argparse
import importlib
import inspect
import subprocess
import sys
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Run:
    """One program of this package, its arguments, and the options that it takes of those given here."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ("rounds", "seed")

    def summary(self) -> str:
        """Return the first sentence of the module's docstring."""
        text = inspect.getdoc(importlib.import_module(f"tests.chaos.{self.module}")) or ""
        return text.partition("\n")[0]

    def command(self, given: dict[str, str | bool | None]) -> list[str]:
        """Return the command; `given` has the values of options by name."""
        # The last of several equal options counts.
        words = [sys.executable, "-m", f"tests.chaos.{self.module}", *self.arguments]
        for option in self.options:
            value = given[option]
            if value is not None and value is not False:
                words += [f"--{option.replace('_', '-')}", *([] if value is True else [str(value)])]
        return words


_CLIENT: Final = ("rounds", "seed", "client")
_CLUSTER: Final = (*_CLIENT, "real_zookeeper")

RUNS: Final = (
    Run("cluster", "cluster_rounds", options=(*_CLUSTER, "protocol", "etcd")),
    Run("secured", "secured_rounds", options=_CLUSTER),
    Run("disk", "disk_rounds", options=_CLUSTER),
    Run("kill", "kill_rounds", options=_CLIENT),
    *(
        Run(
            f"pipeline-{target}-{execution}",
            "pipeline_rounds",
            ("--target", target, "--execution", execution, "--rounds", "40"),
        )
        for target in ("delta", "iceberg", "parquet", "exactly-once", "exactly-once-batch")
        for execution in ("direct", "spark")
    ),
    Run("mirror", "mirror_rounds", ("--rounds", "200")),
    *(
        Run(f"connector-{storage}", "connector_rounds", ("--storage", storage))
        for storage in ("zookeeper", "kafka", "migrate")
    ),
    Run("mirror-maker", "mirror_maker_rounds"),
    Run("table", "table_rounds"),
    *(
        Run(f"spark-sink-{delivery}", "spark_sink_rounds", ("--delivery", delivery, "--speculation"))
        for delivery in ("exactly-once-batch", "exactly-once")
    ),
    Run("dead-letters", "dead_letters", options=("records",)),
    Run("pipeline-soak", "pipeline_soak", options=("minutes",)),
    Run("gateway", "gateway_rounds"),
    Run("share", "share_rounds"),
    *(
        Run(f"tasks-{system}-{brokers}", "task_rounds", ("--system", system, "--brokers", str(brokers)))
        for system in ("celery", "taskiq", "worker")
        for brokers in (1, 3)
    ),
    Run("logins", "hostile_logins", options=("logins",)),
)


def selected(names: list[str]) -> list[Run]:
    """Return the runs of these names, or whose names begin with them; all if there are none.

    Raises:
        ValueError: no run has such a name.
    """
    found: dict[str, Run] = {}
    for name in names or [""]:
        exact = [run for run in RUNS if run.name == name]
        matching = exact or [run for run in RUNS if not name or run.name.startswith(f"{name}-")]
        if not matching:
            raise ValueError(f"no run is named {name}; --list names all")
        found |= {run.name: run for run in matching}
    return list(found.values())


def main(arguments: list[str]) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a run, or the first words of several")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--rounds", help="rounds of each run that has rounds; else each has its own number")
    parser.add_argument("--seed", help="replays the choices of a run")
    parser.add_argument("--client", help="the library of loads, readers and copiers: librdkafka or kalda")
    parser.add_argument("--protocol", help="of the copiers' group: classic or consumer")
    parser.add_argument("--real-zookeeper", action="store_true", help="coordinate through a real ZooKeeper")
    parser.add_argument("--etcd", action="store_true", help="coordinate through three etcd servers: cluster")
    parser.add_argument("--records", help="records of dead-letters")
    parser.add_argument("--minutes", help="length of pipeline-soak")
    parser.add_argument("--logins", help="logins of the run of that name")
    given = parser.parse_args(arguments)
    try:
        runs = selected(given.names)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        width = max(len(run.name) for run in runs)
        for run in runs:
            print(f"{run.name:{width}}  {run.summary()}")
        return 0
    for run in runs:
        command = run.command(vars(given))
        print(f"== {run.name}: {' '.join(command[1:])}", flush=True)
        if code := subprocess.run(command, check=False).returncode:
            print(f"== {run.name} failed with exit code {code}", flush=True)
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
