"""Runs cleaning jobs in a child process of the broker: ``python -m kalda.storage.cleaner.worker``.

Jobs arrive on stdin and reports leave on stdout, as lines of JSON (`job`). The process shares only the files
of a job with the broker.

Invariant: the process ends as soon as its stdin does, also in the middle of a job, so that it never writes
into the directories of a broker that has stopped and may be running again.
"""

import os
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import BinaryIO

from kalda.records.errors import RecordsError
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.cleaner.cleaner import Cleaner
from kalda.storage.cleaner.job import CleaningFailure, CleaningJob, JobDecoder, encode_report, failure_of
from kalda.storage.errors import StorageError


def main() -> None:
    """Run jobs until stdin ends."""
    # Ctrl-C reaches the whole process group; the broker decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs: SimpleQueue[CleaningJob] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        _work(jobs.get(), sys.stdout.buffer)


def _listen(stdin: BinaryIO, jobs: "SimpleQueue[CleaningJob]") -> None:
    decoder = JobDecoder()
    for line in stdin:
        job = decoder.feed(line)
        if job is not None:
            jobs.put(job)
    # Not sys.exit: the main thread may be computing and would continue.
    os._exit(0)


def _work(job: CleaningJob, stdout: BinaryIO) -> None:
    try:
        for report in Cleaner(job, OsFileSystem()).run():
            stdout.write(encode_report(report))
            stdout.flush()
    except (OSError, RecordsError, StorageError) as error:
        stdout.write(encode_report(failure_of(error)))
    except Exception as error:
        # A bug here stops the cleaning of one log, not of all.
        traceback.print_exc()
        stdout.write(encode_report(CleaningFailure(f"{type(error).__name__}: {error}")))
    stdout.flush()


if __name__ == "__main__":
    main()
