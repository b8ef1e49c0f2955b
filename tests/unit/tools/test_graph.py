"""graph: dot, tree, neighbourhood, SVG; the page, in a browser where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import hlo
from hlo.tools.inspection.graph import dot_text, part, tree_text
from hlo.tools.inspection.report import report
from tests.support.command import call

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

TEXT = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4,8] parameter(0)
  zero = f32[] constant(0)
  r = f32[4] reduce(x, zero), dimensions={1}, to_apply=sum, metadata={op_name="</script>"}
  t = f32[4] tanh(r)
  ROOT q = (f32[4], f32[4]) tuple(t, r)
}
"""

DOT = """digraph "m" {
  node [shape=box, style=filled, fillcolor=white, fontname=monospace, fontsize=10];
  compound=true;
  subgraph cluster_0 {
    label="e";
    n0 [label="%r\\nreduce\\nf32[4]{0}", fillcolor="#f6e3c4"];
    n1 [label="%t\\ntanh\\nf32[4]{0}", fillcolor="#d8efd3", penwidth=3];
    n2 [label="%q\\ntuple\\n(f32[4]{0}, f32[4]{0})", fillcolor="#eeeeee", peripheries=2];
  }
  n0 -> n1;
  n1 -> n2 [label=0];
  n0 -> n2 [label=1];
}
"""

TREE = """e
  %q = (f32[4]{0}, f32[4]{0}) tuple
    %t = f32[4]{0} tanh
      %r = f32[4]{0} reduce -> sum
        %x = f32[4,8]{1,0} parameter
        %zero = f32[] constant
    %r = f32[4]{0} reduce -> sum ...
"""


def test_dot_and_tree() -> None:
    module = hlo.parse(TEXT)
    assert dot_text(part(module, around="%t", depth=1)) == DOT
    assert tree_text(part(module, computation="e")) == TREE
    whole = dot_text(part(module))
    assert "n2 -> n5 [style=dashed, ltail=cluster_0];" in whole
    for chosen in ({"computation": "f"}, {"around": "f"}):
        with pytest.raises(hlo.HloError, match="expected"):
            part(module, **chosen)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    assert call("hlo-opt", "graph", str(path), "--computation=e").out == TREE
    drawn = call("hlo-opt", "graph", str(path), "--format=svg", "-o", str(tmp_path / "m.svg"))
    if shutil.which("dot") is None:
        assert (drawn.code, "dot is not installed" in drawn.err) == (1, True)
    else:
        assert b"<svg" in (tmp_path / "m.svg").read_bytes()
    page = tmp_path / "m.html"
    assert call("hlo-opt", "graph", str(path), f"--html={page}").code == 0
    text = page.read_text()
    assert text.count("</script>") == 1  # no name of the module's ends it
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def seen(page: Path, hash: str = "") -> str:
    """The page's document after its script has run."""
    assert BROWSER is not None
    given = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"]
    done = subprocess.run(
        [BROWSER, *given, f"--user-data-dir={page.parent / 'profile'}", "--dump-dom",
         f"file://{page}{hash}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout[done.stdout.index("<main") : done.stdout.index("<script>")]


@in_a_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path, page = tmp_path / "m.hlo", tmp_path / "m.html"
    path.write_text(TEXT)
    assert call("hlo-opt", "graph", str(path), f"--html={page}", "--profile").code == 0
    assert "tanh(r)" in seen(page)
    assert 'class="centre"' in seen(page, "#around=t")
    assert 'class="bar"' in seen(page, "#show=times")


@pytest.mark.slow  # five seconds of a browser
@in_a_browser
def test_fifty_thousand_instructions(tmp_path: Path) -> None:
    """What is in view is drawn, whatever the length; all of it is searched."""
    count = 50_000
    rows = [f"  v{n} = f32[4] negate(v{n - 1})" for n in range(1, count)]
    text = "\n".join(["HloModule m\nENTRY e {\n  v0 = f32[4] parameter(0)", *rows, "}"])
    page = tmp_path / "m.html"
    page.write_text(report(hlo.parse(text.replace(f"  v{count - 1} ", f"  ROOT v{count - 1} "))))
    first = seen(page)
    assert "(50,000)" in first
    assert first.count("negate(") < 200
    found = seen(page, "#find=negate(v49997)")
    assert found.count("negate(v49997)") == 1
