"""Make ``data/recordings/month_end.json``: a run against a service on this very computer, recorded for lesson 08.

    python tools/make_recording.py

The service below speaks HTTP on loopback and plays a plausible model: it looks at a few files, mistypes a name, is too
busy once (429), checks a file twice and answers. Its replies are made up; the connection, the waiting and the headers
are real. It needs no key and is no model service, and the recording says so.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openai import AsyncOpenAI

from agentlib import PROFILES, Model, project, run_task
from agentlib.offline import PRICE, scenario
from agentlib.recording import record
from agentlib.settings import Settings

ABOUT = (
    "Made by tools/make_recording.py against a small HTTP server on the same computer. The model is made up; no real "
    "model service was asked. 由 tools/make_recording.py 在本机的小服务器上录制；模型是虚构的，没有调用真实的模型服务。"
)
QUESTION = "Compare north.csv and south.csv together with sales.csv: is the total the same?"
ANSWER = "north + south = 2780 + 5710 = 8490; sales = 9692; 9692 - 8490 = 1202"
BUSY = "busy"
SCRIPT: list[tuple[float, str, tuple[int, int]]] = [
    (0.9, "sales.csv", (630, 48)),
    (0.8, "north.csv", (910, 46)),
    (0.1, BUSY, (0, 0)),
    (1.1, "lesson/north.csv", (1080, 52)),
    (0.9, "lesson/south.csv", (1310, 51)),
    (1.2, "sales.csv", (1540, 64)),
    (1.6, ANSWER, (1830, 190)),
]
"""Seconds, what the model does, and its tokens: asked, answered."""


class Service(BaseHTTPRequestHandler):
    """Answers each POST with the next line of the script."""

    protocol_version = "HTTP/1.1"
    came = 0

    def do_POST(self) -> None:
        """One chat completion, or a refusal."""
        self.rfile.read(int(self.headers["content-length"]))
        seconds, does, tokens = SCRIPT[Service.came]
        Service.came += 1
        time.sleep(seconds)
        busy = does == BUSY
        reply = {"error": {"message": "too many requests, try again in a second"}} if busy else completion(does, tokens)
        data = json.dumps(reply).encode()
        self.send_response(429 if busy else 200)
        headers = {"content-type": "application/json", "content-length": str(len(data))}
        headers |= {
            "x-request-id": f"req_{Service.came:012}",
            "set-cookie": "session=somebody",
            "openai-organization": "me",
        }
        for name, value in (headers | ({"retry-after": "1"} if busy else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def completion(does: str, tokens: tuple[int, int]) -> dict[str, Any]:
    """A reply that answers, or asks for a look at a file."""
    message: dict[str, Any] = {"role": "assistant", "content": does if does == ANSWER else None}
    if does != ANSWER:
        call = {"name": "analyze_csv", "arguments": json.dumps({"relative_path": does})}
        message["tool_calls"] = [{"id": f"call_{Service.came}", "type": "function", "function": call}]
    choice = {"index": 0, "finish_reason": "stop" if does == ANSWER else "tool_calls", "message": message}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {"object": "chat.completion", "model": "made-up-model", "choices": [choice], "usage": usage}


def main() -> None:
    """Start the service, record the run, and say how it ended."""
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{service.server_address[1]}/v1"
    model = Model(
        AsyncOpenAI(api_key="none", base_url=url, max_retries=0), Settings("made-up-model", url, "none", PRICE)
    )
    path = project.root() / "data" / "recordings" / "month_end.json"
    path.parent.mkdir(exist_ok=True)
    run_task(QUESTION, client=scenario("answers"))  # so that nothing is left to be imported while the clock runs
    tape = record(model, path, about=ABOUT)
    summary = run_task(QUESTION, limits=PROFILES["relaxed"], client=tape, on_event=tape.on_event)["summary"]
    service.shutdown()
    print(summary["stop_reason"], summary["steps"], summary["usage"])


if __name__ == "__main__":
    main()
