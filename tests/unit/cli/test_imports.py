"""What each command imports: a help nothing but words, reading and passes no back end."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hlo.cli.main import OPT_COMMANDS, RUN_COMMANDS
from hlo.process.garbage import FROZEN_BY_PYTHON

PROGRAM = """
import sys
from hlo.cli import main
group, *sys.argv[1:] = sys.argv[1:]
try:
    getattr(main, group)()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""
# What stands in a help comes from here.
LIGHT = {
    "hlo.choices", "hlo.error_codes", "hlo.errors", "hlo.process.forking", "hlo.process.garbage",
    "hlo.process", "hlo.process.idle_threads", "hlo.process.once", "hlo.printer",
    "hlo.printer.options", "hlo.progress", "hlo.runtime", "hlo.runtime.threads",
    "hlo.source", "hlo.tools", "hlo.tools.bench", "hlo.tools.files", "hlo.tools.files.reading",
    "hlo.tools.files.input_size", "hlo.tools.files.writing",
}  # fmt: skip
HEAVY = {"numpy", "lark", "llvmlite", "rich", "ml_dtypes", "jax", "asyncio", "multiprocessing"}
TEXT = """HloModule light

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] add(x, x)
}
"""


def modules(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split("\n")[-2].split())


@pytest.mark.parametrize(
    ("group", "name"),
    [*(("opt", name) for name in OPT_COMMANDS), *(("run", name) for name in RUN_COMMANDS)],
)
def test_helps_import_words_alone(group: str, name: str) -> None:
    found = modules(group, name, "--help")
    assert not found & HEAVY
    assert {m for m in found if m.startswith("hlo.") and not m.startswith("hlo.cli")} <= LIGHT


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "light.hlo"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize(
    ("asked", "without"),
    [
        (("transform",), {"llvmlite", "hlo.passes", "hlo.backend", "hlo.interpreter"}),
        (("transform", "-p", "dce"), {"llvmlite", "hlo.backend", "hlo.interpreter"}),
        (("check",), {"llvmlite", "hlo.passes", "hlo.backend", "hlo.interpreter"}),
        (("fmt",), {"llvmlite", "hlo.passes", "hlo.backend", "hlo.interpreter"}),
        (("stats",), {"llvmlite", "hlo.passes", "hlo.backend", "hlo.interpreter"}),
    ],
)
def test_commands_import_what_they_do(asked: tuple[str, ...], without: set[str], file: str) -> None:
    found = modules("opt", *asked, file)
    assert not found & (without | {"rich", "jax", "asyncio", "multiprocessing"})


