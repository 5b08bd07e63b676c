"""A hub on this machine that holds one model: just the questions `huggingface_hub` asks of one."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "someone/small"
COMMIT = "a" * 40


class SmallHub(ThreadingHTTPServer):
    """Serves `files` (name to bytes); `breaks` names one that breaks off half-way and is then unavailable.

    `ranges` lists the positions from which files were asked for again.
    """

    def __init__(self, files, breaks=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.breaks = files, breaks
        self.broken, self.ranges, self.asked = False, [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallHub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        path = self.path.partition("?")[0]
        if path == f"/api/models/{NAME}/revision/main":
            self._send(200, json.dumps({"id": NAME, "sha": COMMIT, "siblings": []}).encode(), body)
        elif path == f"/api/models/{NAME}/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
                for name, content in self.server.files.items()
            ]
            self._send(200, json.dumps(tree).encode(), body)
        elif path.startswith(f"/{NAME}/resolve/{COMMIT}/") and path.split("/")[-1] in self.server.files:
            self._file(path.split("/")[-1], body)
        elif path.startswith(f"/api/models/{NAME}/revision/"):
            self._send(404, b"", body, {"X-Error-Code": "RevisionNotFound"})
        else:
            self._send(404, b"", body, {"X-Error-Code": "RepoNotFound"})

    def _file(self, name, body):
        content = self.server.files[name]
        headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": COMMIT}
        if body:
            self.server.asked.append(name)
        if body and name == self.server.breaks:
            if self.server.broken:
                self._send(503, b"", body)
                return
            self.server.broken = True
            self._head(200, len(content), headers)
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if body and asked else 0
        if start:
            self.server.ranges.append(start)
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], body, headers)

    def _send(self, status, content, body, headers=None):
        self._head(status, len(content), headers or {})
        if body:
            self.wfile.write(content)

    def _head(self, status, length, headers):
        self.send_response(status)
        for key, value in ({"Content-Length": length} | headers).items():
            self.send_header(key, str(value))
        self.end_headers()


def _etag(content):
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serving(files, breaks=None):
    """Run the hub in a thread inside the block."""
    hub = SmallHub(files, breaks)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
