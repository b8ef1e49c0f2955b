/* Handlers of XLA's FFI for tests: they use the interface's functions and nothing else. */
#include <stddef.h>
#include <stdatomic.h>
#include <sched.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error* fail(XLA_FFI_CallFrame* f, const char* message) {
  XLA_FFI_Error_Create_Args a = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                 XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return f->api->XLA_FFI_Error_Create(&a);
}

static int told_metadata(XLA_FFI_CallFrame* f) {
  if (f->extension_start == NULL || f->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata_Extension* e = (XLA_FFI_Metadata_Extension*)f->extension_start;
  e->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  e->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

/* result = scale * x + sum of `steps`; refuses what is no f32, and frames of another size. */
XLA_FFI_Error* scaled(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  if (f->struct_size != XLA_FFI_CallFrame_STRUCT_SIZE) return fail(f, "a frame of another size");
  if (f->args.size != 1 || f->rets.size != 1) return fail(f, "one argument and one result");
  XLA_FFI_Buffer* x = (XLA_FFI_Buffer*)f->args.args[0];
  XLA_FFI_Buffer* r = (XLA_FFI_Buffer*)f->rets.rets[0];
  if (x->dtype != XLA_FFI_DataType_F32) return fail(f, "scaled wants f32");
  double scale = 1, more = 0;
  for (int64_t k = 0; k < f->attrs.size; ++k) {
    XLA_FFI_ByteSpan* name = f->attrs.names[k];
    if (name->len == 5 && !memcmp(name->ptr, "scale", 5))
      scale = *(float*)((XLA_FFI_Scalar*)f->attrs.attrs[k])->value;
    if (name->len == 5 && !memcmp(name->ptr, "steps", 5)) {
      XLA_FFI_Array* a = (XLA_FFI_Array*)f->attrs.attrs[k];
      for (size_t i = 0; i < a->size; ++i) more += ((int32_t*)a->data)[i];
    }
  }
  int64_t size = 1;
  for (int64_t d = 0; d < x->rank; ++d) size *= x->dims[d];
  for (int64_t i = 0; i < size; ++i)
    ((float*)r->data)[i] = (float)(scale * ((float*)x->data)[i] + more);
  return NULL;
}

static void add_one(void* data) { atomic_fetch_add((atomic_int*)data, 1); }

/* Waits for tasks that it gave to the thread pool: deadlocks where they share the caller's place. */
XLA_FFI_Error* waiting(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  atomic_int done = 0;
  for (int k = 0; k < 8; ++k) {
    XLA_FFI_ThreadPool_Schedule_Args a = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL,
                                          f->ctx, add_one, &done};
    XLA_FFI_Error* error = f->api->XLA_FFI_ThreadPool_Schedule(&a);
    if (error != NULL) return error;
  }
  while (atomic_load(&done) < 8) sched_yield();
  *(int32_t*)((XLA_FFI_Buffer*)f->rets.rets[0])->data = atomic_load(&done);
  return NULL;
}

/* result = 3 * x, in the memory of x, which has to be the result's. */
XLA_FFI_Error* tripled(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  XLA_FFI_Buffer* x = (XLA_FFI_Buffer*)f->args.args[0];
  XLA_FFI_Buffer* r = (XLA_FFI_Buffer*)f->rets.rets[0];
  if (x->data != r->data) return fail(f, "memory of its own");
  for (int64_t i = 0; i < x->dims[0]; ++i) ((float*)r->data)[i] *= 3;
  return NULL;
}

/* result = the bytes of x as they lie in memory; x has 2 rows. */
XLA_FFI_Error* as_it_lies(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  XLA_FFI_Buffer* x = (XLA_FFI_Buffer*)f->args.args[0];
  if (x->rank != 2 || x->dims[0] != 2) return fail(f, "two rows");
  memcpy(((XLA_FFI_Buffer*)f->rets.rets[0])->data, x->data, 4 * x->dims[0] * x->dims[1]);
  return NULL;
}

static int stages;

/* result = the stages of calls until now, a decimal digit each. */
XLA_FFI_Error* staged(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  stages = 10 * stages + f->stage + 1;
  if (f->stage != XLA_FFI_ExecutionStage_EXECUTE) return NULL;
  *(int32_t*)((XLA_FFI_Buffer*)f->rets.rets[0])->data = stages;
  stages = 0;
  return NULL;
}

struct promise {
  const XLA_FFI_Api* api;
  XLA_FFI_Future* future;
  int32_t* result;
};
static struct promise promised;

static void keep_promise(void* data) {
  struct promise* p = (struct promise*)data;
  for (int k = 0; k < 1000; ++k) sched_yield();
  if (p->result == NULL) {
    XLA_FFI_Error_Create_Args e = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, "broken promise",
                                   XLA_FFI_Error_Code_INTERNAL};
    XLA_FFI_Future_SetError_Args a = {XLA_FFI_Future_SetError_Args_STRUCT_SIZE, NULL, p->future,
                                      p->api->XLA_FFI_Error_Create(&e)};
    p->api->XLA_FFI_Future_SetError(&a);
    return;
  }
  *p->result = 7;
  XLA_FFI_Future_SetAvailable_Args a = {XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, NULL,
                                        p->future};
  p->api->XLA_FFI_Future_SetAvailable(&a);
}

/* result = 7, some time after the handler returns; an error of the future where there are operands. */
XLA_FFI_Error* later(XLA_FFI_CallFrame* f) {
  if (told_metadata(f)) return NULL;
  XLA_FFI_Future_Create_Args c = {XLA_FFI_Future_Create_Args_STRUCT_SIZE, NULL, NULL};
  XLA_FFI_Error* error = f->api->XLA_FFI_Future_Create(&c);
  if (error != NULL) return error;
  promised.api = f->api;
  promised.future = c.future;
  promised.result = f->args.size ? NULL : (int32_t*)((XLA_FFI_Buffer*)f->rets.rets[0])->data;
  f->future = c.future;
  XLA_FFI_ThreadPool_Schedule_Args a = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL, f->ctx,
                                        keep_promise, &promised};
  return f->api->XLA_FFI_ThreadPool_Schedule(&a);
}
