"""The charts of the lessons: what is drawn, in words, bars and numbers. How it is drawn is :mod:`agentlib.drawing`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from .drawing import LOOKS, Bar, Bars, Drawing, Segment
from .limits import Limits, exact
from .messages import text
from .plan import LogLine, PlanStep, run
from .results import TaskResult, ToolResult

MOST_CATEGORIES = 12
CAPS = {"max_steps": "stopped:steps", "max_seconds": "stopped:time", "max_usd": "stopped:budget"}


class Sums(NamedTuple):
    """What a run had used at the end of a step. ``max_usd`` is None where the cost is unknown."""

    max_steps: int
    max_seconds: float
    max_usd: float | None
    max_requests: int


def cap_of(reason: str) -> str | None:
    """The cap that a stop reason speaks of, if it speaks of one."""
    return next((cap for cap, why in CAPS.items() if why == reason), None)


def number(value: float | None) -> str:
    """The number as people write it: whole, or with up to six decimals."""
    if value is None:
        return text("charts.unknown")
    if value == int(value):
        return str(int(value))
    return f"{value:.6f}".rstrip("0") if abs(value) >= 5e-7 else f"{value:.1e}"


def revenue_bars(result: ToolResult) -> Drawing:
    """The revenue of each category in a result of ``analyze_csv``. ValueError for a result that is an error."""
    data = result["data"]
    if data is None:
        raise ValueError(text("charts.no_data", code=result["error"]["code"] if result["error"] else ""))
    rows = [(str(row["category"]), row["revenue"]) for row in data["revenue_by_category"]]
    few = len(rows) <= MOST_CATEGORIES
    shown = [(name, value, "used") for name, value in (rows if few else rows[: MOST_CATEGORIES - 1])]
    if not few:
        rest = rows[len(shown) :]
        shown.append((text("charts.others", count=len(rest)), sum(value for _, value in rest), "others"))
    full = max(value for _, value, _ in shown)
    bars = tuple(Bar(name, (Segment(value, look),), number(value), full) for name, value, look in shown)
    items = _listed(text("charts.item", name=name, value=number(value)) for name, value, _ in shown)
    return Drawing(
        Bars(text("charts.revenue_title"), bars),
        text("charts.revenue_alt", items=items, total=number(data["total_revenue"])),
        (text("charts.category"), text("charts.revenue")),
        (*rows, (text("charts.total"), data["total_revenue"])),
    )


def caps_chart(result: TaskResult) -> Drawing:
    """What a run of ``run_task`` used of each cap, step by step, and which cap fired."""
    summary = result["summary"]
    stop = summary.get("stop") or {}
    return _caps(summary["stop_reason"], sums_of(result), summary["limits"], stop.get("limit"), stop.get("quote"))


def plan_caps_chart(plan: Iterable[PlanStep], limits: Limits) -> Drawing:
    """The same for a plan: runs it under ``limits``, and shows the step that was not begun, too."""
    plan = list(plan)
    reason, steps, log = run(plan, limits)
    fired = cap_of(reason)
    refused = plan[steps] if fired else {"seconds": 0.0, "usd": 0.0}
    quote = {"max_steps": 1.0, "max_seconds": refused["seconds"], "max_usd": refused["usd"]}.get(fired or "")
    sums = [Sums(line["steps"], line["seconds"], line["usd"], line["steps"]) for line in log]
    return _caps(reason, sums, limits.as_dict(), fired, quote)


def sums_of(result: TaskResult) -> list[Sums]:
    """What a recorded run had used at the end of each step that it began, read from its trace.

    The last step may have been cut short: its time and money count, but ``max_steps`` stays as it was.
    """
    summary = result["summary"]
    begun = [event for event in summary["trace"] if event["kind"] == "step"]
    requests = [event["step"] for event in summary["trace"] if event["kind"] == "request"]
    ends = [*begun[1:], summary["usage"]][: len(begun)]
    return [
        Sums(min(step, summary["steps"]), end["seconds"], end["usd"], sum(n <= step for n in requests))
        for step, end in enumerate(ends, start=1)
    ]


def _caps(
    reason: str, sums: Sequence[Sums], limits: Mapping[str, Any], fired: str | None, quote: float | None
) -> Drawing:
    shown = [*CAPS, "max_requests"] if limits.get("max_requests") is not None else [*CAPS]
    bars, says = list[Bar](), list[str]()
    for cap in shown:
        limit, used = limits[cap], getattr(sums[-1], cap) if sums else 0
        segments = () if used is None else _steps([getattr(line, cap) for line in sums])
        if cap == fired and quote:
            segments += (Segment(quote, "next"),)
        extent = sum(segment.size for segment in segments) / (1 if limit is not None else 0.6)
        value = text("charts.of", used=number(used), limit=_limit(limit))
        warning = text("charts.fired") if cap == fired else ""
        label = text(f"charts.{cap}")
        bars.append(Bar(label, segments, value, max(extent, limit or 0) or 1, limit, warning))
        item = "caps_item_quote" if warning and quote else "caps_item_fired" if warning else "caps_item"
        says.append(text(f"charts.{item}", cap=label, value=value, quote=number(quote)))
    legend = [("used", text("charts.used"))]
    if fired and quote:
        legend.append(("next", text("charts.next")))
    rows = [(_step(i, line), *(number(getattr(line, c)) for c in shown)) for i, line in enumerate(sums, start=1)]
    if fired and quote:
        rows.append((text("charts.next_short"), *(number(quote) if cap == fired else "" for cap in shown)))
    rows.append((text("charts.limit"), *(_limit(limits[cap]) for cap in shown)))
    if fired:
        rows.append((text("charts.fired"), *("◀" if cap == fired else "" for cap in shown)))
    return Drawing(
        Bars(text("charts.caps_title", reason=reason), tuple(bars), tuple(legend), text("charts.limit")),
        text("charts.caps_alt", items=_listed(says), reason=reason),
        ("", *(text(f"charts.{cap}") for cap in shown)),
        tuple(rows),
    )


def before_after(before: Sequence[LogLine], after: Sequence[LogLine], limits: Limits) -> Drawing:
    """What it costs to check a cap after a step instead of before it: two logs of one plan, and their limits.

    Shown are dollars and seconds, each where ``limits`` has a cap for it.
    """
    bars, says, rows = list[Bar](), list[str](), list[tuple[str, ...]]()
    logs = {
        "max_usd": [[line["usd"] for line in log] for log in (before, after)],
        "max_seconds": [[line["seconds"] for line in log] for log in (before, after)],
    }
    for cap, both in logs.items():
        limit = getattr(limits, cap)
        if limit is None:
            continue
        full = max([limit, *both[0], *both[1]]) or 1
        for moment, sums in zip((text("charts.before"), text("charts.after")), both, strict=True):
            used = sums[-1] if sums else 0.0
            over = max(float(exact(used) - exact(limit)), 0.0)
            label = text("charts.late_label", cap=text(f"charts.{cap}"), moment=moment)
            value = text("charts.of", used=number(used), limit=number(limit))
            warning = text("charts.over_by", value=number(over)) if over else ""
            bars.append(Bar(label, _cut(sums, limit), value, full, limit, warning))
            says.append(text("charts.item", name=label, value=f"{value} {warning}".strip()))
            rows.append((text(f"charts.{cap}"), moment, *map(number, (len(sums), used, limit, over))))
    legend = (("used", text("charts.used")), ("over", text("charts.over")))
    return Drawing(
        Bars(text("charts.late_title"), tuple(bars), legend, text("charts.limit")),
        text("charts.late_alt", items=_listed(says)),
        tuple(text(f"charts.{name}") for name in ("cap", "checked", "max_steps", "used_short", "limit", "over")),
        tuple(rows),
    )


def trigger_rates_chart(rows: Iterable[Mapping[str, Any]]) -> Drawing:
    """The share of runs that did not finish, day by day and by stop reason.

    ``rows`` are those of ``RunLog.trigger_rates(by="day")`` (``day``, ``reason``, ``runs``, ``fired``), or of a finer
    grouping, which is summed up. The worst day is marked where it has more than twice the usual share, the median.
    """
    fired, runs = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        fired[row["day"], row["reason"] if row["reason"] in LOOKS else row["reason"].split(":")[0]] += row["fired"]
        runs[row["day"], row["reason"]] += row["runs"]
    if not runs:
        raise ValueError(text("charts.no_runs"))
    total = {day: max(runs[key] for key in runs if key[0] == day) for day in sorted({day for day, _ in runs})}
    shown = [r for r in LOOKS if r != "done" and any(fired[day, r] for day in total)]
    share = {day: [fired[day, r] / max(total[day], 1) for r in shown] for day in total}
    usual, worst = median(map(sum, share.values())), max(share, key=lambda day: sum(share[day]))
    most = sum(share[worst])
    marked = worst if most > 2 * usual else None
    bars = tuple(
        Bar(
            day,
            tuple(Segment(part, r) for part, r in zip(parts, shown, strict=True)),
            _percent(sum(parts)),
            most or 1,
            warning=text("charts.usual", share=_percent(usual)) if day == marked else "",
        )
        for day, parts in share.items()
    )
    names = {r: r if ":" in r else text(f"charts.{r}") for r in shown}
    alt = text("charts.rates_alt", days=len(total), usual=_percent(usual))
    return Drawing(
        Bars(text("charts.rates_title"), bars, tuple(names.items())),
        alt + text("charts.rates_alt_marked" if marked else "charts.rates_alt_most", day=worst, share=_percent(most)),
        (text("charts.day"), text("charts.runs"), *names.values()),
        tuple((day, total[day], *map(_percent, parts)) for day, parts in share.items()),
    )


def _cut(sums: Sequence[float], limit: float) -> tuple[Segment, ...]:
    """The segments of these sums, with what lies beyond the limit as a segment of its own."""
    inside = [value for value in sums if value <= limit]
    if len(inside) == len(sums):
        return _steps(inside)
    rest = limit - (inside[-1] if inside else 0.0)
    return (*_steps(inside), Segment(rest, "used"), Segment(sums[-1] - limit, "over"))


def _steps(sums: Sequence[float]) -> tuple[Segment, ...]:
    """A segment per step, numbered, from the sums after each step."""
    return tuple(
        Segment(now - before, "used", str(i)) for i, (before, now) in enumerate(pairwise([0.0, *sums]), start=1)
    )


def _step(number: int, line: Sums) -> str:
    return text("charts.after_step" if line.max_steps == number else "charts.cut_step", step=number)


def _limit(value: float | None) -> str:
    return text("charts.no_limit") if value is None else number(value)


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _listed(items: Iterable[str]) -> str:
    return text("charts.comma").join(items)
