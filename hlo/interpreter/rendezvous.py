"""Rendezvous: where the devices of a run meet: groups exchange values, mailboxes pass them on.

Each device is a thread. When every live device waits and none can go on, all of them end with the
error `deadlock`, which says who waits for whom (CONTROL 2.9).
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable

from msgspec import Struct, field

from hlo.errors import HloError
from hlo.ir.instruction import Instruction

Group = tuple[int, ...]
MailKey = tuple[object, int, int]  # channel, source, target


class Abandoned(Exception):
    """Raised in the other devices once one has failed."""


class Meeting(Struct):
    """One exchange of a group: the values so far, by device."""

    values: dict[int, object] = field(default_factory=dict)
    left: int = 0


class Waiting(Struct, frozen=True):
    """Why a device stands still."""

    instruction: Instruction
    ready: Callable[[], bool]
    missing: Callable[[], list[int]]


class Rendezvous:
    """Shared by all devices of a run; every method may be called from any of their threads."""

    def __init__(self, devices: int) -> None:
        self._changed = threading.Condition()
        self._live = set(range(devices))
        self._meetings: dict[tuple[object, ...], Meeting] = defaultdict(Meeting)
        self._turns: dict[tuple[object, ...], int] = defaultdict(int)
        self._mail: dict[MailKey, deque[object]] = defaultdict(deque)
        self._waiting: dict[int, Waiting] = {}
        self.failure: HloError | None = None
        self.abandoned = False

    def exchange(
        self, device: int, group: Group, instruction: Instruction, value: object
    ) -> tuple[object, ...]:
        """The values that all of `group` deposit at this instruction, in group order."""
        with self._changed:
            turn = (device, instruction, group)
            key = (instruction, group, self._turns[turn])
            self._turns[turn] += 1
            meeting = self._meetings[key]
            meeting.values[device] = value
            self._changed.notify_all()
            everyone = set(group)
            self._wait(
                device,
                Waiting(
                    instruction,
                    lambda: everyone <= meeting.values.keys(),
                    lambda: sorted(everyone - meeting.values.keys()),
                ),
            )
            meeting.left += 1
            if meeting.left == len(group):
                del self._meetings[key]
            return tuple(meeting.values[d] for d in group)

    def put(self, key: MailKey, value: object) -> None:
        """Leave a value in a mailbox."""
        with self._changed:
            self._mail[key].append(value)
            self._changed.notify_all()

    def take(self, device: int, key: MailKey, instruction: Instruction) -> object:
        """The first value of a mailbox; waits for one."""
        with self._changed:
            box = self._mail[key]
            self._wait(device, Waiting(instruction, lambda: bool(box), lambda: [key[1]]))
            return box.popleft()

    def leave(self, device: int) -> None:
        """The device has ended; those that wait for it will not go on."""
        with self._changed:
            self._live.discard(device)
            self._look_for_deadlock()
            self._changed.notify_all()

    def abandon(self) -> None:
        """End all waiting: a device has failed."""
        with self._changed:
            self.abandoned = True
            self._changed.notify_all()

    def undelivered(self) -> list[MailKey]:
        """Mailboxes that still hold a value."""
        return [key for key, box in self._mail.items() if box]

    def _wait(self, device: int, waiting: Waiting) -> None:
        """Until waiting.ready(); the lock is held by the caller and given up meanwhile."""
        self._waiting[device] = waiting
        try:
            while not waiting.ready():
                if self.abandoned:
                    raise Abandoned
                self._look_for_deadlock()
                if self.failure is not None:
                    raise self.failure
                self._changed.wait()
        finally:
            del self._waiting[device]

    def _look_for_deadlock(self) -> None:
        stuck = self._live <= self._waiting.keys()
        if not stuck or not self._live or any(w.ready() for w in self._waiting.values()):
            return
        if self.failure is None:
            self.failure = self._deadlock()
            self._changed.notify_all()

    def _deadlock(self) -> HloError:
        rows = [
            f"device {d} waits in {w.instruction.name} for {_devices(w.missing())}"
            for d, w in sorted(self._waiting.items())
        ]
        first = self._waiting[min(self._waiting)].instruction
        message = f"{first.opcode}: every device waits: {'; '.join(rows)}, expected all to meet"
        return HloError("deadlock", message, first.span)


def _devices(numbers: list[int]) -> str:
    return f"device{'s' if len(numbers) > 1 else ''} " + ", ".join(map(str, numbers))
