#include <husk/port_cuda.h>

#include "device.h"
#include "graph.h"
#include "module.h"
#include "ops/find_op.h"
#include "ops/group.h"

namespace husk::cuda {

static const husk_port kPort = {
    sizeof(husk_port),
    HUSK_PORT_ABI,
    "cuda",
    nullptr,
    open,
    close,
    properties,
    arch_rank,
    memory_alloc,
    memory_free,
    upload,
    download,
    copy,
    fill,
    stream_create,
    stream_destroy,
    stream_wait,
    module_load,
    module_unload,
    kernel_get,
    launch,
    &kGraphs,
    enter,
    leave,
    upload_batch,
    map,
    unmap,
    find_op,
    alloc_host_flag,
    free_host_flag,
    alloc_host,
    free_host,
    stream_capturing,
    nullptr,  // the driver takes one launch at a time
    event_create,
    event_destroy,
    event_record,
    event_elapsed,
    nullptr,  // no kernel of a device is code of the process
    arch_rank_on,
    group_id,
    group_join,
    group_agree,
    event_wait,
};

}  // namespace husk::cuda

const husk_port* husk_port_cuda(void) { return &husk::cuda::kPort; }
