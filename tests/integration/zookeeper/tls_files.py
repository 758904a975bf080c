"""Key and trust stores for servers and clients of a test, in PEM files of a directory."""

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tests.unit.security.authorities import NOW, VALID, authority


@dataclass
class TlsFiles:
    directory: Path

    @property
    def trust(self) -> str:
        path = self.directory / "trust.pem"
        path.write_bytes(authority("tests").own.certificate)
        return str(path)

    def key(
        self, name: str, *, signed_by: str = "tests", now: datetime = NOW, valid: timedelta = VALID
    ) -> str:
        """Return the file of a key and its certificate, for localhost and the given common name."""
        path = self.directory / f"{name}-{signed_by}.pem"
        path.write_bytes(authority(signed_by).issue(name, now, valid, ["localhost", "127.0.0.1"]).key_store)
        return str(path)

    def server(self, **more: str) -> dict[str, str]:
        """Return the settings of a server, with "_" for "." in their names."""
        return {
            "secureClientPort": "0",
            "ssl_keyStore_location": self.key("server"),
            "ssl_trustStore_location": self.trust,
            **more,
        }

    def client(self, key: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trust)
        if key is not None:
            context.load_cert_chain(key)
        return context

    def login_file(self, *users: str) -> str:
        """Return a JAAS file of users who have their name as password, and of the first as client."""
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        options = " ".join(f'user_{user}="{user}-secret"' for user in users)
        first = f'username="{users[0]}" password="{users[0]}-secret"'
        path = self.directory / "jaas.conf"
        path.write_text(f"Server {{ {module} {options}; }};\nClient {{ {module} {first}; }};\n")
        return str(path)
