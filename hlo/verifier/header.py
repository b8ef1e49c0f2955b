"""The header: entry layout, aliasing and donation of parameters, counts, schedule."""

from __future__ import annotations

from collections.abc import Iterable

from hlo.attributes.aliasing import Donation, InputAlias
from hlo.ir.graph import control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape, Shape, compatible, shape_text
from hlo.source import Span
from hlo.verifier.calls import subshape
from hlo.verifier.layouts import fault
from hlo.verifier.report import Report


def check(module: Module, report: Report, *, layout_sensitive: bool = False) -> None:
    """V61 to V64 and V67."""
    for name in ("replica_count", "num_partitions"):
        count = module.attributes.get(name, 1)
        if isinstance(count, int) and count < 1:
            _report(
                module, report, "attribute-value", f"{name} is {count}, expected 1 or more", "V67"
            )
    _check_entry_layout(module, report)
    _check_aliases(module, report, layout_sensitive=layout_sensitive)
    if module.is_scheduled:
        _check_schedule(module, report)


def _report(module: Module, report: Report, code: str, message: str, label: str) -> None:
    span = None
    if module.source is not None:
        start = max(module.source.text.find("HloModule"), 0)
        span = Span(module.source, start, start + len("HloModule"))
    report.module(code, f"module: {message}", label, span)


def _check_entry_layout(module: Module, report: Report) -> None:
    layout = module.attributes.get("entry_computation_layout")
    if not isinstance(layout, ProgramShape):
        return
    actual = module.entry.program_shape
    if len(layout.parameters) != len(actual.parameters):
        found = f"entry_computation_layout has {len(layout.parameters)} parameters"
        message = f"{found}, expected {len(actual.parameters)}"
        _report(module, report, "shape-mismatch", message, "V61")
        return
    for shape in (*layout.parameters, layout.result):
        for leaf in shape.leaves():
            expected = fault(leaf, leaf.layout) if leaf.layout is not None else ""
            if expected:
                message = f"entry_computation_layout has {leaf}, expected {expected}"
                _report(module, report, "layout", message, "V27")
    pairs = [*zip(layout.parameters, actual.parameters, strict=True)]
    for i, (written, shape) in enumerate([*pairs, (layout.result, actual.result)]):
        if not compatible(written, shape):
            what = f"parameter {i}" if i < len(pairs) else "the result"
            found = f"{what} of entry_computation_layout is {_text(written)}"
            message = f"{found}, expected {_text(shape)}"
            _report(module, report, "shape-mismatch", message, "V61")


def _check_aliases(module: Module, report: Report, *, layout_sensitive: bool) -> None:
    """V62, V63: leaves that exist, arrays of one size, no parameter leaf twice."""
    signature = module.entry.program_shape
    used: set[tuple[int, tuple[int, ...]]] = set()
    outputs: set[tuple[int, ...]] = set()
    for alias in _listed(module, "input_output_alias"):
        assert isinstance(alias, InputAlias), "an alias"
        fault = _alias_fault(alias, signature) or (
            _memory_fault(alias, signature) if layout_sensitive else ""
        )
        if not fault and (alias.parameter, alias.index) in used:
            fault = f"parameter {alias.parameter} at {_path(alias.index)} is aliased twice"
        if not fault and alias.output in outputs:
            fault = f"output {_path(alias.output)} is aliased twice"
        if fault:
            message = f"input_output_alias: {fault}"
            _report(module, report, "aliasing", message, "V62")
        used.add((alias.parameter, alias.index))
        outputs.add(alias.output)
    for donor in _listed(module, "buffer_donor"):
        assert isinstance(donor, Donation), "a donation"
        fault = _leaf_fault(donor.parameter, donor.index, signature)
        if not fault and (donor.parameter, donor.index) in used:
            fault = f"parameter {donor.parameter} at {_path(donor.index)} is aliased too"
        if fault:
            _report(module, report, "aliasing", f"buffer_donor: {fault}", "V63")


def _listed(module: Module, name: str) -> Iterable[object]:
    found = module.attributes.get(name, ())
    return found if isinstance(found, tuple) else ()


def _alias_fault(alias: InputAlias, signature: ProgramShape) -> str:
    output = subshape(signature.result, alias.output)
    if output is None:
        return f"output {_path(alias.output)} is none, expected a part of {signature.result}"
    fault = _leaf_fault(alias.parameter, alias.index, signature)
    if fault:
        return fault
    if not output.is_array:
        return f"output {_path(alias.output)} is {_text(output)}, expected an array"
    source = subshape(signature.parameters[alias.parameter], alias.index)
    if alias.kind == "must-alias" and source is not None and not compatible(source, output):
        return f"output {_path(alias.output)} is {_text(output)}, expected {_text(source)}"
    return ""


def _memory_fault(alias: InputAlias, signature: ProgramShape) -> str:
    """Layout-sensitive: one memory has one size; what must share it, one layout."""
    output = subshape(signature.result, alias.output)
    source = subshape(signature.parameters[alias.parameter], alias.index)
    assert output is not None, "checked before"
    assert source is not None, "checked before"
    if output.size_bytes != source.size_bytes or (
        alias.kind == "must-alias" and output.layout != source.layout
    ):
        return f"output {_path(alias.output)} is {output}, expected the memory of {source}"
    return ""


def _leaf_fault(parameter: int, index: tuple[int, ...], signature: ProgramShape) -> str:
    if not 0 <= parameter < len(signature.parameters):
        return f"parameter {parameter} is none, expected one below {len(signature.parameters)}"
    leaf = subshape(signature.parameters[parameter], index)
    if leaf is None:
        whole = _text(signature.parameters[parameter])
        return f"parameter {parameter} has nothing at {_path(index)}, expected a part of {whole}"
    if not leaf.is_array:
        return f"parameter {parameter} at {_path(index)} is {_text(leaf)}, expected an array"
    return ""


def _check_schedule(module: Module, report: Report) -> None:
    """V64: the order of instructions is a schedule."""
    for computation in module.computations:
        seen: set[Instruction] = set()
        for instruction in computation.instructions:
            late = [o for o in (*instruction.operands, *control_predecessors(instruction))
                    if o not in seen]  # fmt: skip
            if late:
                found = f"before {late[0].name} in the schedule"
                report.broken(instruction, "schedule", "", found, "after what it needs", "V64")
            seen.add(instruction)


def _path(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


def _text(shape: Shape) -> str:
    return shape_text(shape, layout=False)
