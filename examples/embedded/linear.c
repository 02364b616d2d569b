/* The operator husk::linear in few bytes: y = activation(x w^T + b) for f32 tensors. The one of
 * libhusk_ops is made for speed and is 150 KB large. */
#include "linear.h"

#include <stdio.h>
#include <string.h>

static husk_status refuse(husk_error* error, const char* what) {
  error->code = HUSK_UNSUPPORTED;
  snprintf(error->text, sizeof error->text, "husk::linear of this program: %s", what);
  return error->code;
}

static husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                        husk_error* error) {
  (void)context;
  if (count != 6) return refuse(error, "it has 6 arguments");
  const husk_op_arg *x = &args[0], *w = &args[1], *b = &args[2], *y = &args[5];
  for (const husk_op_arg* each = args; each < args + 6; ++each) {
    const int is_tensor = each == x || each == w || each == b || each == y;
    if (is_tensor && (each->kind != HUSK_ARG_TENSOR || each->dtype != HUSK_F32))
      return refuse(error, "input, weight, bias and output are f32 tensors");
  }
  if (x->rank != 2 || w->rank != 2 || b->rank != 1 || y->rank != 2 || x->sizes[1] != w->sizes[1] ||
      y->sizes[0] != x->sizes[0] || y->sizes[1] != w->sizes[0] || b->sizes[0] != w->sizes[0])
    return refuse(error, "the sizes do not fit");
  if (args[3].kind != HUSK_ARG_NONE) return refuse(error, "there is no residual");
  if (args[4].kind != HUSK_ARG_STRING) return refuse(error, "the activation is a text");
  const int relu = strcmp(args[4].string, "relu") == 0;
  if (!relu && strcmp(args[4].string, "none") != 0)
    return refuse(error, "the activation is relu or none");
  for (int64_t i = 0; i < y->sizes[0]; ++i) {
    for (int64_t j = 0; j < y->sizes[1]; ++j) {
      float sum = ((const float*)b->data)[j * b->strides[0]];
      for (int64_t k = 0; k < x->sizes[1]; ++k)
        sum += ((const float*)x->data)[i * x->strides[0] + k * x->strides[1]] *
               ((const float*)w->data)[j * w->strides[0] + k * w->strides[1]];
      ((float*)y->data)[i * y->strides[0] + j * y->strides[1]] = relu && sum < 0 ? 0 : sum;
    }
  }
  return HUSK_OK;
}

const husk_op linear_op = {sizeof(husk_op),
                           0,
                           "husk::linear",
                           call,
                           NULL,
                           NULL,
                           "input weight bias residual activation out:w=residual",
                           0,
                           0};
