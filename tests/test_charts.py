"""The charts: their words and numbers, and that the picture is whole, in both languages and on any machine."""

import html
import io
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable

import matplotlib
import pytest
from matplotlib import font_manager, image
from matplotlib.ft2font import FT2Font

from agentlib import drawing, messages
from agentlib.charts import (
    before_after,
    caps_chart,
    number,
    plan_caps_chart,
    revenue_bars,
    sums_of,
    trigger_rates_chart,
)
from agentlib.drawing import picture, plain, shapes
from agentlib.limits import Limits
from agentlib.loop import run_task
from agentlib.offline import scenario
from agentlib.phases import phase_map, phase_map_chart
from agentlib.plan import PlanStep, run
from agentlib.project import root
from agentlib.results import ToolResult, error, ok

SIX: list[PlanStep] = [{"name": f"step {i}", "seconds": 5.0, "usd": 0.005} for i in range(1, 7)]
LATE = [{"name": "x", "steps": i, "seconds": 5.0 * i, "usd": i * 5 / 1000} for i in (1, 2, 3)]
DAYS = [
    {"day": f"2026-11-{day:02}", "reason": reason, "runs": 100, "fired": fired}
    for day in range(1, 8)
    for reason, fired in (
        ("stopped:steps", 40 if day == 5 else 7),
        ("failed:model", 2),
        ("failed:reply", 1),
        ("done", 50),
    )
]


def revenue(*pairs: tuple[str, int]) -> ToolResult:
    rows = [{"category": name, "revenue": value} for name, value in pairs]
    return ok({"revenue_by_category": rows, "total_revenue": sum(value for _, value in pairs)})


