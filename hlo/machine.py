"""Machines: what code is compiled for, as data.

    triple, features, vectors, caches, rates --Machine--> what kernels may use, and what pays

Descriptions are chosen by a processor's features, never by what is measured at run time, so that
machines of one description run the same code. Their names are LLVM's for processors; the levels of
x86-64 are those of the System V ABI (x86-64-v1 to -v4).

Caches, rates and cycles say which plan is fast; they never say in which order numbers are added, so
that two machines whose vectors are equally long give the same bits. What reaches into that order
(which reduces share a kernel, where a product's depth is cut, how large the blocks of a fusion are)
asks COMMON instead, which is the same for all.
"""

from __future__ import annotations

from math import gcd
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from hlo.errors import HloError
from hlo.ir.dtype import DType

_Bytes = Annotated[int, Meta(ge=1 << 10, le=1 << 40)]
_Count = Annotated[int, Meta(ge=1, le=1 << 40)]
_Time = Annotated[float, Meta(gt=0, le=1e6)]
_Share = Annotated[float, Meta(gt=0, le=64)]


class Cache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level of cache. bytes: of data that one program may count on, in a shared one beside other
    programs. way_bytes: addresses so far apart share a set, which has `ways` lines; where nobody
    says, bytes / ways. A description serves several processors: bytes are those of the one that it
    was tuned on, way_bytes the least.
    """

    bytes: _Bytes
    ways: Annotated[int, Meta(ge=1, le=1024)]
    way_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.way_bytes:
            force_setattr(self, "way_bytes", max(1, self.bytes // self.ways))

    def sets_of(self, step_bytes: int) -> int:
        """How many sets there are for lines whose addresses are multiples of a step."""
        return self.way_bytes // gcd(step_bytes, self.way_bytes)


class Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a processor does in a microsecond, and what steps cost in microseconds.

    The numbers were measured with this compiler's own kernels on two virtual cores with AVX-512 and
    AMX (2 MiB of second-level cache), and serve all descriptions until somebody measures others:
    estimates weigh plans against each other, and for that ratios do.

    memory_bytes: read and written by one core as a stream (`hlo-run profile` prints what a machine
    reads and copies). cached_bytes: the same out of the second-level cache; cached_factor_bytes:
    where they are only read, by a product. copied_bytes: of a plain copy. packed_bytes: of columns
    that a product packs. crossing_bytes: what goes to and fro between two cores' caches: one has
    written it, the other reads it, the first one writes it again.
    taken_bytes: written where another core has read since, which has to give the lines back.
    awaited_bytes: what memory delivers while one line is waited for (a latency times a rate).

    elementwise_ops: of elementwise code. contracted_ops: of the contraction engine's f32 products.

    call_us: of a kernel in the program. host_call_us: of a call into Python. wake_us: from the call
    that wakes a sleeping thread (12 to 17 us by itself) until it works. share_us: to have a thread
    that is awake take part in a loop. pauses: of a waiting thread.
    """

    memory_bytes: _Count = 20_000
    cached_bytes: _Count = 60_000
    cached_factor_bytes: _Count = 100_000
    copied_bytes: _Count = 10_000
    packed_bytes: _Count = 20_000
    crossing_bytes: _Count = 5_000
    taken_bytes: _Count = 10_000
    awaited_bytes: _Count = 4096
    elementwise_ops: _Count = 30_000
    contracted_ops: _Count = 120_000
    call_us: _Time = 0.005
    host_call_us: _Time = 20.0
    wake_us: _Time = 50.0
    share_us: _Time = 1.0
    pauses: _Count = 30


