"""A real KDC: MIT's, from Debian's packages krb5-kdc and krb5-admin-server."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

REALM = "KALDA.TEST"
TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local")


class Kdc:
    """A KDC over one directory, with a key table for each principal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with closing(socket.socket()) as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.config = config = directory / "krb5.conf"
        config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n"
        )
        self.environment = {
            **os.environ,
            "KRB5_CONFIG": str(config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory}/cache",
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        for name in ("kafka/localhost", "alice"):
            self.run("kadmin.local", "-q", f"addprinc -randkey {name}")
            self.run("kadmin.local", "-q", f"ktadd -k {self.key_table(name)} {name}")
        self.process = subprocess.Popen(
            [shutil.which("krb5kdc", path=self.environment["PATH"]) or "krb5kdc", "-n"],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "the KDC does not answer"
                time.sleep(0.05)

    def key_table(self, name: str) -> Path:
        return self.directory / (name.replace("/", "-") + ".keytab")

    def run(self, *command: str, stdin: str = "") -> str:
        program = shutil.which(command[0], path=self.environment["PATH"]) or command[0]
        done = subprocess.run(
            [program, *command[1:]],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert 0 == done.returncode, done.stderr[-3000:]
        return done.stdout


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """Run a KDC to the end of the block; skip the test where its programs are missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: apt-get install krb5-kdc krb5-admin-server")
    made = Kdc(directory)
    try:
        yield made
    finally:
        made.process.terminate()
        made.process.wait()
