"""Context: what an op that reaches outside its operands may ask of the run that evaluates it.

A row with `takes_context` gets it as `context=`; hlo/interpreter/device.py implements it, one per
device. Devices are numbered g = replica * partitions + partition.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape


class Context(Protocol):
    """One device's view of a run."""

    replica: int
    partition: int
    replicas: int
    partitions: int
    instruction: Instruction  # the one being evaluated
    seed: int  # The seed of the run's random numbers.

    def random_words(self, count: int) -> np.ndarray:
        """The next 32-bit words of the run's random stream (uint32[count])."""
        ...

    def advance_state(self, delta: int) -> int:
        """The 128-bit counter of this rng-get-and-update-state before `delta` is added to it."""
        ...

    def count_step(self, loop: Instruction) -> None:
        """One more iteration of a while; an error once the run's limit is passed."""
        ...

    def exchange(self, group: tuple[int, ...], value: object) -> tuple[object, ...]:
        """Deposit `value`, wait for every device of `group`, return their values in group order."""
        ...

    def send(self, channel: object, target: int, value: object) -> None:
        """Put a value into the mailbox (channel, this device, target); never blocks."""
        ...

    def receive(self, channel: object, source: int, shape: Shape) -> object:
        """Take the next value from the mailbox (channel, source, this device); waits for it."""
        ...

    def infeed(self, shape: Shape) -> object:
        """The next value of the device's infeed."""
        ...

    def outfeed(self, value: object, shape: Shape) -> None:
        """Append a value to the device's outfeed."""
        ...

    def send_to_host(self, channel: object, value: object) -> None: ...

    def receive_from_host(self, channel: object, shape: Shape) -> object: ...
