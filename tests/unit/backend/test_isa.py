"""Every question about instructions, asked of every named machine: who has an answer, and what LLVM
makes of what it wrote for that machine's triple and features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

import hlo
from hlo.backend.entry import pool_ir, run_ir
from hlo.backend.ir.functions import Function
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa import assembly
from hlo.backend.isa.generic import Isa
from hlo.backend.isa.select import base_of, isa_of
from hlo.backend.isa.target import Target
from hlo.backend.linking import toolchain
from hlo.driver import emit_stage, optimize
from hlo.given_machines import with_features
from hlo.ir import dtype as dt
from hlo.machine import NAMED, Machine

Answer = Value | bool | int | None
GRANITE = ("graniterapids",)
SAPPHIRE = ("sapphirerapids", *GRANITE)
ZEN = ("znver4", "znver5")
BF16 = ("cooperlake", *ZEN, *SAPPHIRE)
VBMI = ("icelake-server", *ZEN, *SAPPHIRE)
VNNI = ("cascadelake", "cooperlake", *VBMI)
AVX512 = ("x86-64-v4", *VNNI)
INT16 = ("lunarlake",)
INT8 = ("arrowlake", *INT16)
AVX_VNNI = ("alderlake", *INT8)
AVX2 = ("x86-64-v3", *AVX_VNNI, *AVX512)
SSE = ("x86-64", "x86-64-v2", *AVX2)
X86 = ("generic", *SSE)
ARM_BF16 = ("neoverse-v1",)
ARM_FP16 = ("neoverse-n1", *ARM_BF16)
ARM = ("armv8-a", *ARM_FP16)
RISCV = ("rv64gcv", "rva23u64")
ARM32_FUSED = ("cortex-a7",)
ARM32 = ("armv7-a", *ARM32_FUSED)
WASM = ("wasm32-simd128",)
EVERY = (*X86, *ARM, *RISCV, *ARM32, *WASM)
F4, F8, F16, D2, D8 = (
    "<4 x float>", "<8 x float>", "<16 x float>", "<2 x double>", "<8 x double>"
)  # fmt: skip
I4, I8, I16, L8 = "<4 x i32>", "<8 x i32>", "<16 x i32>", "<8 x i64>"


class Row(Struct, frozen=True):
    """A question; the types that it is asked about; the machines that have an answer of their own,
    and what their assembly shows of it.
    """

    question: str
    operands: Sequence[str]
    ask: Callable[..., Answer]
    machines: Sequence[str]
    shows: str = ""


def of_parts(isa: Isa, w: Writer, x: Value) -> Answer:
    """The numbers put together again."""
    parts = isa.float_parts(x.type)
    if parts is None:
        return None
    return parts.scaled(w, parts.mantissa(w, x), parts.exponent(w, x))


def of_positive_parts(isa: Isa, w: Writer, x: Value) -> Answer:
    parts = isa.float_parts(x.type)
    return None if parts is None else parts.mantissa(w, x, nan_below_zero=True)


def of_estimates(isa: Isa, w: Writer, x: Value) -> Answer:
    if isa.estimates is None:
        return None
    return w.binary("fadd", isa.estimates.reciprocal(w, x), isa.estimates.reciprocal_root(w, x))


def of_upper_halves(isa: Isa, w: Writer, x: Value) -> Answer:
    """Lanes of codes, or codes of lanes."""
    halves = isa.upper_halves(x.lanes)
    if halves is None:
        return None
    return halves.spread(w, x) if x.scalar_type == "i16" else halves.packed(w, x)


def of_gather(isa: Isa, w: Writer, table: Value, index: Value) -> Answer:
    gather = isa.quick_gather(index.lanes)
    return None if gather is None else gather(w, table, index, 2)


def of_extremes(isa: Isa, w: Writer, x: Value, y: Value) -> Answer:
    less = isa.extreme_number(w, x, y, is_maximum=False)
    return None if less is None else isa.extreme_number(w, less, y, is_maximum=True)


def of_tiles(lhs: dt.DType, rhs: dt.DType) -> Callable[..., Answer]:
    def ask(isa: Isa, w: Writer, memory: Value) -> Answer:
        tiles = isa.tile_product(lhs, rhs)
        if tiles is None:
            return None
        tiles.configure(w)
        tiles.zero(w, 0)
        tiles.load(w, 1, memory, 64)
        tiles.load(w, 2, memory, 64)
        tiles.multiply(w, 0, 1, 2)
        tiles.store(w, 0, memory, 64)
        tiles.release(w)
        return True

    return ask


def of_words(lhs: dt.DType, rhs: dt.DType, *, squares: bool = False) -> Callable[..., Answer]:
    def ask(isa: Isa, w: Writer, memory: Value) -> Answer:
        dot = isa.square_product(lhs, rhs) if squares else isa.dot_product(lhs, rhs)
        if dot is None:
            return None
        lanes = isa.machine.vector_bytes // 4
        type = vector_of(dot.sums, lanes)
        a, b, total = (w.load(w.address(memory, w.int(n * lanes), dot.sums), type, 4)
                       for n in range(3))  # fmt: skip
        w.store(dot.multiply_add(w, total, a, b), memory, 4)
        return True

    return ask


def of_assembly(scalar: str) -> Callable[..., Answer]:
    """Every instruction that there is, masked where some are."""

    def ask(isa: Isa, w: Writer, x: Value, y: Value) -> Answer:
        words = isa.assembly(scalar)
        if words is None:
            return None
        masked = words.has_masks
        lines = [words.put(3, "$2"), *words.at_most("$0", "$2"), words.take("$2", "$1")]
        if masked:
            lines += [words.put_mask(7, "${2:k}"), words.mask("${2:k}"), *words.turned(64, 64)]
        lines += [words.clear(0), words.label(1), words.load("64($0)", 1, is_masked=masked)]
        lines += [words.broadcast("($0)", 2), words.multiply_add(1, 2, 0)]
        lines += [words.advance("$0", 4), words.count_down("$2"), words.again(1)]
        lines += [words.test("$2"), words.on_if_more(2), words.compare(1, "$2")]
        lines += [words.on_if_none(2), words.add("($1)", 0, is_masked=masked), words.label(2)]
        lines += [words.store(0, "($1)", is_masked=masked), words.leave()]
        assembly.write(w, lines, (x, y, w.int(0)), (), words.names(8))
        return True

    return ask


def of_mode(isa: Isa, w: Writer, slot: Value) -> Answer:
    if isa.float_mode is None:
        return None
    isa.float_mode.save(w, slot)
    isa.float_mode.set(w, slot)
    return True


def wrote(act: Callable[[Isa, Writer], None]) -> Callable[..., Answer]:
    """Whether something was written."""

    def ask(isa: Isa, w: Writer) -> Answer:
        act(isa, w)
        return bool(w.records)

    return ask


ROWS = (
    Row("permutes_bytes", (), lambda isa, w: isa.permutes_bytes, (*VBMI, *ARM)),
    Row("picked_at_once", (), lambda isa, w: isa.picked_at_once, AVX2),
    Row("lookup_lanes", (), lambda isa, w: isa.lookup_lanes, (*AVX2, *ARM)),
    Row("looks_up", (), lambda isa, w: isa.looks_up(7, 16), (*AVX2, *ARM)),
    Row("looks_up", (), lambda isa, w: isa.looks_up(8, 16), AVX2),
    Row("looks_up", (), lambda isa, w: isa.looks_up(2, 32), AVX512),
    Row("picks", (), lambda isa, w: isa.picks(I16) and isa.picks(F8) and isa.picks(D8), AVX512),
    Row("picked", (F8, I8), lambda isa, w, x, n: isa.picked(w, (x,), n), AVX2, "vpermps"),
    Row("picked", (F8, F8, I8), lambda isa, w, x, y, n: isa.picked(w, (x, y), n), AVX512,
        "vperm[it]2ps"),
    Row("picked", (F16, I16), lambda isa, w, x, n: isa.picked(w, (x,), n), AVX512, "vpermps"),
    Row("picked", (F16, F16, I16), lambda isa, w, x, y, n: isa.picked(w, (x, y), n), AVX512,
        "vperm[it]2ps"),
    Row("picked", (L8, L8, L8), lambda isa, w, x, y, n: isa.picked(w, (x, y), n), AVX512,
        "vperm[it]2q"),
    Row("picked", (F4, F4, F4, F4, I4), lambda isa, w, *x: isa.picked(w, x[:4], x[4]), ARM, "tbl"),
    Row("gathers_words", (), lambda isa, w: isa.gathers_words, AVX512),
    Row("folds", (), lambda isa, w: isa.folds, AVX512),
    Row("masks_loads", (), lambda isa, w: isa.masks_loads, AVX2),
    Row("masks_loads_of", (), lambda isa, w: isa.masks_loads_of(32), AVX2),
    Row("masks_loads_of", (), lambda isa, w: isa.masks_loads_of(8), AVX512),
    Row("quick_gather", ("ptr", I16), of_gather, VBMI, "vpgatherdd"),
    Row("quick_gather", ("ptr", I8), of_gather, ()),
    Row("fuses", (), lambda isa, w: isa.fuses, (*AVX2, *ARM, *RISCV, *ARM32_FUSED)),
    Row("rounds", (), lambda isa, w: isa.rounds, ("x86-64-v2", *AVX2, *ARM, *RISCV, *WASM)),
    Row("divides_slowly", (), lambda isa, w: isa.divides_slowly, AVX2),
    Row("has_extremes", (), lambda isa, w: isa.has_extremes, (*ARM, *WASM)),
    Row("keeps_second", (), lambda isa, w: isa.keeps_second, X86),
    Row("saturates", (), lambda isa, w: isa.saturates, (*ARM, *WASM)),
    Row("converts_long_integers", (), lambda isa, w: isa.converts_long_integers,
        (*AVX512, *ARM, *RISCV)),
    Row("has_long_extremes", (), lambda isa, w: isa.has_long_extremes, (*AVX512, *RISCV)),
    Row("register_lanes", (), lambda isa, w: isa.register_lanes("double") == 2, AVX512),
    Row("float_parts", (F16,), of_parts, AVX512, "vscalefps"),
    Row("float_parts", (D2,), of_parts, AVX512, "vscalefpd"),
    Row("float_parts", (D8,), of_parts, AVX512, "vgetexppd"),
    Row("float_parts", (F4,), of_positive_parts, AVX512, "vgetmantps"),
    Row("float_parts", ("float",), of_parts, ()),
    Row("estimates", ("float",), of_estimates, AVX512, "vrsqrt14ps"),
    Row("estimates", ("<32 x float>",), of_estimates, AVX512, "vrcp14ps"),
    Row("estimates", (D8,), of_estimates, AVX512, "vrcp14pd"),
    Row("subnormal_lanes", (F16,), lambda isa, w, x: isa.subnormal_lanes(w, x), AVX512,
        "vfpclassps"),
    Row("subnormal_lanes", (F4,), lambda isa, w, x: isa.subnormal_lanes(w, x), AVX512,
        "vfpclassps"),
    Row("subnormal_lanes", ("float",), lambda isa, w, x: isa.subnormal_lanes(w, x), AVX512,
        "vfpclassps"),
    Row("subnormal_lanes", ("<2 x float>",), lambda isa, w, x: isa.subnormal_lanes(w, x), AVX512,
        "vfpclassps"),
    Row("subnormal_lanes", (D8,), lambda isa, w, x: isa.subnormal_lanes(w, x), AVX512,
        "vfpclasspd"),
    Row("extreme_number", (F8, F8), of_extremes, (*AVX512, *RISCV, *ARM32),
        r"vrangeps|vfmax\.vv|vbi[tf]|vbsl"),
    Row("extreme_number", ("float", "float"), of_extremes, (*AVX512, *RISCV, *ARM32),
        r"vrangeps|fmax\.s|vmovgt\.f32"),
    Row("nearest_integers", ("double",), lambda isa, w, x: isa.nearest_integers(w, x),
        (*AVX512, *ARM), "vcvtpd2qq|fcvtns"),
    Row("nearest_integers", (F4,), lambda isa, w, x: isa.nearest_integers(w, x), (*AVX512, *ARM),
        "vcvtps2dq|fcvtns"),
    Row("nearest_integers", (F16,), lambda isa, w, x: isa.nearest_integers(w, x), AVX512,
        "vcvtps2dq"),
    Row("converts_halves", (), lambda isa, w: isa.converts_halves, (*AVX2, *ARM, *ARM32_FUSED)),
    Row("computes_halves", (), lambda isa, w: isa.computes_halves, (*SAPPHIRE, *ARM_FP16)),
    Row("upper_halves", ("<16 x i16>",), of_upper_halves, VBMI, "vperm(b|[it]2b)"),
    Row("upper_halves", (F16,), of_upper_halves, VBMI, "vpermb"),
    Row("upper_halves", ("<8 x i16>",), of_upper_halves, ()),
    Row("bf16_codes", (F16,), lambda isa, w, x: isa.bf16_codes(w, x, flushes=True),
        (*BF16, *ARM_BF16), "vcvtneps2bf16|bfcvtn2"),
    Row("bf16_codes", (F16,), lambda isa, w, x: isa.bf16_codes(w, x, flushes=False), ARM_BF16,
        "bfcvtn2"),
    Row("bf16_codes", ("float",), lambda isa, w, x: isa.bf16_codes(w, x, flushes=True), ARM_BF16,
        "bfcvt"),
    Row("bf16_carried", (I16,), lambda isa, w, x: isa.bf16_carried(w, x), EVERY),
    Row("bf16_carried", (I8,), lambda isa, w, x: isa.bf16_carried(w, x), EVERY),
    Row("bf16_quieted", (I16, F16), lambda isa, w, x, y: isa.bf16_quieted(w, x, y),
        EVERY),
    Row("bf16_quieted", (I8, F8), lambda isa, w, x, y: isa.bf16_quieted(w, x, y),
        EVERY),
    Row("tile_product", ("ptr",), of_tiles(dt.BF16, dt.BF16), SAPPHIRE, "tdpbf16ps"),
    Row("tile_product", ("ptr",), of_tiles(dt.S8, dt.U8), SAPPHIRE, "tdpbsud"),
    Row("tile_product", ("ptr",), of_tiles(dt.F16, dt.F16), GRANITE, "tdpfp16ps"),
    Row("tile_product", ("ptr",), of_tiles(dt.F16, dt.BF16), ()),
    Row("dot_product", ("ptr",), of_words(dt.S16, dt.S16), SSE, "vpdpwssd|v?pmaddwd"),
    Row("dot_product", ("ptr",), of_words(dt.U8, dt.S8), (*AVX_VNNI, *VNNI, *ARM_BF16),
        "vpdpbusd|usdot"),
    Row("dot_product", ("ptr",), of_words(dt.S8, dt.U8), ()),
    Row("dot_product", ("ptr",), of_words(dt.S8, dt.S8), (*INT8, *ARM_FP16),
        "vpdpbssd|sdot"),
    Row("dot_product", ("ptr",), of_words(dt.U8, dt.U8), (*INT8, *ARM_FP16),
        "vpdpbuud|udot"),
    Row("dot_product", ("ptr",), of_words(dt.U16, dt.S16), INT16, "vpdpwusd"),
    Row("dot_product", ("ptr",), of_words(dt.U16, dt.U16), INT16, "vpdpwuud"),
    Row("dot_product", ("ptr",), of_words(dt.S16, dt.U16), ()),
    Row("dot_product", ("ptr",), of_words(dt.BF16, dt.BF16), ("cooperlake", *ZEN, *ARM_BF16),
        "vdpbf16ps|bfdot"),
    Row("square_product", ("ptr",), of_words(dt.S8, dt.S8, squares=True), ARM_BF16, "smmla"),
    Row("square_product", ("ptr",), of_words(dt.U8, dt.U8, squares=True), ARM_BF16, "ummla"),
    Row("square_product", ("ptr",), of_words(dt.U8, dt.S8, squares=True), ARM_BF16, "usmmla"),
    Row("square_product", ("ptr",), of_words(dt.S8, dt.U8, squares=True), ()),
    Row("square_product", ("ptr",), of_words(dt.BF16, dt.BF16, squares=True), ARM_BF16, "bfmmla"),
    Row("assembly", ("ptr", "ptr"), of_assembly("float"), AVX2, "vfmadd231ps"),
    Row("assembly", ("ptr", "ptr"), of_assembly("double"), AVX2, "vfmadd231pd"),
    Row("assembly", ("ptr", "ptr"), of_assembly("i32"), ()),
    Row("fence_streams", (), wrote(lambda isa, w: isa.fence_streams(w)),
        (*SSE, *ARM, *RISCV, *ARM32), "sfence|dmb|fence"),
    Row("pause", (), wrote(lambda isa, w: isa.pause(w)), (*X86, *ARM), "pause|isb"),
    Row("float_mode", ("ptr",), of_mode, (*X86, *ARM, *ARM32),
        "v?ldmxcsr|msr\tFPCR|vmsr"),
)  # fmt: skip
# Of what every machine answers: whose instructions are other ones.
OTHER = {
    "bf16_carried": {
        **dict.fromkeys(AVX512, "vptestmd"),
        **dict.fromkeys(VNNI, "vpdpwssd"),
        **dict.fromkeys(ARM, "cmtst"),
    },
    "bf16_quieted": dict.fromkeys(AVX512, "vfixupimmps"),
}


def asked(row: Row, number: int, isa: Isa) -> tuple[Answer, Writer, str]:
    """The answer, and a writer that holds what was written for it, as a function's text."""
    w = Writer()
    operands = [Value(f"%x{k}", type) for k, type in enumerate(row.operands)]
    answer = row.ask(isa, w, *operands)
    result = answer.type if isinstance(answer, Value) else "void"
    w.ret(answer if isinstance(answer, Value) else None)
    return (
        answer,
        w,
        Function(
            parameters=tuple(operands), records=w.records, result=result, symbol=f"q{number}"
        ).text,
    )


