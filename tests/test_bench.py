"""The check of lesson 00, and the strict service of lesson 02."""

import asyncio
from importlib.metadata import PackageNotFoundError
from typing import Any

import build_notebooks as build
import openai
import pytest

from agentlib import bench, use_language
from agentlib.offline import answer, scripted, strict


@pytest.fixture(autouse=True)
def english() -> Any:
    use_language("en")
    yield
    use_language(None)


def test_a_package_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bench.check_packages()
    first, *_, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("OK    Python", "Everything is there.")


def test_wrong_and_missing_packages_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str:
        if name == "matplotlib":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(bench, "version", found)
    bench.check_packages()
    printed = capsys.readouterr().out
    assert "FAIL  openai: wanted is <4,>=3.50, found is 1.0\n" in printed
    assert "FAIL  matplotlib: wanted is >=3.10, found is nothing\n" in printed
    assert printed.endswith("Run make setup in the project's folder, then restart the kernel.\n")


def test_only_names_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHSCOPE_API_KEY", "a-secret")
    bench.check_endpoint()
    monkeypatch.setenv("MODEL_BASE_URL", "https://user:a-secret@example.org/v1")
    monkeypatch.setenv("MODEL_NAME", "some-model")
    bench.check_endpoint()
    monkeypatch.setenv("DASHSCOPE_API_KEY", "a-secret with blanks")
    bench.check_endpoint()
    offline, live, refused = capsys.readouterr().out.splitlines()
    assert offline.endswith("lacks MODEL_BASE_URL, MODEL_NAME")
    assert live.startswith("live: some-model at example.org;")
    assert refused.startswith("offline: the settings cannot be used: DASHSCOPE_API_KEY")
    assert "a-secret" not in offline + live + refused


def test_the_map_of_lesson_00_names_every_lesson() -> None:
    first, *others = build.lessons()
    course_map = first.path.read_text(encoding="utf-8")
    wanted = [f'["{lesson.number} {lesson.title(lang)}"]' for lesson in (first, *others) for lang in build.LANGUAGES]
    assert [title for title in wanted if title not in course_map] == []


USER = {"role": "user", "content": "?"}
ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}} for i in ("a", "b")],
}


def result(call_id: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": "{}"}


@pytest.mark.parametrize(
    ("history", "refusal"),
    [
        ([USER], None),
        ([USER, ASKED, result("b"), result("a")], None),
        ([USER, ASKED, result("a")], "no tool result for these tool calls: b"),
        ([USER, ASKED, USER, result("a"), result("b")], "no tool result for these tool calls: a, b"),
        ([USER, ASKED, result("a"), result("c")], "no tool call with the id c is waiting for a result"),
        ([USER, ASKED, result("a"), result("a")], "no tool call with the id a is waiting for a result"),
        ([USER, result("a")], "no tool call with the id a is waiting for a result"),
    ],
)
def test_a_strict_service_refuses_unpaired_calls(history: list[Any], refusal: str | None) -> None:
    client = scripted(strict(answer("fine"))).client

    async def ask() -> str | None:
        try:
            await client.chat.completions.create(model="m", messages=history)
        except openai.BadRequestError as problem:
            return str(problem.body["message"])  # type: ignore[index, call-overload]
        return None

    assert asyncio.run(ask()) == refusal