SALES = revenue(("显示器", 4495), ("键盘", 2985), ("鼠标", 2212))
DRAWINGS: dict[str, Callable[[], drawing.Drawing]] = {
    "revenue": lambda: revenue_bars(SALES),
    "one category": lambda: revenue_bars(revenue(("a category with a very long name of its own", 7))),
    "many categories": lambda: revenue_bars(revenue(*((f"类别{i}", 10 ** (20 - i)) for i in range(20)))),
    "nothing sold": lambda: revenue_bars(revenue(("a", 0), ("b", 0))),
    "odd names": lambda: revenue_bars(revenue(("$x^$", 9), ("a\n\tb", 8), ("🙂", 7), ("", 6), ("<b>&\"'", 5))),
    "steps fire": lambda: plan_caps_chart(SIX, Limits()),
    "budget fires": lambda: plan_caps_chart(SIX, Limits(10, 100.0, 0.012)),
    "no caps": lambda: plan_caps_chart(SIX, Limits(None, None, None)),
    "zero caps": lambda: plan_caps_chart(SIX, Limits(0, 0, 0)),
    "many steps": lambda: plan_caps_chart(SIX * 20, Limits(100, 10_000.0, 1.0)),
    "empty plan": lambda: plan_caps_chart([], Limits()),
    "late": lambda: before_after(run(SIX, Limits(10, 12.0, 0.012))[2], LATE, Limits(10, 12.0, 0.012)),
    "rates": lambda: trigger_rates_chart(DAYS),
    "map": lambda: phase_map_chart(phase_map(SIX, range(1, 9), [i / 500 for i in range(20)], 17.0)),
    "map of one": lambda: phase_map_chart(phase_map(SIX, [None], [None])),
}


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with no font but the one that comes with matplotlib."""
    only = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    picture._families.cache_clear()
    picture._characters.cache_clear()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.usefixtures("small_machine")
def test_every_picture_is_drawn_whole_without_a_warning(name: str, lang: str) -> None:
    messages.use_language(lang)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png = DRAWINGS[name]().png
    pixels = image.imread(io.BytesIO(png))
    assert pixels.shape[1] == 8 * picture.DPI
    for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
        assert (edge == 1).all(), "something is cut off"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_words_and_numbers_go_with_both_ways_of_drawing(
    name: str, lang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages.use_language(lang)
    monkeypatch.setattr(picture, "png", lambda _: b"")
    chart = DRAWINGS[name]()
    drawn = chart._repr_mimebundle_()
    assert set(drawn) == {"text/html", "text/plain"}
    assert drawn["text/plain"] == f"{chart.alt}\n\n{chart.table}"
    assert f'<img alt="{html.escape(chart.alt)}"' in drawn["text/html"]

    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    monkeypatch.delitem(sys.modules, "agentlib.drawing.picture")
    monkeypatch.delattr(drawing, "picture", raising=False)
    bare = DRAWINGS[name]()._repr_mimebundle_()
    assert bare["text/plain"] == drawn["text/plain"]
    assert f'role="img" aria-label="{html.escape(chart.alt)}"' in bare["text/html"]
    assert "<img" not in bare["text/html"]
    for page in (drawn["text/html"], bare["text/html"]):
        assert html.escape(chart.table) in page
        assert len(re.findall(r"<(?!/|img)(\w+)", page)) == len(re.findall(r"</(\w+)", page)), "an element is left open"


def test_the_numbers_of_the_shipped_sales() -> None:
    chart = revenue_bars(SALES)
    assert chart.alt == "Bars of revenue by category, highest first: 显示器 4495; 键盘 2985; 鼠标 2212. Total 9692."
    assert chart.numbers == (("显示器", 4495), ("键盘", 2985), ("鼠标", 2212), ("total", 9692))
    assert chart.table.splitlines()[:2] == ["category  revenue", "显示器    4495"]


def test_categories_beyond_the_twelfth_are_drawn_together_and_listed_apart() -> None:
    chart = revenue_bars(revenue(*((f"c{i}", 100 - i) for i in range(20))))
    assert isinstance(chart.picture, drawing.Bars)
    assert [bar.label for bar in chart.picture.bars][-2:] == ["c10", "9 others"]
    assert len(chart.numbers) == 21


def test_an_error_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="FILE_NOT_FOUND"):
        revenue_bars(error("FILE_NOT_FOUND", "no such file"))
    with pytest.raises(ValueError, match="no run"):
        trigger_rates_chart([])


@pytest.mark.parametrize(
    ("limits", "fired"),
    [
        (Limits(), "steps"),
        (Limits(10, 12.0, 1.0), "seconds"),
        (Limits(10, 100.0, 0.012), "dollars"),
        (Limits(10), None),
    ],
)
def test_the_plan_chart_marks_the_cap_that_fired(limits: Limits, fired: str | None) -> None:
    chart = plan_caps_chart(SIX, limits)
    bars = chart.picture.bars
    assert [bar.label for bar in bars if bar.warning] == ([fired] if fired else [])
    for bar in bars:
        used = sum(s.size for s in bar.segments if s.look == "used")
        refused = sum(s.size for s in bar.segments if s.look == "next")
        assert used <= bar.limit
        assert (used + refused > bar.limit) == bool(bar.warning)
    assert chart.alt.endswith(f"The run ended with {run(SIX, limits)[0]}.")


@pytest.mark.parametrize(
    ("name", "limits", "fired"),
    [
        ("answers", Limits(), None),
        ("runaway", Limits(), "steps"),
        ("runaway", Limits(max_requests=3), "requests"),
        ("slow", Limits(max_seconds=12.0), "seconds"),
        ("costly", Limits(), "dollars"),
    ],
)
def test_the_chart_of_a_real_run_says_what_its_result_says(name: str, limits: Limits, fired: str | None) -> None:
    result = run_task("which category sells best?", limits=limits, client=scenario(name))
    usage, last = result["summary"]["usage"], sums_of(result)[-1]
    assert last == (result["summary"]["steps"], usage["seconds"], usage["usd"], usage["requests"])
    chart = caps_chart(result)
    assert [bar.label for bar in chart.picture.bars if bar.warning] == ([fired] if fired else [])
    assert result["summary"]["stop_reason"] in chart.alt


def test_an_unknown_cost_is_called_unknown() -> None:
    result = run_task("which category sells best?", limits=Limits(max_usd=None), client=scenario("answers"))
    result["summary"]["usage"]["usd"] = None
    chart = caps_chart(result)
    assert "dollars unknown / no limit" in chart.alt
    assert chart.picture.bars[2].segments == ()


def test_what_a_late_check_costs() -> None:
    limits = Limits(10, 12.0, 0.012)
    chart = before_after(run(SIX, limits)[2], LATE, limits)
    assert chart.numbers == (
        ("dollars", "before", "2", "0.01", "0.012", "0"),
        ("dollars", "after", "3", "0.015", "0.012", "0.003"),
        ("seconds", "before", "2", "10", "12", "0"),
        ("seconds", "after", "3", "15", "12", "3"),
    )
    assert [sum(s.size for s in bar.segments) for bar in chart.picture.bars] == pytest.approx([0.01, 0.015, 10, 15])
    assert "0.015 / 0.012 0.003 over" in chart.alt


def test_a_day_that_stands_out_is_marked() -> None:
    chart = trigger_rates_chart(DAYS)
    assert [bar.label for bar in chart.picture.bars if bar.warning] == ["2026-11-05"]
    assert "2026-11-05 stands out with 43%" in chart.alt
    assert chart.numbers[4] == ("2026-11-05", 100, "40%", "3%")
    quiet = trigger_rates_chart([row for row in DAYS if row["day"] != "2026-11-05"])
    assert not any(bar.warning for bar in quiet.picture.bars)


def test_finer_rows_are_summed_up() -> None:
    rows = [row | {"profile": profile} for row in DAYS for profile in ("standard", "relaxed")]
    assert trigger_rates_chart(rows).alt == trigger_rates_chart(DAYS).alt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (5.0, "5"),
        (0.1, "0.1"),
        (0.012, "0.012"),
        (1e-7, "1.0e-07"),
        (10**30, "1" + 30 * "0"),
        (None, "unknown"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_drawing_changes_nothing_else_and_gives_the_same_bytes_again() -> None:
    before = dict(matplotlib.rcParams)
    first = plan_caps_chart(SIX, Limits()).png
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 5, "axes.facecolor": "black", "savefig.bbox": "tight"}):
        assert plan_caps_chart(SIX, Limits()).png == first
    assert b"Software" not in first


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = """
import sys, agentlib.phases as p
assert not any(m.split(".")[0] in {"matplotlib", "numpy", "IPython"} for m in sys.modules)
p.phase_map_chart(p.phase_map([], [1], [1.0])).png
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root())


