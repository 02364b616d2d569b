#include <husk/op.h>

extern const husk_op linear_op;
