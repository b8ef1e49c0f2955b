"""Trials: a property of cases, asked in child processes, so that a crash is an answer too.

    cases, property --first--> the number of the first case that has it

Several cases are asked at a time, but which is chosen does not depend on how many: a case is chosen
once all before it have answered. What is known of a case is kept, and on disk if asked, so that an
interrupted search goes on where it was.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec import Struct, field

from hlo.errors import HloError
from hlo.tools.cases.case import Case
from hlo.tools.files.reading import read_bytes
from hlo.tools.files.writing import write_file

YES, NO = 0, 1
PAUSE_S = 0.002
SAVE_EVERY_S = 1.0


class Property(Struct, frozen=True):
    """What a case is asked for.

    ask: whether a case has it; an HloError or any other exception says that it has not.

    crash: whether the death of the process that asks says that it has it. name: what was asked, so
    that answers to another question are not taken for answers to this one.
    """

    name: str
    ask: Callable[[Case], bool]
    crash: bool = False


class Trials(Struct):
    """Cases that are asked about in processes, and their answers.

    jobs: cases asked at a time; timeout: seconds for each, after which it has not the property;
    journal: a file of what is known, read at first and written as it grows.
    """

    property: Property
    jobs: int = 1
    timeout: float = 60.0
    journal: str = ""
    known: dict[str, bool] = field(default_factory=dict)
    asked: int = 0  # of child processes
    saved: float = 0.0  # when the journal was last written

    def __post_init__(self) -> None:
        if self.journal and os.path.exists(self.journal):
            self.known |= _journal(self.journal, self.property.name)

    def holds(self, case: Case) -> bool:
        return self.first([case]) is not None

    def first(self, cases: Iterable[Case]) -> Case | None:
        """The first of the cases that has the property; the rest may not be looked at."""
        waiting = iter(cases)
        while batch := list(islice(waiting, max(1, self.jobs))):
            found = self._first_of(batch)
            if found is not None:
                return found
        return None

    def _first_of(self, batch: list[Case]) -> Case | None:
        keys = [case.digest for case in batch]
        running = {
            key: _Child(self.property, case, self.timeout)
            for key, case in dict(zip(keys, batch, strict=True)).items()
            if key not in self.known
        }
        self.asked += len(running)
        try:
            for key, case in zip(keys, batch, strict=True):
                if key in running:
                    self.known[key] = running[key].answer()
                    self._save()
                if self.known[key]:
                    return case
        finally:
            for child in running.values():
                child.end()
        return None

    def _save(self) -> None:
        if self.journal and time.monotonic() - self.saved > SAVE_EVERY_S:
            self.close()

    def close(self) -> None:
        """Write the journal, if there is one."""
        if self.journal:
            data = msgspec.json.encode({"property": self.property.name, "known": self.known})
            write_file(self.journal, lambda stream: stream.write(data))
            self.saved = time.monotonic()


class _Journal(Struct):
    property: str
    known: dict[str, bool]


def _journal(path: str, name: str) -> dict[str, bool]:
    try:
        found = msgspec.json.decode(read_bytes(path), type=_Journal)
    except msgspec.DecodeError as error:
        raise HloError("file", f"{path} is no journal of a reduction: {error}") from None
    if found.property != name:
        raise HloError(
            "file",
            f"{path} is of the property {found.property!r}, expected {name!r}",
            help="remove it to start anew",
        )
    return found.known


class _Child:
    """A forked process that asks about one case: it has all that this one has loaded."""

    def __init__(self, property: Property, case: Case, timeout: float) -> None:
        self._crash = property.crash
        self._deadline = time.monotonic() + timeout
        self._status: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _answer(property, case)

    def answer(self) -> bool:
        """What it says; False once its time is over."""
        while not self._is_done():
            if time.monotonic() > self._deadline:
                self.end()
                return False
            time.sleep(PAUSE_S)
        assert self._status is not None, "it is done"
        code = os.waitstatus_to_exitcode(self._status)
        return code == YES or (self._crash and code < 0)

    def _is_done(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def end(self) -> None:
        """Stop it, if it still runs."""
        if self._is_done():
            return
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, self._status = os.waitpid(self._pid, 0)


def _answer(property: Property, case: Case) -> None:
    """In the child: ask, and end with the answer. Nothing that the parent would do at its end."""
    code = NO
    try:
        os.setpgid(0, 0)  # so that what it starts ends with it
        _silence()
        code = YES if property.ask(case) else NO
    except BaseException:  # whatever a broken program leads to says that it is not this property
        code = NO
    finally:
        os._exit(code)


def _silence() -> None:
    """Nothing that is asked writes among the command's output, nor does the death of who asks."""
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
