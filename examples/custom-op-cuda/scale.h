/* The operator app::scale, which multiplies a tensor by a number on a GPU. */
#ifndef SCALE_H
#define SCALE_H

#include <husk/husk.h>

/* The operator: its kernel and the functions of the driver that it calls. */
typedef struct scale_op scale_op;

/* Loads the kernel from `image`, a cubin, fatbin or PTX of scale.cu, and registers the operator.
 * Called before a program is opened that calls the operator. */
husk_status scale_register(husk_engine* engine, const char* image, scale_op** op,
                           husk_error* error);

/* Unloads the kernel. Called after the engine was released. */
void scale_release(scale_op* op);

#endif
