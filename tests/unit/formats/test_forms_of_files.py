"""Files by their content: forms, archives, logs, dumps, snapshots; what is written reads back."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.formats import wire
from hlo.formats.json_format import parse_json, print_json
from hlo.formats.literal_message import literal_message, literal_of
from hlo.formats.message import Message
from hlo.formats.module_message import module_message
from hlo.formats.module_text import module_of
from hlo.formats.reading import candidates
from hlo.formats.text_format import parse_text, print_text
from hlo.formats.writing import FORMS, hlo_proto
from hlo.ir.dtype import ARRAY_TYPES, DType
from hlo.ir.literal import Literal
from hlo.printer.equality import difference
from tests.support import oracle
from tests.support.command import call

TEXT = """HloModule jit_f, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY main {
  x = f32[2]{0} parameter(0)
  c = f32[2]{0} constant({1, nan})
  ROOT r = f32[2]{0} add(x, c)
}
"""
OTHER = TEXT.replace("jit_f", "jit_g").replace("add(", "multiply(")
LOG = "I0101 12:00:00.123456   77 compiler.cc:12] "
NEEDS_JAX = pytest.mark.skipif(not oracle.available(), reason="needs jaxlib")


def same(path: str, wanted: str | None = None, text: str = TEXT) -> bool:
    return difference(hlo.read(path, wanted), hlo.parse(text)) is None


def names_that_computations_share() -> hlo.ir.module.Module:
    """As `hlo.Builder` makes them: unique in a computation each."""
    b = hlo.Builder("shared")
    inner = b.subcomputation("inner")
    y = inner.parameter("x", hlo.Shape.array("s32", (2,)))
    x = b.parameter("x", hlo.Shape.array("f32", ()))
    called = inner.finish(inner.add(y, inner.constant([5, 6], "s32")))
    twice = b.multiply(b.add(x, b.constant(2, "f32")), b.constant(3, "f32"))
    return b.build(b.tuple(twice, b.call(called, b.constant([7, 8], "s32"))))


SHARED = names_that_computations_share()
PADDED_NUMBER = hlo.parse("""HloModule m
ENTRY e { x = f32[] parameter(0)
  ROOT y = f32[] pad(x, x), padding= }""")
SUB_BYTES = hlo.parse("HloModule m\nENTRY e { ROOT c = s4[3] constant({-8, -1, 7}) }")


@pytest.mark.parametrize("form", [f for f in FORMS if "stable" not in f])
@pytest.mark.parametrize("module", [SHARED, PADDED_NUMBER, SUB_BYTES])
def test_every_form_holds_the_same_module(
    form: str, module: hlo.ir.module.Module, tmp_path: Path
) -> None:
    file = tmp_path / "m"
    file.write_bytes(hlo.write(module, form))
    assert difference(hlo.read(str(file)), module) is None


def test_literals_of_repeated_names_are_found_by_their_places() -> None:
    message = module_message(SHARED)
    for computation in message.children("computations"):
        for number, instruction in enumerate(computation.children("instructions")):
            instruction["name"] = f"n{number}"
    assert difference(module_of(message), SHARED) is None


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=NEEDS_JAX if "stable" in f else ()) for f in FORMS]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_form_is_known_by_its_content(
    form: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / "no-suffix"
    file.write_bytes(pack(hlo.write(hlo.parse(TEXT), form)))
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(
        hlo.evaluate(hlo.read(str(file)), x), hlo.evaluate(hlo.parse(TEXT), x)
    )
    assert "stable" in form or same(str(file))


@pytest.mark.parametrize("order", [(0, 0), (7, 0)])
def test_a_literal_whose_layout_is_no_order_of_its_dimensions(order: tuple[int, ...]) -> None:
    written = wire.encode(literal_message(Literal.of(np.zeros((2, 3), np.float32))))
    message = wire.decode(written, "LiteralProto")  # A shape's own message serves all literals.
    message.child("shape").child("layout")["minor_to_major"] = list(order)
    with pytest.raises(HloError) as raised:
        literal_of(message)
    assert raised.value.code == "message"


def test_literals_keep_their_bits(tmp_path: Path) -> None:
    file = tmp_path / "m.pb"
    file.write_bytes(hlo.write(hlo.parse(TEXT.replace("nan", "-nan(0x123456)")), "pb"))
    (constant,) = (i for i in hlo.read(str(file)).entry.instructions if i.opcode == "constant")
    literal = constant.attributes["literal"]
    assert isinstance(literal, Literal)
    assert literal.array.view(np.uint32)[1] == 0xFF923456


@pytest.mark.parametrize("dtype", ARRAY_TYPES, ids=str)
def test_numbers_of_every_type_read_back(dtype: DType) -> None:
    value = "true" if dtype.is_pred else "(1, -1)" if dtype.is_complex else "1"
    if dtype.name == "s1":
        value = "-1"  # the other number that it has is 0
    module = hlo.parse(f"HloModule m\nENTRY e {{ ROOT c = {dtype}[] constant({value}) }}")
    assert str(module_of(module_message(module), "m")) == str(module)


@NEEDS_JAX
@pytest.mark.parametrize(
    ("root", "code"),
    [
        (
            'f32[3] custom-call(p), custom_call_target="c", api_version=API_VERSION_TYPED_FFI, '
            'backend_config={"kind":{"a":[1]}}',
            "oracle",
        ),
        ("f32[2] negate(p)", "shape-mismatch"),
    ],
)
def test_what_xla_writes_no_stablehlo_of(root: str, code: str) -> None:
    """Its writer would end the process over these."""
    module = hlo.parse(f"HloModule m\nENTRY e {{ p = f32[3] parameter(0)\n ROOT r = {root} }}")
    for form in ("stablehlo", "stablehlo-bytecode"):
        with pytest.raises(HloError) as raised:
            hlo.write(module, form)
        assert raised.value.code == code


def test_convert_takes_the_form_of_the_suffix(tmp_path: Path) -> None:
    source, target = tmp_path / "m.hlo", tmp_path / "m.pbtxt"
    source.write_text(TEXT)
    assert call("hlo-opt", "convert", str(source), "-o", str(target)).code == 0
    assert target.read_text().startswith("hlo_module {\n")
    assert same(str(target))


@pytest.mark.parametrize("command", ["check", "eq", "memory", "profile", "transform"])
def test_every_command_reads_every_form(command: str, tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_bytes(hlo.write(hlo.parse(TEXT), "json"))
    program = "hlo-run" if command in ("memory", "profile") else "hlo-opt"
    files = [str(file)] * (2 if command == "eq" else 1)
    assert call(program, command, *files).code == 0


def test_a_module_in_a_log(tmp_path: Path) -> None:
    file = tmp_path / "log"
    lines = ["I0101 12:00:00.1 77 a.cc:1] before", *(LOG + row for row in TEXT.splitlines()), "x"]
    file.write_text("\n".join(lines))
    assert same(str(file))
    span = hlo.read(str(file)).entry.root.span
    assert span is not None
    assert span.line == 7  # the line of the log


@NEEDS_JAX
@pytest.mark.parametrize(("place", "byte"), [(34, 1), (37, 255)])
def test_bytecode_over_which_xla_ends_its_process(place: int, byte: int, tmp_path: Path) -> None:
    module = hlo.parse("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }")
    file, data = tmp_path / "m.mlirbc", bytearray(hlo.write(module, "stablehlo-bytecode"))
    data[place] = byte
    file.write_bytes(data)
    with pytest.raises(HloError, match="StableHLO is not read") as raised:
        hlo.read(str(file))
    assert raised.value.code == "oracle"


def test_several_modules_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(f"{TEXT}\nsome words\n{OTHER}")
    with pytest.raises(HloError, match="2 modules, expected one: jit_f, jit_g"):
        hlo.read(str(file))
    assert same(str(file), "jit_g", OTHER)
    assert call("hlo-opt", "check", "--module=jit_f", str(file)).code == 0
    listed = call("hlo-opt", "list", str(file)).out
    assert [row.split() for row in listed.splitlines()] == [["jit_f", "hlo"], ["jit_g", "hlo"]]


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def dump() -> dict[str, bytes]:
    """The files of a folder as XLA's --xla_dump_to makes it."""
    module, other = hlo.parse(TEXT), hlo.parse(OTHER)
    return {
        "module_0001.jit_f.before_optimizations.txt": TEXT.encode(),
        "module_0001.jit_f.before_optimizations.hlo.pb": hlo.write(module, "pb"),
        "module_0001.jit_f.cpu_after_optimizations.txt": hlo.write(other, "text"),
        "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt": b"BufferAssignment:\n",
        "module_0001.jit_f.ir-no-opt.ll": b"; ModuleID = '__compute_module'\n",
        "module_0001.jit_f.debug_options": b"xla_cpu_enable_fast_math: false\n",
    }