FIRST = """
import sys
from hlo import driver
driver.compile(driver.parse(open(sys.argv[1]).read()), cache=False)
print(*sorted(sys.modules))
"""
# Of a first compilation: what is for other programs, machines or views than its own.
OTHERS = {
    "lark", "html", "difflib", "fractions", "rich", "click", "json", "hashlib",
    "concurrent", "ml_dtypes", "llvmlite.binding",
    "hlo.passes.pass_lookup", "hlo.passes.padding.control", "hlo.passes.padding.scope",
    "hlo.interpreter", "hlo.backend.padded",
    "hlo.backend.host", "hlo.backend.entry.handler_ir", "hlo.backend.entry.polling",
    "hlo.backend.loops.nests", "hlo.backend.loops.placing", "hlo.backend.loops.printing",
    "hlo.backend.isa.neon", "hlo.backend.isa.arm32", "hlo.backend.isa.riscv",
    "hlo.backend.isa.wasm", "hlo.backend.kernels.contraction", "hlo.backend.kernels.sorting",
    "hlo.backend.kernels.scatter", "hlo.runtime.ffi_calls", "hlo.backend.profiling.profile",
    "hlo.backend.emitters.complex_functions",
    "hlo.backend.math.complex_arithmetic", "hlo.backend.math.trigonometric",
    "hlo.ops.reduction", "hlo.ops.collectives", "hlo.ops.sorting", "hlo.ops.custom_call",
    "hlo.verifier.collectives", "hlo.verifier.transfers", "hlo.verifier.shardings",
    "hlo.analysis.while_loops.lane_loops", "hlo.analysis.selections",
    "hlo.backend.emitters.reduction",
    "hlo.backend.emitters.random", "hlo.backend.kernels.lower_squares",
    "hlo.backend.kernels.lower_streams", "hlo.backend.loops.choose_kept_strips",
    "hlo.backend.loops.choose_streams",
    "hlo.passes.patterns.contraction", "hlo.passes.patterns.conversion",
    "hlo.passes.patterns.convolution", "hlo.passes.patterns.division",
    "hlo.passes.patterns.indexing", "hlo.passes.patterns.library", "hlo.passes.patterns.logic",
    "hlo.passes.patterns.ordering", "hlo.passes.patterns.reduction",
    "hlo.passes.patterns.slicing", "hlo.analysis.sort_orders",
    "hlo.passes.reduction.reduction_splitting", "hlo.passes.fusion.siblings",
    "hlo.passes.simplify.flatten_call_graph", "hlo.passes.fusion.fusion_opener",
    "hlo.passes.contraction.dot_strength_reduction",
    "hlo.passes.movement.reduction_operand_transposer",
    "hlo.attributes.mesh_sharding", "hlo.attributes.tile_sharding", "hlo.attributes.iota",
    "hlo.analysis.blocks.size", "hlo.analysis.blocks.blocking", "hlo.ops.contraction",
    "hlo.ops.conversion", "hlo.ops.windows", "hlo.backend.isa.amx", "hlo.backend.ir.outlining",
    "hlo.backend.emitters.specials", "hlo.backend.emitters.complex_numbers",
    "hlo.backend.emitters.lookup_tables", "hlo.backend.emitters.values", "hlo.tools.files.writing",
    "hlo.parser.wording", "hlo.parser.asynchronous", "hlo.ops.extents",
    "hlo.ops.numerics.complexes", "hlo.ops.numerics.integers", "hlo.ops.numerics.reals",
    "hlo.ops.numerics.representation", "hlo.ops.bits", "hlo.ops.callee", "hlo.ops.context",
    "hlo.parser.lines", "hlo.parser.pieces", "hlo.parser.printed", "hlo.parser.frames",
    "hlo.attributes.origin", "hlo.attributes.metadata", "hlo.attributes.stack_frames",
    "hlo.attributes.debug_attributes", "hlo.attributes.statistics", "hlo.attributes.backend_config",
    "hlo.attributes.frontend", "hlo.attributes.shapes", "hlo.attributes.window",
    "hlo.attributes.dim_labels", "hlo.attributes.sparsity", "hlo.analysis.sources",
    "hlo.analysis.factors", "hlo.analysis.while_loops.loop_state", "hlo.backend.planning.alignment",
    "hlo.backend.planning.list_order", "hlo.verifier.chains", "hlo.formats", "hlo.tools",
    "hlo.backend.emitters.integers", "hlo.backend.entry.byte_orders", "hlo.backend.ir.arithmetic",
    "hlo.passes.patterns.windowed_reduction", "hlo.backend.entry.entry_ir",
    "hlo.backend.entry.loop_ir", "hlo.backend.entry.region_ir", "hlo.backend.entry.watch_ir",
    "hlo.backend.ir.procedure",
}  # fmt: skip
# Of a product of two matrices: what is for other products, or for who prints the loops.
_PRODUCTS = "hlo.backend.kernels.contraction"
PRODUCTS_OF_OTHERS = {
    f"{_PRODUCTS}.{name}"
    for name in (
        "computed_columns", "convolutions", "direct", "fused_epilogue", "gemv_pair",
        "matrix_units.amx", "matrix_units.product", "packing.nest", "prepacking",
        "products.gates", "products.nest", "products.zero_check", "vectors.gemv", "vectors.nest",
        "vectors.word_stream", "words.packing", "words.subnormal_check", "words.zeros",
    )
}  # fmt: skip
# Of this package: what it takes to start is about so many times 0.2 ms. One of them is for machines
# with tiles, one for those that leave subnormal numbers to microcode.
MOST_MODULES = 276


