#include <husk/port_cuda.h>

#include "device.h"
#include "graph.h"
#include "matmul.h"
#include "module.h"

namespace husk::cuda {

static const husk_port kPort = {
    sizeof(husk_port), HUSK_PORT_ABI, "cuda",        nullptr,     open,         close,        properties,
    fit,               memory_alloc,  memory_free,   upload,      download,     copy,         fill,
    stream_create,     stream_destroy, stream_wait,  module_load, module_unload, kernel_get,  launch,
    &kGraphs,          enter,         leave,         load,        map,          unmap,
    find_op,           share,         unshare,
};

}  // namespace husk::cuda

const husk_port* husk_port_cuda(void) { return &husk::cuda::kPort; }
