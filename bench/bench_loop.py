"""How long a step of the loop takes, beside the same step written with ``client.chat.completions.create``; and ``run``.

Both go through the same client to the same service: a process of its own on loopback that answers at once and asks for
a tool each time, so the history grows by two messages a step.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from itertools import pairwise
from statistics import median
from typing import Any

from openai import AsyncOpenAI

from agentlib import Limits, Model, Tool, arun_task, execute_tool, run
from agentlib.plan import PlanStep
from agentlib.settings import Price, Settings

PARTS = {"4 to 40 messages": (20, 1, 25, 0.35), "400 messages": (201, 190, 3, 0.06)}
"""Of each: the steps of a run (the n-th sends 2 n messages), from which on they count, how many runs, the target."""
REPEATS = 3
ITEMS = 200_000

PARAMETERS = {"type": "object", "properties": {"relative_path": {"type": "string"}}, "required": ["relative_path"]}


def look(relative_path: str) -> dict[str, Any]:
    """A tool that costs nothing."""
    return {"rows": 5, "path": relative_path}


TOOLBOX = {"look": Tool(look, "Looks at a file.", PARAMETERS)}


def tool_call(number: int) -> dict[str, Any]:
    """What the service says: another call of the tool."""
    function = {"name": "look", "arguments": '{"relative_path": "sales.csv"}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def serve() -> None:
    """The service: prints its port, then answers every request on every connection with a tool call."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = 0
        with suppress(asyncio.IncompleteReadError), closing(writer):
            while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                await reader.readexactly(int(lines[b"content-length"]))
                number += 1
                data = json.dumps(tool_call(number)).encode()
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(head % len(data) + data)

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**26)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(listen())


@contextmanager
def service() -> Iterator[str]:
    """The service in a process of its own; gives its base URL."""
    process = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.communicate()


async def ours(client: AsyncOpenAI, url: str, steps: int) -> list[float]:
    """The moments at which each request of one run of the loop leaves."""
    moments = list[float]()
    model = Model(client, Settings("m", url, "key-of-no-one", Price(Decimal("0.15"), Decimal("0.60"))))
    limits = Limits(max_steps=steps, max_seconds=600, max_usd=100)
    await arun_task(
        "Look at the file.",
        client=model,
        limits=lambda: limits,
        toolbox=TOOLBOX,
        on_event=lambda event: moments.append(time.perf_counter()) if event.kind == "request" else None,
    )
    return moments


async def yardstick(client: AsyncOpenAI, url: str, steps: int) -> list[float]:
    """The same for the loop as one would write it by hand: no caps, no events, the tool run where it stands."""
    moments = list[float]()
    messages: list[Any] = [{"role": "system", "content": "Look."}, {"role": "user", "content": "Look at the file."}]
    tools: Any = [tool.schema for tool in TOOLBOX.values()]
    for _ in range(steps):
        moments.append(time.perf_counter())
        reply = await client.chat.completions.create(model="m", messages=messages, tools=tools, max_tokens=2048)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            result: Any = execute_tool(call.function.name, call.function.arguments, TOOLBOX)  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    return moments


async def compare(url: str) -> None:
    """Both loops in turns; prints the median of each, and of their ratios."""
    client = AsyncOpenAI(api_key="key-of-no-one", base_url=url, max_retries=0)
    for words, (steps, first, runs, wanted) in PARTS.items():
        times: list[tuple[float, float]] = []
        for _ in range(runs):
            both = [await loop(client, url, steps) for loop in (ours, yardstick)]
            mine, other = (median(b - a for a, b in pairwise(moments[first:])) * 1000 for moments in both)
            times.append((mine, other))
        mine, other = map(median, zip(*times, strict=True))
        ratio = median(mine / other for mine, other in times)
        print(f"a step at {words}: {mine:.2f} ms, SDK {other:.2f} ms: {ratio:.3f} x (wanted: {wanted} or less)")
    await client.close()


def plan_items() -> None:
    """How many items of a plan ``run`` goes through in a second of the processor's time, all caps on."""
    plan: list[PlanStep] = [{"name": f"step {n}", "seconds": n % 7 / 10, "usd": n % 11 / 1000} for n in range(ITEMS)]
    limits = Limits(max_steps=10**9, max_seconds=1e9, max_usd=1e9, max_requests=10**9)
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        assert run(plan, limits)[0] == "done"
        best = min(best, time.process_time() - began)
    print(f"run: {ITEMS / best:,.0f} plan items a second (wanted: 100,000 or more)")


def main() -> None:
    """Print the figures."""
    with service() as url:
        asyncio.run(compare(url))
    plan_items()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
