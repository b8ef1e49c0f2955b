"""No recursion over what a user wrote: a scan of the source for it, and deep programs that are run.

The scan finds functions that may call themselves, directly or through others, and compares them
with a list that gives the reason why each ends. The programs are deeper than Python's stack.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.ir.shape import DEEPEST_TUPLE, Shape
from tests.support.call_graph import Source, call_graph, cycles, read
from tests.support.growing_modules import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 650  # of Python's frames, and levels of the deep programs

# Why it ends: the first function of each cycle, and how many are in it where there are several.
ALLOWED = {
    "a call for each fusion in a fusion of a block, whose texts are cut level by level before": """
        analysis.blocks.seen_columns._Flat._twin*2
    """,
    "a step is one less of the few that are looked ahead": """
        passes.movement.select_sinking._Steps._like*2
        passes.while_loops.counted_rows._range passes.while_loops.counted_runs._Lines.line
    """,
    "eight instructions at most, which were counted before": """
        passes.while_loops.counted_rows._value
    """,
    "what a program has for later: a call of the user's each": """
        driver._bindable*2
    """,
    "numpy's own: of an array on the same memory": """
        formats.callbacks.Buffer.__dlpack__ formats.callbacks.Buffer.writeable
    """,
    "once: of the default command, which has no subcommands": """
        cli.main.LazyGroup.shell_complete
    """,
    "a call for each level of a tuple, which Shape.tuple bounds by 120, an origin by 200": """
        attributes.literal_text.literal_text attributes.literal_text.typed_literal_text
        attributes.origin._tuples attributes.sharding.sharding_text backend.host._nothing
        backend.host._value analysis.fingerprint._literal backend.loops.outputs._leaf_paths.walk
        backend.kernels.fused_loops._paths backend.linking.compilation_cache._literal
        backend.linking.compilation_cache.module_digest.written backend.padded._filled
        backend.padded._value backend.probing._read.value analysis.leaves._Counted.__init__*2
        backend.planning.result_order._ordered backend.planning.result_order._stored_tree
        interpreter.device.fresh interpreter.run._is_large interpreter.run.literal_value
        ir.literal.Literal.is_elided ir.literal.Literal.of*18 ir.literal.Literal.same_bits
        ir.shape.Shape.is_dynamic ir.shape.Shape.leaves ir.shape.Shape.size_bytes
        ir.shape.Shape.without_layout ir.shape.compatible ops.control._any_branch_dynamic
        ops.control.zeros_of ops.custom_call._conforming ops.custom_call._fitting
        ops.custom_call._own ops.host._zeros parser.finish._row_major
        parser.literals._Reader._tuple*2 passes.simplify.cse._literal_key
        passes.padding.program._packed passes.padding.scope.built passes.padding.scope.Scope.parts
        passes.padding.scope.Scope.tree passes.padding.scope.flattened
        passes.padding.scope.is_dynamic passes.padding.scope.static
        passes.simplify.tuple_simplifier._simplified*2 runtime.arguments._holds
        runtime.arguments.checked_argument runtime.native_calls._spread
        runtime.native_calls.form_of runtime.native_calls.formed tools.cases.arrays._nested
        tools.cases.arrays.leaves tools.comparison.compare._leaves tools.cases.fill._filled
        tools.cases.inputs._value tools.cases.shrinking._mapped_literal
        tools.cases.shrinking._mapped_shape tools.cases.shrinking._mapped_value
        tools.comparison.verdicts._nudged verifier.buffers._paths verifier.instructions._paths
        verifier.instructions._skeleton formats.literal_message._literal
        formats.literal_message.literal_message formats.metadata_message._frozen
        formats.module_text._any_value formats.module_text._with_layouts formats.reading._plain
        formats.shape_message.shape_message formats.shape_message.shape_text
        formats.sharding_message.sharding_message
    """,
    "a call for each level of messages, which decoding bounds by 200 (DEEPEST)": """
        formats.json_format._fill*2 formats.json_format._tree*2 formats.wire._decode_into*2
        formats.wire._written*3
    """,
    "a call for each archive in another, of which there are 3 levels, and a file of a folder": """
        formats.reading._in_file*3 formats.unpacking.unpacked
    """,
    "a call for each step in a kernel, which deep_fusions bounds by 100 (DEEPEST_PATH)": """
        backend.lanes.access.lane_atom backend.emitters.elemental.Elemental._chosen*12
        indexing.affine.Expr.depends_on*2
        indexing.affine.Expr.is_made_of
        indexing.affine.Expr.substituted*2
        indexing.affine.rests_on_values indexing.queries._atoms
        backend.lanes.nest.Nest._atom*3
        backend.lanes.nest.Nest._lane_atom*2
        backend.loops.placing._whole
    """,
    "a call for each loop or branch around another, which check_nesting bounds by 100": """
        backend.entry.entry_ir.Entry._branch*7 backend.planning.block_steps.BlockSteps._branch*3
        backend.entry.loop_ir.LoopFunction._branch*5 backend.entry.step_lists.weight
        backend.entry.watch_ir.is_short
        backend.planning.control_allocations.moved_bytes
        backend.planning.steps._Steps._branch*3
    """,
    "a call for each dimension of an array, of which what runs has 64, or loop of our own plan": """
        backend.emitters.blocked_sums.BlockedSums._blocks*2
        backend.kernels.contraction.vectors.gemv.Dots._run.added*2
        backend.kernels.contraction.products.split_k.sum_kernel.at_row.at_vector.added*2
        backend.emitters.blocked_sums.BlockedSums._over*2
        backend.emitters.blocked_sums.looped.over*2
        backend.kernels.contraction.microkernels.assembly._Text.nest
        backend.kernels.contraction.convolutions.resum._Resum._taps*3
        backend.kernels.contraction.direct.form.Direct.under_taps*2
        backend.kernels.contraction.vectors.gemv.Dots._over_depth*3
        backend.kernels.contraction.microkernels.microkernel._in_blocks*2
        backend.kernels.contraction.microkernels.microkernel._over_depth*3
        backend.loops.domain._boxes*2 backend.kernels.scatter.scatter._Build._each_position*4
        backend.kernels.scatter.scatter._Build._window*3
        backend.kernels.scatter.select_scatter._Build._steps*2
        backend.kernels.scatter.select_scatter._Build._windows*2
        backend.kernels.lower._Lowering.run*2 backend.kernels.lower_streams._Emission._outer*2
        backend.kernels.lower._Lowering._inner*2 analysis.selections._is_ordered.joined
        backend.loops.printing._body backend.loops.opened.reduced*3
        backend.loops.opened._stretch backend.loops.nests._Nest._around
        backend.loops.placing._has_lanes backend.loops.placing._placed
    """,
    "another form of a number, of a type made of others, or a piece of what is cut": """
        backend.ir.outlining._outline backend.math.complex_term.Complex.to
        backend.math.known_power._product backend.math.pieces._of_halves
        backend.math.pieces.entry
        backend.math.term.Term._as*2 ops.comparators._spread
        ops.numerics.conversion._from_complex*2 ops.numerics.generators.threefry_bits
        tools.comparison.ulp.ulp_distance
    """,
    "one more level at most: a variant, a wrapper, or the part that is another's": """
        backend.kernels.contraction.problem.axes.Contraction.swapped
        backend.planning.families.kernel_makers
        backend.kernels.contraction.convolutions.form.Form.dtype
        backend.kernels.contraction.contraction._fused_kernels*2
        backend.planning.update_order._updated_by_fusion*2
        parser.build.ModuleBuilder._wrapped*2
        parser.kinds.allowed_attributes parser.lexer.Lexer._opens_layout*2
        parser.lines._nested parser.pieces._bracketed passes.simplify.cse._attribute_key
        passes.patterns.movement._steps_along
        printer.module_printer.ModulePrinter._own*3
        backend.stages.loops_text._inner frontend.jit.jit
        analysis.legality._forwards*3
        analysis.bands._size_compared
    """,
    "a call for each step from a factor back to its mask, of which there are 8 (MOST_STEPS)": """
        passes.contraction.zero_bands.zeros_of
    """,
    "a call for each dictionary among the attributes of an FFI call, bounded by 16": """
        runtime.ffi_attributes._Reader._value*2 runtime.ffi_frames._attribute*2
    """,
    "a call for each group of a pipeline, which its parser bounds by 16": """
        passes.manager.Manager._fixpoint*4 passes.pipeline._named*3 passes.recovery.without
    """,
    "once: loops that blocks run have no loops in their trips (blocking._is_plain)": """
        analysis.blocks.cutting._Cutting._last*6 analysis.blocks.blocking.Needs.all_cuts*9
    """,
    "a call of code for each function that it calls, whose number bounds it": """
        backend.profiling.code_work._Code.__init__*4
    """,
    "a function that runs call later, when what it asks for is there": """
        backend.linking.native.Pool.__init__*6
    """,
    "names itself as a key, or another class's method of its own name; no call": """
        attributes.mesh.Mesh.array attributes.subgroups.Tile.flat
        backend.profiling.plan_rows.PlanRow.estimate_us backend.profiling.plan_rows.PlanRow.lines
        backend.profiling.plan_rows.PlanRow.us
        indexing.affine.Atom.__init__*2 backend.lanes.nest.Nest.depth
        backend.entry.polling._Function.place
        backend.kernels.contraction.direct.rows.DirectRows._sums.summed
        backend.kernels.contraction.direct.taps.DirectTaps._unit.summed
        backend.kernels.contraction.microkernels.microkernel.Factor.vector
        backend.kernels.contraction.microkernels.microkernel.Microkernel.ring
        backend.kernels.contraction.problem.ring.Ring.zero backend.kernels.sorting.row.Row.address
        ir.computation.Computation.__init__*3 ops.effects._runs_effects
        ops.normalization._Batch.sum analysis.blocks.block.Block.cut
        passes.simplify.constant_folding.constant_folding passes.simplify.cse.cse
        passes.rewriting.apply_rules
        tools.comparison.compare.Report.largest_ulp tools.comparison.compare.Report.passed
        tools.comparison.verdicts.Verdicts.verdict
    """,
}


def named(found: list[tuple[str, ...]]) -> set[str]:
    return {
        members[0].removeprefix("hlo.") + (f"*{len(members)}" if len(members) > 1 else "")
        for members in found
    }


def test_what_calls_itself_has_a_reason_to_end() -> None:
    found = named(cycles(call_graph(read(ROOT / "hlo"))))
    listed = [name for names in ALLOWED.values() for name in names.split()]
    assert len(listed) == len(set(listed)), "each once"
    new = sorted(found - set(listed))
    assert not new, f"recursion: make it a loop with a stack, or say in ALLOWED why it ends: {new}"
    assert not set(listed) - found, "no longer there: take it from ALLOWED"


PLANTED = {
    "directly": ("def f(x):\n    return [f(o) for o in x.operands]", "m.f"),
    "mutually": ("def f(x):\n    return g(x)\n\ndef g(x):\n    return f(x.a)", "m.f*2"),
    "as a callback": ("def f(x):\n    return sum(map(f, x.operands))", "m.f"),
    "inside a function": (
        "def f(x):\n    def walk(y):\n        return walk(y.a)\n    return walk(x)",
        "m.f.walk",
    ),
    "a closure and its function": (
        "def f(x):\n    def step():\n        return f(x.a)\n    return step()",
        "m.f*2",
    ),
    "as a method": ("class A:\n    def f(self):\n        return self.f()", "m.A.f"),
    "as a method of parts": (
        "class A:\n    def f(self):\n        return [e.f() for e in self.elements]",
        "m.A.f",
    ),
    "through methods": (
        "class A:\n    def f(self):\n        return self.g()\n"
        "    def g(self):\n        return self.f()",
        "m.A.f*2",
    ),
    "through a subclass": (
        "class A:\n    def f(self):\n        return 1\n\n"
        "class B(A):\n    def g(self):\n        return self.f() and h(self)\n\n"
        "def h(b):\n    return b.g()",
        "m.B.g*2",
    ),
    "through a class that is made": (
        "class A:\n    def __init__(self, x):\n        self.a = made(x)\n\n"
        "def made(x):\n    return A(x)",
        "m.A.__init__*2",
    ),
    "under a name that hides its own": ("def f(f, x):\n    return f(x)", ""),
    "not at all": ("def f(x):\n    return g(x)\n\ndef g(x):\n    return x.f()", ""),
}


@pytest.mark.parametrize("how", PLANTED)
def test_the_scan_finds_planted_recursion(how: str) -> None:
    text, expected = PLANTED[how]
    source = Source()
    source.enter("m", text)
    assert named(cycles(call_graph(source))) == ({expected} if expected else set())


def test_the_scan_finds_recursion_through_imports() -> None:
    source = Source()
    source.enter("hlo.a", "from hlo import b\n\ndef f(x):\n    return b.g(x)")
    source.enter("hlo.b", "from hlo.a import f\n\ndef g(x):\n    return f(x)")
    assert named(cycles(call_graph(source))) == {"a.f*2"}


def test_tuples_of_the_api_nest_no_deeper_than_what_walks_them_expects() -> None:
    shape = Shape.array("f32")
    for _ in range(DEEPEST_TUPLE):
        shape = Shape.tuple([shape])
    assert len(list(shape.leaves())) == 1
    with pytest.raises(HloError, match=f"a tuple of depth {DEEPEST_TUPLE + 1}, expected at most"):
        Shape.tuple([shape])
    twice = Shape.array("f32")
    for _ in range(DEEPEST_TUPLE):
        twice = Shape.tuple([twice, twice])  # its levels are looked at, not its leaves


PROGRAM = "HloModule m\nENTRY e {{ p = f32[4] parameter(0)\n  ROOT r = f32[4] negate(p){} }}"
MODULE = hlo.parse(PROGRAM.format(""))


def nests(left: str, inner: str, right: str) -> str:
    return left * 5000 + inner + right * 5000


def nested_value(kind: type) -> object:
    value: object = np.float32(1)
    for _ in range(5000):
        value = kind([value])
    return value


NESTED: dict[str, Callable[[], object]] = {
    "groups of passes": lambda: hlo.optimize(MODULE, passes=nests("fixpoint(", "dce", ")")),
    "options of passes": lambda: hlo.optimize(MODULE, passes=nests("dce{a=", "1", "}")),
    "a literal": lambda: hlo.Literal.of(nested_value(tuple)),
    "a tuple as an argument": lambda: hlo.evaluate(MODULE, nested_value(tuple)),
    "a list as an argument": lambda: hlo.compile(MODULE, cache=False)(nested_value(list)),
    "a sharding": lambda: hlo.parse(PROGRAM.format(", sharding=" + nests("{", "replicated", "}"))),
    "an origin": lambda: hlo.parse(PROGRAM.format(", origin={" + nests("(", '{"v"}', ")") + "}")),
    "a configuration": lambda: hlo.parse(
        PROGRAM.format(", backend_config=" + nests('{"a":', "1", "}"))
    ),
    "a constant": lambda: hlo.parse(
        f"HloModule m\nENTRY e {{ ROOT p = f32[4] constant({nests('{', '1', '}')}) }}"
    ),
    "a tuple's constant": lambda: hlo.parse(
        f"HloModule m\nENTRY e {{ ROOT p = (f32[]) constant({nests('(', '1', ')')}) }}"
    ),
    "a shape": lambda: hlo.parse(
        f"HloModule m\nENTRY e {{ ROOT p = {nests('(', 'f32[]', ')')} parameter(0) }}"
    ),
    "dimensions": lambda: hlo.compile(hlo.parse(FAMILIES["dimensions"].text(1500)), cache=False),
    "asynchronous opcodes": lambda: hlo.parse(
        PROGRAM.format("").replace("negate", nests("", "negate", "-start"))
    ),
}


@pytest.mark.parametrize("what", NESTED)
def test_what_nests_in_texts_and_values_is_read_or_refused(what: str) -> None:
    with contextlib.suppress(HloError):
        NESTED[what]()


def test_deep_programs_go_through_every_verb() -> None:
    """In a process of its own: Python's limit is set there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.deep_programs", str(LIMIT)],
        cwd=ROOT, env=os.environ | {"HLO_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
