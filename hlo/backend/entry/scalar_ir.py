"""Scalars from Python as LLVM IR: where the bytes of a number object are, in a parameter's type.

    hlo_scalar(object, its type, row, eight bytes): an address, or null for what is left to Python

A NumPy scalar of the parameter's own type is read where it lies. A Python number is taken when the
type holds it exactly (hlo/runtime/arguments.py says the same in Python, and words the refusal).
"""

from __future__ import annotations

from hlo.ir import dtype as types
from hlo.ir.dtype import DType

# Kinds of types that take Python numbers here; the others (0) take them in Python.
SIGNED, UNSIGNED, PRED, DOUBLE, SINGLE, BFLOAT = range(1, 7)
SYMBOLS = {"hlo_float": float, "hlo_int": int, "hlo_bool": bool, "hlo_true": True}
_KINDS = {types.PRED: PRED, types.F64: DOUBLE, types.F32: SINGLE, types.BF16: BFLOAT}
_WHOLE = (types.S8, types.S16, types.S32, types.S64, types.U8, types.U16, types.U32, types.U64)


def kind(dtype: DType) -> int:
    """How Python numbers become the type."""
    if dtype in _WHOLE:
        return SIGNED if dtype.is_signed else UNSIGNED
    return _KINDS.get(dtype, 0)


TEXT = f"""
@hlo_float = external global i8
@hlo_int = external global i8
@hlo_bool = external global i8
@hlo_true = external global i8
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)

define ptr @hlo_scalar(ptr %object, ptr %type, ptr %row, ptr %place) {{
  %overflow = alloca i32
  %bytes.place = getelementptr i64, ptr %row, i64 3
  %bytes = load i64, ptr %bytes.place
  %kind.place = getelementptr i64, ptr %row, i64 4
  %kind = load i64, ptr %kind.place
  %own.place = getelementptr i64, ptr %row, i64 5
  %own = load ptr, ptr %own.place
  %inside = getelementptr i8, ptr %object, i64 16
  %is.own = icmp eq ptr %type, %own
  br i1 %is.own, label %there, label %number
there:
  ret ptr %inside
number:
  %takes = icmp ne i64 %kind, 0
  br i1 %takes, label %which, label %none
which:
  %is.float = icmp eq ptr %type, @hlo_float
  br i1 %is.float, label %real, label %which.int
which.int:
  %is.int = icmp eq ptr %type, @hlo_int
  br i1 %is.int, label %whole, label %which.bool
which.bool:
  %is.bool = icmp eq ptr %type, @hlo_bool
  %is.pred = icmp eq i64 %kind, {PRED}
  %truth = and i1 %is.bool, %is.pred
  br i1 %truth, label %bool, label %none
bool:
  %true = icmp eq ptr %object, @hlo_true
  %byte = zext i1 %true to i8
  store i8 %byte, ptr %place
  ret ptr %place

whole:
  store i32 0, ptr %overflow
  %n = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %o = load i32, ptr %overflow
  %fits = icmp eq i32 %o, 0
  br i1 %fits, label %whole.kind, label %none
whole.kind:
  %bits = shl i64 %bytes, 3
  %spare = sub i64 64, %bits
  switch i64 %kind, label %none [ i64 {SIGNED}, label %signed  i64 {UNSIGNED}, label %unsigned
    i64 {DOUBLE}, label %counted  i64 {SINGLE}, label %counted  i64 {BFLOAT}, label %counted ]
signed:
  %s0 = shl i64 %n, %spare
  %s1 = ashr i64 %s0, %spare
  %s.same = icmp eq i64 %s1, %n
  br i1 %s.same, label %put, label %none
unsigned:
  %u0 = shl i64 %n, %spare
  %u1 = lshr i64 %u0, %spare
  %u.same = icmp eq i64 %u1, %n
  %u.positive = icmp sge i64 %n, 0
  %u.good = and i1 %u.same, %u.positive
  br i1 %u.good, label %put, label %none
put:
  store i64 %n, ptr %place
  ret ptr %place
counted:
  %least = icmp sge i64 %n, -9007199254740992
  %most = icmp sle i64 %n, 9007199254740992
  %exact = and i1 %least, %most
  %n.real = sitofp i64 %n to double
  br i1 %exact, label %rounded, label %none

real:
  %x = load double, ptr %inside
  br label %rounded
rounded:
  %v = phi double [ %x, %real ], [ %n.real, %counted ]
  %single = fptrunc double %v to float
  %wide = fpext float %single to double
  %same = fcmp ueq double %v, %wide
  %raw = bitcast float %single to i32
  switch i64 %kind, label %none [
    i64 {DOUBLE}, label %double  i64 {SINGLE}, label %float  i64 {BFLOAT}, label %brain ]
double:
  store double %v, ptr %place
  ret ptr %place
float:
  store float %single, ptr %place
  br i1 %same, label %good, label %none
brain:
  %low = and i32 %raw, 65535
  %short = icmp eq i32 %low, 0
  %b.good = and i1 %same, %short
  %b0 = lshr i32 %raw, 16
  %b1 = trunc i32 %b0 to i16
  store i16 %b1, ptr %place
  br i1 %b.good, label %good, label %none
good:
  ret ptr %place
none:
  ret ptr null
}}
"""
