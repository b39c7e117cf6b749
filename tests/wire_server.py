"""A chat service on loopback that keeps to a script, byte by byte where it must, and what it can play."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from openai import AsyncOpenAI

from agentlib.model import Model
from agentlib.settings import Price, Settings
from agentlib.waiting import run_to_end

os.environ.setdefault("NO_PROXY", "127.0.0.1")
KEY = "sk-test-0123456789abcdef"
PRICE = Price(Decimal(1), Decimal(10), Decimal("0.1"))


class HangUp(Exception):
    """The service closes the connection."""


class Request(socketserver.StreamRequestHandler):
    """One connection. A play is handed it, with ``number`` and ``body`` of the request to answer."""

    server: _Listener
    number: int
    body: dict[str, Any]

    def handle(self) -> None:
        try:
            while head := self._head():
                raw = self.rfile.read(int(head.get("content-length", 0)))
                self.body = json.loads(raw)
                play = self.server.service.arrived(self, head)
                play(self)
        except (HangUp, ConnectionError):
            pass

    def _head(self) -> dict[str, str]:
        lines = list[str]()
        while line := self.rfile.readline().decode("latin-1").strip():
            lines.append(line)
        return dict(line.lower().split(": ", 1) for line in lines[1:])

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def drip(self, data: bytes, gap: float) -> None:
        for n in range(len(data)):
            self.send(data[n : n + 1])
            self.pause(gap)

    def pause(self, seconds: float) -> None:
        """Wait; the end of the test ends the wait too."""
        if self.server.service.over.wait(seconds):
            raise HangUp

    def reset(self) -> None:
        """End the connection without a word, as a machine that goes down."""
        at_once = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.connection.close()
        raise HangUp


Play = Callable[[Request], object]


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    service: Service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


class Service:
    """``with Service(play, play, …) as service``: the n-th request is answered by the n-th play, the last one again
    and again if it is ``endless``. ``requests`` holds the bodies that came, ``heads`` their headers."""

    def __init__(self, *script: Play, endless: bool = False) -> None:
        self.script, self.endless = script, endless
        self.requests: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.models: list[Model] = []
        self.over = threading.Event()
        self.came = threading.Condition()
        self._listener = _Listener(("127.0.0.1", 0), Request)
        self._listener.service = self
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}/v1"

    def arrived(self, request: Request, head: dict[str, str]) -> Play:
        with self.came:
            self.requests.append(request.body)
            self.heads.append(head)
            request.number = len(self.requests)
            self.came.notify_all()
        if request.number <= len(self.script):
            return self.script[request.number - 1]
        return self.script[-1] if self.endless else says({"error": {"message": "the script is over"}}, status=400)

    def wait_for(self, number: int) -> None:
        """Return when that many requests have come."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= number, timeout=30)

    def __enter__(self) -> Service:
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        for model in self.models:
            if not model.client.is_closed():
                run_to_end(model.close(), interrupt=self.over.set)
        self.over.set()
        self._listener.shutdown()
        self._listener.server_close()

    def model(self, price: Price | None = PRICE, max_tokens: int = 2048, **extra: Any) -> Model:
        """A real client of this service."""
        self.models.append(model_at(self.url, price, max_tokens, **extra))
        return self.models[-1]


def model_at(url: str, price: Price | None = PRICE, max_tokens: int = 2048, **extra: Any) -> Model:
    client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)
    return Model(client, Settings("test-model", url, KEY, price, max_tokens, extra=extra))


# --- what it plays ----------------------------------------------------------------------------------------------------


def completion(message: Mapping[str, Any], finish: str = "stop", usage: Any = (100, 20)) -> dict[str, Any]:
    """A reply in the form of the chat completions API; ``usage`` is a pair of counts, or anything at all."""
    body: dict[str, Any] = {"id": "c-1", "object": "chat.completion", "created": 1764500000, "model": "test-model"}
    body["choices"] = [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}]
    if isinstance(usage, tuple):
        usage = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return body if usage is None else {**body, "usage": usage}


def call(call_id: Any = "call_1", name: str = "analyze_csv", arguments: Any = '{"relative_path": "sales.csv"}') -> Any:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def text(words: str = "The total is 32.", **other: Any) -> dict[str, Any]:
    return completion({"content": words}, **other)


def calls(*wanted: Any, **other: Any) -> dict[str, Any]:
    return completion({"content": None, "tool_calls": list(wanted) or [call()]}, "tool_calls", **other)


def packed(body: Any) -> bytes:
    return body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()


def headed(length: int | str, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of a reply; ``length`` is that of the body, or ``chunked``."""
    size = {"transfer-encoding": "chunked"} if length == "chunked" else {"content-length": str(length)}
    lines = {"content-type": "application/json", **size, **(headers or {})}
    return (
        f"HTTP/1.1 {status} Status\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n"
    )


def says(body: Any, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0) -> Play:
    """An ordinary reply, after ``delay`` seconds."""

    def play(request: Request) -> None:
        request.pause(delay)
        data = packed(body)
        request.send(headed(len(data), status, headers) + data)

    return play


def fails(status: int, message: str = "boom", **headers: str) -> Play:
    """An HTTP error; ``retry_after="5"`` becomes the header ``retry-after``."""
    return says({"error": {"message": message}}, status, {k.replace("_", "-"): v for k, v in headers.items()})


def hangs(request: Request) -> None:
    """Not a byte, for ever."""
    request.pause(3600)


def hangs_up(request: Request) -> None:
    """The connection is closed, and nothing was said."""
    raise HangUp


def resets(request: Request) -> None:
    """The connection is reset."""
    request.reset()


def cuts_off(request: Request) -> None:
    """Half of a good reply, then the connection is closed."""
    data = packed(text())
    request.send(headed(len(data)) + data[: len(data) // 2])
    raise HangUp


def drips_headers(request: Request) -> None:
    """A good reply whose head comes one byte at a time."""
    request.drip(headed(2), 0.1)
    request.send(b"{}")


def drips_body(body: Any, gap: float = 0.1) -> Play:
    """A good reply whose body comes one byte at a time."""

    def play(request: Request) -> None:
        data = packed(body)
        request.send(headed(len(data)))
        request.drip(data, gap)

    return play


def drips_lines(body: Any, count: int, gap: float) -> Play:
    """A line break every ``gap`` seconds, then the reply: valid JSON all the same."""

    def play(request: Request) -> None:
        request.send(headed("chunked"))
        for _ in range(count):
            request.send(b"1\r\n\n\r\n")
            request.pause(gap)
        data = packed(body)
        request.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))

    return play
