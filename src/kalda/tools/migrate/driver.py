"""Carries out a roll: looks at the cluster, lets `walk` decide, writes the journal, runs commands."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, assert_never

from kalda.runtime.system.clock import monotonic
from kalda.tools.migrate.journal import Journal
from kalda.tools.migrate.observe import Depth, observe
from kalda.tools.migrate.walk import (
    Action,
    Began,
    Doubted,
    Entered,
    Event,
    Finish,
    Measured,
    Phase,
    Plan,
    Progress,
    Record,
    Run,
    Seen,
    Software,
    Wait,
    next_action,
)

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.errors import ClientError

_POLL_SECONDS: Final = 0.3
_REPORT_SECONDS: Final = 10.0
"""How often a wait says for what."""
_OUTPUT_SHOWN_MAX: Final = 500
"""The last characters of a failed command's output that its error line has."""


class Roll:
    """One run of a roll, from where its journal is."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        progress: Progress,
        *,
        only: frozenset[int] = frozenset(),
        measures_again: bool = False,
        report: Callable[[Event | Run | Wait], None],
    ) -> None:
        """Prepare a run.

        Args:
            plan: the plan.
            journal: gets the events.
            progress: what the journal had.
            only: the brokers to swap; empty for all.
            measures_again: whether offsets that got lower meanwhile are taken as they are.
            report: shows a step to the operator.
        """
        self._plan: Final = plan
        self._journal: Final = journal
        self._only: Final = only
        self._measures_again = measures_again
        self._report: Final = report
        self.progress = progress

    async def run(self, admin: "AsyncAdmin", target: Software) -> None:
        """Go towards `target` until the plan is done, a doubt comes up, or `only` is done.

        `progress` says afterwards which it was.

        Raises:
            JournalError: the journal cannot be written.
        """
        self._record(Began(target))
        since, phase = monotonic(), self._phase()
        shown_at: float | None = None
        while self.progress.doubt is None and not self.progress.has_ended:
            if self._phase() != phase:
                since, phase, shown_at = monotonic(), self._phase(), None
            waited_seconds = monotonic() - since
            action: Action
            seen = await self._look(admin)
            if isinstance(seen, Seen):
                if self._measures_again:
                    self._measures_again = False
                    self._record(Measured(seen.offsets))
                action = next_action(
                    self._plan, self.progress, seen, waited_seconds=waited_seconds, only=self._only
                )
            else:
                action = _unreadable(seen, waited_seconds >= self._plan.wait_seconds)
            match action:
                case Record(event):
                    self._record(event)
                case Run():
                    await self._execute(action)
                case Wait():
                    if shown_at is None or monotonic() - shown_at >= _REPORT_SECONDS:
                        shown_at = monotonic()
                        self._report(action)
                    await asyncio.sleep(_POLL_SECONDS)
                case Finish():
                    return
                case _:
                    assert_never(action)

    def _phase(self) -> Entered | None:
        return self.progress.current

    def _record(self, event: Event) -> None:
        self._journal.append(event)
        self.progress = self.progress.after(event)
        self._report(event)

    async def _look(self, admin: "AsyncAdmin") -> "Seen | ClientError":
        """Look at the cluster as far as the phase needs it."""
        from kalda.clients.errors import ClientError

        current = self.progress.current
        depth = Depth.BROKERS
        if current is None or self._measures_again:
            depth = Depth.WITH_SETTINGS
        elif current.phase is Phase.SETTLE:
            depth = Depth.WHOLE
        try:
            return await observe(admin, depth)
        except ClientError as error:
            return error

    async def _execute(self, action: Run) -> None:
        self._report(action)
        problem = await run_command(action.command, self._plan.wait_seconds)
        if problem is None:
            self._record(action.then)
        else:
            self._record(Doubted(f"broker {action.broker_id}: `{action.command}` {problem}"))


def _unreadable(error: "ClientError", is_over: bool) -> Action:
    """Wait while the cluster cannot be read; which error passes cannot be seen from its type."""
    reason = f"the cluster cannot be read: {error}"
    return Record(Doubted(reason)) if is_over else Wait((reason,))


async def run_command(command: str, timeout_seconds: float) -> str | None:
    """Run a command of a shell; return None if it succeeded, else what went wrong, with its last output.

    Output goes to a file, not a pipe: what the command starts in the background keeps it open.
    """
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends the roll, not the brokers that it started
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                code = await process.wait()
            problem = None if code == 0 else f"ended with {code}"
        except TimeoutError:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
            problem = f"did not end within {timeout_seconds:g} s"
        if problem is None:
            return None
        output.seek(0)
        text = output.read().decode(errors="replace").strip()[-_OUTPUT_SHOWN_MAX:]
        return f"{problem}: {text}" if text else problem
