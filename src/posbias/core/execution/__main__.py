"""A worker process: tasks from stdin, news to stdout, until there are no more or it is told to stop."""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

from posbias.core.execution.processes import PATIENCE
from posbias.core.execution.tasks import Event, Words, perform_remotely, spell_news

PAUSE = 0.1
"""Least seconds between two events."""


def main() -> None:
    """A worker's life."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    # what tasks or their libraries print is not news
    to_parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    lock = threading.Lock()

    def send(line: str) -> None:
        with lock:
            to_parent.write(line + "\n")
            to_parent.flush()

    def tell(news: Event | Words) -> None:
        send(spell_news(news))

    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # the parent asked, or is gone
        while True:
            send(perform_remotely(lines.get(), tell, PAUSE))
    with contextlib.suppress(BrokenPipeError):
        to_parent.close()


def _read(lines: "queue.SimpleQueue[str]") -> None:
    """Pass on tasks; when the parent hangs up, end what is being done or waited for."""
    for line in sys.stdin:
        lines.put(line)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


if __name__ == "__main__":
    main()
