"""hlo-run compile: which files it writes, and that it writes none where something is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hlo.tools import c_compiler
from tests.support.command import call

ROOT = Path(__file__).resolve().parents[3]
AXPY, SOFTMAX = (str(ROOT / "examples" / f"{name}.hlo") for name in ("axpy", "softmax"))


def test_an_object_and_its_headers(tmp_path: Path) -> None:
    object, header, cpp = (str(tmp_path / name) for name in ("a.o", "a.h", "a.hpp"))
    outcome = call(
        "hlo-run", "compile", AXPY, "-o", object, "--header", header, "--cpp-header", cpp,
        "--name=scaled", "--machine=neoverse-n1", "--sizes",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert Path(object).read_bytes()[:4] == b"\x7fELF"
    assert "int scaled(const void *const *inputs" in Path(header).read_text()
    assert "class scaled" in Path(cpp).read_text()
    assert "variables 0" in outcome.err


@pytest.mark.parametrize(("form", "part"), [("asm", "vmulps"), ("llvm", "define i32 @axpy(ptr"),
                                            ("header", "#define AXPY_INPUTS 3")])  # fmt: skip
def test_texts(form: str, part: str) -> None:
    outcome = call("hlo-run", "compile", AXPY, f"--emit={form}")
    assert outcome.code == 0, outcome.err
    assert part in outcome.out


def test_a_library_of_several_programs(tmp_path: Path) -> None:
    library, header = str(tmp_path / "both.a"), str(tmp_path / "both.h")
    outcome = call(
        "hlo-run", "compile", AXPY, SOFTMAX, "-o", library, "--header", header, "--prefix=my_"
    )
    assert outcome.code == 0, outcome.err
    data = Path(library).read_bytes()
    assert data.startswith(b"!<arch>\n/ ")
    assert b"my_axpy\0my_softmax\0" in data
    assert Path(header).read_text().count("\nint my_") == 2
    twice = call("hlo-run", "compile", AXPY, AXPY, "-o", library)
    assert twice.code == 1
    assert "two members define axpy" in twice.err
    assert Path(library).read_bytes() == data


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_a_shared_library(tmp_path: Path) -> None:
    library = tmp_path / "both.so"
    outcome = call("hlo-run", "compile", AXPY, SOFTMAX, "-o", str(library), "--machine=x86-64-v2")
    assert outcome.code == 0, outcome.err
    assert "linked by cc" in outcome.err
    assert library.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((AXPY, "-o", "{}/a.xyz"), 2, "none of the endings"),
        ((AXPY, SOFTMAX, "-o", "{}/a.o"), 2, "expected a library"),
        ((AXPY, SOFTMAX, "-o", "{}/a.a", "--name=x"), 2, "which is for all"),
        ((AXPY, "--emit=object"), 2, "needs --output"),
        ((AXPY, "-o", "{}/a.o", "--name=int"), 1, "an identifier of C"),
        ((AXPY, "-o", "{}/a.o", "--machine=z80"), 1, "there is no machine z80"),
        ((AXPY, "-o", "{}/a.o", "--multiversion=v2,v9"), 1, "there is no machine v9"),
        ((AXPY, "-o", "{}/a.o", "--multiversion=v2,v3", "--cpu=haswell"), 2, "no other flag"),
        ((AXPY, "-o", "{}/a.o", "--features=+sse9"), 1, "is no feature of x86_64"),
        ((AXPY, "-o", "{}/a.o", "--target-triple=z80-unknown"), 1, "described architecture"),
        ((AXPY, "-o", "{}/a.o", "--cancellable", "--freestanding"), 1, "expected one of them"),
        ((AXPY, "-o", "{}/a.o", "--header={}/none/a.h"), 1, "cannot be written"),
        ((AXPY, "-o", "{}/a.wasm", "--machine=x86-64"), 1, "the ending .wasm for wasm32 alone"),
        ((AXPY, "-o", "{}/a.so", "--machine=wasm32-simd128"), 1, "the ending .wasm"),
        ((AXPY, "-o", "{}/a.o", "--target-triple=sparc-unknown-linux"), 1, "described arch"),
        (
            (AXPY, "-o", "{}/a.o", "--target-triple=arm64-apple-ios", "--machine=x86-64"),
            1,
            "x86-64 is x86_64, expected aarch64",
        ),
        (("{}/none.hlo", "-o", "{}/a.o", "--header={}/a.h"), 1, "does not exist"),
    ],
)
def test_no_file_where_something_is_wrong(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    given = [a.replace("{}", str(tmp_path)) for a in arguments]
    outcome = call("hlo-run", "compile", *given)
    assert (outcome.code, said in outcome.err) == (code, True), outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["module", "other"])
def test_no_output_takes_the_place_of_another_file(named: str, tmp_path: Path) -> None:
    module, other = tmp_path / "module.hlo", tmp_path / "other.h"
    shutil.copy(AXPY, module)
    (tmp_path / "link.h").symlink_to({"module": module, "other": other}[named])
    outcome = call(
        "hlo-run", "compile", str(module), "-o", str(tmp_path / "a.o"), "--header", str(other),
        "--cpp-header", str(tmp_path / "link.h"),
    )  # fmt: skip
    assert outcome.code == 2
    assert "link.h is read, or named twice" in outcome.err
    assert module.read_bytes() == Path(AXPY).read_bytes()
    assert not other.exists()


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n"
    text += "  w = f32[4] constant({1, 2, 3, 4})\n  ROOT r = f32[4] add(x, w)\n}\n"
    (tmp_path / "m.hlo").write_text(text)
    file, object = str(tmp_path / "m.weights"), str(tmp_path / "m.o")
    outcome = call("hlo-run", "compile", str(tmp_path / "m.hlo"), "-o", object, f"--weights={file}")
    assert outcome.code == 0, outcome.err
    assert Path(file).read_bytes()[:16] == b"".join(
        n.to_bytes(4, "little") for n in (0x3F800000, 0x40000000, 0x40400000, 0x40800000)
    )


@pytest.mark.parametrize(
    ("triple", "head"),
    [("arm64-apple-macosx11.0", b"\xcf\xfa\xed\xfe"), ("x86_64-pc-windows-msvc", b"\x64\x86"),
     ("riscv64-unknown-linux-gnu", b"\x7fELF")],
)  # fmt: skip
def test_a_triple_alone(triple: str, head: bytes, tmp_path: Path) -> None:
    object = tmp_path / "a.o"
    outcome = call("hlo-run", "compile", AXPY, "-o", str(object), f"--target-triple={triple}")
    assert outcome.code == 0, outcome.err
    assert object.read_bytes().startswith(head)


def test_refused_steps_leave_no_file(tmp_path: Path) -> None:
    file = tmp_path / "host.hlo"
    file.write_text(
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  t = token[] after-all()\n"
        "  o = token[] outfeed(x, t), outfeed_shape=f32[2]\n  ROOT r = f32[2] negate(x)\n}\n"
    )
    outcome = call("hlo-run", "compile", str(file), "-o", str(tmp_path / "a.o"))
    assert outcome.code == 1
    assert "host.hlo:5" in outcome.err
    assert [p.name for p in tmp_path.iterdir()] == ["host.hlo"]


def test_an_aborted_write_leaves_no_file(tmp_path: Path) -> None:
    """The header fits, the weights do not."""
    resource = pytest.importorskip("resource")
    values = ", ".join(str(k) for k in range(9000))
    text = "HloModule m\nENTRY e {\n  x = f32[9000] parameter(0)\n"
    text += "  w = f32[9000] constant({VALUES})\n"
    text += "  ROOT r = f32[9000] add(x, w)\n}\n"
    module, object, header = (str(tmp_path / f"m.{end}") for end in ("hlo", "o", "h"))
    Path(module).write_text(text.replace("VALUES", values))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        outcome = call("hlo-run", "compile", module, "-o", object, "--header", header)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (outcome.code, "error[file]" in outcome.err) == (1, True), outcome.err
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]


def test_a_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(c_compiler, "find_spec", lambda _: None)
    outcome = call("hlo-run", "compile", AXPY, "-o", str(tmp_path / "a.so"))
    assert outcome.code == 1
    assert outcome.err.startswith("error[unsupported]: a shared library for x86_64")
    assert list(tmp_path.iterdir()) == []


def test_features_are_those_of_the_target(tmp_path: Path) -> None:
    """And not of the machine that compiles."""
    header = str(tmp_path / "a.h")
    outcome = call("hlo-run", "compile", AXPY, "-o", header, "--features=-fma")
    assert outcome.code == 0, outcome.err
    assert '_MACHINES "x86-64-v3-fma"' in Path(header).read_text()
