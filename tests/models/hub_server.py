"""A small server on loopback that speaks the hub's file endpoints, and can cut a download short."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves the files of `repositories` (id → folder) and remembers what was asked."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut_after: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, *, has_body: bool) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.command, self.path, wanted))
        repository, resolve, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if not resolve or repository not in self.server.repositories:
            self._refuse("RepoNotFound")
            return
        path = self.server.repositories[repository] / file
        if not path.is_file():
            self._refuse("EntryNotFound")
            return
        data = path.read_bytes()
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT if revision == "main" else revision)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if has_body:
            cut = self.server.cut_after
            body = data[start:] if cut is None else data[start : start + cut]
            self.wfile.write(body)
            if len(body) < len(data) - start:
                self.close_connection = True


@contextmanager
def serve(repositories: dict[str, Path]):
    hub = Hub(repositories)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
