"""An identity provider on 127.0.0.1, which rotates its keys, for logins by OAUTHBEARER."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_SECRET = "s-secret"

RSA = jwt.algorithms.RSAAlgorithm


class Provider:
    """A token endpoint and its keys, over HTTP. A client's id is the subject and party of its tokens."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.lifetime_seconds = 600
        self.is_broken = False
        self.rotate("first")
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [provider.jwk(kid) for kid in provider.keys]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.requests.append((self.headers["Authorization"], parse_qs(body)))
                _, _, credentials = self.headers["Authorization"].partition(" ")
                client_id, _, secret = base64.b64decode(credentials).decode().partition(":")
                if secret != CLIENT_SECRET:
                    self._answer(401, {"error": "invalid_client", "error_description": "no such client"})
                else:
                    token = provider.token(client_id, azp=client_id)
                    document = {"access_token": token, "token_type": "Bearer"}
                    self._answer(200, {**document, "expires_in": provider.lifetime_seconds})

            def _answer(self, status: int, document: object) -> None:
                data = json.dumps(document).encode()
                self.send_response(503 if provider.is_broken else status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def rotate(self, kid: str) -> None:
        self.keys = {kid: rsa.generate_private_key(65537, 2048)}

    def jwk(self, kid: str) -> dict[str, Any]:
        return {**json.loads(RSA.to_jwk(self.keys[kid].public_key())), "kid": kid, "use": "sig"}

    def token(self, subject: str, **more: object) -> str:
        ((kid, key),) = self.keys.items()
        now = int(time.time())
        claims = {"sub": subject, "iat": now, "exp": now + self.lifetime_seconds, "aud": "kafka", **more}
        return jwt.encode(claims, key, "RS256", headers={"kid": kid})


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """Run a provider to the end of the block."""
    made = Provider()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
