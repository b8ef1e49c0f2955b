"""Programs of equal layers as text: networks, their gradients, and what only looks like layers."""

from collections.abc import Callable

WIDTH, ROWS = 12, 7
X = f"f32[{ROWS},{WIDTH}]"
W = f"f32[{WIDTH},{WIDTH}]"
SUM = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
"""
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


class Program:
    """Lines of an entry as they are written; its parameters come first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.parameters: list[str] = []

    def parameter(self, name: str, shape: str) -> str:
        self.parameters.append(f"  {name} = {shape} parameter({len(self.parameters)})")
        return name

    def line(self, name: str, text: str, of: str = "") -> str:
        metadata = f', metadata={{op_name="{of}"}}' if of else ""
        self.lines.append(f"  {name} = {text}{metadata}")
        return name

    def text(self, root: str) -> str:
        body = "\n".join([*self.parameters, *self.lines])
        return f"HloModule layered\n{SUM}\nENTRY e {{\n{body}\n  ROOT root = {root}\n}}\n"


def block(p: Program, n: int, x: str) -> str:
    """A residual block: x + tanh((x - mean x) scale w) v, of parameters of its own."""
    w, v = p.parameter(f"w{n}", W), p.parameter(f"v{n}", W)
    scale = p.parameter(f"scale{n}", f"f32[{WIDTH}]")
    of = f"net/block_{n}"
    p.line(f"zero{n}", "f32[] constant(0)")
    p.line(f"sum{n}", f"f32[{ROWS}] reduce({x}, zero{n}), dimensions={{1}}, to_apply=sum", of)
    p.line(f"part{n}", f"f32[] constant({1 / WIDTH})")
    p.line(f"parts{n}", f"f32[{ROWS}] broadcast(part{n}), dimensions={{}}")
    p.line(f"mean{n}", f"f32[{ROWS}] multiply(sum{n}, parts{n})", of)
    p.line(f"means{n}", f"{X} broadcast(mean{n}), dimensions={{0}}", of)
    p.line(f"less{n}", f"{X} subtract({x}, means{n})", of)
    p.line(f"scales{n}", f"{X} broadcast({scale}), dimensions={{1}}", of)
    p.line(f"scaled{n}", f"{X} multiply(less{n}, scales{n})", of)
    p.line(f"in{n}", f"{X} dot(scaled{n}, {w}), {DOT}", f"{of}/in")
    p.line(f"tanh{n}", f"{X} tanh(in{n})", of)
    p.line(f"out{n}", f"{X} dot(tanh{n}, {v}), {DOT}", f"{of}/out")
    return p.line(f"y{n}", f"{X} add({x}, out{n})", of)


def gradient(p: Program, n: int, x: str, d: str) -> str:
    """What comes of y's gradient: x's, behind the products' that are results."""
    p.line(
        f"dtanh{n}", f"{X} dot({d}, v{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
    )
    p.line(f"square{n}", f"{X} multiply(tanh{n}, tanh{n})")
    p.line(f"one{n}", "f32[] constant(1)")
    p.line(f"ones{n}", f"{X} broadcast(one{n}), dimensions={{}}")
    p.line(f"rest{n}", f"{X} subtract(ones{n}, square{n})")
    p.line(f"din{n}", f"{X} multiply(dtanh{n}, rest{n})")
    along = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    p.line(f"dw{n}", f"{W} dot(scaled{n}, din{n}), {along}")
    p.line(f"dv{n}", f"{W} dot(tanh{n}, {d}), {along}")
    p.line(
        f"dscaled{n}",
        f"{X} dot(din{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
    )
    p.line(f"dless{n}", f"{X} multiply(dscaled{n}, scales{n})")
    return p.line(f"dx{n}", f"{X} add({d}, dless{n})")


def network(layers: int, layer: Callable[[Program, int, str], str] = block) -> str:
    """Layers that follow each other, behind a product and before a sum of rows."""
    p = Program()
    x = p.line("first", f"{X} dot({p.parameter('x', X)}, {p.parameter('w', W)}), {DOT}")
    for n in range(layers):
        x = layer(p, n, x)
    p.line("nothing", "f32[] constant(0)")
    return p.text(f"f32[{ROWS}] reduce({x}, nothing), dimensions={{1}}, to_apply=sum")


def trained(layers: int) -> str:
    """The same blocks, and the gradients of their products' weights in the order of their names."""
    p = Program()
    values = [p.line("first", f"{X} dot({p.parameter('x', X)}, {p.parameter('w', W)}), {DOT}")]
    for n in range(layers):
        values.append(block(p, n, values[-1]))
    d = p.line("d", f"{X} cosine({values[-1]})")
    for n in reversed(range(layers)):
        d = gradient(p, n, values[n], d)
    order = sorted(range(layers), key=str)
    results = [f"d{which}{n}" for n in order for which in "wv"]
    shapes = ", ".join([W] * len(results) + [X])
    return p.text(f"({shapes}) tuple({', '.join([*results, d])})")
