"""Programs kept on disk: found by what the module means, never by a changed one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo import cache, driver
from hlo.backend.compilation import Compilation
from hlo.backend.linking import compilation_cache, installing
from hlo.backend.linking.compile import OWN_ROOMS
from hlo.errors import HloErrors
from hlo.ops.custom_call import register_custom_call
from hlo.ops.custom_targets import REGISTERED, TARGETS
from hlo.parser.parse import parse

TEXT = """HloModule m
c { s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  one = s32[] constant(1)
  k = f32[3] constant({1, 2, 3})
  j = s32[] add(i, one)
  y = f32[3] multiply(x, k)
  ROOT t = (s32[], f32[3]) tuple(j, y) }
ENTRY e {
  zero = s32[] constant(0)
  x = f32[3] parameter(0)
  t = (s32[], f32[3]) tuple(zero, x)
  w = (s32[], f32[3]) while(t), condition=c, body=b
  ROOT r = f32[3] get-tuple-element(w), index=1
}"""
X = np.array([1, 1, 1], np.float32)
WANTED = np.array([1, 16, 81], np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLO_CACHE_DIR", str(tmp_path / "objects"))
    return tmp_path / "objects"


def kept(text: str = TEXT) -> str:
    module = parse(text)
    key = installing.program_key(module)
    made = Compilation(module, passes="")
    made.keep(key)
    np.testing.assert_array_equal(made.executable(X), WANTED)
    return key


def test_program_is_found_again() -> None:
    key = kept()
    module = parse(TEXT)
    assert installing.program_key(module) == key
    executable = installing.cached_program(module, key)
    assert executable is not None
    np.testing.assert_array_equal(executable(X), WANTED)
    assert "arena" in executable.memory_report()


SCRIPT = """
import sys
import numpy as np
from hlo.backend.linking import installing
from hlo.parser.parse import parse
module = parse(sys.stdin.read())
executable = installing.cached_program(module, installing.program_key(module))
assert executable is not None
assert executable(np.ones(3, np.float32)).tolist() == [1, 16, 81]
backend = {"compilation", "entry.llvm_ir", "planning.steps"}
made = {"hlo.backend." + stage for stage in backend} | {"hlo.passes.manager"}
assert not made & set(sys.modules), "a kept program needs no stage that makes code"
"""


def test_another_process_finds_it() -> None:
    # of the sources as the other process will see them
    compilation_cache.sources_digest.cache_clear()
    kept()
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=TEXT, text=True, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{1, 2, 3}", "{1, 2, 4}"),
        ("constant(4)", "constant(5)"),
        ("direction=LT", "direction=LE"),
        ("multiply(x, k)", "multiply(k, x)"),
        ("HloModule m", "HloModule m, replica_count=2"),
        ("tuple(j, y)", "tuple(j, x)"),
        ("ENTRY e", "ENTRY f"),
        ("add(i, one)", "add(i, one), sharding={replicated}"),
    ],
)
def test_changed_modules_have_other_keys(old: str, new: str) -> None:
    assert installing.program_key(parse(TEXT)) != installing.program_key(
        parse(TEXT.replace(old, new))
    )


def test_options_have_other_keys() -> None:
    module = parse(TEXT)
    keys = {
        installing.program_key(module),
        installing.program_key(module, mode="fast"),
        installing.program_key(module, passes=""),
    }
    assert len(keys) == 3


def test_damaged_programs_are_not_loaded(folder: Path) -> None:
    key = kept()
    file = folder / key
    file.write_bytes(file.read_bytes()[:-5])
    assert cache.load(key) is None
    assert installing.cached_program(parse(TEXT), key) is None


def test_programs_with_host_steps_are_not_kept() -> None:
    text = """HloModule m
    ENTRY e { x = f32[3,3] parameter(0)
      ROOT r = (f32[3,3], f32[3]) custom-call(x), custom_call_target="Eigh" }"""
    module = parse(text)
    key = installing.program_key(module)
    Compilation(module, passes="").keep(key)
    assert installing.cached_program(module, key) is None


def test_a_kept_kernel_is_not_what_a_function_of_the_users_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for target in ("LayoutConstraint", "lapack_spotrf_ffi"):
        monkeypatch.setitem(TARGETS, target, TARGETS[target])
    text = """HloModule m
ENTRY e {
  x = f32[2,2] parameter(0)
  y = f32[2,2] custom-call(x), custom_call_target="LayoutConstraint"
  f = (f32[2,2], s32[]) custom-call(y), custom_call_target="lapack_spotrf_ffi",
    operand_layout_constraints={f32[2,2]{0,1}}, api_version=API_VERSION_TYPED_FFI,
    backend_config="{uplo = 76 : ui8}"
  ROOT r = f32[2,2] get-tuple-element(f), index=0
}"""
    x = np.eye(2, dtype=np.float32)
    assert driver.compile(parse(text))(x)[0, 0] == 1
    try:
        register_custom_call("LayoutConstraint", lambda x: 4 * x)
        assert driver.compile(parse(text))(x)[0, 0] == 2
        register_custom_call("lapack_spotrf_ffi", lambda x: (x, np.zeros((), np.int32)))
        assert driver.compile(parse(text))(x)[0, 0] == 4
    finally:
        REGISTERED.clear()


def test_broken_modules_have_keys_and_are_verified() -> None:
    kept()
    module = parse(TEXT)
    stranger = parse(TEXT).entry.root
    root = module.entry.root
    root.operands = (stranger,)  # an edge that leads out of the module
    assert installing.program_key(module) != installing.program_key(parse(TEXT))
    with pytest.raises(HloErrors):
        driver.compile(module)


def test_the_digest_of_sources_covers_all_that_compiles() -> None:
    asking = {"backend", "passes", "ops", "ir", "attributes", "runtime", "verifier", "interpreter"}
    package = Path(compilation_cache.hlo.__path__[0])
    folders = "|".join(compilation_cache.UNASKED)
    forbidden = re.compile(rf"^(?:from|import) hlo\.(?:{folders})\b", re.MULTILINE)
    assert not asking & compilation_cache.UNASKED
    for file in sorted(file for folder in asking for file in (package / folder).rglob("*.py")):
        assert not forbidden.search(file.read_text()), f"{file} imports what is left out"


OWN = """
import sys
from pathlib import Path
import hlo
from hlo.backend.entry import (  # noqa: F401
    block_ir, call_ir, foreign_ir, handler_ir, placing_ir, pool_interface_ir,
    pool_ir, run_ir, scalar_ir
)
root = Path(hlo.__path__[0])
files = [Path(m.__file__) for n, m in sys.modules.items() if n.split(".")[0] == "hlo"]
print(*{str(f.parent.relative_to(root)) for f in files})
"""


def test_what_writes_own_functions_stands_in_their_rooms() -> None:
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {".", *OWN_ROOMS}


def test_a_digest_of_rooms_sees_their_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("backend/ir", "passes"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.py").write_text("")
    monkeypatch.setattr(hlo, "__path__", [str(tmp_path)])
    seen = []
    for changed in (None, "passes/one.py", "backend/ir/one.py", "machine.py"):
        if changed is not None:
            (tmp_path / changed).write_text("1")
        compilation_cache.sources_digest.cache_clear()
        rooms = compilation_cache.sources_digest("backend/ir")
        seen.append((rooms, compilation_cache.sources_digest()))
    compilation_cache.sources_digest.cache_clear()
    assert seen[0][0] == seen[1][0]
    assert len({rooms for rooms, _ in seen}) == 3
    assert len({everything for _, everything in seen}) == 4
