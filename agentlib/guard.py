"""What stands between a run and its caps: limits read live, a check before every request, an account kept after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .history import History
from .journal import Ended, Journal, capped
from .limits import Limits, LimitsSource, Quote, Stop, Usage, add, decide, exact, seconds_left
from .messages import text
from .model import Model, Tokens
from .tools import describe
from .waiting import finish

T = TypeVar("T")

SHORTEST_ANSWER = 64
"""A step is not begun if the budget pays for fewer output tokens than this, or than the longest reply so far."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that passed its check: what is sent, the most it can cost, and the limits it was held against."""

    body: bytes
    quote: Quote
    max_tokens: int
    limits: Limits

    @property
    def quote_usd(self) -> float | None:
        """The quote in US dollars; None: the price is unknown."""
        return None if self.quote.usd is None else float(self.quote.usd)


def first_limits(source: LimitsSource) -> Limits:
    """The limits that a run begins with; raises ``Ended`` if there are none, for then nothing may begin."""
    try:
        limits = source() if callable(source) else source
    except Exception as exc:  # the source is the caller's code
        raise Ended("failed:config", text("loop.no_limits", problem=describe(exc))) from None
    if not isinstance(limits, Limits):
        raise Ended("failed:config", text("loop.bad_limits"))
    return limits


class Guard:
    """The caps of one run."""

    def __init__(
        self, journal: Journal, model: Model, history: History, source: LimitsSource, stop: Callable[[], bool] | None
    ) -> None:
        self.journal, self.model, self.history = journal, model, history
        self._source, self._stop = source, stop
        self._last_good = first_limits(source)
        self._longest_reply = SHORTEST_ANSWER
        journal.used.usd_known = model.settings.price is not None

    def limits(self) -> Limits:
        """The limits in force at this moment. A source that fails leaves the last good ones in force."""
        if callable(self._source):
            try:
                now = self._source()
                if not isinstance(now, Limits):
                    raise TypeError(text("loop.bad_limits"))
                self._last_good = now
            except Exception as exc:  # the source is the caller's code, and the run must not be lost for it
                self.journal.warn(text("loop.limits_source", problem=describe(exc)))
        return self._last_good

    def halted(self) -> bool:
        """Whether a person, or a rule of the caller's, wants the run to end."""
        try:
            return bool(self._stop and self._stop())
        except Exception as exc:  # the caller's code again: a stop button that is broken stops
            self.journal.warn(text("loop.stop_source", problem=describe(exc)))
            return True

    def time_left(self) -> float | None:
        """Seconds until the run is cut, by the limits of this moment; None: never."""
        return seconds_left(self.limits(), self.journal.tick())

    def check(self, with_tools: bool = True) -> Attempt:
        """The next request, if every cap allows it; raises ``Ended`` if it could break one."""
        self._end_if_halted()
        limits, used = self.limits(), self.journal.tick()
        attempt = self._attempt(limits, used, with_tools)
        stop = decide(limits, used, attempt.quote)
        if stop:
            raise capped(stop)
        return attempt

    def _attempt(self, limits: Limits, used: Usage, with_tools: bool) -> Attempt:
        """The next request and its quote.

        Its longest answer is lowered to what the budget still pays for.
        """
        settings, most = self.model.settings, self.model.settings.max_tokens
        body = self.history.body(self.model.fields(most), with_tools)
        if settings.price is None:
            if limits.max_usd is not None:
                raise Ended("failed:config", text("loop.no_price", model=settings.model))
            return Attempt(body, Quote(), most, limits)
        prompt = self.history.most_tokens(body)
        if limits.max_usd is not None:
            left = exact(limits.max_usd) - used.usd - settings.price.cost(prompt, 0)
            affordable = settings.price.longest_answer(left)
            if affordable is not None and affordable < most:
                most = max(affordable, min(most, self._longest_reply))
                body = self.history.body(self.model.fields(most), with_tools)
        return Attempt(body, Quote(usd=settings.price.cost(prompt, most)), most, limits)

    def may_wait(self, seconds: float) -> bool:
        """Whether another request would still be allowed after a wait of that length."""
        return decide(self.limits(), self.journal.tick(), Quote(seconds=exact(seconds))) is None

    def on_last_step(self) -> bool:
        """Whether the step cap allows one step more, but not two."""
        used = self.journal.tick()
        stop = decide(self.limits(), replace(used, steps=used.steps + 1), Quote())
        return stop is not None and stop.reason == "stopped:steps"

    async def in_time(self, work: Coroutine[Any, Any, T], attempt: Attempt | None = None) -> T:
        """The result of ``work``, which is cut when the time is up or somebody stops the run.

        A request that is cut may be billed all the same, so it is charged at its quote.
        """
        task = asyncio.ensure_future(work)
        if await finish(self.journal.clock, task, self.time_left, self.halted) == "done":
            return task.result()
        if attempt:
            self.charge(None, attempt)
        self._end_if_halted()
        limit, seconds = self.limits().max_seconds, self.journal.tick().seconds
        # The cap may have been lifted in this very moment; the run has been cut all the same.
        cap = float(seconds) if limit is None else limit
        raise capped(Stop("stopped:time", "max_seconds", cap, seconds, None))

    def _end_if_halted(self) -> None:
        if self.halted():
            raise Ended("stopped:user", text("loop.user"))

    def charge(self, counted: Tokens | None, attempt: Attempt) -> None:
        """Pay for a request: what the server counted, or the quote where it did not say."""
        used, price = self.journal.used, self.model.settings.price
        if counted:
            self.history.counted(counted.input)
            used.input_tokens += counted.input
            used.output_tokens += counted.output
            self._longest_reply = max(self._longest_reply, counted.output)
        else:
            used.estimated = True
        if price is None or attempt.quote.usd is None:
            used.usd_known = False
        elif counted:
            used.usd = add(used.usd, price.cost(counted.input, counted.output, counted.cached))
        else:
            used.usd = add(used.usd, attempt.quote.usd)
