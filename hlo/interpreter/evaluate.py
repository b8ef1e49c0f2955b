"""The reference: a module and arrays in, arrays out.

arguments --check--> values --run the entry--> root's value --copy--> fresh arrays
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from hlo.errors import HloError, checked_count
from hlo.interpreter.device import (
    Device,
    HostChannel,
    Infeed,
    Outfeed,
    Progress,
    Surroundings,
    Watch,
    fresh,
)
from hlo.interpreter.frames import room_for
from hlo.interpreter.rendezvous import Abandoned, Rendezvous
from hlo.interpreter.run import Run, check_sizes, out_of_memory
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.runtime.arguments import checked_arguments
from hlo.runtime.stops import Deadline


def evaluate(  # noqa: PLR0913  # the public name's form is fixed
    module: Module,
    *arguments: object,
    max_steps: int | None = None,
    timeout: float | None = None,
    seed: int = 0,
    infeed: Infeed = (),
    outfeed: Outfeed | None = None,
    channels: Mapping[object, HostChannel] | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> object:
    """The entry's result on one device: an array or nested tuples, aliasing nothing.

    max_steps limits the iterations of all loops together; timeout: seconds, looked at between
    instructions; seed starts `rng`; progress hears of the
    entry's steps, done and total; watch of every value, those of parameters at each call, and
    gives the one to go on with. Raises HloError: `arguments`, `elided-constant`, `max-steps`,
    `timeout`, `unsupported`.
    """
    surroundings = Surroundings(
        max_steps=max_steps,
        deadline=Deadline.after(timeout),
        seed=seed,
        infeed=infeed,
        outfeed=[] if outfeed is None else outfeed,
        channels=channels or {},
        progress=progress,
        watch=watch,
    )
    return _on_device(module, arguments, Device(surroundings))


def _on_device(module: Module, arguments: Sequence[object], device: Device) -> object:
    check_sizes(module)
    values = checked_arguments(module.entry.parameters, arguments)
    with np.errstate(all="ignore"), room_for(module):
        try:
            result = Run(device).call(module.entry, values)
        except (ValueError, IndexError) as failed:
            misfit = _misfit(module, device.instruction, failed)
            if misfit is None:
                raise
            raise misfit from failed
    try:
        return fresh(result, result_layouts(module))
    except MemoryError:
        raise out_of_memory(module.entry.root) from None


def _misfit(module: Module, at: Instruction, failed: Exception) -> HloError | None:
    """The error where operands have sizes at run time that do not fit each other, and NumPy says
    so; none in programs whose sizes are known, which are checked before.
    """
    if not any(i.shape.is_dynamic for c in module.computations for i in c.instructions):
        return None
    message = f"{at.opcode}: dynamic sizes are such that {failed}, expected sizes that fit"
    return HloError("shape-mismatch", message, at.span)


def result_layouts(module: Module) -> Shape:
    """The result's shape with the layouts that the entry promises."""
    layout = module.attributes.get("entry_computation_layout")
    result = getattr(layout, "result", None)
    return result if isinstance(result, Shape) else module.entry.root.shape


def evaluate_devices(  # noqa: PLR0913  # the public name's form is fixed
    module: Module,
    arguments: Sequence[Sequence[object]],
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    max_steps: int | None = None,
    timeout: float | None = None,
    seed: int = 0,
    infeed: Infeed = (),
    outfeed: Outfeed | None = None,
    channels: Mapping[object, HostChannel] | None = None,
) -> list[object]:
    """The results of all devices; arguments[g] are those of g = replica * partitions + partition.

    Counts that are not given come from the module's header. Each device is a thread; a program
    whose devices wait for each other ends with the error `deadlock`.
    """
    rows, columns = (
        _count("replicas", replicas, module, "replica_count"),
        _count("partitions", partitions, module, "num_partitions"),
    )
    total = rows * columns
    if len(arguments) != total:
        found = f"arguments for {len(arguments)} devices"
        raise HloError("arguments", f"{found}, expected {rows} replicas x {columns} partitions")
    surroundings = Surroundings(
        replicas=rows,
        partitions=columns,
        max_steps=max_steps,
        deadline=Deadline.after(timeout),
        seed=seed,
        infeed=infeed,
        outfeed=[] if outfeed is None else outfeed,
        channels=channels or {},
        rendezvous=Rendezvous(total),
    )
    return _in_threads(module, arguments, surroundings)


def _count(what: str, given: int | None, module: Module, attribute: str) -> int:
    if given is not None:
        return checked_count(what, given)
    found = module.attributes.get(attribute, 1)
    return found if isinstance(found, int) and found > 0 else 1


def _in_threads(
    module: Module, arguments: Sequence[Sequence[object]], surroundings: Surroundings
) -> list[object]:
    """Every device in a thread of its own; the first failure by device number is raised."""
    rendezvous = surroundings.rendezvous
    results: list[object] = [None] * len(arguments)
    failures: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            device = Device(surroundings, number)
            results[number] = _on_device(module, arguments[number], device)
        except Abandoned:
            pass
        except BaseException as error:  # raised in the caller's thread
            failures[number] = error
            rendezvous.abandon()
        finally:
            rendezvous.leave(number)

    threads = [threading.Thread(target=run, args=(g,), daemon=True) for g in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
    for channel, source, target in rendezvous.undelivered():
        message = f"send on channel {channel} from device {source} to {target}"
        raise HloError("deadlock", f"{message} was never received, expected a recv")
    return results
