"""A real HTTP server on loopback that answers as it is set to: rightly, late, in part, with nonsense, never."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """`url` as `--endpoint` takes it; `asked`: path, headers and body of every request, in order of arrival."""

    url: str
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    together: int = 0
    most_together: int = 0


@contextlib.contextmanager
def serving(answer: Callable[[int, dict[str, Any]], Any], port: int = 0) -> Iterator[Server]:
    """Serve while the block lasts. `answer(number, body)` gives a text, or what `_do` knows besides."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.asked.append((self.path, dict(self.headers), body))
                number = len(served.asked)
                served.together += 1
                served.most_together = max(served.most_together, served.together)
            try:
                made = answer(number, body)
            finally:
                # before the answer leaves: whoever has it may ask again at once
                with lock:
                    served.together -= 1
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _do(self, made, body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        served = Server(f"http://127.0.0.1:{server.server_address[1]}/v1")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def _do(handler: BaseHTTPRequestHandler, action: Any, body: dict[str, Any]) -> None:
    """Answer a text, or do what ("status", code, headers, bytes), ("bytes", bytes), ("late", seconds, text),
    ("reason", finish reason, text), "cut" and "reset" say."""
    match action:
        case "cut":
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"choices": [{"mess')
        case "reset":
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            handler.wfile = handler.rfile = open("/dev/null", "wb")  # noqa: SIM115, PTH123
        case ("late", seconds, text):
            time.sleep(seconds)
            _send(handler, 200, {}, completion(body, text))
        case ("status", code, headers, content):
            _send(handler, code, headers, content)
        case ("reason", reason, text):
            _send(handler, 200, {}, completion(body, text, reason))
        case ("bytes", content):
            _send(handler, 200, {}, content)
        case text:
            _send(handler, 200, {}, completion(body, text))


def completion(body: dict[str, Any], text: Any, reason: str | None = None) -> bytes:
    """The answer of an OpenAI-compatible server to a chat or a prompt, and why it ended."""
    choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
    choice |= {"index": 0, "finish_reason": reason}
    return json.dumps({"object": "completion", "choices": [choice]}).encode()


def prompt_of(body: dict[str, Any]) -> str:
    """What was asked."""
    return body["messages"][-1]["content"] if "messages" in body else body["prompt"]


def _send(handler: BaseHTTPRequestHandler, code: int, headers: dict[str, str], content: bytes) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
