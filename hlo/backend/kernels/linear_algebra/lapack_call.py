"""LapackCall: the kernel of a batch of LAPACK problems, one per unit, written step by step.

    operands by rows --taken--> scratch memory by columns --call--> --given--> results by rows

What LAPACK writes as a vector or a number goes straight to its result. Constants are addresses too,
as everything is that Fortran takes. Shapes other than the routine's are declined, so that nothing
is written beyond a result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo.backend.ir.arithmetic import times
from hlo.backend.ir.control import when
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.linear_algebra import lapack_symbols
from hlo.backend.kernels.linear_algebra.columns import nan_finding, pairing, turning
from hlo.backend.kernels.linear_algebra.library_threads import entering, leaving
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.loops.schedule import Plan
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import ALIGNMENT, aligned
from hlo.ops.lapack import Config
from hlo.ops.lapack_library import works_alone

MOST_SCRATCH_BYTES = 1 << 28
STEPS = 10  # About how many operations an element and row take, for the cost model.
# The same of a call, whatever it does: of what factors, and of what iterates.
FACTORED, ITERATED = 30_000, 400_000
# Factorisations of less are one unit: each call locks the library's memory, so that threads wait
# for each other (LU of complex 4 x 4 by two threads: 2.1 times as long as by one, 8 x 8 as long,
# 16 x 16 0.56). What iterates takes ten times as long, and longer than the lock.
LEAST_SHARED = 16_000
LETTERS = {"s": dt.F32, "d": dt.F64, "c": dt.C64, "z": dt.C128}
NULL = Value("null", "ptr")


class LapackCall:
    """A kernel under construction. rank: of one problem's first operand. is_direct: whether the
    routine factors, and does not iterate.
    """

    def __init__(
        self,
        instruction: Instruction,
        letter: str,
        config: Config,
        target: Target,
        rank: int,
        *,
        is_direct: bool,
    ) -> None:
        self.instruction = instruction
        self.letter = letter
        self.is_direct = is_direct
        self.config = config
        self.target = target
        self.dtype = LETTERS[letter]
        self.real = self.dtype.component
        self.w = Writer()
        self.nest = Nest(self.w, target)
        self.operands = [o.shape for o in instruction.operands]
        shape = instruction.shape
        self.results = list(shape.elements) if shape.is_tuple else [shape]
        dims = self.operands[0].dims
        self.batch = dims[: len(dims) - rank]
        # Whoever links an object file has a library of which nothing is known.
        self.is_alone = target.seeks_lapack and works_alone(dims, rank)
        self.scratch_bytes = 0
        self.functions: dict[str, Kernel] = {}

    @property
    def is_real(self) -> bool:
        return self.letter in "sd"

    @property
    def scalar(self) -> str:
        """LLVM's type of a real number, or of a part of a complex one."""
        return "float" if self.real is dt.F32 else "double"

    def written(self, problem: Callable[[LapackCall], None]) -> Kernel | None:
        """The kernel; None where a problem needs too much memory."""
        w, count = self.w, len(self.operands) + len(self.results)
        *self.addresses, self.scratch_at = (w.buffer_address(n) for n in range(count + 1))

        def one(unit: Value, _: list[Value]) -> list[Value]:
            self.unit = unit
            if any(s.size == 0 for s in self.operands):
                for number in range(len(self.results)):
                    self.cleared(number)
            else:
                problem(self)
            return []

        if self.is_alone:
            self._called(entering(), "void")
        self.nest.loop(*self._problems(), 1, [], one)
        if self.is_alone:
            self._called(leaving(), "void")
        if self.scratch_bytes > MOST_SCRATCH_BYTES:
            return None
        w.ret()
        call = FACTORED if self.is_direct else ITERATED
        made = Kernel(
            w.function(has_entry=True),
            1 if self.is_short else max(prod(self.batch), 1),
            *w.beside,
            scratch_bytes=max(self.scratch_bytes, ALIGNMENT),
            bytes_moved=sum(s.size_bytes for s in (*self.operands, *self.results)),
            flops=prod(self.batch) * max(call, self.problem_flops),
            functions=tuple(self.functions.values()),
        )
        units = "all problems a unit" if self.is_short else "a unit a problem"
        return self.target.shown(made, lambda: Plan((f"call of LAPACK, {units}",)))

    @property
    def problem_flops(self) -> int:
        """About what a problem takes, the call aside."""
        of_one = [s.dims[len(self.batch) :] for s in self.operands]
        dims = max(of_one, key=prod)
        return STEPS * prod(dims) * max(dims, default=1)

    @property
    def is_short(self) -> bool:
        """Whether a problem takes too little for several threads."""
        return self.is_direct and self.problem_flops < LEAST_SHARED

    def _problems(self) -> tuple[Bound, Bound]:
        """Those of the units from BEGIN to END."""
        return (0, max(prod(self.batch), 1)) if self.is_short else (BEGIN, END)

    # -- arguments -------------------------------------------------------------------------------

    def number(self, value: int) -> Value:
        """The address of an integer."""
        name = f"hlo_i32_{value}".replace("-", "minus_")
        self.w.enter_data(name, f"@{name} = private constant i32 {value}")
        return Value(f"@{name}", "ptr")

    def choice(self, letter: str) -> Value:
        """The address of a letter."""
        name = f"hlo_letter_{letter}"
        self.w.enter_data(name, f"@{name} = private constant i8 {ord(letter)}")
        return Value(f"@{name}", "ptr")

    def scratch(self, count: int, dtype: DType) -> Value:
        """Memory of the thread's own for so many elements."""
        start, size = self.scratch_bytes, max(count, 1) * dtype.item_bytes
        self.scratch_bytes = aligned(start + size)
        return self.w.address(self.scratch_at, self.w.int(start), "i8")

    def after(self, vector: Value, count: int) -> Value:
        """A vector without its first elements."""
        return element_address(self.w, vector, self.w.int(count), self.dtype)

    def matrix_dims(self, operand: int) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.operands[operand].dims[len(self.batch) :]
        return rows, columns

    def matrix(self, operand: int) -> Value:
        """The unit's matrix by columns, in scratch memory."""
        rows, columns = self.matrix_dims(operand)
        source = self._taken(operand, (rows, columns))
        target = self.scratch(rows * columns, self.dtype)
        self._turned(source, target, rows, columns)
        return target

    def vector(self, operand: int, count: int, dtype: DType | None = None) -> Value:
        """A copy of the unit's vector, in scratch memory."""
        dtype = dtype or self.dtype
        source = self._taken(operand, (count,), dtype)
        target = self.scratch(count, dtype)
        self._copied(source, target, count * dtype.item_bytes)
        return target

    def _taken(self, operand: int, dims: tuple[int, ...], dtype: DType | None = None) -> Value:
        shape = self.operands[operand]
        return self._row(shape, self.addresses[operand], dims, dtype or self.dtype)

    def result(self, number: int, dims: tuple[int, ...], dtype: DType | None = None) -> Value:
        """Where the unit's part of a result lies."""
        place = self.addresses[len(self.operands) + number]
        return self._row(self.results[number], place, dims, dtype or self.dtype)

    def _row(self, shape: Shape, place: Value, dims: tuple[int, ...], dtype: DType) -> Value:
        if not shape.is_array or shape.dims != (*self.batch, *dims) or shape.dtype is not dtype:
            message = (
                f"{self.instruction.opcode}: {shape}, expected {dtype}{list(dims)} per problem"
            )
            raise HloError("unsupported", message, self.instruction.span)
        return element_address(self.w, place, times(self.w, self.unit, prod(dims)), dtype)

    # -- steps -----------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Value) -> None:
        """Call LAPACK's routine of the problem's type."""
        if self.target.seeks_lapack and not lapack_symbols.has_routine(self.letter + name):
            raise HloError("unsupported", f"{self.letter}{name}: not in this SciPy")
        routine = lapack_symbols.symbol(self.letter + name)
        self.w.call_declared(routine, *arguments)

    def give(self, number: int, matrix: Value, rows: int, columns: int) -> None:
        """A matrix by columns as a result."""
        self._turned(matrix, self.result(number, (rows, columns)), columns, rows)

    def copy(self, number: int, vector: Value, count: int, dtype: DType) -> None:
        """A vector as a result."""
        self._copied(vector, self.result(number, (count,), dtype), count * dtype.item_bytes)

    def keep(self, number: int, operand: int) -> None:
        """An operand as a result."""
        dims = self.operands[operand].dims[len(self.batch) :]
        source, target = self._taken(operand, dims), self.result(number, dims)
        self._copied(source, target, prod(dims) * self.dtype.item_bytes)

    def give_paired(self, number: int, vectors: Value, imaginary: Value, size: int) -> None:
        """Eigenvectors of a real matrix as a complex result."""
        complex = dt.C64 if self.real is dt.F32 else dt.C128
        target = self.result(number, (size, size), complex)
        function = pairing(self.target.of_library, self.scalar)
        self._called(function, "void", vectors, imaginary, target, self.w.int(size))

    def cleared(self, number: int, byte: int = 0) -> None:
        """A result of zeros, or of other equal bytes."""
        shape = self.results[number]
        size = shape.size_bytes // max(prod(self.batch), 1)
        place = self.addresses[len(self.operands) + number]
        target = self.w.address(place, times(self.w, self.unit, size), "i8")
        self.w.fill_bytes(target, byte, size)

    def filled(self, number: int, dims: tuple[int, ...], dtype: DType | None = None) -> None:
        """A result of NaN."""
        dtype = dtype or self.dtype
        target, parts = self.result(number, dims, dtype), 2 if dtype.is_complex else 1
        w, nan = self.w, Value("0x7FF8000000000000", self.scalar)

        def one(i: Value, _: list[Value]) -> list[Value]:
            part = w.address(target, i, self.scalar)
            w.store(nan if parts == 1 else self._nan_part(i, nan), part, 4)
            return []

        self.nest.loop(0, parts * prod(dims), 1, [], one)

    def _nan_part(self, index: Value, nan: Value) -> Value:
        """NaN where the index is even, 0 where it is odd: NumPy's complex NaN."""
        w = self.w
        is_odd = w.cast("trunc", index, "i1")
        return w.select(is_odd, w.zero(self.scalar), nan)

    def report(self, number: int, value: int) -> None:
        """A number as a scalar result."""
        self.w.store(self.w.int(value, "i32"), self.result(number, (), dt.S32), 4)

    def unless_nan(
        self, matrix: Value, count: int, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """then() where none of so many elements is NaN, else otherwise()."""
        function = nan_finding(self.target.of_library, self.scalar)
        parts = 2 if self.dtype.is_complex else 1
        bad = self._called(function, "i1", matrix, self.w.int(count * parts))
        when(self.w, bad, otherwise, then)

    def unless_failed(
        self, info: Value, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """then() where a routine reported 0, else otherwise()."""
        reported = self.w.load(info, "i32", 4)
        when(self.w, self.w.compare("icmp eq", reported, self.w.int(0, "i32")), then, otherwise)

    def _turned(self, source: Value, target: Value, rows: int, columns: int) -> None:
        w = self.w
        size = self.dtype.item_bytes
        if 1 in (rows, columns):
            self._copied(source, target, rows * columns * size)
            return
        turned = turning(self.target.of_library, size)
        self._called(turned, "void", source, target, w.int(rows), w.int(columns))

    def _copied(self, source: Value, target: Value, size: int) -> None:
        self.w.copy_bytes(target, source, self.w.int(size))

    def _called(self, function: Kernel, result: str, *arguments: Value) -> Value:
        self.functions[function.text] = function
        name = symbol(function)
        return self.w.call_declared(name, *arguments, type=result)
