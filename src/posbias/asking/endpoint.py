"""A model behind an OpenAI-compatible server, which writes an answer to a prompt.

    ask(Endpoint("http://localhost:8000/v1", "smollm2"), retrieval_job("keys"), concurrency=4)

Redirections are errors, so that a key goes to the named address alone; proxies are those of the environment
(HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
"""

import http.client
import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from posbias.core.errors import InvalidValueError, ModelError, one_of, positive, shortened, whole
from posbias.core.matching import CutOff
from posbias.core.spec import fingerprint
from posbias.core.tables import number

log = logging.getLogger(__name__)
KEY = "OPENAI_API_KEY"
"""The environment variable that holds the key; without one, none is sent."""
LARGEST = 4 * 2**20
"""Bytes of an answer."""
LONGEST_MESSAGE = 500
"""Characters of what a server says of an error."""
LONGEST_WAIT = 60.0
"""Seconds between two tries, also where the server asks for more."""
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?(/[^\s?#@]*)?", re.ASCII
)
_PATHS = {"chat": "chat/completions", "completion": "completions"}


class _RefusedError(Exception):
    """What another try may change; `wait` is what the server asks for, in seconds.

    `unreachable`: no connection was made at all.
    """

    def __init__(self, why: str, wait: float = 0.0, unreachable: bool = False):
        super().__init__(why)
        self.wait, self.unreachable = wait, unreachable


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Another host was not named by anybody."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


@dataclass(frozen=True)
class Endpoint:
    """A server's address, to which `/chat/completions` or `/completions` is added, and a model of it.

    `system`: a system message (chat alone). `most_out`: tokens of an answer at most. `timeout`: seconds without
    a byte; `retries`: further tries after 408, 409, 425, 429, 5xx, a timeout, a broken connection or an answer
    that is none, with pauses of 1, 2, 4, … s or the seconds of `Retry-After`, `LONGEST_WAIT` at most. Decoding is
    greedy (temperature 0). A chat's answer that is empty, or ends because its tokens ran out, is a `CutOff`. Where
    no connection is made, the second try is the last. Raises `InvalidValueError` for no address, and for a system
    message without a place.
    """

    url: str
    model: str
    _: KW_ONLY
    api: Literal["chat", "completion"] = "chat"
    system: str | None = None
    most_out: int = 32
    timeout: float = 120.0
    retries: int = 5
    key: str | None = field(default=None, repr=False)

    def __post_init__(self):
        found = _ADDRESS.fullmatch(self.url)
        if found is None or not 0 < int(found["port"] or 80) < 65536:
            raise InvalidValueError(
                f"endpoint: expected an address such as http://localhost:8000/v1, got {shortened(self.url)}"
            )
        one_of("api", self.api, ("chat", "completion"))
        if not self.model:
            raise InvalidValueError("model: expected the name of a model of the server, got ''")
        if self.system is not None and self.api != "chat":
            raise InvalidValueError("system: expected none with the api completion, got a message")
        whole("most_out", self.most_out, 1)
        whole("retries", self.retries, 0)
        positive("timeout", self.timeout)
        if self.key is None:
            object.__setattr__(self, "key", os.environ.get(KEY) or None)
        if (
            self.key
            and found["scheme"] == "http"
            and found["host"] not in ("localhost", "127.0.0.1", "[::1]")
        ):
            log.warning("the key of %s goes to %s without encryption; https keeps it", KEY, found["host"])

    @property
    def asked_of(self) -> dict[str, Any]:
        """What decides an answer apart from the prompt: model, api, system message and the answer's length."""
        about = {"model": self.model, "api": self.api, "system": self.system, "most_out": self.most_out}
        return {**about, "temperature": 0}

    @property
    def way(self) -> str:
        """The way to ask as a name of a folder: api, and digits of the system message if there is one."""
        return self.api if self.system is None else f"{self.api}-{fingerprint(self.system)[:8]}"

    def __call__(self, prompt: str) -> str:
        """As `write`."""
        return self.write(prompt)

    def write(self, prompt: str) -> str:
        """The answer to a prompt. Raises `ModelError` for a refusal, or after the last try."""
        for tried in range(self.retries + 1):
            try:
                return self._answer(prompt)
            except _RefusedError as error:
                if tried >= (min(1, self.retries) if error.unreachable else self.retries):
                    raise ModelError(
                        f"endpoint: expected an answer of {self.url}, got {error} (tried {tried + 1} times)"
                    ) from None
                pause = 0.5 if error.unreachable else min(LONGEST_WAIT, max(error.wait, 2.0**tried))
                log.info("%s: %s; asked again in %.0f s", self.url, error, pause)
                time.sleep(pause)
        raise AssertionError

    def _answer(self, prompt: str) -> str:
        """One try."""
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "max_tokens": self.most_out}
        body["stream"] = False
        if self.api == "chat":
            system = [] if self.system is None else [{"role": "system", "content": self.system}]
            body["messages"] = [*system, {"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = f"{self.url.rstrip('/')}/{_PATHS[self.api]}"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirection())
        try:
            with opener.open(request, timeout=self.timeout) as response:
                content = response.read(LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            said = str(reason) or type(reason).__name__
            late = isinstance(reason, TimeoutError)
            broken = late or isinstance(reason, (ConnectionResetError, BrokenPipeError))
            unreachable = isinstance(error, urllib.error.URLError) and not broken
            raise _RefusedError("no answer in time" if late else said, unreachable=unreachable) from None
        return self._text(content)

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        """What to raise for a status that is no success."""
        try:
            body = " ".join(error.read(2000).decode(errors="replace").split())[:LONGEST_MESSAGE]
        except (OSError, http.client.HTTPException):
            body = ""
        said = f"HTTP {error.code} {error.reason}" + (f" ({body})" if body else "")
        if error.code in _AGAIN:
            wait = number(error.headers.get("Retry-After"))
            return _RefusedError(said, wait or 0.0)
        if 300 <= error.code < 400:
            said += "; redirections are not followed: give the address itself"
        return ModelError(f"endpoint: {self.url} refused: {said}")

    def _text(self, content: bytes) -> str:
        """The text of a server's answer. Raises `_RefusedError` where there is none."""
        if len(content) > LARGEST:
            raise _RefusedError(f"an answer of more than {LARGEST:,} bytes")
        try:
            choice = json.loads(content)["choices"][0]
            text = choice["message"].get("content") if self.api == "chat" else choice["text"]
            ran_out = choice.get("finish_reason") == "length"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _RefusedError(
                f"not an answer of this api: {shortened(content.decode(errors='replace'))}"
            ) from None
        if text is None:
            # a model that said nothing, or nothing but its reasoning
            text = ""
        if not isinstance(text, str):
            raise _RefusedError(f"not an answer of this api: {shortened(text)} in the place of a text")
        # a text that is continued ends when its tokens run out; a reply in a chat ends by itself
        cut = self.api == "chat" and (ran_out or not text.strip())
        return CutOff(text) if cut else text
