"""Injects failures into the Python processes of Spark; Python imports it because its folder is on PYTHONPATH.

`spark_application` arms a failure by writing the file that ``KALDA_FAULT`` names: a place, ``before`` or
``after``, and what happens there. The first process that comes to the place takes the file away and fails;
the others go on. Nothing in the package knows of this.
"""

import importlib.abc
import importlib.machinery
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

PLACES = {
    "kalda.spark.sink.task_output": {"write": "TaskOutput.send", "flush": "TaskOutput.finish"},
    "kalda.clients.producer.transactional_producer": {
        "init": "TransactionalProducer.init_transactions",
        "prepare": "TransactionalProducer.prepare_transaction",
        "commit-transaction": "AsyncTransactionalProducer.commit_transaction",
    },
    "kalda.clients.transaction_control": {
        "end-txn": "TransactionControl.end_all",
        "barrier": "TransactionControl.write_barrier",
        "list": "TransactionControl.open_transactions",
    },
    "kalda.spark.sink.batch_commit": {"decision": "BatchCommit._decide"},
    "kalda.spark.sink.writers": {
        "task": "KaldaStreamWriter.write",
        "commit": "KaldaStreamWriter.commit",
        "abort": "KaldaStreamWriter.abort",
    },
    "kalda.pipelines.tables.writer": {"files": "ParquetTaskWriter.write"},
    "kalda.pipelines.engine.batch_log": {"intent": "BatchLog.write"},
    "kalda.pipelines.engine.table_target": {"table-commit": "TableTarget.commit"},
    "kalda.pipelines.engine.topic_target": {
        "topic-decision": "TopicOutput.commit",
        "complete": "TopicOutput.complete",
    },
    "kalda.pipelines.engine.dead_letters": {"letters": "DeadLetterOutput.publish"},
    "kalda.pipelines.ledger.topic": {"ledger": "LedgerTopic.publish"},
    "kalda.pipelines.engine.pipeline_run": {"batch": "PipelineRun._batch"},
    "kalda.pipelines.mirror.copier": {
        "copy": "Copier.copy",
        "records": "Copier._send",
        "progress": "Copier._send_progress",
    },
}
"""Methods by module. Before ``commit`` the tasks are done; after it, and after ``batch``, Spark writes its
commit log."""


class InjectedError(Exception):
    """The failure of a method."""


def fail_here(place: str) -> None:
    """Fail if a failure is armed for this place and no process has taken it."""
    armed = os.environ.get("KALDA_FAULT", "")
    try:
        with open(armed) as file:
            fault = json.load(file)
    except (OSError, ValueError):
        return
    if fault["place"] != place:
        return
    try:
        os.rename(armed, f"{armed}.taken")
    except OSError:
        return
    if fault["kind"] == "error":
        raise InjectedError(place)
    pid = os.getpid() if fault["kind"] == "worker" else int(os.environ["KALDA_FAULT_DRIVER"])
    if fault["kind"] == "driver":
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def wrap(owner: type, name: str, place: str) -> None:
    """Put the two places around a method."""
    method: Callable[..., Any] = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fail_here(f"before {place}")
        result = method(*args, **kwargs)
        fail_here(f"after {place}")
        return result

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        fail_here(f"before {place}")
        result = await method(*args, **kwargs)
        fail_here(f"after {place}")
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(method) else wrapped)


class Patcher(importlib.abc.MetaPathFinder):
    """Finds the modules of `PLACES` as usual and changes them after their execution."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the usual specification with another loader."""
        if name not in PLACES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for place, method in PLACES[name].items():
                owner, attribute = method.split(".")
                wrap(getattr(module, owner), attribute, place)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "KALDA_FAULT" in os.environ:
    sys.meta_path.insert(0, Patcher())
