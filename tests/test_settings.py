"""Which model, where, with which key, at what price; and that a key is never shown."""

from __future__ import annotations

import json
import math
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from openai import AsyncOpenAI
from wire_server import Request, Service, fails, headed, says, text

from agentlib import Limits, Model, run_task, use_language
from agentlib.offline import answer, scripted
from agentlib.settings import Price, Settings, SettingsError, load_settings, look_up_price, missing

KEY = "sk-test-1"
REST = b"MODEL_BASE_URL=http://127.0.0.1:9/v1\nMODEL_NAME=test-model\n"
Write = Callable[..., Path]


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a ``.env`` at the root of an empty project, byte for byte."""
    monkeypatch.delenv("AGENTLAB_ENV_FILE")
    monkeypatch.setenv("AGENTLAB_ROOT", str(tmp_path))
    (tmp_path / "notebooks").mkdir()

    def write(content: bytes = b"", **values: str) -> Path:
        lines = "".join(f"{name}={value}\n" for name, value in values.items())
        (tmp_path / ".env").write_bytes(content + lines.encode())
        return tmp_path

    return write


def live(service: Service, **values: str) -> dict[str, str]:
    """What a ``.env`` for that service holds."""
    usual = {"DASHSCOPE_API_KEY": KEY, "MODEL_BASE_URL": service.url, "MODEL_NAME": "test-model"}
    return {**usual, "MODEL_PRICE_INPUT": "1", "MODEL_PRICE_OUTPUT": "10", **values}


def reason(result: Any) -> str:
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    return str(result["summary"]["stop_reason"])


# --- the file ---------------------------------------------------------------------------------------------------------

FILES = {
    "plain": b"DASHSCOPE_API_KEY=sk-test-1\n",
    "export, blanks, quotes, a remark": b'export DASHSCOPE_API_KEY = "sk-test-1 " # mine\n',
    "line ends of Windows": b"DASHSCOPE_API_KEY=sk-test-1\r\n",
    "a byte order mark": b"\xef\xbb\xbfDASHSCOPE_API_KEY=sk-test-1\n",
    "single quotes": b"DASHSCOPE_API_KEY='sk-test-1'\n",
    "the last of two": b"DASHSCOPE_API_KEY=sk-other\nDASHSCOPE_API_KEY=sk-test-1\n",
    "a line break at the end": b'DASHSCOPE_API_KEY="sk-test-1\n"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_the_key_is_found(name: str, env: Write) -> None:
    env(FILES[name] + REST)
    assert load_settings().api_key == KEY
    assert missing() == []


@pytest.mark.parametrize("folder", ["/", ".", "notebooks"])
def test_from_any_folder(folder: str, env: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(env(FILES["plain"] + REST) / folder)
    assert load_settings().api_key == KEY


def test_the_environment_wins_and_blanks_there_do_not(env: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    env(FILES["plain"] + REST)
    monkeypatch.setenv("MODEL_NAME", "another-model")
    monkeypatch.setenv("DASHSCOPE_API_KEY", "  ")
    assert (load_settings().model, load_settings().api_key) == ("another-model", KEY)


BAD_KEYS = {
    "a placeholder": "你的密钥",
    "a note behind it": "sk-test-secret 用这个",
    "a blank in it": "sk-test secret",
    "a line break in it": '"sk-test-\nsecret"',
    "a return in it": '"sk-test-\rsecret"',
    "an emoji": "sk-test-secret🔑",
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_key_that_cannot_be_one(name: str, lang: str, env: Write) -> None:
    use_language(lang)
    env(REST, DASHSCOPE_API_KEY=BAD_KEYS[name])
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert "DASHSCOPE_API_KEY" in result["warnings"][0]
    with pytest.raises(SettingsError) as caught:
        load_settings()
    shown = str(result) + "".join(traceback.format_exception(caught.value))
    assert "secret" not in shown
    assert "密钥" not in str(result["warnings"]) or BAD_KEYS[name] not in shown


@pytest.mark.parametrize("content", [b"", b"DASHSCOPE_API_KEY=\nMODEL_NAME=  \n", b"garbage \x00\n= =\n"])
def test_what_is_missing_is_named(content: bytes, env: Write) -> None:
    env(content)
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert result["summary"]["usage"]["requests"] == 0
    for name in missing():
        assert name in result["warnings"][0]
    assert missing() == ["DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME"]
    assert ".env.example" in result["warnings"][0]


@pytest.mark.parametrize("content", ["键".encode("utf-16"), "键=值".encode("gbk"), b"\xff\xfe\x00"])
def test_a_file_in_another_encoding(content: bytes, env: Write) -> None:
    env(content)
    assert missing() == ["DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME"]
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert "UTF-8" in result["warnings"][0]


@pytest.mark.skipif(os.name != "posix", reason="needs variables of bytes")
def test_a_variable_that_is_no_text(env: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    env(FILES["plain"] + REST)
    monkeypatch.setenv("MODEL_NAME", "m\udcff")
    assert reason(run_task("?", limits=Limits(max_usd=None, max_seconds=5), retries=0)) == "failed:model"


NO_ADDRESS = ["dashscope.aliyuncs.com/v1", "ftp://x/v1", "http://", "http://:80/v1", "/v1", "https:// x", "http://[::1"]
NO_ADDRESS += ["http://x:99999999/v1", "http://x:port/v1", "https://exa mple/v1"]


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_an_address_that_is_none(url: str, env: Write) -> None:
    env(FILES["plain"], MODEL_NAME="m", MODEL_BASE_URL=url)
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert "MODEL_BASE_URL" in result["warnings"][0]


@pytest.mark.parametrize("url", ["http://\u200b.invalid/v1", "http://-/v1"])
def test_an_address_that_no_client_takes(url: str, env: Write) -> None:
    env(FILES["plain"], MODEL_NAME="m", MODEL_BASE_URL=url)
    result = run_task("?", limits=Limits(max_usd=None, max_seconds=5), retries=0)
    assert reason(result) in {"failed:config", "failed:model"}
    assert KEY not in str(result)


WRONG = {
    "MODEL_PRICE_INPUT": ["-1", "nan", "inf", "cheap", "1,5", "1e999999"],
    "MODEL_PRICE_CACHED_INPUT": ["-1", "cheap", "1.1"],
    "MODEL_MAX_TOKENS": ["0", "-5", "1.5", "many", "inf", "1e999999"],
    "MODEL_MAX_TOKENS_NAME": ["max_output_tokens", "messages", "n", "5"],
    "MODEL_ENABLE_THINKING": ["maybe", "0"],
    "MODEL_EXTRA_BODY": [
        "5",
        "[1]",
        "{",
        '{"a": NaN}',
        '{"n": 5}',
        '{"max_tokens": 9}',
        '{"messages": []}',
        '{"stream": true}',
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_setting_that_cannot_be(name: str, value: str, env: Write) -> None:
    env(FILES["plain"] + REST, **{"MODEL_PRICE_OUTPUT": "1", "MODEL_PRICE_INPUT": "1", name: value})
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert name in result["warnings"][0]


@pytest.mark.parametrize("name", [*WRONG, "MODEL_NAME", "MODEL_BASE_URL"])
def test_a_key_on_the_wrong_line_is_not_shown(name: str, env: Write) -> None:
    env(FILES["plain"] + REST, **{"MODEL_PRICE_OUTPUT": "1", "MODEL_PRICE_INPUT": "1", name: "sk-xyz123456789abcdef"})
    result = run_task("?")
    assert reason(result) == "failed:config"
    assert "sk-x" not in str(result)


# --- prices -----------------------------------------------------------------------------------------------------------


def test_prices_of_ones_own(env: Write) -> None:
    env(FILES["plain"] + REST, MODEL_PRICE_INPUT="0.4", MODEL_PRICE_OUTPUT="1.2", MODEL_PRICE_CACHED_INPUT="0.16")
    assert load_settings().price == Price(Decimal("0.4"), Decimal("1.2"), Decimal("0.16"))
    assert load_settings().price.cost(1000, 100, 500) == Decimal("0.0004")  # type: ignore[union-attr]


def test_half_a_price_is_none(env: Write) -> None:
    for name in ("MODEL_PRICE_INPUT", "MODEL_PRICE_CACHED_INPUT"):
        env(FILES["plain"] + REST, **{name: "0.4"})
        assert "MODEL_PRICE_OUTPUT" in run_task("?")["warnings"][0]


def test_the_list_price_is_looked_up_and_what_is_unknown_stays_unknown(env: Write) -> None:
    assert look_up_price("gpt-4o-mini", "https://api.openai.com/v1") == Price(
        Decimal("0.15"), Decimal("0.6"), Decimal("0.075")
    )
    assert look_up_price("gpt-4o-mini", "http://127.0.0.1:1/v1") is None
    env(FILES["plain"] + REST)
    assert load_settings().price is None
    result = run_task("?")
    assert (reason(result), result["summary"]["usage"]["usd"]) == ("failed:config", None)
    assert "MODEL_PRICE_INPUT" in result["warnings"][0]


def test_the_list_price_is_that_of_the_dearest_hour() -> None:
    url, million = "https://api.deepseek.com", Usage(input_tokens=10**6)  # by this list it is cheaper at night
    hours = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]
    listed = {
        calc_price(million, "deepseek-chat", provider_api_url=url, genai_request_timestamp=hour).input_price
        for hour in hours
    }
    price = look_up_price("deepseek-chat", url)
    assert price is not None
    assert price.input == max(listed)
    assert len(listed) > 1, "no longer: look for another model whose price depends on the hour"


def test_zero_is_a_price(env: Write) -> None:
    with Service(says(text())) as service:
        env(**live(service, MODEL_PRICE_INPUT="0", MODEL_PRICE_OUTPUT="0"))
        result = run_task("?", limits=Limits(max_usd=0))
    assert (reason(result), result["summary"]["usage"]["usd"]) == ("done", 0.0)


def test_no_price_and_no_budget_is_a_run_of_unknown_cost(env: Write) -> None:
    with Service(says(text())) as service:
        env(**{name: value for name, value in live(service).items() if "PRICE" not in name})
        result = run_task("?", limits=Limits(max_usd=None))
    assert (reason(result), result["summary"]["usage"]["usd"]) == ("done", None)


# --- a live run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", " ", "\r", "\t\r"])
def test_a_live_run_with_nothing_but_the_file(end: str, env: Write, capfd: pytest.CaptureFixture[str]) -> None:
    with Service(says(text()), endless=True) as service:
        env(**live(service, DASHSCOPE_API_KEY=KEY + end))
        result, again = run_task("?"), run_task("?")
        assert (reason(result), reason(again)) == ("done", "done")
        assert {head["authorization"] for head in service.heads} == {f"bearer {KEY}"}
    assert KEY not in str(result) + "".join(capfd.readouterr())


def test_an_error_without_an_end_is_read_no_further_than_needed(env: Write) -> None:
    def for_ever(request: Request) -> None:
        request.send(headed("chunked", 400))
        while True:
            request.send(b"100000\r\n" + b" " * 0x100000 + b"\r\n")

    with Service(for_ever, fails(400, "it has no end")) as service:
        env(**live(service))
        limits = Limits(max_seconds=10)
        result, again = run_task("?", limits=limits), run_task("?", limits=limits)
    assert (reason(result), reason(again)) == ("failed:model", "failed:model")
    assert "status 400" in result["warnings"][0]
    assert "it has no end" in again["warnings"][0]


def test_what_is_sent_is_what_is_set(env: Write) -> None:
    with Service(says(text())) as service:
        extra = '{"seed": 7, "temperature": 0.5}'
        env(
            **live(service, MODEL_EXTRA_BODY=extra, MODEL_ENABLE_THINKING="False"),
            MODEL_MAX_TOKENS="77",
            MODEL_MAX_TOKENS_NAME="max_completion_tokens",
        )
        assert reason(run_task("?")) == "done"
    sent = {name: value for name, value in service.requests[0].items() if name not in {"messages", "tools"}}
    assert sent == {
        "model": "test-model",
        "max_completion_tokens": 77,
        "seed": 7,
        "temperature": 0.5,
        "enable_thinking": False,
    }


def test_a_client_of_ones_own(env: Write) -> None:
    with Service(says({"error": {"message": "who is sk-my-very-own-key?"}}, 401), says(text())) as service:
        env(MODEL_NAME="my-model", MODEL_PRICE_INPUT="1", MODEL_PRICE_OUTPUT="1")
        client = AsyncOpenAI(api_key="sk-my-very-own-key", base_url=service.url, max_retries=5)
        assert "sk-my-very-own-key" not in str(run_task("?", client=client))
        assert len(service.requests) == 1  # the client's own retries do not count on top
        assert reason(run_task("?", client=client)) == "done"
        assert service.requests[1]["model"] == "my-model"
        env()
        result = run_task("?", client=client)
        assert reason(result) == "failed:config"
        assert "MODEL_NAME" in result["warnings"][0]


def test_a_client_with_a_source_of_keys(env: Write) -> None:
    async def token() -> str:
        return "a-token-that-expires"

    env(MODEL_NAME="my-model", MODEL_PRICE_INPUT="1", MODEL_PRICE_OUTPUT="1")
    with Service(says({"error": {"message": "a-token-that-expires has expired"}}, 401), says(text())) as service:
        client = AsyncOpenAI(api_key=token, base_url=service.url)
        result = run_task("?", client=client)
        assert "*** has expired" in result["warnings"][0]
        assert reason(run_task("?", client=client)) == "done"


def test_the_price_goes_by_the_address_of_the_client(env: Write) -> None:
    env(MODEL_NAME="gpt-4o-mini", MODEL_BASE_URL="http://127.0.0.1:1/v1")
    model = Model.of(AsyncOpenAI(api_key="k", base_url="https://api.openai.com/v1"))
    assert model.settings.base_url.startswith("https://api.openai.com/v1")
    assert model.settings.price is not None


@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:7890", "nonsense", "http://[::1"])
@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "HTTP_PROXY"])
def test_a_proxy_that_the_client_cannot_use(name: str, proxy: str, env: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    env(FILES["plain"] + REST, MODEL_PRICE_INPUT="1", MODEL_PRICE_OUTPUT="1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv(name, proxy)
    result = run_task("?", retries=0)
    assert reason(result) in {"failed:config", "failed:model"}
    if proxy.startswith("socks"):
        assert reason(result) == "failed:config"
        assert name.upper() in result["warnings"][0]
    assert "Traceback" not in str(result)


# --- the key stays where it is ----------------------------------------------------------------------------------------


def test_no_picture_of_the_settings_shows_the_key() -> None:
    settings = Settings("m", "http://x/v1", "sk-my-very-own-key")
    assert "sk-my" not in repr(settings) + str(settings) + repr(Model(AsyncOpenAI(api_key="k", base_url="x"), settings))
    private = Settings("m", "https://me:pass@word@host/v1?key=pass", "sk-my-very-own-key")
    assert "base_url='https://***@host/v1?***'" in repr(private)
    assert "base_url='https://host/v1/@cf'" in repr(Settings("m", "https://host/v1/@cf", "k"))


def test_errors_carry_no_traceback_with_the_key(env: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    env(FILES["plain"] + REST)
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:7890")
    with pytest.raises(SettingsError) as caught:
        Model.live()
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert KEY not in "".join(traceback.format_exception(caught.value))


# --- limits -----------------------------------------------------------------------------------------------------------

REFUSED = {
    "max_usd": [math.nan, math.inf, -math.inf, -0.01],
    "max_seconds": [math.nan, math.inf, -1],
    "max_tool_seconds": [math.nan, -0.5],
    "max_steps": [-1, 2.5, math.nan, 3.0],
    "max_tool_calls": [-1, 0.5],
    "max_requests": [-1, 1e300],
}
REFUSED_ANYWHERE = [True, False, "5", "", [5], b"5", 1j, object(), Decimal("NaN"), Decimal("sNaN"), 10**400, 10**5000]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in REFUSED.items() for value in [*values, *REFUSED_ANYWHERE]],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_limit_that_is_refused(name: str, value: Any, lang: str) -> None:
    use_language(lang)
    kept = Limits()
    for attempt in (lambda: Limits(**{name: value}), lambda: kept.change(**{name: value})):
        with pytest.raises(ValueError, match=name):
            attempt()
    assert kept == Limits()


def test_limits_that_are_allowed() -> None:
    limits = Limits(0, Decimal("0.1"), 0, None, 5, 0)
    assert limits.as_dict() == {
        "max_steps": 0,
        "max_seconds": 0.1,
        "max_usd": 0.0,
        "max_tool_calls": None,
        "max_tool_seconds": 5.0,
        "max_requests": 0,
    }
    with pytest.raises(AttributeError):
        limits.max_steps = 5  # type: ignore[misc]


@pytest.mark.parametrize(("name", "wanted"), [("max_steps", "stopped:steps"), ("max_usd", "stopped:budget")])
def test_zero_is_nothing_not_no_limit(name: str, wanted: str) -> None:
    model = scripted(answer("42"))
    result = run_task("?", client=model, limits=Limits(**{name: 0}))  # type: ignore[arg-type]
    assert (reason(result), model.requests) == (wanted, [])