class Cycles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a core does in a cycle, and how many it waits; of processors since Haswell and Zen.

    path_bytes: of the vectors that are counted; what is longer takes several turns.
    operations, loads: of vectors, begun in a cycle. shuffles: operations among these that move
    lanes. dots: dot products among these.
    bf16_dots: of bf16 among these on x86 (0.5: one in two cycles).
    squares: products of two rows by two columns, each of as much work as two dot products (LLVM's
    model of Neoverse N2 has as many of both, for integers and for bf16).
    tiled: operations of a matrix unit on elements of 16 bits in the time of one of an f32 product,
    where it reads its tiles out of the second cache (16 from the first one).
    products: operations that a product of integers of 32 bits is, in vectors (uops.info).
    latency: of an addition or a product of floats. load_latency: out of the first cache, into a
    vector. window: of one chain of operations, beyond which a core finds nothing else to do
    meanwhile.
    lookup: operations of vectors in whose time sixteen words of a table are gathered out of the
    first cache, about (`loops/chains.py` counts functions so).
    streams: pages of which the second-level cache foresees lines. page_bytes: of such a page.
    missed: lines beyond three quarters of a set's ways for which products of f32 do not wait.
    assist: of microcode, for a product of vectors with a subnormal number among its factors or
    results; 0: subnormal numbers are as others.
    """

    path_bytes: Annotated[int, Meta(ge=8, le=1024)] = 64
    operations: _Count = 2
    shuffles: _Count = 1
    loads: _Count = 2
    dots: _Count = 2
    bf16_dots: _Share = 2.0
    squares: _Count = 2
    tiled: _Count = 8
    products: _Count = 2
    latency: _Count = 4
    load_latency: _Count = 8
    window: _Count = 100
    lookup: _Count = 24
    streams: _Count = 32
    page_bytes: _Bytes = 4096
    missed: Annotated[int, Meta(ge=0, le=64)] = 0
    assist: Annotated[int, Meta(ge=0, le=1 << 40)] = 0


_CACHES = (  # Ways of 128 KiB are those of 2 MiB, of 64 KiB those of 1 MiB (Skylake's servers).
    Cache(bytes=32 << 10, ways=8),
    Cache(bytes=2 << 20, ways=16, way_bytes=64 << 10),
    Cache(bytes=4 << 20, ways=16, shared=True),
)
# AMD's Software Optimization Guides for Zen 4 (57647), Zen 5 (58455); Intel's manual (248966).
_ZEN4_CACHES = (
    Cache(bytes=32 << 10, ways=8),
    Cache(bytes=1 << 20, ways=8, way_bytes=64 << 10),
    Cache(bytes=4 << 20, ways=16, shared=True),
)
_ZEN5_CACHES = (
    Cache(bytes=48 << 10, ways=12),
    Cache(bytes=1 << 20, ways=16),
    Cache(bytes=4 << 20, ways=16, shared=True),
)
_GOLDEN_CACHES = (
    Cache(bytes=48 << 10, ways=12),
    Cache(bytes=2 << 20, ways=16),
    Cache(bytes=4 << 20, ways=16, shared=True),
)
# Neoverse N1, V1, N2, V2 (manuals 100616, 101427, 102099, 102375): 64 KiB in 4 ways, then 512 KiB
# to 2 MiB in 8. What the cores share is up to who builds them.
_NEOVERSE_CACHES = (
    Cache(bytes=64 << 10, ways=4),
    Cache(bytes=1 << 20, ways=8, way_bytes=64 << 10),
    Cache(bytes=4 << 20, ways=16, shared=True),
)
# Cortex-A72 (100095), A53 (DDI 0500): 32 KiB in 2 and 4 ways; 512 KiB and more in 16, of a cluster.
_CORTEX_CACHES = (
    Cache(bytes=32 << 10, ways=2, way_bytes=8 << 10),
    Cache(bytes=512 << 10, ways=16, shared=True),
)


# What memory of ours begins and ends at multiples of, on all machines: whole lines of most, and no
# vector is longer.
ALIGNMENT = 64


def aligned(size_bytes: int) -> int:
    """Memory for so many bytes: the next multiple of ALIGNMENT."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


# Other words that triples begin with: Apple's for 64-bit Arm, the versions of the 32-bit one.
_ALIASES = {"arm64": "aarch64", "armv7": "arm", "armv7a": "arm", "armv7l": "arm"}
_NARROW = frozenset({"arm", "wasm32"})  # architectures whose addresses have 32 bits
_FLUSHING = {"arm": frozenset({"neon"})}  # before ARMv8 (DDI 0406, A2.7.4)


