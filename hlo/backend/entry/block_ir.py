"""The memory of results as LLVM IR: new arrays, large ones in aligned blocks from a free list.

    hlo_new_result(row) -> an array; its block returns to the list when the array dies

A row is that of call_ir. Blocks: BACKEND_FACTS.md section 2. All run under the interpreter's lock.
"""

from __future__ import annotations

BLOCK_BYTES = 32 * 1024  # results from this size on come from the free list
HEADER_BYTES = 64
CLASSES = 256
NDARRAY = "hlo_ndarray"

TEXT = f"""
@{NDARRAY} = external global i8
@hlo_pooled_bytes = global i64 0
@hlo_pool_limit = global i64 1073741824
@hlo_free_blocks = global [{CLASSES} x ptr] zeroinitializer
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyErr_NoMemory()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @hlo_new_from_descr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare i32 @hlo_set_base(ptr, ptr)

; A block of at least %bytes: four size classes per power of two, from the free list or fresh.
define ptr @hlo_block_new(i64 %bytes) {{
  %place = alloca ptr
  %zeros = call i64 @llvm.ctlz.i64(i64 %bytes, i1 false)
  %log = sub i64 63, %zeros
  %two = sub i64 %log, 2
  %step = shl i64 1, %two
  %below = sub i64 %step, 1
  %b0 = add i64 %bytes, %below
  %quarters = lshr i64 %b0, %two
  %size = shl i64 %quarters, %two
  %c0 = shl i64 %two, 2
  %class = add i64 %c0, %quarters
  %known = icmp ult i64 %class, {CLASSES}
  br i1 %known, label %look, label %fresh
look:
  %head = getelementptr ptr, ptr @hlo_free_blocks, i64 %class
  %block = load ptr, ptr %head
  %there = icmp ne ptr %block, null
  br i1 %there, label %reuse, label %fresh
reuse:
  %next = load ptr, ptr %block
  store ptr %next, ptr %head
  %p0 = load i64, ptr @hlo_pooled_bytes
  %p1 = sub i64 %p0, %size
  store i64 %p1, ptr @hlo_pooled_bytes
  %reused = getelementptr i8, ptr %block, i64 {HEADER_BYTES}
  ret ptr %reused
fresh:
  %whole = add i64 %size, {HEADER_BYTES}
  %status = call i32 @posix_memalign(ptr %place, i64 64, i64 %whole)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %made, label %none
made:
  %new = load ptr, ptr %place
  %class.place = getelementptr i8, ptr %new, i64 8
  store i64 %class, ptr %class.place
  %size.place = getelementptr i8, ptr %new, i64 16
  store i64 %size, ptr %size.place
  %data = getelementptr i8, ptr %new, i64 {HEADER_BYTES}
  ret ptr %data
none:
  ret ptr null
}}

; Back to the free list, or to the system when the list holds enough.
define void @hlo_block_free(ptr %data) {{
  %block = getelementptr i8, ptr %data, i64 -{HEADER_BYTES}
  %class.place = getelementptr i8, ptr %block, i64 8
  %class = load i64, ptr %class.place
  %size.place = getelementptr i8, ptr %block, i64 16
  %size = load i64, ptr %size.place
  %p0 = load i64, ptr @hlo_pooled_bytes
  %p1 = add i64 %p0, %size
  %limit = load i64, ptr @hlo_pool_limit
  %within = icmp ule i64 %p1, %limit
  %known = icmp ult i64 %class, {CLASSES}
  %keep = and i1 %within, %known
  br i1 %keep, label %pool, label %drop
pool:
  store i64 %p1, ptr @hlo_pooled_bytes
  %head = getelementptr ptr, ptr @hlo_free_blocks, i64 %class
  %next = load ptr, ptr %head
  store ptr %next, ptr %block
  store ptr %block, ptr %head
  ret void
drop:
  call void @free(ptr %block)
  ret void
}}

define void @hlo_capsule_end(ptr %capsule) {{
  %data = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  call void @hlo_block_free(ptr %data)
  ret void
}}

; A new array for a result's row; its memory is NumPy's when small. null: an exception is set.
define ptr @hlo_new_result(ptr %row) {{
  %descr = load ptr, ptr %row
  %nd.place = getelementptr i8, ptr %row, i64 8
  %nd = load i64, ptr %nd.place
  %rank = trunc i64 %nd to i32
  %dims.place = getelementptr i8, ptr %row, i64 16
  %dims = load ptr, ptr %dims.place
  %bytes.place = getelementptr i8, ptr %row, i64 24
  %bytes = load i64, ptr %bytes.place
  %large = icmp uge i64 %bytes, {BLOCK_BYTES}
  br i1 %large, label %block, label %plain
plain:
  call void @Py_IncRef(ptr %descr)
  %own = call ptr @hlo_new_from_descr(ptr @{NDARRAY}, ptr %descr, i32 %rank, ptr %dims,
                                      ptr null, ptr null, i32 0, ptr null)
  ret ptr %own
block:
  %data = call ptr @hlo_block_new(i64 %bytes)
  %got = icmp ne ptr %data, null
  br i1 %got, label %wrap, label %memory
memory:
  %none = call ptr @PyErr_NoMemory()
  ret ptr null
wrap:
  %capsule = call ptr @PyCapsule_New(ptr %data, ptr null, ptr @hlo_capsule_end)
  %held = icmp ne ptr %capsule, null
  br i1 %held, label %array, label %lost
lost:
  call void @hlo_block_free(ptr %data)
  ret ptr null
array:
  call void @Py_IncRef(ptr %descr)
  %view = call ptr @hlo_new_from_descr(ptr @{NDARRAY}, ptr %descr, i32 %rank, ptr %dims,
                                       ptr null, ptr %data, i32 1281, ptr null)
  %made = icmp ne ptr %view, null
  br i1 %made, label %base, label %unwrap
unwrap:
  call void @Py_DecRef(ptr %capsule)
  ret ptr null
base:
  %status = call i32 @hlo_set_base(ptr %view, ptr %capsule)
  ret ptr %view
}}
"""