def first(file: str, tmp_path: Path) -> set[str]:
    """The modules of a process that compiles a program."""
    command = [sys.executable, "-c", FIRST, file]
    own = {**os.environ, "HLO_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):  # the parser's tables and the entry's glue are kept by the first one
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
    return set(done.stdout.split())


def test_what_is_listed_exists() -> None:
    listed = {name for name in OTHERS | PRODUCTS_OF_OTHERS if name.startswith("hlo.")}
    assert sorted(name for name in listed if find_spec(name) is None) == []


def test_a_first_compilation_imports_what_the_program_needs(file: str, tmp_path: Path) -> None:
    found = first(file, tmp_path)
    assert not found & OTHERS
    assert sum(name.startswith("hlo.") for name in found) <= MOST_MODULES


@pytest.mark.parametrize(
    ("lines", "wanted", "without"),
    [
        (
            "ROOT y = f32[4] exponential(x)",
            {"hlo.backend.math.exponential"},
            {"hlo.backend.math.trigonometric", "hlo.backend.math.logarithm"},
        ),
        (
            "m = f32[64,64] parameter(1)\n  ROOT y = f32[64,64] dot(m, m), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            {"hlo.passes.patterns.contraction", "hlo.passes.fusion.prologue_fusion"},
            {
                "hlo.passes.patterns.indexing",
                "hlo.passes.while_loops.while_loop_unroller",
                "hlo.passes.expand.map_expander",
                "hlo.passes.blocks.order",
                "hlo.analysis.scores.region",
                "hlo.ops.convolution",
                "hlo.ops.indexing",
                "dataclasses",
                *PRODUCTS_OF_OTHERS,
            },
        ),
        (
            "m = f32[64,64] parameter(1)\n  z = f32[] constant(0)\n  ROOT y = f32[64,64] "
            "reduce-window(m, z), window={size=1x64 pad=0_0x63_0}, to_apply=sum",
            {"hlo.passes.reduction.window_scan_rewriter", "hlo.ops.windowed_reduction"},
            {
                "hlo.passes.while_loops.while_loop_unroller",
                "hlo.passes.expand.map_expander",
                "hlo.ops.contraction",
                "hlo.ops.sorting",
                "hlo.ops.random",
                "hlo.ops.indexing",
                "hlo.ops.collectives",
                "hlo.backend.kernels.scatter",
            },
        ),
        (
            "m = f32[256,512] parameter(1)\n  b = f32[256,512] exponential(m)\n"
            "  ROOT y = f32[256,512] add(b, m)",
            {"hlo.backend.math.exponential"},
            {
                "hlo.analysis.blocks.blocking",
                "hlo.passes.blocks.block_fusion",
            },  # one kernel has no blocks
        ),
        (
            # Its tails are followed on some machines, and no product is there to meet them.
            "e = f32[4] exponential(x)\n  ROOT y = f32[4] multiply(e, x)",
            {"hlo.backend.math.exponential"},
            {"hlo.backend.kernels.contraction", "hlo.analysis.while_loops.decays"},
        ),
        (
            "ROOT y = s32[4] convert(x)",
            {"hlo.passes.patterns.conversion", "hlo.backend.emitters.specials"},
            {"hlo.passes.patterns.logic", "hlo.passes.while_loops.while_loop_unroller"},
        ),
    ],
)
def test_a_program_imports_what_its_ops_need(
    lines: str, wanted: set[str], without: set[str], file: str, tmp_path: Path
) -> None:
    Path(file).write_text(TEXT.replace("ROOT y = f32[4] add(x, x)", lines))
    found = first(file, tmp_path)
    assert wanted <= found
    assert not found & without


END = """
import atexit, gc, sys
from pathlib import Path
def said():
    Path(sys.argv[-1]).write_text(str(gc.get_freeze_count()))
atexit.register(said)
from hlo.cli import main
if sys.argv[1] == "command":
    main.opt(sys.argv[2:3])
    raise AssertionError("a command ends its process")
import hlo
hlo.parse(Path(sys.argv[2]).read_text())
"""


@pytest.mark.parametrize("kind", ["command", "library"])
def test_commands_end_without_a_search_for_garbage(kind: str, file: str, tmp_path: Path) -> None:
    """What was registered before runs after it: it sees what the interpreter's own end will."""
    said = tmp_path / "said"
    command = [sys.executable, "-c", END, kind, file, str(said)]
    subprocess.run(command, capture_output=True, check=True)
    assert (int(said.read_text()) > FROZEN_BY_PYTHON) == (kind == "command")