def _architecture(triple: str) -> str:
    """The first word, or what it stands for."""
    first = triple.partition("-")[0]
    return _ALIASES.get(first, first)


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What code is compiled for.

    triple: LLVM's. features: LLVM's names of what is there.
    vector_bytes: of the widest vector that kernels use.
    processors: LLVM's names of others that the description serves.
    registers: of vectors; where nobody says, 32 of 64 bytes and on 64-bit Arm (V0 to V31), else 16.
    address_bytes: of an address; where nobody says, 4 or 8 as the architecture has.
    flushing: features whose vectors of floats have no subnormal numbers, in any mode: strict code
    does without them; where nobody says, those of the architecture.
    line_bytes: of a line of the caches. caches: the nearest first.
    """

    name: str
    triple: str
    features: frozenset[str]
    vector_bytes: int = 16
    processors: tuple[str, ...] = ()
    registers: int = 0
    address_bytes: int = 0
    flushing: frozenset[str] = frozenset()
    line_bytes: int = 64
    caches: Annotated[tuple[Cache, ...], Meta(min_length=2, max_length=4)] = _CACHES
    rates: Rates = Rates()
    cycles: Cycles = Cycles()

    def __post_init__(self) -> None:
        if not self.registers:
            is_large = self.vector_bytes == 64 or self.architecture == "aarch64"
            force_setattr(self, "registers", 32 if is_large else 16)
        if not self.address_bytes:
            force_setattr(self, "address_bytes", 4 if self.architecture in _NARROW else 8)
        if not self.flushing:
            force_setattr(self, "flushing", _FLUSHING.get(self.architecture, frozenset()))

    def has(self, feature: str) -> bool:
        """Whether the instruction set has a feature."""
        return feature in self.features

    def lanes(self, dtype: DType) -> int:
        """Elements of one full vector of the type; small types are counted as f32 (they compute
        so).
        """
        return self.vector_bytes // max(4, dtype.component.item_bytes)

    def in_mode(self, mode: str) -> Machine:
        """What code of a numerics mode may use: strict code keeps subnormal numbers."""
        if mode == "fast" or not self.flushing & self.features:
            return self
        return replace(self, features=self.features - self.flushing)

    @property
    def turns(self) -> int:
        """How many of its operations in a cycle one on a whole vector is."""
        return -(-self.vector_bytes // self.cycles.path_bytes)

    @property
    def dropped(self) -> frozenset[str]:
        """Features that the triple may stand for and that code does without all the same."""
        return self.flushing - self.features

    @property
    def identity(self) -> str:
        """All that code for it depends on, as one line."""
        facts = (self.registers, self.line_bytes, *self.caches, self.rates, self.cycles)
        features = ",".join(sorted(self.features))
        return f"{self.name} {self.triple} {self.vector_bytes} {features} {facts}"

    @property
    def architecture(self) -> str:
        """The triple's first word: x86_64, aarch64, ..."""
        return _architecture(self.triple)

    @property
    def system(self) -> str:
        """The triple's word for the operating system, without a version: linux, macosx, ..;
        empty: none."""
        words = self.triple.split("-")
        return words[2].rstrip("0123456789.") if len(words) > 2 else ""

    @property
    def first_cache(self) -> Cache:
        """The nearest level."""
        return self.caches[0]

    @property
    def second_cache(self) -> Cache:
        """The level that one core has for itself."""
        return self.caches[1]

    @property
    def last_cache(self) -> Cache:
        """The level before memory."""
        return self.caches[-1]


# What decisions that reach into the order of additions count on: of every machine the same.
COMMON = Machine(name="common", triple="", features=frozenset())

# Elements of f32 in the longest vectors: what passes take a vector to have, on all machines.
COMMON_LANES = ALIGNMENT // 4

