"""The Builder's ops that call computations, draw random numbers, talk to devices, and tuples."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.attributes.window import Window, WindowDim
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.building.caller import error
from hlo.ops.building.contraction import Contraction, Pads
from hlo.ops.building.instruction_builder import Operand
from hlo.ops.building.python_values import ints

Ints = Sequence[int]
Operands = Operand | Sequence[Operand]


class Control(Contraction):
    """Loops, branches, reductions, sorts, random numbers, all-reduce, tuples."""

    def tuple(self, *elements: Operands, name: str = "") -> Instruction:
        """A tuple of its operands, given one by one or as one list."""
        return self.emit("tuple", *_several(elements), name=name)

    def get_tuple_element(self, x: Instruction, index: int, *, name: str = "") -> Instruction:
        """Element `index` of a tuple."""
        return self.emit("get-tuple-element", x, index=index, name=name)

    def call(
        self, computation: Computation, *operands: Operands, name: str = "", **attributes: object
    ) -> Instruction:
        """The computation's result for the operands."""
        flat = _several(operands)
        attributes = {"to_apply": computation, **attributes}
        return self.emit("call", *flat, name=name, **attributes)  # type: ignore[arg-type]  # attributes, no other option

    def while_(
        self, condition: Computation, body: Computation, init: Operand, *, name: str = ""
    ) -> Instruction:
        """body applied to init, and to its own result, as long as condition holds."""
        return self.emit("while", init, condition=condition, body=body, name=name)

    def conditional(  # HLO's form with two branches
        self,
        predicate: Operand,
        true_operand: Operand,
        true_computation: Computation,
        false_operand: Operand,
        false_computation: Computation,
        *,
        name: str = "",
    ) -> Instruction:
        """One of two computations, each with an operand of its own."""
        return self.emit(
            "conditional", predicate, true_operand, false_operand,
            true_computation=true_computation, false_computation=false_computation, name=name,
        )  # fmt: skip

    def conditional_indexed(
        self, index: Operand, branches: Sequence[Computation], operands: Sequence[Operand],
        *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """The computation of that number; the last one for a number that has none."""
        arrays = self.operands("conditional", (index,)) + self.operands("conditional", operands)
        return self.emit("conditional", *arrays, branch_computations=tuple(branches), name=name)

    def map(
        self, operands: Operands, to_apply: Computation, dimensions: Ints | None = None,
        *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """to_apply on the scalars at each index; dimensions: all, in order."""
        arrays = self.operands("map", _several((operands,)))
        if dimensions is None and arrays:
            dimensions = range(arrays[0].shape.rank)
        return self.emit("map", *arrays, dimensions=dimensions, to_apply=to_apply, name=name)

    def reduce(
        self, operands: Operands, init_values: Operands, to_apply: Computation,
        dimensions: Ints | None = None, *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """Reduces dimensions away, by default all; several operands are reduced together."""
        arrays = self.operands("reduce", _several((operands,)))
        starts = self._starts(arrays, init_values)
        if dimensions is None and arrays:
            dimensions = range(arrays[0].shape.rank)
        return self.emit(
            "reduce", *arrays, *starts, dimensions=dimensions, to_apply=to_apply, name=name
        )

    def _starts(self, arrays: Sequence[Instruction], given: Operands) -> list[Instruction]:
        """Initial values; a Python number takes its array's element type."""
        values = _several((given,))
        if len(values) != len(arrays):
            message = f"reduce: {len(values)} init values, expected {len(arrays)}"
            raise error("arity", f"{message}, one per operand")
        pairs = zip(arrays, values, strict=True)
        return [self.operands("init value", pair)[1] for pair in pairs]

    def reduce_window(  # noqa: PLR0913  # HLO's attributes
        self,
        operands: Operands,
        init_values: Operands,
        to_apply: Computation,
        window_dimensions: Ints,
        window_strides: Ints | None = None,
        padding: Pads | str = "VALID",
        base_dilations: Ints | None = None,
        window_dilations: Ints | None = None,
        *,
        name: str = "",
    ) -> Instruction:
        """Reduces each window; padding: SAME, VALID, or (low, high) per dimension."""
        what = "reduce-window"
        arrays = self.operands(what, _several((operands,)))
        starts = self._starts(arrays, init_values)
        if not arrays:
            raise error("arity", f"{what}: no operands, expected at least 1")
        window = self._window(
            what, arrays[0], window_dimensions, window_strides, padding, base_dilations,
            window_dilations,
        )  # fmt: skip
        return self.emit(what, *arrays, *starts, window=window, to_apply=to_apply, name=name)

    def select_and_scatter(  # noqa: PLR0913  # HLO's attributes
        self,
        x: Operand,
        select: Computation,
        window_dimensions: Ints,
        window_strides: Ints | None,
        padding: Pads | str,
        source: Operand,
        init_value: Operand,
        scatter: Computation,
        *,
        name: str = "",
    ) -> Instruction:
        """Each source element goes where `select` finds the best of its window."""
        what = "select-and-scatter"
        array, *rest = self.operands(what, (x, source, init_value))
        window = self._window(what, array, window_dimensions, window_strides, padding, None, None)
        return self.emit(
            what, array, *rest, window=window, select=select, scatter=scatter, name=name
        )

    def _window(  # the fields of a window
        self,
        what: str,
        array: Instruction,
        sizes: Ints,
        strides: Ints | None,
        padding: Pads | str,
        base: Ints | None,
        holes: Ints | None,
    ) -> Window:
        dims, rank = array.shape.dims, array.shape.rank
        size = self._column(what, "window_dimensions", sizes, rank, 1)
        step = self._column(what, "window_strides", strides, rank, 1)
        low = self._column(what, "base_dilations", base, rank, 1)
        high = self._column(what, "window_dilations", holes, rank, 1)
        inputs = [(n - 1) * b + 1 if n else 0 for n, b in zip(dims, low, strict=True)]
        reaches = [(n - 1) * h + 1 for n, h in zip(size, high, strict=True)]
        pads = self._pads(what, padding, inputs, reaches, step)
        rows = zip(size, step, pads, low, high, strict=True)
        return Window(tuple(WindowDim(n, s, *pad, b, h) for n, s, pad, b, h in rows))

    def sort(
        self, operands: Operands, comparator: Computation, dimension: int = -1,
        *, is_stable: bool = False, name: str = "",
    ) -> Instruction:  # fmt: skip
        """Sorts along a dimension, -1 for the last; several operands move together."""
        arrays = self.operands("sort", _several((operands,)))
        if dimension == -1 and arrays:
            dimension = arrays[0].shape.rank - 1
        return self.emit(
            "sort", *arrays, dimensions=(dimension,), is_stable=is_stable, to_apply=comparator,
            name=name,
        )  # fmt: skip

    def rng_uniform(
        self, low: Operand, high: Operand, shape: Shape, *, name: str = ""
    ) -> Instruction:
        """Random numbers of [low, high)."""
        return self._rng("rng_uniform", low, high, shape, name)

    def rng_normal(
        self, mean: Operand, deviation: Operand, shape: Shape, *, name: str = ""
    ) -> Instruction:
        """Random numbers of a normal distribution."""
        return self._rng("rng_normal", mean, deviation, shape, name)

    def _rng(
        self, distribution: str, first: Operand, second: Operand, shape: Shape, name: str
    ) -> Instruction:
        if not isinstance(shape, Shape) or not shape.is_array:
            raise error("arguments", f"{distribution}: shape is {shape}, expected an array's shape")
        scalars = [
            value if isinstance(value, Instruction) else self.constant(value, shape.dtype)
            for value in (first, second)
        ]
        return self.emit("rng", *scalars, distribution=distribution, shape=shape, name=name)

    def rng_bit_generator(
        self, algorithm: str, initial_state: Operand, shape: Shape, *, name: str = ""
    ) -> Instruction:
        """(new state, random bits of `shape`); algorithm: rng_default, rng_three_fry, ..."""
        (state,) = self.operands("rng-bit-generator", (initial_state,))
        both = Shape.tuple([state.shape, shape])
        return self.emit("rng-bit-generator", state, algorithm=algorithm, shape=both, name=name)

    def cross_replica_sum(
        self, x: Operand, replica_groups: Sequence[Ints] = (), *, name: str = ""
    ) -> Instruction:
        """The sum of x over all replicas, or over those of each group."""
        array = self.array("cross_replica_sum", x)
        return self.emit(
            "all-reduce", array, replica_groups=[ints(g) for g in replica_groups],
            to_apply=self.scalar_computation("add", array.shape.dtype), name=name,
        )  # fmt: skip

    def scalar_computation(self, opcode: str, dtype: DType | str) -> Computation:
        """A computation of one binary op on two scalars: the `to_apply` of reductions."""
        inner = self.subcomputation(opcode)
        scalar = Shape.array(self.element_type("scalar_computation", dtype))
        x, y = inner.parameter("x", scalar), inner.parameter("y", scalar)
        return inner.finish(inner.emit(opcode, x, y))

    def custom_call(
        self, target: str, operands: Sequence[Operand], shape: Shape, *, name: str = "",
        **attributes: object,
    ) -> Instruction:  # fmt: skip
        """A call of what is registered under the target's name."""
        attributes["custom_call_target"] = target
        return self.emit("custom-call", *operands, shape=shape, name=name, **attributes)

    def fft(self, x: Operand, fft_type: str, fft_length: Ints, *, name: str = "") -> Instruction:
        """FFT, IFFT, RFFT or IRFFT over the last dimensions."""
        return self.emit("fft", x, fft_type=fft_type, fft_length=fft_length, name=name)

    def subcomputation(self, name: str) -> Control:
        """A builder for a computation of the same module; end it with `finish(root)`."""
        inner = type(self)(name)
        inner._module = self._module
        inner._computation = Computation(name)
        return inner


def _several(values: Sequence[Operands]) -> list[Operand]:
    """Operands given one by one, or as one list."""
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return list(values[0])
    return list(values)  # type: ignore[arg-type]  # no lists among them
