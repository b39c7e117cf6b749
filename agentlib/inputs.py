"""Reading files in ``data/input``, and no other file."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from .messages import text
from .project import root

FOLDER = "data/input"
LONGEST_PATH = 1000
LONGEST_LINE = 2**20
"""Bytes. A longer line is refused, so that memory does not grow with the file."""
MOST_NAMES = 20
"""How many file names are listed at most when a file is not found."""

_CHARACTERS = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(\..*)?", re.IGNORECASE)
_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_NOINHERIT", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


class DataError(Exception):
    """A file that cannot be used: an error code, and the message ``tools.<key>`` with its values."""

    def __init__(self, code: str, key: str, **values: Any) -> None:
        super().__init__(code, key)
        self.code, self.key, self.values = code, key, values


def shown(value: str, width: int = 60) -> str:
    """The text in quotes, on one line, cut to ``width`` characters: safe to put into a message."""
    return repr(value[:width]) + ("…" if len(value) > width else "")


def names_in(relative_path: object) -> tuple[str, ...]:
    """The folder names and the file name of an allowed path: ``"sub/sales.csv"`` gives ``("sub", "sales.csv")``.

    The text alone decides, so the answer is the same on every system. Not allowed are: an absolute path, ``..``,
    ``~`` at the start, backslashes, drive letters and other characters that Windows does not take in a name,
    names that end in a dot or a blank, and Windows devices such as ``NUL.csv``.
    """
    if not isinstance(relative_path, str):
        raise DataError("PATH_NOT_ALLOWED", "path_not_text", kind=type(relative_path).__name__)
    path = PurePosixPath(relative_path[: LONGEST_PATH + 1])
    forbidden = (
        len(relative_path) > LONGEST_PATH
        or _CHARACTERS.search(relative_path)
        or relative_path.startswith(("/", "~"))
        or not path.parts
        or any(name.endswith((".", " ")) or _DEVICES.fullmatch(name) for name in path.parts)
    )
    if forbidden:
        raise DataError("PATH_NOT_ALLOWED", "path_forbidden", asked=shown(relative_path))
    return path.parts


@contextmanager
def reading(names: tuple[str, ...]) -> Iterator[TextIO]:
    """The text of a file in ``data/input``, UTF-8 with or without BOM, its line ends as they are.

    Everything that can go wrong, also later while the text is read, comes out as a ``DataError``.
    """
    folder = ""
    try:
        folder = os.path.realpath(root() / FOLDER)
        target = os.path.realpath(os.path.join(folder, *names))
        if not Path(target).is_relative_to(folder):
            raise DataError("PATH_NOT_ALLOWED", "path_outside")
        with (
            open(target, "rb", buffering=0, opener=lambda _, __: _open_below(folder, target)) as raw,
            io.TextIOWrapper(_Checked(raw), encoding="utf-8-sig", newline="") as lines,
        ):
            yield lines
    except UnicodeDecodeError:
        raise DataError("INVALID_CSV", "not_utf8") from None
    except (FileNotFoundError, NotADirectoryError):
        raise DataError("FILE_NOT_FOUND", "file_not_found", names=_names_of_files(folder)) from None
    except IsADirectoryError:
        raise DataError("FILE_NOT_FOUND", "not_a_file", names=_names_of_files(folder)) from None
    except PermissionError:
        raise DataError("FILE_NOT_FOUND", "no_permission") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise DataError("PATH_NOT_ALLOWED", "path_outside") from None
        raise DataError("FILE_NOT_FOUND", "unreadable", reason=problem.strerror or type(problem).__name__) from None


def _open_below(folder: str, target: str) -> int:
    """Open ``target`` on the way down from ``folder``, following no link: one that appears in between is an error."""
    if os.open in os.supports_dir_fd:
        *folders, name = os.path.relpath(target, folder).split(os.sep)
        here = os.open(folder, _FLAGS | os.O_DIRECTORY)
        try:
            for part in folders:
                below = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = below
            file = os.open(name, _FLAGS, dir_fd=here)
        finally:
            os.close(here)
    else:  # Windows: open first, then make sure that it is still the same file
        if os.path.isdir(target):
            raise IsADirectoryError
        file = os.open(target, _FLAGS)
        if os.path.realpath(target) != target or not os.path.samestat(os.fstat(file), os.lstat(target)):
            os.close(file)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(os.fstat(file).st_mode):  # a folder, a pipe, a device
        os.close(file)
        raise IsADirectoryError
    return file


class _Checked(io.BufferedReader):
    """The bytes of a file; it stops at a NUL (UTF-16, a workbook) and at a line that never ends."""

    _line = 0

    def read1(self, size: int = -1, /) -> bytes:
        block = super().read1(size)
        if b"\0" in block:
            raise DataError("INVALID_CSV", "not_utf8")
        line_end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._line = len(block) - line_end - 1 + (self._line if line_end < 0 else 0)
        if self._line > LONGEST_LINE:
            raise DataError("INVALID_CSV", "line_too_long", most=LONGEST_LINE)
        return block


def _names_of_files(top: str) -> str:
    """The names of the files in a folder and below it, at most ``MOST_NAMES`` of them."""
    found = list[str]()
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(folder).relative_to(top)
        found += [(below / name).as_posix() for name in sorted(files) if not name.startswith(".")]
        if len(found) > MOST_NAMES:
            found[MOST_NAMES:] = ["…"]
            break
    listed = ", ".join(found) or text("tools.no_files")
    return listed.encode("utf-8", "backslashreplace").decode("utf-8")