# The font


def test_the_font_holds_every_character_that_a_chart_writes() -> None:
    written = {chr(c) for c in range(0x20, 0x7F)} | set("键盘鼠标显示器耳机打印机平板摄像头音箱充电器路由器◀□…")
    for lang in messages.languages():
        table = tomllib.loads((root() / "agentlib" / "messages" / f"{lang}.toml").read_text(encoding="utf-8"))
        written |= {c for section in ("charts", "phases") for sentence in table[section].values() for c in sentence}
    font = FT2Font(picture.FONT)
    assert written - {chr(c) for c in font.get_charmap()} == set()


def test_the_font_is_small_licensed_and_has_a_name_of_its_own() -> None:
    assert picture.FONT.stat().st_size <= 400_000
    licence = (picture.FONT.parent / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert "Adobe" in licence
    assert FT2Font(picture.FONT).family_name == "Agent Lab Sans"


@pytest.mark.usefixtures("small_machine")
def test_a_character_that_no_font_holds_becomes_a_box() -> None:
    assert picture._safe("键盘 龘🙂") == "键盘 □□"


# Shapes


def test_labels_are_cut_by_their_width() -> None:
    assert shapes.shorten("short\n name") == "short name"
    assert shapes.shorten("很长很长很长很长很长很长很长") == "很长很长很长很长很长很…"
    assert shapes.columns(shapes.shorten("x" * 50)) == 24
    assert shapes.shorten("y" * 10**6) == "y" * 23 + "…"  # at once, however long


@pytest.mark.parametrize(("count", "most"), [(1, 8), (8, 8), (9, 8), (100, 20), (1000, 7)])
def test_ticks_are_at_round_distances(count: int, most: int) -> None:
    ticks = shapes.every(count, most)
    assert ticks[0] == 0
    assert len(ticks) <= most
    assert str(ticks.step).rstrip("0") in {"1", "2", "5"}


def test_every_look_differs_from_every_other_in_more_than_colour_where_they_meet() -> None:
    together = ["stopped:steps", "stopped:time", "stopped:budget", "stopped:user", "failed"]
    assert len({shapes.LOOKS[name].hatch for name in together}) == len(together)
    assert {look.hatch for look in shapes.LOOKS.values()} <= set(plain._PATTERNS)
