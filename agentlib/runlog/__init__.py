"""The run log: every run's stop reason and usage in one SQLite file, so that stops can be counted.

    log = RunLog()                                     # data/runs.db
    run_task("…", runlog=log)                          # one row per run, one per step
    run_task("…", runlog=log.listener(kind="totals"))  # with a kind of question, for counting
    log.trigger_rates(by="day", reason="stopped:steps")

What is kept: ids, times (UTC), counts, dollars, the limits in force, stop reasons, names of tools and how each
call ended. What is not kept: keys, answers, tool arguments and tool data. The text of the question is kept only
when it is asked for (``keep_question=True``).

A run that has begun but not ended has no stop reason. While it lives it gives a sign of life every few seconds;
when the signs stop, or its process on this computer is gone, it counts as ``died``, until then as ``running``.
"""

from .listener import Listener
from .log import RunLog
from .store import RunLogError, RunRow, StepRow
from .writer import timestamp

__all__ = ["Listener", "RunLog", "RunLogError", "RunRow", "StepRow", "timestamp"]