# What kernels are written for, by field.
CHOICES = {
    "vector_bytes": (16, 32, 64),
    "registers": (16, 32),
    "address_bytes": (4, 8),
    "line_bytes": (16, 32, 64, 128, 256),
}
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
RISCV = "riscv64-unknown-linux-gnu"
ARM32, WASM = "armv7-unknown-linux-gnueabihf", "wasm32-unknown-unknown"
_V1 = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
_V2 = _V1 | {"cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_ALDER = _V3 | {"avxvnni"}
_ARROW = _ALDER | {"avxvnniint8"}
_CASCADE = _V4 | {"avx512vnni"}
_ICE = _CASCADE | {"avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vpopcntdq"}
_ZEN4 = _ICE | {"avx512bf16"}
_ZEN5 = _ZEN4 | {"avxvnni"}
# Measured on two virtual cores of one EPYC at 3.7 GHz. A core reads 215 GB/s from its first cache,
# 115 from its second, 80 to 95 from the shared one, 25 from memory (both 34 to 37), and 50 to 85 of
# what the other one wrote, 0.18 us after it did; it writes 9 where that one has read. Products of
# f32 reach 117 GFLOP/s: as many FMAs, dot products and loads of 256 bits begin in a cycle as of 512
# elsewhere. On another EPYC the host had put the cores further apart one time in five (a line went
# to and fro in 0.5 to 3 us instead of 0.2): then a loop takes some 2 us more. Sixteen words are
# gathered in 20 cycles; tanh and erf of bf16 (38 and 35 operations) are computed in as many, e^x
# (28) in 16, a root (26) in 8.
_ZEN4_CYCLES = Cycles(path_bytes=32, shuffles=2, products=1, lookup=33)
_ZEN4_RATES = Rates(
    memory_bytes=25_000, cached_bytes=100_000, cached_factor_bytes=115_000, copied_bytes=12_500,
    packed_bytes=25_000, crossing_bytes=8_000, contracted_ops=115_000, share_us=0.25,
)  # fmt: skip
# Measured on two virtual cores of one EPYC at 4.1 GHz. A core reads 530 GB/s from its first cache,
# 200 to 230 from its second, 120 from the shared one, 41 from memory (both 54), and 60 to 100 of
# what the other one wrote, 0.13 to 0.29 us after it did; products of f32 reach 231 GFLOP/s.
_ZEN5_RATES = Rates(
    memory_bytes=40_000, cached_bytes=180_000, cached_factor_bytes=220_000, copied_bytes=20_000,
    packed_bytes=40_000, crossing_bytes=60_000, elementwise_ops=60_000, contracted_ops=230_000,
    share_us=0.25,
)  # fmt: skip
# Measured on Emerald Rapids: VDPBF16PS took 0.74 ns where an FMA took 0.17 (cache_sets.py: missed),
# a product of vectors with a subnormal number 44 where others took 0.4 (sums, comparisons,
# conversions no longer).
_INTEL = Cycles(assist=130)
_GOLDEN_COVE = Cycles(bf16_dots=0.5, missed=5, assist=130)
_SAPPHIRE = _ZEN4 | {"amx-bf16", "amx-int8", "amx-tile", "avx512fp16", "avxvnni"}
_ARMV8 = frozenset({"fp-armv8", "neon"})
_N1 = _ARMV8 | {"crc", "dotprod", "fullfp16", "lse", "rdm"}
_V1_ARM = _N1 | {"bf16", "i8mm"}

# RV64GC (the profile RVA20U64), and V's parts with registers of 16 bytes at least.
_RV64GCV = frozenset({"rva20u64", "zve64d", "zvl128b"})

# ARMv7-A with VFPv3 and NEON (32 registers of 8 bytes); VFPv4 and its NEON fuse and know f16.
_ARMV7 = frozenset({"v7", "aclass", "dsp", "thumb2", "vfp3", "neon"})
_VFP4 = _ARMV7 | {"vfp4", "fp16"}
# WebAssembly 2.0, which every engine has that has vectors of 128 bits.
_WASM = frozenset({"bulk-memory", "mutable-globals", "nontrapping-fptoint", "sign-ext", "simd128"})

# From the least to the most capable of each architecture.
_ALL = (
    Machine(name="generic", triple=X86, features=frozenset()),
    Machine(name="x86-64", triple=X86, features=_V1, processors=("x86-64-v1", "k8", "core2")),
    Machine(name="x86-64-v2", triple=X86, features=_V2,
            processors=("nehalem", "westmere", "silvermont", "sandybridge", "ivybridge")),
    Machine(name="x86-64-v3", triple=X86, features=_V3, vector_bytes=32,
            processors=("haswell", "broadwell", "skylake", "znver1", "znver2", "znver3")),
    Machine(name="alderlake", triple=X86, features=_ALDER, vector_bytes=32,
            processors=("raptorlake", "meteorlake")),
    Machine(name="arrowlake", triple=X86, features=_ARROW, vector_bytes=32,
            processors=("sierraforest", "grandridge")),
    Machine(name="lunarlake", triple=X86, features=_ARROW | {"avxvnniint16"}, vector_bytes=32,
            processors=("arrowlake-s", "pantherlake", "clearwaterforest")),
    Machine(name="x86-64-v4", triple=X86, features=_V4, vector_bytes=64,
            processors=("skylake-avx512",), cycles=_INTEL),
    Machine(name="cascadelake", triple=X86, features=_CASCADE, vector_bytes=64, cycles=_INTEL),
    Machine(name="cooperlake", triple=X86, features=_CASCADE | {"avx512bf16"}, vector_bytes=64,
            cycles=_INTEL),
    Machine(name="icelake-server", triple=X86, features=_ICE, vector_bytes=64,
            processors=("icelake-client", "rocketlake", "tigerlake"), cycles=_INTEL),
    Machine(name="znver4", triple=X86, features=_ZEN4, vector_bytes=64, caches=_ZEN4_CACHES,
            rates=_ZEN4_RATES, cycles=_ZEN4_CYCLES),
    Machine(name="znver5", triple=X86, features=_ZEN5, vector_bytes=64, caches=_ZEN5_CACHES,
            rates=_ZEN5_RATES, cycles=Cycles(shuffles=2, products=1)),
    Machine(name="sapphirerapids", triple=X86, features=_SAPPHIRE, vector_bytes=64,
            processors=("emeraldrapids",), caches=_GOLDEN_CACHES, cycles=_GOLDEN_COVE),
    Machine(name="graniterapids", triple=X86, features=_SAPPHIRE | {"amx-fp16"}, vector_bytes=64,
            processors=("graniterapids-d",), caches=_GOLDEN_CACHES, cycles=_GOLDEN_COVE),
    Machine(name="armv8-a", triple=ARM, features=_ARMV8, caches=_CORTEX_CACHES,
            processors=("cortex-a53", "cortex-a72")),
    Machine(name="neoverse-n1", triple=ARM, features=_N1, caches=_NEOVERSE_CACHES,
            processors=("apple-m1",)),
    Machine(name="neoverse-v1", triple=ARM, features=_V1_ARM, caches=_NEOVERSE_CACHES,
            processors=("neoverse-n2", "neoverse-v2", "apple-m2", "apple-m3", "apple-m4")),
    Machine(name="rv64gcv", triple=RISCV, features=_RV64GCV, registers=32, caches=_CORTEX_CACHES,
            processors=("sifive-x280", "spacemit-x60")),
    Machine(name="rva23u64", triple=RISCV, features=_RV64GCV | {"rva23u64"}, registers=32,
            caches=_CORTEX_CACHES),
    Machine(name="armv7-a", triple=ARM32, features=_ARMV7,
            caches=_CORTEX_CACHES, processors=("cortex-a8", "cortex-a9")),
    Machine(name="cortex-a7", triple=ARM32, features=_VFP4,
            caches=_CORTEX_CACHES, processors=("cortex-a15", "cortex-a17")),
    Machine(name="wasm32-simd128", triple=WASM, features=_WASM),
)  # fmt: skip
NAMED = {machine.name: machine for machine in _ALL}
_COUNTED_ON = {
    "x86_64": "x86-64-v3",
    "aarch64": "armv8-a",
    "riscv64": "rv64gcv",
    "arm": "armv7-a",
    "wasm32": "wasm32-simd128",
}


# What vectors can do: by these a processor's description is found, since a hypervisor may hide any
# of the others.
_OF_VECTORS = (
    "amx", "avx", "bf16", "dotprod", "f16c", "fma", "fullfp16", "i8mm", "neon", "rva23", "simd128",
    "sse", "ssse", "vfp", "zve",
)  # fmt: skip


def _vectors(machine: Machine) -> set[str]:
    """Those of a machine's features that its vectors need."""
    return {f for f in machine.features if f.startswith(_OF_VECTORS)}


def described(triple: str, features: frozenset[str], processor: str = "") -> Machine:
    """The most capable description whose vectors a processor has, with that processor's own
    features and triple.

    processor: its name, where it is known. A hypervisor that hides features does not change what
    the others cost: all but vectors and registers is of the description that serves it. Of two
    descriptions with the same vectors the later one is for processors without a known name.
    """
    own = _architecture(triple)
    best = NAMED["generic"]
    for machine in _ALL:
        if machine.architecture == own and _vectors(machine) <= features:
            best = machine
    serving = _serving(processor)
    # LLVM gives processors that it does not know the name of a lesser one.
    if serving is not None and serving.architecture == own and _vectors(best) <= serving.features:
        best = replace(serving, vector_bytes=best.vector_bytes, registers=best.registers)
    return replace(best, triple=triple, features=features)


def named(name: str) -> Machine:
    """The description with a name, or that serves a processor of that name; HloError for none."""
    if (machine := _serving(name)) is not None:
        return machine
    known = [*NAMED, *(p for m in _ALL for p in m.processors)]
    likely = near(name, known)
    hint = f"did you mean {likely[0]}?" if likely else ""
    raise HloError(
        "machine", f"there is no machine {name}, expected one of: {', '.join(NAMED)}", help=hint
    )


def _serving(processor: str) -> Machine | None:
    """The description with this name, or that serves a processor of it."""
    for machine in _ALL:
        if processor == machine.name or processor in machine.processors:
            return machine
    return None


def near(name: str, known: list[str]) -> list[str]:
    """The known name that is most like another one, if one is."""
    import difflib  # for faults alone

    return difflib.get_close_matches(name, known, 1)


def of_triple(triple: str) -> Machine:
    """What is counted on where only a triple is known: the least description that has vectors, for
    the 64-bit ones with fused products; HloError for an architecture without descriptions.
    """
    found = _COUNTED_ON.get(_architecture(triple))
    if found is None:
        raise HloError(
            "machine",
            f"{triple!r} is no triple of a described architecture, expected one that begins with "
            f"{', '.join(_COUNTED_ON)}",
            help="x86_64-unknown-linux-gnu, arm64-apple-macosx11.0 are some",
        )
    return replace(NAMED[found], triple=triple)