def assembly_of(machine: Machine) -> dict[int, str]:
    """What LLVM makes of each row that has an answer."""
    isa, declarations, text = isa_of(machine), {}, []
    for number, row in enumerate(ROWS):
        answer, w, function = asked(row, number, isa)
        if answer:
            declarations |= w.declarations
            text.append(function)
    module = IrModule("\n".join([*declarations.values(), *text]), (), machine=machine)
    parts = re.split(r"^q(\d+):", toolchain.assembly(module), flags=re.MULTILINE)[1:]
    return dict(zip(map(int, parts[::2]), parts[1::2], strict=True))


@pytest.mark.parametrize("name", NAMED)
def test_who_answers(name: str) -> None:
    isa = isa_of(NAMED[name])
    answers = {
        f"{row.question} {row.operands}": bool(asked(row, 0, isa)[0]) != (name in row.machines)
        for row in ROWS
    }
    wrong = [question for question, is_wrong in answers.items() if is_wrong]
    assert not wrong, f"{name} stands in other groups at the head of this file, or its row: {wrong}"


@pytest.mark.parametrize("name", NAMED)
def test_llvm_takes_every_answer(name: str) -> None:
    found = assembly_of(NAMED[name])
    missing = []
    for number, row in enumerate(ROWS):
        other = OTHER.get(row.question, {}).get(name, "") if row.operands[:1] == (I16,) else ""
        shows = other or (row.shows if name in row.machines else "")
        if shows and not re.search(rf"\t({shows})\b", found[number]):
            missing.append((row.question, row.operands, shows))
    assert missing == []


