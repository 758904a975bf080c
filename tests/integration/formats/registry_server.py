"""A small schema registry that speaks Confluent's REST API, for tests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reference = dict[str, str | int]


class RegistryServer:
    """The state of the registry; `url` is where it listens."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.fail_next = 0
        """How many of the next requests fail with HTTP 503."""
        self.is_away = False
        """Whether a proxy answers, which has no registry behind it."""
        self.credentials: set[str] = set()
        """Accepted Authorization headers; empty for all."""
        self.schemas: dict[int, dict[str, object]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.incompatible: set[str] = set()

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: list[Reference] | None = None
    ) -> int:
        """Return the id of a schema, a new one if the text is new."""
        document: dict[str, object] = {"schema": text}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = references
        number = next(
            (each for each, found in self.schemas.items() if found == document), len(self.schemas) + 1
        )
        self.schemas[number] = document
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes, authorization: str | None) -> tuple[int, object]:
        """Return the status and the document for a request."""
        self.requests += 1
        if self.fail_next:
            self.fail_next -= 1
            return 503, {"error_code": 50300, "message": "no leader"}
        if self.is_away:
            return 404, "default backend - 404"
        if self.credentials and authorization not in self.credentials:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, path.strip("/").split("/"):
            case "GET", ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case "GET", ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject)
                if not versions:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                index = len(versions) if version == "latest" else int(version)
                number_found = versions[index - 1]
                head = {"subject": subject, "version": index, "id": number_found}
                return 200, head | self.schemas[number_found]
            case "POST", ["subjects", subject, "versions"]:
                document = json.loads(body)
                if subject in self.incompatible:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                return 200, {
                    "id": self.register(subject, document["schema"], document.get("schemaType", "AVRO"))
                }
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """Run a registry on a free port of the loopback address."""
    state = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, document = state.answer(
                self.command, self.path, self.rfile.read(length), self.headers.get("Authorization")
            )
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="registry")
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
