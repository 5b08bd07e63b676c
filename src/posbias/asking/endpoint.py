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
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from posbias.asking.replies import answer_of, ending_of_error, events, text_of
from posbias.asking.requests import messages_of
from posbias.core.errors import ModelError, one_of, positive, shortened, whole, wrong
from posbias.core.matching import REASONS, CutOff, Refused, ToolCall, final_answer
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
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?(/[^\s?#@]*)?(\?[^\s#]*)?",
    re.ASCII,
)
_UNWANTED = re.compile("support|recogni|unknown|unexpected|permitted|allowed|forbidden|compatible|instead")
"""How a server says that it does not take a parameter, in small letters."""
Reply = tuple[dict[str, Any], str]
"""The first choice of a reply as the server sends it, empty where there is none, and the answer."""
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


def _unpacked(content: bytes) -> bytes:
    """What stands in a reply, or its beginning, also where a proxy packs all of them unasked (gzip)."""
    packed = content.startswith(b"\x1f\x8b")
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, LARGEST + 1) if packed else content


@dataclass(frozen=True)
class Endpoint:
    """A server's address, to which `/chat/completions` or `/completions` is added, and a model of it.

    An address may have a query (`?api-version=…`), which messages leave out.

    `system`: a system message (chat alone). `most_out`: tokens of an answer at most. `timeout`: seconds without
    a byte; `retries`: further tries after 408, 409, 425, 429, 5xx, a timeout, a broken connection or an answer
    that is none, with pauses of 1, 2, 4, … s or the seconds of `Retry-After`, `LONGEST_WAIT` at most. Decoding is
    greedy (temperature 0). Thoughts are left out. A chat's answer that is empty, or ends because its tokens ran
    out, is a `CutOff`; one that a model or filter declined is `Refused`, a tool called in its place a `ToolCall`.
    Parameters that a server does not take are sent as its refusal says from then on, which is logged. Where
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
    _changes: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        found = _ADDRESS.fullmatch(self.url)
        if found is None or not 0 < int(found["port"] or 80) < 65536:
            raise wrong("endpoint", "an address such as http://localhost:8000/v1", self._named)
        one_of("api", self.api, ("chat", "completion"))
        if not self.model:
            raise wrong("model", "the name of a model of the server", "")
        if self.system is not None and self.api != "chat":
            raise wrong("system", "none with the api completion", got="a message")
        whole("most_out", self.most_out, 1)
        whole("retries", self.retries, 0)
        positive("timeout", self.timeout)
        key = (os.environ.get(KEY, "") if self.key is None else self.key).strip()
        if key and not (key.isascii() and key.isprintable()):
            raise wrong("key", f"printable ASCII (key or {KEY})", got=f"{len(key)} characters with others")
        object.__setattr__(self, "key", key or None)
        elsewhere = found["host"] not in ("localhost", "127.0.0.1", "[::1]")
        if self.key and elsewhere and found["scheme"] == "http":
            log.warning("the key of %s goes to %s without encryption; https keeps it", KEY, found["host"])

    @property
    def asked_of(self) -> dict[str, Any]:
        """What decides an answer apart from the prompt: model, api, system message, its length, temperature."""
        about = {"model": self.model, "api": self.api, "system": self.system, "most_out": self.most_out}
        return {**about, "temperature": 0}

    @property
    def sent(self) -> dict[str, Any]:
        """What of it the server wanted otherwise: a temperature, None where it takes none."""
        change = self._changes.get("temperature")
        return {} if change is None else {"temperature": change.get("temperature")}

    @property
    def way(self) -> str:
        """The way to ask as a name of a folder: api, and digits of the system message if there is one."""
        return self.api if self.system is None else f"{self.api}-{fingerprint(self.system)[:8]}"

    def __call__(self, prompt: str) -> str:
        """As `write`."""
        return self.write(prompt)

    def write(self, prompt: str) -> str:
        """The answer to a prompt. Raises `ModelError` for a refusal, or after the last try."""
        return self._tried(prompt, {})[1]

    def choice(self, prompt: str, **more: Any) -> dict[str, Any]:
        """The first choice of the reply to a prompt as the server sends it, asked with more parameters.

        Raises as `write`, and `ModelError` where a reply has no choice, for a prompt that a filter declines.
        """
        choice, answer = self._tried(prompt, more)
        if not choice:
            none = f"{type(answer).__name__} for {shortened(prompt)}"
            raise wrong("endpoint", f"a choice of {self._named}", got=none, kind=ModelError)
        return choice

    def _tried(self, prompt: str, more: Mapping[str, Any]) -> Reply:
        """The reply to a prompt after as many tries as it takes."""
        for tried in range(self.retries + 1):
            try:
                return self._answer(prompt, more)
            except _RefusedError as error:
                if tried >= (min(1, self.retries) if error.unreachable else self.retries):
                    what, said = f"an answer of {self._named}", f"{error} (tried {tried + 1} times)"
                    raise wrong("endpoint", what, got=said, kind=ModelError) from None
                pause = 0.5 if error.unreachable else min(LONGEST_WAIT, max(error.wait, 2.0**tried))
                log.info("%s: %s; asked again in %.0f s", self._named, error, pause)
                time.sleep(pause)
        raise AssertionError

    @property
    def _named(self) -> str:
        """The address in messages, without what may be secret: a query, a password."""
        return re.sub("[^/@]*@", "***@", self.url.partition("?")[0])

    @property
    def _address(self) -> str:
        """The address that is asked."""
        path, sign, query = self.url.partition("?")
        path, ending = path.rstrip("/"), f"/{_PATHS[self.api]}"
        return f"{path if path.endswith(ending) else path + ending}{sign}{query}"

    @property
    def _parameters(self) -> dict[str, Any]:
        """What a request has besides model and prompt, unless a server wants it otherwise."""
        return {"temperature": 0, "max_tokens": self.most_out, "stream": False}

    @property
    def _proxy(self) -> str:
        """The proxy of the environment between here and the server, without its password, in brackets."""
        parts = urllib.parse.urlsplit(self.url)
        proxy = urllib.request.getproxies().get(parts.scheme)
        if not proxy or urllib.request.proxy_bypass(parts.netloc):
            return ""
        return f" (through the proxy {re.sub('[^/@]*@', '', proxy)} of the environment)"

    def _answer(self, prompt: str, more: Mapping[str, Any]) -> Reply:
        """One try, and further ones where the server wants other parameters, each of which changes once."""
        body = {"model": self.model} | self._parameters
        for name, replacement in [*self._changes.items()]:
            del body[name]
            body |= replacement
        body |= more
        if self.api == "chat":
            body["messages"] = messages_of(prompt, self.system)
        else:
            body["prompt"] = prompt
        try:
            return self._reply(self._sent(body))
        except urllib.error.HTTPError as error:
            said = self._said(error)
            if error.code in (400, 403) and (ending := ending_of_error(said)) is not None:
                return {}, ending
            if error.code in (400, 422) and self._adapts(body, said):
                return self._answer(prompt, more)
            if error.code in _AGAIN:
                raise _RefusedError(said, number(error.headers.get("Retry-After")) or 0.0) from None
            raise ModelError(f"endpoint: {self._named} refused: {said}") from None

    def _sent(self, body: dict[str, Any]) -> bytes:
        """What comes back. Raises `HTTPError` for a status that is no success, `_RefusedError` for no answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            azure = (urllib.parse.urlsplit(self.url).hostname or "").endswith(".azure.com")
            headers |= {"api-key": self.key} if azure else {"Authorization": f"Bearer {self.key}"}
        opener = urllib.request.build_opener(_NoRedirection())
        try:
            request = urllib.request.Request(self._address, json.dumps(body).encode(), headers, method="POST")
            with opener.open(request, timeout=self.timeout) as response:
                return _unpacked(response.read(LARGEST + 1))
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            reason = getattr(error, "reason", None) or error
            said = str(reason) or type(reason).__name__
            late = isinstance(reason, TimeoutError)
            broken = late or isinstance(reason, (ConnectionResetError, BrokenPipeError))
            unreachable = isinstance(error, (urllib.error.URLError, ValueError)) and not broken
            said = ("no answer in time" if late else said) + self._proxy
            raise _RefusedError(said, unreachable=unreachable) from None

    def _adapts(self, body: dict[str, Any], said: str) -> bool:
        """Whether a refusal names parameters that were sent; from now on they are sent as its words say."""
        said, changes, sent = said.lower(), dict[str, dict[str, Any]](), self._parameters
        if "max_tokens" in said and _UNWANTED.search(said):
            other = re.search("max_(?:output|new)_tokens", said)
            changes["max_tokens"] = {other[0] if other else "max_completion_tokens": self.most_out}
        if "temperature" in said:
            usual = re.search(r"default \((\d+(?:\.\d+)?)\)", said)
            changes["temperature"] = {"temperature": json.loads(usual[1])} if usual else {}
        if re.search(r"\bstream", said):
            changes["stream"] = {"stream": True}
        changes = {name: change for name, change in changes.items() if body.get(name) == sent[name]}
        for name, change in changes.items():
            if self._changes.setdefault(name, change) is change:
                drawn = "; its answers may be drawn, not greedy" * (name == "temperature")
                instead = f"{json.dumps(change) if change else 'none'}{drawn}"
                log.warning(
                    "%s does not take %s as %r: asked with %s", self._named, name, sent[name], instead
                )
        return bool(changes)

    def _said(self, error: urllib.error.HTTPError) -> str:
        """A status and the words with it."""
        try:
            with error:
                body = self._words(_unpacked(error.read(2000)).decode(errors="replace"))
        except (OSError, http.client.HTTPException, zlib.error):
            body = ""
        more = self._proxy if error.code in (407, 502, 503, 504) else ""
        if 300 <= error.code < 400:
            more = "; redirections are not followed: give the address itself"
        return f"HTTP {error.code} {error.reason}" + (f" ({body})" if body else "") + more

    def _words(self, said: str) -> str:
        """What a server says, on one line and without the key."""
        said = said.replace(self.key, "***") if self.key else said
        return " ".join(said.split())[:LONGEST_MESSAGE]

    def _reply(self, content: bytes) -> Reply:
        """The first choice in a server's reply, and its answer. Raises `_RefusedError` where there is none."""
        if len(content) > LARGEST:
            raise _RefusedError(f"an answer of more than {LARGEST:,} bytes")
        first, text, refusal, reason, found, calls, failed = {}, "", "", "", False, None, None
        try:
            for event in events(content):
                # Ollama's own replies have no choices; nor has the last event of some streams
                choices = event.get("choices") or []
                choice, first = (choices or [event])[0], first or dict((choices or [{}])[0])
                message = choice.get("message") or choice.get("delta") or {}
                found = found or not choice.keys().isdisjoint(("message", "delta", "text"))
                reason = choice.get("finish_reason") or choice.get("done_reason") or reason
                failed = failed or event.get("error") or choice.get("error")
                text += text_of(message.get("content") if message else choice.get("text"))
                refusal += message.get("refusal") or ""
                calls = calls or message.get("tool_calls") or message.get("function_call")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            found = False
        if failed or REASONS["failed"].search(str(reason).lower()):
            raise _RefusedError(f"an error in HTTP 200: {self._words(str(failed or reason))}")
        if not found:
            said = self._words(content.decode(errors="replace"))
            raise _RefusedError(f"not an answer of this api: {said!r}")
        if refusal or (calls and not final_answer(text).strip()):
            return first, Refused(text or refusal) if refusal else ToolCall(text)
        answer = answer_of(text, reason)
        if self.api != "chat" and isinstance(answer, CutOff):
            # a text that is continued ends when its tokens run out; a reply in a chat ends by itself
            return first, text
        empty = self.api == "chat" and not answer.strip() and type(answer) is str
        return first, CutOff(answer) if empty else answer
