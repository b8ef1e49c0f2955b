"""Device: what the ops on one device of a run can ask for (hlo.ops.context.Context)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct, field

from hlo.errors import HloError, checked_count
from hlo.interpreter.rendezvous import Rendezvous
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.numerics.generators import philox_words
from hlo.ops.random import FIRST_STATE
from hlo.runtime.arguments import checked_argument
from hlo.runtime.stops import Deadline

Infeed = Iterable[object] | Callable[[int, Shape], object]
Progress = Callable[[int, int], None]  # steps of the entry done, and all of them
Outfeed = list[object] | Callable[[int, object], None]
Watch = Callable[[Instruction, object], object]  # its value just had: the one to go on with


class HostChannel(Struct, frozen=True):
    """The host's end of a send or recv with is_host_transfer: either may be missing.

    `hlo.evaluate(module, .., channels={channel_id: HostChannel(..)})`.

    >>> hlo.HostChannel(send=print).receive is None
    True
    """

    receive: Callable[[], object] | None = None  # gives what the program's recv returns
    send: Callable[[object], None] | None = None  # takes what the program's send gives


class Surroundings(Struct):
    """What all devices of a run share: counts, limits, seed, host queues, the meeting point."""

    replicas: int = 1
    partitions: int = 1
    max_steps: int | None = None
    deadline: Deadline | None = None
    seed: int = 0
    infeed: Infeed = ()
    outfeed: Outfeed = field(default_factory=list)
    progress: Progress | None = None
    watch: Watch | None = None
    channels: Mapping[object, HostChannel] = field(default_factory=dict)
    rendezvous: Rendezvous = field(default_factory=lambda: Rendezvous(1))

    def __post_init__(self) -> None:
        self.seed = checked_count("seed", self.seed, 0)
        if self.max_steps is not None:
            self.max_steps = checked_count("max_steps", self.max_steps, 0)


class Device:
    """One logical device: replica and partition, g = replica * partitions + partition."""

    instruction: Instruction

    def __init__(self, surroundings: Surroundings, number: int = 0) -> None:
        self.surroundings = surroundings
        self.number = number
        self.seed = surroundings.seed
        self.replicas = surroundings.replicas
        self.partitions = surroundings.partitions
        self.replica, self.partition = divmod(number, surroundings.partitions)
        self._steps = 0
        self._drawn = 0
        self._states: dict[Instruction, int] = {}
        infeed = surroundings.infeed
        self._infeed: Iterator[object] | None = None if callable(infeed) else iter(infeed)

    def random_words(self, count: int) -> np.ndarray:
        """Words of Philox keyed by the seed; each device has its own range of counters."""
        counter = (self.number << 96) + self._drawn
        words, after = philox_words(self.seed % 2**64, counter, count)
        self._drawn = after - (self.number << 96)
        return words

    def advance_state(self, delta: int) -> int:
        before = self._states.get(self.instruction, FIRST_STATE)
        self._states[self.instruction] = (before + delta) % 2**128
        return before

    def count_step(self, loop: Instruction) -> None:
        self._steps += 1
        limit = self.surroundings.max_steps
        if limit is not None and self._steps > limit:
            message = f"while: {loop.name} goes on after {limit} iterations of all loops together"
            raise HloError("max-steps", message, loop.span, help="raise max_steps (--max-steps)")

    def exchange(self, group: tuple[int, ...], value: object) -> tuple[object, ...]:
        """Every member's value; alone in its group, a device does not wait."""
        if group == (self.number,):
            return (value,)
        return self.surroundings.rendezvous.exchange(self.number, group, self.instruction, value)

    def send(self, channel: object, target: int, value: object) -> None:
        self.surroundings.rendezvous.put((channel, self.number, target), value)

    def receive(self, channel: object, source: int, shape: Shape) -> object:
        key = (channel, source, self.number)
        value = self.surroundings.rendezvous.take(self.number, key, self.instruction)
        return self._checked(value, shape, f"what device {source} sent")

    def infeed(self, shape: Shape) -> object:
        feed = self.surroundings.infeed
        if callable(feed):
            value = feed(self.number, shape)
        else:
            assert self._infeed is not None, "an iterable has an iterator"
            value = next(self._infeed, self)
            if value is self:
                message = f"infeed: {self.instruction.name} finds no value, expected {shape}"
                raise HloError("arguments", message, self.instruction.span)
        return self._checked(value, shape, "the infeed's value")

    def outfeed(self, value: object, shape: Shape) -> None:
        feed = self.surroundings.outfeed
        if callable(feed):
            feed(self.number, fresh(value))
        else:
            feed.append(fresh(value))

    def send_to_host(self, channel: object, value: object) -> None:
        end = self._host_channel(channel).send
        if end is None:
            raise self._no_channel(channel, "send")
        end(fresh(value))

    def receive_from_host(self, channel: object, shape: Shape) -> object:
        end = self._host_channel(channel).receive
        if end is None:
            raise self._no_channel(channel, "receive")
        return self._checked(end(), shape, "the host's value")

    def _host_channel(self, channel: object) -> HostChannel:
        return self.surroundings.channels.get(channel, HostChannel())

    def _no_channel(self, channel: object, what: str) -> HloError:
        instruction = self.instruction
        message = f"{instruction.opcode}: host channel {channel} has no {what}, expected a function"
        return HloError("arguments", message, instruction.span, help="give channels={id: ...}")

    def _checked(self, value: object, shape: Shape, name: str) -> object:
        return checked_argument(value, shape, f"{self.instruction.opcode}: {name}")


def fresh(value: object, layouts: Shape | None = None) -> object:
    """A deep copy whose arrays alias nothing; row-major, or as `layouts` orders their bytes."""
    if isinstance(value, tuple | list):
        parts = layouts.elements if layouts is not None else [None] * len(value)
        return tuple(fresh(v, s) for v, s in zip(value, parts, strict=True))
    if value is None:
        return None
    array = np.asarray(value)
    layout = None if layouts is None else layouts.layout
    if layout is None or layout.is_default_order:
        return np.array(array, copy=True, order="C")
    major_to_minor = layout.minor_to_major[::-1]
    stored = np.array(array.transpose(major_to_minor), copy=True, order="C")
    return stored.transpose(np.argsort(major_to_minor))