def test_a_dump_folder(tmp_path: Path) -> None:
    for name, data in dump().items():
        (tmp_path / name).write_bytes(data)
    assert same(str(tmp_path))
    assert same(str(tmp_path), "after", OTHER)
    listed = call("hlo-opt", "list", str(tmp_path)).out.splitlines()
    assert len(listed) == 4
    assert listed[-1] == (
        "module_0001.jit_f: module_0001.jit_f.before_optimizations.hlo.pb became "
        "module_0001.jit_f.cpu_after_optimizations.txt"
    )


def test_an_archive_of_a_dump(tmp_path: Path) -> None:
    file = tmp_path / "dump.zip"
    file.write_bytes(zipped(dump()))
    assert same(str(file), "before_optimizations.txt")


def test_an_archive_without_some_of_its_bytes(tmp_path: Path) -> None:
    file, data = tmp_path / "dump.zip", zipped(dump())
    file.write_bytes(data[:60] + data[80:])
    with pytest.raises(HloError, match=r"dump\.zip cannot be unpacked"):
        hlo.read(str(file))


def test_a_folder_without_modules(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words\n")
    with pytest.raises(HloError, match="no module"):
        hlo.read(str(tmp_path))


def snapshot(result: float) -> bytes:
    module = hlo.parse(TEXT.replace("nan", "2"))
    message = Message("HloSnapshot", hlo=hlo_proto(module), execution_platform="cpu")
    message["arguments"] = [literal_message(Literal.of(np.array([1, 2], np.float32)))]
    message["result"] = literal_message(Literal.of(np.array([2, result], np.float32)))
    return wire.encode(message)


@pytest.mark.parametrize(("result", "code"), [(4.0, 0), (5.0, 1)])
def test_a_snapshot_is_run_and_compared(result: float, code: int, tmp_path: Path) -> None:
    file = tmp_path / "execution"
    file.write_bytes(snapshot(result))
    outcome = call("hlo-run", str(file))
    assert outcome.code == code
    assert "inputs: as recorded" in outcome.err
    assert ("equal to" if code == 0 else "different from") in outcome.err


def test_an_unoptimised_snapshot(tmp_path: Path) -> None:
    message = Message("HloUnoptimizedSnapshot", hlo_module=module_message(hlo.parse(TEXT)))
    inputs = message.add("partitions")
    inputs["arguments"] = [literal_message(Literal.of(np.array([3, 4], np.float32)))]
    (candidate,) = candidates("s", wire.encode(message))
    assert candidate.read().arguments is not None


UNKNOWN = wire.to_varint(901 << 3 | 2) + b"\x02ab" + wire.to_varint(902 << 3 | 5) + b"1234"


def test_what_is_not_known_survives() -> None:
    message = hlo_proto(hlo.parse(TEXT))
    message.child("hlo_module").unknown = wire.to_varint(900 << 3) + b"\x07"
    message.unknown = UNKNOWN
    message = wire.decode(wire.encode(message), "HloProto")  # without what is set to zero
    assert (message.unknown, message.child("hlo_module").unknown[-1:]) == (UNKNOWN, b"\x07")
    assert wire.decode(wire.encode(message), "HloProto") == message
    assert parse_text(print_text(message), "HloProto") == message
    assert parse_json(print_json(message), "HloProto") == message


BROKEN = {
    "no message": (b"\x00\x01\x02\x03" * 40, "no HLO text and no protocol buffer"),
    "no module in it": (b'{"hloModule": {"name": "m"}}', "no module with computations"),
    "an unknown field": (b'hlo_module {\n  nam: "x"\n}\n', "a field of HloModuleProto"),
    "an open message": (b'hlo_module {\n  name: "x"\n', "the end, expected }"),
    "broken gzip": (gzip.compress(TEXT.encode())[:30], "cannot be unpacked"),
    "broken zip": (zipped(dump())[:80], "cannot be unpacked"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_clear_error(name: str, tmp_path: Path) -> None:
    data, words = BROKEN[name]
    file = tmp_path / "broken"
    file.write_bytes(data)
    outcome = call("hlo-opt", "check", str(file))
    assert outcome.code == 1
    assert words in outcome.err


def test_too_much_for_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "bomb"
    file.write_bytes(gzip.compress(TEXT.encode() + b" " * 100_000))
    assert (
        "expected at most 1,000" in call("hlo-opt", "check", "--max-input-size=1000", str(file)).err
    )


def safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    header, body = {}, b""
    for name, array in arrays.items():
        where = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": where}
        body += array.tobytes()
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + body


def test_inputs_by_content(tmp_path: Path) -> None:
    program, given = tmp_path / "m.hlo", tmp_path / "given"
    program.write_text(TEXT.replace("nan", "2"))
    x = np.array([1, 2], np.float32)
    stream = io.BytesIO()
    np.save(stream, x)
    for data in (safetensors({"x": x}), stream.getvalue()):
        given.write_bytes(data)
        outcome = call("hlo-run", str(program), f"--inputs={given}", "--print-outputs=full")
        assert "{2, 4}" in outcome.out
    given.write_bytes(safetensors({"x": x})[:-1])
    assert "error[file]" in call("hlo-run", str(program), f"--inputs={given}").err
