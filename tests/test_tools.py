"""Paths, the white list, arguments, and whatever a tool may do: always a result, never an exception."""

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlib import inputs
from agentlib.messages import use_language
from agentlib.tools import TOOLBOX, TOOLS, Tool, analyze_csv, describe, execute_tool, run_function

ROOT = Path(__file__).parent.parent
PATHS = json.loads((Path(__file__).parent / "data" / "paths.json").read_text(encoding="utf-8"))
SALES = "category,quantity,unit_price\nfruit,2,5\nveg,3,4\nfruit,1,10\n"
IS_POSIX = os.name == "posix"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project's data/input with two files, and a secret outside."""
    folder = tmp_path / "lab" / "data" / "input"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for file in (folder / "sales.csv", folder / "sub" / "sales.csv"):
        file.write_text(SALES, encoding="utf-8")
    for file in (tmp_path / "outside" / "secret.csv", folder.parent / "secret.csv"):
        file.write_text(SALES.replace("veg", "SECRET"), encoding="utf-8")
    monkeypatch.setenv("AGENTLAB_ROOT", str(tmp_path / "lab"))
    return folder


def outcome(result):
    return result["error"]["code"] if result["error"] else "ok"


def is_sound(result):
    """Strict JSON of the shape of a ToolResult."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode("utf-8").decode("utf-8")) == result
    assert list(result) == ["status", "data", "source", "error"]
    if result["status"] == "ok":
        assert result["error"] is None
        assert isinstance(result["data"], dict)
    else:
        assert result["status"] == "error"
        assert result["data"] is None
        assert result["error"]["message"]
    return True


# --- the shipped file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/", ROOT, ROOT / "notebooks", "here"])
def test_shipped_sales_from_any_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path if place == "here" else place)
    assert analyze_csv("sales.csv") == {
        "status": "ok",
        "data": {
            "row_count": 5,
            "revenue_by_category": [
                {"category": "显示器", "revenue": 4495},
                {"category": "键盘", "revenue": 2985},
                {"category": "鼠标", "revenue": 2212},
            ],
            "total_revenue": 9692,
            "top_category": "显示器",
            "top_revenue": 4495,
        },
        "source": ["data/input/sales.csv"],
        "error": None,
    }


def test_no_encoding_is_left_to_chance():
    code = "from agentlib.tools import analyze_csv; print(analyze_csv('sales.csv')['data']['total_revenue'])"
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert (done.stdout.strip(), done.stderr) == ("9692", "")


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("case", PATHS, ids=lambda case: f"{case['id']} {case['about']}")
def test_path(case, language, folder, tmp_path):
    use_language(language)
    if "link" in case:
        name, target = case["link"]
        target = target.format(input=folder, outside=tmp_path / "outside")
        try:
            (folder / name).symlink_to(target)
        except OSError:
            pytest.skip("links are not allowed here")
    if "locked" in case:
        if not IS_POSIX or os.geteuid() == 0:
            pytest.skip("nothing is locked for this user")
        (folder / case["locked"]).write_text(SALES, encoding="utf-8")
        (folder / case["locked"]).chmod(0)
    result = analyze_csv(case["path"])
    assert is_sound(result)
    assert outcome(result) in case["code"], case["about"]
    if result["error"]:
        message = result["error"]["message"]
        assert all(words in message for words in case.get("says", {}).get(language, [])), message
        assert str(tmp_path) not in message
        assert result["source"] == []
    else:
        assert result["data"]["total_revenue"] == 32
        assert result["source"] == ["data/input/" + case["path"].replace("./", "").replace("//", "/")]


def test_source_has_forward_slashes_for_a_file_below(folder):
    assert analyze_csv("sub/sales.csv")["source"] == ["data/input/sub/sales.csv"]


def test_a_missing_file_is_answered_with_those_that_are_there(folder):
    (folder / ".hidden").touch()
    assert "sales.csv, sub/sales.csv" in analyze_csv("gone.csv")["error"]["message"]
    for number in range(100):
        (folder / f"{number:03}.csv").touch()
    message = analyze_csv("gone.csv")["error"]["message"]
    assert "000.csv" in message
    assert message.count(".csv") == inputs.MOST_NAMES + 1
    assert ".hidden" not in message


def test_no_folder_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTLAB_ROOT", str(tmp_path / "nowhere"))
    assert outcome(analyze_csv("sales.csv")) == "FILE_NOT_FOUND"


@pytest.mark.skipif(not IS_POSIX, reason="needs pipes with a name")
def test_a_pipe_does_not_hang(folder):
    os.mkfifo(folder / "pipe.csv")
    assert outcome(analyze_csv("pipe.csv")) == "FILE_NOT_FOUND"


@pytest.mark.skipif(not IS_POSIX, reason="needs links")
@pytest.mark.parametrize("swapped", ["sub/sales.csv", "sub"])
@pytest.mark.parametrize("on_the_way", [True, False], ids=["dir_fd", "as on Windows"])
def test_a_link_put_there_after_the_check_is_not_followed(on_the_way, swapped, folder, tmp_path, monkeypatch):
    if not on_the_way:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    assert outcome(analyze_csv("sub/sales.csv")) == "ok"
    assert outcome(analyze_csv("sub")) == "FILE_NOT_FOUND"
    secret = tmp_path / "outside"
    (secret / "sales.csv").write_text(SALES.replace("veg", "SECRET"), encoding="utf-8")
    really_open = inputs._open_below

    def swap_then_open(top, target):
        (folder / swapped).rename(tmp_path / "away")
        (folder / swapped).symlink_to(secret if swapped == "sub" else secret / "sales.csv")
        return really_open(top, target)

    monkeypatch.setattr(inputs, "_open_below", swap_then_open)
    result = analyze_csv("sub/sales.csv")
    assert outcome(result) in {"PATH_NOT_ALLOWED", "FILE_NOT_FOUND"}
    assert "SECRET" not in str(result)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (PermissionError(13, "Permission denied"), ["permission", "Excel"]),
        (OSError(5, "Input/output error", "/home/somebody/sales.csv"), ["Input/output error"]),
        (FileNotFoundError(2, "gone"), ["does not exist"]),
    ],
)
def test_a_file_that_cannot_be_opened(problem, words, folder, monkeypatch):
    def refuse(*_, **__):
        raise problem

    monkeypatch.setattr("builtins.open", refuse)
    result = analyze_csv("sales.csv")
    monkeypatch.undo()
    assert outcome(result) == "FILE_NOT_FOUND"
    assert all(word in result["error"]["message"] for word in words)
    assert "somebody" not in result["error"]["message"]


def test_a_file_removed_between_check_and_reading(folder, monkeypatch):
    real = open

    def remove_first(path, *args, **more):
        os.remove(path)
        return real(path, *args, **more)

    monkeypatch.setattr("builtins.open", remove_first)
    assert outcome(analyze_csv("sales.csv")) == "FILE_NOT_FOUND"


def test_nothing_stays_open(folder):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").exists():
        pytest.skip("nowhere to count open files")
    before = open_files()
    for path in ("sales.csv", "sub/sales.csv", "sub", "gone.csv", "sub/gone.csv", "sales.csv/x"):
        analyze_csv(path)
    assert open_files() == before


pathlike = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(),
    st.text(),
    st.lists(st.text()),
    st.builds(object),
    st.lists(st.sampled_from(["..", ".", "/", "\\", "sub", "sales.csv", "~", "C:", "NUL", " ", "\0", "\ud800"])).map(
        "".join
    ),
)


@settings(max_examples=300)
@given(pathlike)
def test_any_path(path):
    result = analyze_csv(path)
    assert is_sound(result)
    assert outcome(result) in {"ok", "PATH_NOT_ALLOWED", "FILE_NOT_FOUND"}


# --- the white list and the arguments ---------------------------------------------------------------------------------


def test_what_the_model_is_told():
    (schema,) = TOOLS
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "analyze_csv"
    assert schema["function"]["parameters"]["required"] == ["relative_path"]
    json.dumps(TOOLS, allow_nan=False)


@pytest.mark.parametrize(
    "name",
    [
        "execute_tool",
        "__import__",
        "run_task",
        "Analyze_CSV",
        "analyze_csv ",
        "functions.analyze_csv",
        "",
        None,
        5,
        [],
        "\ud800",
    ],
)
def test_only_the_exact_name(name):
    result = execute_tool(name, '{"relative_path": "sales.csv"}')
    assert is_sound(result)
    assert outcome(result) == "UNKNOWN_TOOL"
    assert "analyze_csv" in result["error"]["message"]


@pytest.mark.parametrize(
    "arguments", ['{"relative_path": "sales.csv"}', ' {"relative_path":"sales.csv"}\n', {"relative_path": "sales.csv"}]
)
def test_good_arguments(arguments):
    assert execute_tool("analyze_csv", arguments) == analyze_csv("sales.csv")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "relative_path"),
        (" \n", "relative_path"),
        (None, "relative_path"),
        ("{}", "relative_path"),
        ('{"relative_path": "sales.csv"} done.', "JSON"),
        ('{"relative_path": "sal', "JSON"),
        ('{"relative_path": "sales\n.csv"}', "JSON"),
        ("[]", "array"),
        ('"sales.csv"', "string"),
        ("42", "integer"),
        ("4.5", "number"),
        ("true", "boolean"),
        ("null", "null"),
        ("NaN", "JSON"),
        ('{"relative_path": 5}', "relative_path"),
        ('{"relative_path": ["sales.csv"]}', "relative_path"),
        ('{"relative_path": null}', "relative_path"),
        ('{"relative_path": true}', "relative_path"),
        ('{"relative_path": NaN}', "JSON"),
        ('{"relative_path": 1e999}', "JSON"),
        ('{"relative_path": "sales.csv", "encoding": "utf-8"}', "encoding"),
        ('{"relative_path": "a", "relative_path": "b"}', "relative_path"),
        ('{"relative_path": "\\ud83d"}', "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"relative_path":' * 100_000, "JSON"),
        ("9" * 5000, "JSON"),
        (b"{}", "JSON"),
        ({"relative_path": {1, 2}}, "JSON"),
        ({5: "sales.csv", "relative_path": "sales.csv"}, "5"),
        (5, "integer"),
        (["sales.csv"], "array"),
    ],
)
def test_bad_arguments(arguments, words):
    result = execute_tool("analyze_csv", arguments)
    assert is_sound(result)
    assert outcome(result) == "INVALID_ARGUMENTS"
    assert words in result["error"]["message"]
    assert len(result["error"]["message"]) < 600


def echo(**arguments):
    return arguments


def toolbox(function=echo, required=(), **properties):
    tool = Tool(function, "for tests", {"type": "object", "properties": properties, "required": list(required)}, "echo")
    return {"echo": tool}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "5"], [5, None, True, [], {}]),
        ({"type": "integer"}, [0, -5, 10**30], [True, 5.0, "5", None]),
        ({"type": "number"}, [0, 5.5], [True, "5", None]),
        ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
        ({"type": "array"}, [[], [1]], ["a", {}]),
        ({"type": "object"}, [{}, {"a": 1}], [[], "a"]),
        ({"type": ["string", "null"]}, ["a", None], [5]),
        ({"enum": ["a", 1]}, ["a", 1], ["b", True, 1.0]),
        ({}, [None, 5, "a", []], []),
    ],
)
def test_types_of_arguments(schema, good, bad):
    for value in good:
        assert execute_tool("echo", json.dumps({"x": value}), toolbox(x=schema))["data"] == {"value": {"x": value}}
    for value in bad:
        result = execute_tool("echo", json.dumps({"x": value}), toolbox(x=schema))
        assert outcome(result) == "INVALID_ARGUMENTS"
        assert " x " in result["error"]["message"]


def test_optional_and_further_arguments():
    box = toolbox(x={}, y={}, required=["y"])
    assert outcome(execute_tool("echo", '{"x": 1}', box)) == "INVALID_ARGUMENTS"
    assert outcome(execute_tool("echo", '{"y": 1}', box)) == "ok"
    box["echo"].parameters["additionalProperties"] = True
    assert outcome(execute_tool("echo", '{"y": 1, "z": 1}', box)) == "ok"


def test_a_tool_does_not_get_the_callers_own_objects():
    mine = {"x": [1]}
    box = toolbox(lambda x: x.append(2), x={"type": "array"})
    assert outcome(execute_tool("echo", mine, box)) == "ok"
    assert mine == {"x": [1]}


def test_a_name_that_services_refuse():
    for name in ("my.tool", "", "工具", "x" * 65):
        with pytest.raises(ValueError, match="name"):
            Tool(lambda: 1, "no name of its own", {}, name)
    assert Tool(echo, "", {}).name == "echo"


@pytest.mark.parametrize("properties", [{"x": "string"}, ["x"], "x"])
def test_parameters_that_are_no_schema(properties):
    with pytest.raises(ValueError, match="echo"):
        Tool(echo, "", {"type": "object", "properties": properties})


def test_a_type_that_json_does_not_have():
    result = execute_tool("echo", '{"x": "a"}', toolbox(x={"type": "str"}))
    assert "must be of type str, not string" in result["error"]["message"]


@given(name=st.text() | st.sampled_from([*TOOLBOX]), arguments=st.text() | st.recursive(st.none(), st.lists))
def test_any_call(name, arguments):
    assert is_sound(execute_tool(name, arguments))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["relative_path", "x"]) | st.text(), json_values, max_size=3))
def test_any_object_as_arguments(arguments):
    for given_as in (arguments, json.dumps(arguments)):
        result = execute_tool("analyze_csv", given_as)
        assert is_sound(result)
        assert outcome(result) != "TOOL_FAILED"


# --- what a tool may do -----------------------------------------------------------------------------------------------


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text either")


def failing(problem):
    def function():
        raise problem

    return run_function(function, {})


@pytest.mark.parametrize(
    "problem", [ZeroDivisionError("division by zero"), SystemExit(3), GeneratorExit(), Silent(), ValueError("\ud800")]
)
def test_an_exception_is_a_result(problem):
    result = failing(problem)
    assert is_sound(result)
    assert outcome(result) == "TOOL_FAILED"
    assert type(problem).__name__ in result["error"]["message"]
    assert "Traceback" not in result["error"]["message"]


def test_the_persons_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("No such file: '/home/me/lab/x.csv'", "No such file: '…/x.csv'"),
        ("open /home/My Name/x.csv failed", "open …/x.csv failed"),
        (r"C:\Users\My Name\x.csv is gone", "…/x.csv is gone"),
        (r"'C:\\Users\\me\\x.csv'", "'…/x.csv'"),
        ("D:/lab/x.csv", "…/x.csv"),
        (r"\\server\share\x.csv", "…/x.csv"),
        ("see https://example.com/a/b and/or 3/4/5", "see https://example.com/a/b and/or 3/4/5"),
        ("two\n  lines", "two lines"),
    ],
)
def test_no_folder_of_this_machine_is_told(message, told):
    assert describe(ValueError(message)) == f"ValueError: {told}"


def test_a_long_message_is_cut():
    assert len(describe(ValueError("/a" * 10**6))) < 400
    assert len(describe(ValueError("word " * 10**6))) < 400


def loop():
    round_and_round = []
    round_and_round.append(round_and_round)
    return round_and_round


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"bytes",
        math.nan,
        [math.inf],
        loop(),
        deep(150),
        deep(5000),
        "\ud800",
        {"\ud800": 1},
        {(1, 2): 3},
        {1: "a", "1": "b"},
        threading.Lock(),
        10**5000,
        (x for x in ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_cannot_carry(value):
    result = run_function(lambda: value, {})
    assert is_sound(result)
    assert outcome(result) == "TOOL_FAILED"
    assert "JSON" in result["error"]["message"]


@pytest.mark.parametrize(
    ("value", "carried"),
    [(None, None), (5, 5), ("x", "x"), ((1, 2), [1, 2]), ({1: 2}, {"1": 2}), ({"status": "ok"}, {"status": "ok"})],
)
def test_any_other_value_is_carried(value, carried):
    assert run_function(lambda: value, {}) == {"status": "ok", "data": {"value": carried}, "source": [], "error": None}


def test_a_tool_result_is_taken_as_it_is():
    good = {"status": "ok", "data": {"a": (1,)}, "source": ["x"], "error": None}
    bad = {"status": "error", "data": None, "source": [], "error": {"code": "MINE", "message": "no"}}
    assert run_function(lambda: good, {}) == {**good, "data": {"a": [1]}}
    assert run_function(lambda: bad, {}) == bad
    for almost in ({**good, "data": None}, {**good, "more": 1}, {**good, "source": [1]}, {**bad, "error": {"code": 1}}):
        assert run_function(lambda almost=almost: almost, {})["data"]["value"] is not None


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.builds(object), st.dates()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=3),
        st.fixed_dictionaries(
            {"status": st.sampled_from(["ok", "error"]), "data": inner, "source": inner, "error": inner}
        ),
    ),
    max_leaves=10,
)


@given(anything)
def test_any_value_of_a_tool(value):
    assert is_sound(run_function(lambda: value, {}))
