"""``python -m agentlib ["question"]``: one run on the command line, its TaskResult as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .limits import MAX_STEPS, Limits
from .messages import languages, suit_the_console, text, use_language
from .results import TaskResult


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Wrong use: one line and exit code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 completed, 1 failed; wrong use exits with 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    suit_the_console()
    _choose_language(given)
    parser = _parser()
    options = parser.parse_args(given)
    client, question = None, options.question
    try:
        limits = Limits(options.max_steps, options.max_seconds, options.max_usd)
        if options.offline is not None:
            from .offline import scenario

            client = scenario(options.offline)
            question = text("offline.question") if question is None else question
    except ValueError as exc:
        parser.error(str(exc))
    if question is None:
        question = _ask(parser)
    from .loop import run_task

    result = run_task(question, limits=limits, client=client)
    print(_as_json(result))
    return 0 if result["status"] == "completed" else 1


def _as_json(result: TaskResult) -> str:
    """The result for people to read; with escapes where the console cannot show a character."""
    written = json.dumps(result, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        written.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(result, allow_nan=False, indent=2)
    return written


def _choose_language(arguments: Sequence[str]) -> None:
    """Before anything else is said, the help included."""
    first = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    first.add_argument("--lang", choices=languages())
    try:
        known, _ = first.parse_known_args(arguments)
    except argparse.ArgumentError:
        return
    if known.lang:
        use_language(known.lang)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m agentlib", description=text("cli.description"))
    parser.add_argument("question", nargs="?", help=text("cli.question_help"))
    usual = Limits(max_steps=MAX_STEPS)
    for name, kind, default in (
        ("steps", int, usual.max_steps),
        ("seconds", float, usual.max_seconds),
        ("usd", float, usual.max_usd),
    ):
        words = text(f"cli.{name}_help", default=default)
        parser.add_argument(f"--max-{name}", type=_limit(kind), default=default, metavar="N", help=words)
    parser.add_argument("--offline", nargs="?", const="answers", metavar="SCENARIO", help=text("cli.offline_help"))
    parser.add_argument("--lang", choices=languages(), help=text("cli.lang_help"))
    return parser


def _limit(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        return None if word.lower() == "none" else kind(word)

    read.__name__ = "number"
    return read


def _ask(parser: argparse.ArgumentParser) -> str:
    try:
        return input(text("cli.ask"))
    except UnicodeDecodeError as problem:
        parser.error(text("cli.bad_question", encoding=problem.encoding))
    except (EOFError, KeyboardInterrupt, RuntimeError):  # the end, Ctrl-C, or no standard input at all
        parser.error(text("cli.no_question"))


if __name__ == "__main__":
    sys.exit(main())
