"""The arguments that a command runs a module on, as its flags say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo.cli.terminal import say
from hlo.errors import HloError

if TYPE_CHECKING:
    from hlo.ir.module import Module


def given_arguments(
    module: Module, inputs: tuple[str, ...], archive: str | None, kind: str, seed: int
) -> list[object]:
    """The entry's arguments: from flags, from an npz file, or made up where neither is given."""
    from hlo.tools.cases import arrays
    from hlo.tools.cases.inputs import made_up_inputs

    if archive is not None:
        values = arrays.arguments_from_npz(module, arrays.load_arrays(archive))
    elif inputs:
        values = _from_flags(module, inputs)
    else:
        values = made_up_inputs(module, kind, seed)
        if values:
            say(f"inputs: made up, --random={kind} --seed={seed}")
    return values


def _from_flags(module: Module, inputs: tuple[str, ...]) -> list[object]:
    from hlo.tools.cases import arrays

    parameters = module.entry.parameters
    names = [p.name for p in parameters]
    found: dict[int, object] = {}
    for text in inputs:
        name, array = arrays.parse_input(text)
        if name is not None and name not in names:
            raise HloError("arguments", f"input {name}: no such parameter, expected {names}")
        at = names.index(name) if name is not None else len(found)
        shape = parameters[at].shape if at < len(parameters) else None
        found[at] = arrays.as_written(array, shape) if shape and shape.is_array else array
    if len(found) != len(parameters) or max(found, default=-1) >= len(parameters):
        raise HloError(
            "arguments", f"{len(found)} inputs given, expected {len(parameters)}: {names}"
        )
    return [found[i] for i in range(len(parameters))]