def test_the_table_has_every_question() -> None:
    questions = {name for name in vars(Isa) if not name.startswith("_")}
    assert {row.question for row in ROWS} == questions


FULL = (NAMED["sapphirerapids"], NAMED["neoverse-v1"])


def without(machine: Machine, feature: str) -> Machine:
    return replace(machine, features=machine.features - {feature})


def answers(machine: Machine) -> list[tuple[Answer, str]]:
    asked_ = (asked(row, 0, isa_of(machine)) for row in ROWS)
    return [(answer, text) for answer, _, text in asked_]


# Those that answers rest on.
FEATURES = [
    pytest.param(m, f, id=f)
    for m in FULL
    for f in sorted(m.features)
    if answers(without(m, f)) != answers(m)
]


@pytest.mark.parametrize(("machine", "feature"), FEATURES)
def test_llvm_takes_every_answer_without_a_feature(machine: Machine, feature: str) -> None:
    """None is taken for another: less is answered, and all of it compiles."""
    assert assembly_of(without(machine, feature))


def test_a_machine_has_one_isa() -> None:
    machine = NAMED["znver4"]
    assert Target(machine).isa is Target(machine, "fast").isa is isa_of(machine)
    assert Target(with_features(machine, "-avx512vbmi")).isa is not isa_of(machine)


