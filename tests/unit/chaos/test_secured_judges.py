"""The judges of the secured rounds must find each kind of damage, or a run proves nothing."""

from pathlib import Path

from tests.chaos.ordered_load import Ledger, Record
from tests.chaos.secured_checks import Audit, secrets_in
from tests.chaos.secured_clients import GroupLedger

LOGIN = '{"event":"login","outcome":"%s","address":"%s"}'


def log_of(directory: Path, *messages: str, second: int = 0) -> Path:
    path = directory / "broker-0.stderr"
    lines = [f"2026-01-01 00:00:{second:02},000 INFO {each} (kalda.security.audit)\n" for each in messages]
    with path.open("a") as file:
        file.writelines(lines)
    return path


def test_members_may_read_again_and_leave_nothing_out() -> None:
    ledger = GroupLedger(Ledger(1))
    for number in (0, 1, 2, 1, 2, 3):
        ledger.read(Record(0, number, number))
    assert ([], 2) == (ledger.violations, ledger.repeated)
    ledger.read(Record(0, 5, 5))
    assert ["partition 0: expected number 4 at offset 4, read 5 at 5"] == ledger.violations


def test_logins_are_counted_with_those_that_were_suppressed(tmp_path: Path) -> None:
    success = LOGIN % ("success", "127.0.0.1")
    more = success.replace("}", ',"suppressed":9}')
    audit = Audit([log_of(tmp_path, success, more, LOGIN % ("failure", "127.0.0.2"))])
    assert {"success": 10, "failure": 1} == dict(audit.logins)
    assert [] == audit.problems


def test_refused_clients_are_found_and_strangers_are_none(tmp_path: Path) -> None:
    denied = '{"event":"request","outcome":"denied","address":"127.0.0.1"}'
    unmade = '{"event":"change","outcome":"failure","address":"127.0.0.1"}'
    audit = Audit([log_of(tmp_path, LOGIN % ("failure", "127.0.0.1"), denied, unmade)])
    assert [True, True] == ["broker-0.stderr" in each for each in audit.problems]


def test_more_audit_lines_than_the_limit_are_found(tmp_path: Path) -> None:
    line = LOGIN % ("failure", "127.0.0.2")
    for second in range(0, 60, 10):
        log = log_of(tmp_path, *[line] * 10, second=second)
    assert [] == Audit([log]).problems
    assert "more audit lines" in Audit([log_of(tmp_path, *[line] * 21, second=51)]).problems[0]


def test_secrets_are_found_and_not_shown(tmp_path: Path) -> None:
    log = log_of(tmp_path, "fine", "password=hunter2", "-----BEGIN PRIVATE KEY-----")
    assert ["broker-0.stderr:2 has a secret", "broker-0.stderr:3 has a secret"] == secrets_in(
        [log], ["hunter2"]
    )
