"""The phase map says in every cell what running the plan says there."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlib import messages
from agentlib.limits import Limits
from agentlib.loop import run_task
from agentlib.offline import scenario
from agentlib.phases import PhaseMap, phase_map, phase_map_chart, plan_of
from agentlib.plan import PlanStep, run

TWENTY: list[PlanStep] = [
    {"name": f"step {i}", "seconds": 1.0 + i * 7 % 5, "usd": (0.001, 0.004, 0.002, 0.009)[i % 4]} for i in range(20)
]
AMOUNTS = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0])
PLANS = st.lists(st.fixed_dictionaries({"name": st.just("x"), "seconds": AMOUNTS, "usd": AMOUNTS}), max_size=8)
CAPS = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0, 2.0]))
COUNTS = st.one_of(st.none(), st.integers(0, 9))


def agrees(phases: PhaseMap, plan: list[PlanStep], i: int, j: int) -> None:
    limits = Limits(phases.steps_axis[j], phases.max_seconds, phases.usd_axis[i], None, None)
    reason, steps, _ = run(plan, limits)
    assert (phases.reasons[i][j], phases.steps[i][j]) == (reason, steps), limits


@given(PLANS, st.lists(COUNTS, min_size=1, max_size=4), st.lists(CAPS, min_size=1, max_size=4), CAPS)
def test_equal_to_run_cell_by_cell(
    plan: list[PlanStep], counts: list[int | None], usd: list[float | None], seconds: float | None
) -> None:
    phases = phase_map(plan, counts, usd, seconds)
    for i in range(len(usd)):
        for j in range(len(counts)):
            agrees(phases, plan, i, j)


def test_a_hundred_by_a_hundred_in_under_a_second() -> None:
    began = time.perf_counter()
    phases = phase_map(TWENTY, range(100), [i / 1000 for i in range(100)], 45.0)
    assert time.perf_counter() - began < 1
    assert sum(phases.counts().values()) == 10_000
    for n in range(0, 10_000, 37):
        agrees(phases, TWENTY, *divmod(n, 100))


def test_a_tie_goes_to_the_cap_that_is_checked_first() -> None:
    plan: list[PlanStep] = [{"name": "x", "seconds": 1.0, "usd": 1.0}] * 3
    assert phase_map(plan, [1, 2], [1.0], 1.0).reasons == (("stopped:steps", "stopped:time"),)
    assert phase_map(plan, [None], [1.0], None).reasons == (("stopped:budget",),)
    assert phase_map(plan, [3], [3.0], 3.0).reasons == (("done",),)


def test_a_plan_that_can_be_read_once_is_enough() -> None:
    assert phase_map(iter(TWENTY), [3, 30], [1.0]).reasons == (("stopped:steps", "done"),)


def test_a_recorded_run_as_a_plan() -> None:
    result = run_task("which category sells best?", limits=Limits(), client=scenario("runaway"))
    plan = plan_of(result)
    usage = result["summary"]["usage"]
    reason, steps, log = run(plan, Limits(None, None, None))
    assert (reason, steps) == ("done", result["summary"]["steps"])
    assert (log[-1]["seconds"], log[-1]["usd"]) == (usage["seconds"], usage["usd"])
    assert run(plan, Limits(2))[0] == "stopped:steps"


def test_a_step_that_was_cut_short_counts_with_what_it_used() -> None:
    result = run_task("which category sells best?", limits=Limits(max_seconds=12.0), client=scenario("slow"))
    assert [step["seconds"] for step in plan_of(result)] == [12.0]


def test_no_plan_without_a_cost() -> None:
    result = run_task("which category sells best?", limits=Limits(max_usd=None), client=scenario("answers"))
    result["summary"]["usage"]["usd"] = None
    with pytest.raises(ValueError, match="step 2"):
        plan_of(result)


def test_the_map_in_words_and_letters() -> None:
    chart = phase_map_chart(phase_map(TWENTY, [1, 10, 30], [0.0, 0.05, 1.0], 45.0))
    assert chart.head == (r"max_usd \ max_steps", "1", "10", "30")
    assert chart.numbers == (("1", "S", "S", "T"), ("0.05", "S", "S", "B"), ("0", "B", "B", "B"))
    assert "stopped:steps in 44% of the cells" in chart.alt
    messages.use_language("zh")
    assert "stopped:steps 占 44% 的格子" in phase_map_chart(phase_map(TWENTY, [1, 10, 30], [0.0, 0.05, 1.0], 45.0)).alt