@pytest.mark.parametrize(
    ("name", "shows"),
    [("generic", ("pause", "stmxcsr", "ldmxcsr")), ("armv8-a", ("isb", "mrs", "msr"))],
)
def test_runs_and_the_pool_use_what_every_processor_has(name: str, shows: tuple[str, ...]) -> None:
    machine = NAMED[name]
    texts = (pool_ir.text(machine.architecture), run_ir.text(machine.architecture))
    made = "".join(toolchain.assembly(IrModule(t, (), machine=machine)) for t in texts)
    assert [word for word in shows if not re.search(rf"\t{word}\b", made)] == []


@pytest.mark.parametrize(("name", "shows"), [("neoverse-n1", "msr\tFPCR"), ("generic", "ldmxcsr")])
def test_fast_programs_flush_subnormal_numbers(name: str, shows: str) -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT r = f32[8] negate(x)\n}"
    fast, strict = (
        emit_stage(optimize(hlo.parse(text)), "asm", mode, NAMED[name])
        for mode in ("fast", "strict")
    )
    assert fast.count(shows) == 2
    assert shows not in strict


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v4", "armv8-a"])
def test_stores_past_the_cache_are_fenced(name: str) -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = f32[2048,2048] parameter(0)\n"
        "  ROOT t = f32[2048,2048] transpose(x), dimensions={1,0}\n}"
    )
    code = emit_stage(hlo.parse(text), "llvm", machine=NAMED[name])
    stores, fence, rest = code.rpartition("fence")
    assert "!nontemporal" in stores
    assert fence
    assert "!nontemporal" not in rest


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64", "arm64", "riscv64", ""])
def test_what_every_processor_of_an_architecture_does(architecture: str) -> None:
    isa = base_of(architecture)
    assert (isa.float_mode is not None) == (architecture in ("x86_64", "aarch64", "arm64"))
    assert not isa.fuses
