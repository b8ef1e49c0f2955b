"""What is done when a whole module has been read: checks, frames (frames.py), unique names."""

from __future__ import annotations

from msgspec.structs import replace

from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.names import has_unique_names, unique_names
from hlo.ir.shape import ProgramShape, Shape

# Where a module's configuration is made anew, and what leaves it as it is; so does an empty list.
_CONFIGURING: dict[str, object] = {
    "alias_passthrough_params": False,
    "replica_count": 1,
    "num_partitions": 1,
    "allow_spmd_sharding_propagation_to_parameters": None,
    "allow_spmd_sharding_propagation_to_output": None,
}


def finish_module(module: Module, tables: object | None, *, entry_first: bool = False) -> None:
    """Check what concerns the whole module, then number its frames and names as XLA does.

    entry_first: a single-instruction text, whose entry chooses its names first.
    """
    _check_aliases(module)
    _check_async_callers(module)
    instructions = [i for c in module.computations for i in c.instructions]
    if any("metadata" in i.attributes for i in instructions):
        from hlo.parser.frames import intern_frames

        intern_frames(module, instructions, tables)
    if not has_unique_names(module):
        order = module.computations
        if entry_first:
            module.computations = [module.entry, *(c for c in order if c is not module.entry)]
        unique_names(module)
        module.computations = order
    if entry_first or _is_configured(module):
        _default_entry_layout(module)


def _is_configured(module: Module) -> bool:
    """Whether the header says no entry layout, but what XLA makes a module's configuration anew
    for: what was known of the entry's layouts is then forgotten.
    """
    given = module.attributes
    if "entry_computation_layout" in given or given.keys().isdisjoint(_CONFIGURING):
        return False
    return any(
        given.get(key, default) not in (default, ()) for key, default in _CONFIGURING.items()
    )


def _default_entry_layout(module: Module) -> None:
    """The entry layout of a single instruction, or of one that is configured, is row-major,
    whatever its shapes say.
    """
    shape = module.entry.program_shape
    layout = ProgramShape(tuple(map(_row_major, shape.parameters)), _row_major(shape.result))
    module.attributes = {**module.attributes, "entry_computation_layout": layout}


def _row_major(shape: Shape) -> Shape:
    """Tiles, memory space and the rest of the layout stay. Recursive: tuples are shallow."""
    if shape.layout is not None:
        order = tuple(range(shape.rank - 1, -1, -1))
        return shape.with_layout(replace(shape.layout, minor_to_major=order))
    return replace(shape, elements=tuple(map(_row_major, shape.elements)))


def _check_aliases(module: Module) -> None:
    """Every aliased output is a place in the root's shape."""
    root = module.entry.root.shape
    aliases = module.attributes.get("input_output_alias", ())
    if not aliases:
        return
    from hlo.attributes.aliasing import InputAlias

    for alias in aliases:  # type: ignore[attr-defined]  # a tuple of InputAlias
        assert isinstance(alias, InputAlias), "what the kind builds"
        shape: Shape = root
        for index in alias.output:
            if not shape.is_tuple or not 0 <= index < len(shape.elements):
                listed = ",".join(map(str, alias.output))
                expected = f"a place in the root's shape {root}"
                raise Violation(
                    "attribute-value", "input_output_alias", f"output {{{listed}}}", expected
                )
            shape = shape.elements[index]


def _check_async_callers(module: Module) -> None:
    callers: dict[Computation, Instruction] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode != "async-start":
                continue
            wrapped = instruction.attributes["calls"]
            assert isinstance(wrapped, Computation), "resolved"
            if wrapped in callers:
                found = (
                    f"{wrapped.name} is called by {callers[wrapped].name} and {instruction.name}"
                )
                raise Violation("call-signature", "calls", found, "one async-start per computation")
            callers[wrapped] = instruction
