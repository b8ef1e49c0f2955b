"""Attention as HLO programs: forward, masked, with gradients."""

from __future__ import annotations

REDUCERS = """
max_of { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
sum_of { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
"""


def softmax(shape: str, rows: str, last: int) -> str:
    """Lines of a softmax over the last dimension of s."""
    dims = ",".join(str(d) for d in range(last))
    return f"""
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{rows}] reduce(s, low), dimensions={{{last}}}, to_apply=max_of
  mb = f32[{shape}] broadcast(m), dimensions={{{dims}}}
  d = f32[{shape}] subtract(s, mb)
  e = f32[{shape}] exponential(d)
  t = f32[{rows}] reduce(e, zero), dimensions={{{last}}}, to_apply=sum_of
  tb = f32[{shape}] broadcast(t), dimensions={{{dims}}}
  p = f32[{shape}] divide(e, tb)"""


def attention(heads: int, length: int) -> str:
    scores, inputs = f"{heads},{length},{length}", f"{heads},{length},16"
    return f"""HloModule attention
{REDUCERS}
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[{inputs}] parameter(1)
  v = f32[{inputs}] parameter(2)
  mask = f32[{length},{length}] parameter(3)
  raw = f32[{scores}] dot(q, k), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  mk = f32[{scores}] broadcast(mask), dimensions={{1,2}}
  s = f32[{scores}] add(raw, mk)
  {softmax(scores, f"{heads},{length}", 2)}
  ROOT o = f32[{inputs}] dot(p, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}} }}"""


def causal(heads: int, length: int, *, counted: str = "s32") -> str:
    """Attention whose queries see no later key; counted: the type in which they are numbered."""
    scores = f"{heads},{length},{length}"
    seen = f"""n = {counted}[{length}] iota(), iota_dimension=0
  row = {counted}[{length},{length}] broadcast(n), dimensions={{0}}
  column = {counted}[{length},{length}] broadcast(n), dimensions={{1}}
  hp = pred[{length},{length}] compare(row, column), direction=GE
  h = pred[{scores}] broadcast(hp), dimensions={{1,2}}
  out = f32[] constant(-inf)
  outs = f32[{scores}] broadcast(out), dimensions={{}}
  masked = f32[{scores}] add(raw, mk)
  s = f32[{scores}] select(h, masked, outs)"""
    return attention(heads, length).replace(f"s = f32[{scores}] add(raw, mk)", seen)


def heads_in_rows(heads: int, length: int) -> str:
    """Attention over rows in which all heads lie side by side, as layers of models write it."""
    scores, inputs = f"1,{heads},{length},1,{length}", f"{length},{heads},16"
    wide = f"1,1,{heads},{length},{length}"
    return f"""HloModule heads
{REDUCERS}
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[1,{inputs}] parameter(1)
  v = f32[1,{inputs}] parameter(2)
  q5 = f32[1,{length},{heads},1,16] reshape(q)
  raw = f32[{scores}] dot(q5, k), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
  s = f32[{wide}] reshape(raw)
  {softmax(wide, f"1,1,{heads},{length}", 4)}
  o = f32[1,{heads},16,1,{length}] dot(v, p), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{1,2}}, rhs_contracting_dims={{4}}
  moved = f32[1,{length},{heads},1,16] transpose(o), dimensions={{0,4,1,3,2}}
  ROOT r = f32[{inputs}] reshape(moved) }}"""


def gradients(heads: int, length: int, *, dtype: str = "f32", of_all: bool = False) -> str:
    """Attention and its gradients; of_all: those of a number that all results are summed up in."""
    wide, rows, inputs = f"{heads},{length},{length}", f"{heads},{length}", f"{heads},{length},16"
    of_rows = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    of_columns = "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}"
    given = "g = f32[X] parameter(3)"
    if of_all:
        given = """g3 = f32[X] parameter(3)
  sum = f32[] reduce(o, zero), dimensions={0,1,2}, to_apply=sum_of
  sums = f32[X] broadcast(sum), dimensions={}
  g = f32[X] multiply(g3, sums)"""
    text = f"""HloModule gradients
{REDUCERS}
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[{inputs}] parameter(1)
  v = f32[{inputs}] parameter(2)
  s = f32[{wide}] dot(q, k), {of_rows}, rhs_contracting_dims={{2}}
  {softmax(wide, rows, 2)}
  o = f32[{inputs}] dot(p, v), {of_rows}, rhs_contracting_dims={{1}}
  {given.replace("X", inputs)}
  dp = f32[{wide}] dot(g, v), {of_rows}, rhs_contracting_dims={{2}}
  both = f32[{wide}] multiply(dp, p)
  along = f32[{rows}] reduce(both, zero), dimensions={{2}}, to_apply=sum_of
  alongs = f32[{wide}] broadcast(along), dimensions={{0,1}}
  less = f32[{wide}] subtract(dp, alongs)
  ds = f32[{wide}] multiply(less, p)
  dq = f32[{inputs}] dot(ds, k), {of_rows}, rhs_contracting_dims={{1}}
  dk = f32[{inputs}] dot(ds, q), {of_columns}, rhs_contracting_dims={{1}}
  dv = f32[{inputs}] dot(p, g), {of_columns}, rhs_contracting_dims={{1}}
  ROOT r = (f32[{inputs}], f32[{inputs}], f32[{inputs}], f32[{inputs}]) tuple(o, dq, dk, dv) }}"""
    return text.replace("f32[", f"{dtype}[")
