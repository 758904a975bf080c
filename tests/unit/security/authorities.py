"""A certificate authority for tests, made once for each process."""

from datetime import UTC, datetime, timedelta
from functools import cache

from kalda.security.tls.authority import CertificateAuthority

NOW = datetime.now(UTC)
VALID = timedelta(days=1)


@cache
def authority(name: str = "tests") -> CertificateAuthority:
    return CertificateAuthority.make(name, NOW, VALID)
