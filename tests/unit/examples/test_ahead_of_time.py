"""The examples that run without Python build with the commands that they name, and say the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from hlo import driver
from hlo.errors import HloError
from hlo.machine import NAMED
from hlo.tools.c_compiler import linker
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.ahead_targets import harness_of
from tests.support.command import call

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDER = EXAMPLES / "ahead_of_time"
MACHINE = "x86-64-v3"
EXPECTED = r"first 0\.\d{6}, sum of all rows 256\.000\n"

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WASM = "wasm32-simd128"
needs_v3 = pytest.mark.skipif(
    not driver.host_machine().features.issuperset(NAMED[MACHINE].features), reason="not x86-64-v3"
)


def compiled(folder: Path, *flags: str) -> None:
    outcome = call(
        "hlo-run", "compile", str(EXAMPLES / "softmax.hlo"), f"--machine={MACHINE}", *flags
    )
    assert outcome.code == 0, outcome.err
    for file in FOLDER.iterdir():
        shutil.copy(file, folder)


def said(folder: Path, *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_v3
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_c(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "softmax.o"), f"--header={tmp_path}/softmax.h")
    said(tmp_path, "cc", "-O2", "softmax.c", "softmax.o", "-o", "softmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))


@needs_v3
@pytest.mark.skipif(not shutil.which("c++"), reason="there is no c++")
def test_cpp(tmp_path: Path) -> None:
    header, cpp = f"--header={tmp_path}/softmax.h", f"--cpp-header={tmp_path}/softmax.hpp"
    compiled(tmp_path, "-o", str(tmp_path / "softmax.o"), header, cpp)
    said(tmp_path, "c++", "-std=c++17", "-O2", "softmax.cc", "softmax.o", "-o", "softmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))


@needs_v3
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_python_without_hlo(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "softmax.so"), f"--header={tmp_path}/softmax.h")
    header = (tmp_path / "softmax.h").read_text()
    sizes = [
        re.findall(rf"#define SOFTMAX_{name} (\d+)", header)[0]
        for name in ("INPUT_0_COUNT", "ARENA_BYTES")
    ]
    found = said(tmp_path, sys.executable, "-I", "softmax_ctypes.py", "./softmax.so", *sizes)
    assert re.fullmatch(EXPECTED, found)


@needs_v3
@pytest.mark.skipif(not shutil.which("rustc"), reason="there is no rustc")
def test_rust(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "libsoftmax.a"))
    said(tmp_path, "rustc", "-O", "softmax.rs", "-L.", "-lsoftmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder, built by the command that the page names."""
    machine = NAMED[WASM]
    try:
        linker(machine, driver.host_machine())
    except HloError as error:
        pytest.skip(error.message)
    folder = tmp_path_factory.mktemp("page")
    for file in FOLDER.glob("web_*"):
        shutil.copy(file, folder)
    words = re.findall(r"hlo-run (compile[^$]*?)python", (folder / "web_page.html").read_text())
    arguments = words[0].replace("\\", " ").split()
    places = {"../": f"{EXAMPLES}/", "models": f"{folder}/models"}
    for written, place in places.items():
        arguments = [a.replace(written, place) for a in arguments]
    outcome = call("hlo-run", *arguments)
    assert outcome.code == 0, outcome.err
    return folder


@pytest.mark.skipif(not BROWSER, reason="there is no chromium (apt install chromium)")
def test_web_page(page: Path, tmp_path: Path) -> None:
    serve = partial(SimpleHTTPRequestHandler, directory=str(page))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/web_page.html"
        profile = f"--user-data-dir={tmp_path}"
        shown = said(
            page,
            str(BROWSER),
            *QUIET,
            profile,
            "--virtual-time-budget=30000",
            "--dump-dom",
            address,
        )
        server.shutdown()
    report = re.search(r'<pre id="report">(.*?)</pre>', shown, re.DOTALL)
    assert report is not None
    softmax, mlp, done = report[1].split("\n")
    assert softmax.startswith("softmax: ok")
    assert mlp.startswith("mnist_mlp: ok")
    assert done == "done"


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_models_of_the_page_in_node(page: Path) -> None:
    (page / "package.json").write_text('{"type": "module"}')
    (page / "run.js").write_text("""import { readFileSync } from "node:fs";
import { Models } from "./web_models.js";
const models = await Models.load(readFileSync("models.wasm"), readFileSync("models.h", "utf8"));
const x = Float32Array.from({ length: 256 * 512 }, (_, k) => k % 7);
const [result] = models.call("softmax", [x]);
const sum = result.reduce((a, b) => a + b);
console.log(`first ${result[0].toFixed(6)}, sum of all rows ${sum.toFixed(3)}`);
""")
    assert re.fullmatch(EXPECTED, said(page, "node", "run.js"))


@pytest.mark.parametrize("name", ["softmax", "mnist_mlp"])
def test_models_of_the_page_in_wasmtime(name: str, tmp_path: Path) -> None:
    """The bits of equal vectors in this process."""
    module = driver.parse((EXAMPLES / f"{name}.hlo").read_text(), name)
    arrays = [np.asarray(a) for a in made_up_inputs(module, "normal", 0)]
    harness = harness_of(WASM, tmp_path, [driver.compile_ahead(module, WASM)])
    ((found,),) = harness.run([(0, arrays)])
    run = driver.compile(module, machine=NAMED["x86-64-v2"], threads=1, cache=False)
    assert found.tobytes() == np.asarray(run(*arrays)).tobytes()
