#include "graph.h"

#include <algorithm>
#include <cstring>

namespace fake {

namespace {

struct Exec : Object {
  explicit Exec(Graph& of) : Object("executable graph", true), graph(of) {}
  Graph& graph;
  struct Step {
    Node* node;
    Action action;
  };
  std::vector<Step> steps;
  TaskPointer last;  // the end of the last launch; launches run one after another
};

std::vector<const Exec*>& execs() {
  static auto* const all = new std::vector<const Exec*>;
  return *all;
}

CUresult read_copy(const Call& call, const CUDA_MEMCPY3D_v2& params, Copy* out) {
  if (params.srcMemoryType != CU_MEMORYTYPE_DEVICE ||
      params.dstMemoryType != CU_MEMORYTYPE_DEVICE || params.srcXInBytes || params.srcY ||
      params.srcZ || params.srcLOD || params.dstXInBytes || params.dstY || params.dstZ ||
      params.dstLOD || params.reserved0 || params.reserved1 || params.Height != 1 ||
      params.Depth != 1 || params.WidthInBytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = {params.dstDevice, params.srcDevice, params.WidthInBytes};
  check_range(call, out->to, out->size, "a copy's target");
  check_range(call, out->from, out->size, "a copy's source");
  return CUDA_SUCCESS;
}

CUresult read_fill(const Call& call, const CUDA_MEMSET_NODE_PARAMS_v1& params, Fill* out) {
  const uint32_t element = params.elementSize;
  if ((element != 1 && element != 2 && element != 4) || params.width == 0 || params.height == 0 ||
      params.dst % element != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params.height > 1 && (params.pitch < params.width * element || params.pitch % element != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (element < 4 && params.value >> 8 * element) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = params.height > 1 ? params.pitch : params.width * element;
  *out = {params.dst, params.value, element, pitch, params.width, params.height};
  check_range(call, out->to, out->extent(), "a fill");
  return CUDA_SUCCESS;
}

CUresult read_kernel(const Call& call, const CUDA_KERNEL_NODE_PARAMS_v2& params,
                     const LaunchShape* attributes, Action* out) {
  if (!params.func) violation("%s: a kernel node without a function", call.name);
  if (params.extra) violation("%s: extra is not supported here", call.name);
  out->kind = "kernel";
  out->shape = {{params.gridDimX, params.gridDimY, params.gridDimZ},
                {params.blockDimX, params.blockDimY, params.blockDimZ},
                params.sharedMemBytes,
                attributes ? attributes->cluster : 1};
  return make_launch(call, params.func, out->shape, params.kernelParams, &out->launch);
}

// Reads the edges that end in a new node. Nodes of other graphs and dead nodes are violations.
CUresult read_edges(const Call& call, Graph& graph, const CUgraphNode* from,
                    const CUgraphEdgeData* data, size_t count, Node* node) {
  std::set<const Node*> seen;
  for (size_t i = 0; i < count; ++i) {
    Node& before = call.object<Node>(from[i], "graph node");
    if (&before.graph != &graph)
      violation("%s: edge %zu comes from a node of another graph", call.name, i);
    if (!seen.insert(&before).second) return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData edge = data ? data[i] : CUgraphEdgeData{};
    const bool reserved = std::any_of(std::begin(edge.reserved), std::end(edge.reserved),
                                      [](char c) { return c; });
    if (edge.to_port || reserved) return CUDA_ERROR_INVALID_VALUE;
    if (edge.type == 0 && edge.from_port == 0) {
      node->after.push_back(&before);
    } else if (edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
               edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
               before.action.kind == std::string("kernel") &&
               node->action.kind == std::string("kernel")) {
      node->early.push_back(&before);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult add(const Call& call, CUgraphNode* out, CUgraph handle, const CUgraphNode* from,
             const CUgraphEdgeData* data, size_t count, Action action) {
  Graph& graph = call.object<Graph>(handle, "graph");
  Node node(graph);
  node.action = std::move(action);
  const CUresult result = read_edges(call, graph, from, data, count, &node);
  if (result != CUDA_SUCCESS) return result;
  Node* added = make<Node>(std::move(node));
  graph.nodes.push_back(added);
  *out = reinterpret_cast<CUgraphNode>(added);
  return CUDA_SUCCESS;
}

Exec::Step& find_step(const Call& call, CUgraphExec handle, CUgraphNode node_handle) {
  Exec& exec = call.object<Exec>(handle, "executable graph");
  Node& node = call.object<Node>(node_handle, "graph node");
  if (&node.graph != &exec.graph)
    violation("%s: the node is of another graph than the exec", call.name);
  for (Exec::Step& step : exec.steps)
    if (step.node == &node) return step;
  violation("%s: the node was added after the graph was instantiated", call.name);
}

std::function<void()> copy_work(const Copy& copy) {
  return [copy] {
    memmove(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from), copy.size);
  };
}

std::function<void()> fill_work(const Fill& fill) {
  return [fill] {
    for (uint64_t row = 0; row < fill.rows; ++row) {
      char* to = reinterpret_cast<char*>(fill.to) + row * fill.pitch;
      for (uint64_t i = 0; i < fill.columns; ++i)
        memcpy(to + i * fill.element, &fill.value, fill.element);
    }
  };
}

// A new task that does what the recorded one would have done.
TaskPointer repeat(const Call& call, const Task& recorded) {
  auto task = std::make_shared<Task>();
  if (recorded.launch && recorded.launch->function->kernel.library.exchanges) {
    fill_kernel_task(call, *recorded.launch, task.get());
    return task;
  }
  task->what = "captured: " + recorded.what;
  task->work = recorded.work;
  task->state = recorded.state;
  if (task->state && task->state() < 0)
    violation("%s: %s: what it uses is gone", call.name, recorded.what.c_str());
  task->memory = recorded.memory;
  if (recorded.launch) task->launch = std::make_unique<Launch>(*recorded.launch);
  for (const CUdeviceptr address : recorded.memory) check_range(call, address, 1, "captured work");
  return task;
}

TaskPointer make_task(const Call& call, const Action& action) {
  if (action.recorded) return repeat(call, *action.recorded);
  auto task = std::make_shared<Task>();
  const std::string kind = action.kind;
  task->what = "graph node: " + kind;
  if (kind == "kernel") {
    fill_kernel_task(call, action.launch, task.get());
  } else if (kind == "copy") {
    check_range(call, action.copy.to, action.copy.size, "a copy node's target");
    check_range(call, action.copy.from, action.copy.size, "a copy node's source");
    task->memory = {action.copy.to, action.copy.from};
    task->work = copy_work(action.copy);
  } else if (kind == "fill") {
    check_range(call, action.fill.to, action.fill.extent(), "a fill node");
    task->memory = {action.fill.to};
    task->work = fill_work(action.fill);
  }
  return task;
}

// Queues the nodes of a graph. Those without predecessors wait for `before`; `end` waits for all.
void enqueue_nodes(const Call& call,
                   const std::vector<std::pair<const Node*, const Action*>>& nodes,
                   const std::vector<TaskPointer>& before, Task* end) {
  std::map<const Node*, TaskPointer> tasks;  // the task that ends the node
  for (const auto& [node, action] : nodes) {
    const TaskPointer task = action->child ? std::make_shared<Task>() : make_task(call, *action);
    tasks[node] = task;
    std::vector<TaskPointer> after;
    for (const Node* from : node->after) after.push_back(tasks[from]);
    for (const Node* from : node->early) task->early.push_back(tasks[from]);
    if (after.empty() && task->early.empty()) after = before;
    task->after = after;
    if (action->child) {
      task->what = "the end of a child graph";
      std::vector<std::pair<const Node*, const Action*>> inner;
      for (const Node* of : action->child->nodes) inner.emplace_back(of, &of->action);
      enqueue_nodes(call, inner, after, task.get());
    }
    end->after.push_back(task);
    enqueue(task);
  }
}

void enqueue_exec(const Call& call, Exec& exec, CUstream stream) {
  if (is_capturing(call, stream)) violation("%s: here no graph launch is captured", call.name);
  std::vector<TaskPointer> before = stream_tail(call, stream);
  if (exec.last && !exec.last->done) before.push_back(exec.last);
  auto end = std::make_shared<Task>();
  end->what = "the end of a graph";
  end->after = before;
  std::vector<std::pair<const Node*, const Action*>> nodes;
  for (const Exec::Step& step : exec.steps) nodes.emplace_back(step.node, &step.action);
  enqueue_nodes(call, nodes, before, end.get());
  exec.last = end;
  set_stream_tail(call, stream, end);
  enqueue(end);
  maybe_run_some();
}

// A copy of a graph that belongs to a node of another one.
const Graph* copy_graph(const Graph& from) {
  Graph* graph = make<Graph>(false);
  std::map<const Node*, Node*> copies;
  for (const Node* node : from.nodes) {
    Node* copy = make<Node>(*graph);
    copy->action = node->action;
    for (const Node* before : node->after) copy->after.push_back(copies[before]);
    for (const Node* before : node->early) copy->early.push_back(copies[before]);
    copies[node] = copy;
    graph->nodes.push_back(copy);
  }
  return graph;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  Call call("cuGraphCreate");
  if (call.fault) return call.fault;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(make<Graph>());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  Call call("cuGraphDestroy");
  Graph& graph = call.object<Graph>(handle, "graph");
  graph.end();
  for (Node* node : graph.nodes) node->end();
  return call.fault;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  Call call("cuGraphDestroyNode");
  Node& node = call.object<Node>(handle, "graph node");
  node.end();
  auto& nodes = const_cast<Graph&>(node.graph).nodes;
  std::erase(nodes, &node);
  for (Node* other : nodes) {
    std::erase(other->after, &node);
    std::erase(other->early, &node);
  }
  return call.fault;
}

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  Call call("cuGraphAddKernelNode");
  if (call.fault) return call.fault;
  call.context();
  Action action;
  const CUresult result = read_kernel(call, *params, nullptr, &action);
  return result ? result : add(call, out, graph, from, nullptr, count, std::move(action));
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                        const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  Call call("cuGraphAddNode");
  if (call.fault) return call.fault;
  call.context();
  if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
    violation("cuGraphAddNode: kernel nodes only here");
  const bool rest = std::any_of(std::begin(params->reserved0), std::end(params->reserved0),
                                [](int i) { return i; });
  if (rest || params->reserved2) return CUDA_ERROR_INVALID_VALUE;
  Action action;
  const CUresult result = read_kernel(call, params->kernel, nullptr, &action);
  return result ? result : add(call, out, graph, from, edges, count, std::move(action));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                              size_t count, const CUDA_MEMCPY3D_v2* params, CUcontext context) {
  Call call("cuGraphAddMemcpyNode");
  if (call.fault) return call.fault;
  call.object<Context>(context, "context");
  Action action;
  action.kind = "copy";
  const CUresult result = read_copy(call, *params, &action.copy);
  return result ? result : add(call, out, graph, from, nullptr, count, std::move(action));
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS_v1* params,
                              CUcontext context) {
  Call call("cuGraphAddMemsetNode");
  if (call.fault) return call.fault;
  call.object<Context>(context, "context");
  Action action;
  action.kind = "fill";
  const CUresult result = read_fill(call, *params, &action.fill);
  return result ? result : add(call, out, graph, from, nullptr, count, std::move(action));
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                             size_t count) {
  Call call("cuGraphAddEmptyNode");
  return call.fault ? call.fault : add(call, out, graph, from, nullptr, count, {});
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* from,
                                  size_t count, CUgraph child) {
  Call call("cuGraphAddChildGraphNode");
  if (call.fault) return call.fault;
  Action action;
  action.kind = "child";
  action.child = copy_graph(call.object<Graph>(child, "graph"));
  return add(call, out, graph, from, nullptr, count, std::move(action));
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  Call call("cuGraphGetNodes");
  if (call.fault) return call.fault;
  const Graph& graph = call.object<Graph>(handle, "graph");
  // With a place for nodes, the driver gives as many as `count` says.
  if (nodes) {
    *count = std::min(*count, graph.nodes.size());
    for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(graph.nodes[i]);
    return CUDA_SUCCESS;
  }
  *count = graph.nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  Call call("cuGraphKernelNodeGetParams");
  if (call.fault) return call.fault;
  const Node& node = call.object<Node>(handle, "graph node");
  if (!node.action.recorded || !node.action.recorded->launch) return CUDA_ERROR_INVALID_VALUE;
  Launch& launch = *node.action.recorded->launch;
  launch.params.clear();
  for (const size_t offset : launch.offsets) launch.params.push_back(launch.bytes.data() + offset);
  *params = {reinterpret_cast<CUfunction>(launch.function),
             launch.grid[0],
             launch.grid[1],
             launch.grid[2],
             launch.block[0],
             launch.block[1],
             launch.block[2],
             0,
             launch.params.data(),
             nullptr,
             nullptr,
             nullptr};
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                       const CUlaunchAttributeValue* value) {
  Call call("cuGraphKernelNodeSetAttribute");
  if (call.fault) return call.fault;
  Node& node = call.object<Node>(handle, "graph node");
  if (node.action.kind != std::string("kernel")) return CUDA_ERROR_INVALID_VALUE;
  LaunchShape& shape = node.action.shape;
  if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
    violation("a stream's attribute on a graph's node");
  if (!shape.set_attribute(id, *value) || shape.grid[0] % shape.cluster)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  Call call("cuGraphInstantiateWithFlags");
  if (call.fault) return call.fault;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  call.context();
  Graph& graph = call.object<Graph>(handle, "graph");
  Exec* exec = make<Exec>(graph);
  for (Node* node : graph.nodes) exec->steps.push_back({node, node->action});
  execs().push_back(exec);
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  Call call("cuGraphUpload");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_captured(call, stream)) return refused;
  const Exec& exec = call.object<Exec>(handle, "executable graph");
  for (const Exec::Step& step : exec.steps)
    if (step.action.launch.function) step.action.launch.function->loaded = true;
  auto task = std::make_shared<Task>();
  task->what = "cuGraphUpload";
  enqueue(call, stream, task);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  Call call("cuGraphLaunch");
  if (call.fault) return call.fault;
  call.context();
  enqueue_exec(call, call.object<Exec>(handle, "executable graph"), stream);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  Call call("cuGraphExecDestroy");
  call.object<Exec>(handle, "executable graph").end();  // its launches go on
  return call.fault;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  Call call("cuGraphExecKernelNodeSetParams");
  if (call.fault) return call.fault;
  call.context();
  Exec::Step& step = find_step(call, exec, node);
  if (step.action.kind != std::string("kernel")) return CUDA_ERROR_INVALID_VALUE;
  Action action;
  const CUresult result = read_kernel(call, *params, &step.action.shape, &action);
  if (result == CUDA_SUCCESS) step.action = std::move(action);
  return result;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D_v2* params, CUcontext context) {
  Call call("cuGraphExecMemcpyNodeSetParams");
  if (call.fault) return call.fault;
  call.object<Context>(context, "context");
  Exec::Step& step = find_step(call, exec, node);
  if (step.action.kind != std::string("copy")) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  const CUresult result = read_copy(call, *params, &copy);
  if (result == CUDA_SUCCESS) step.action.copy = copy;
  return result;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS_v1* params,
                                        CUcontext context) {
  Call call("cuGraphExecMemsetNodeSetParams");
  if (call.fault) return call.fault;
  call.object<Context>(context, "context");
  Exec::Step& step = find_step(call, exec, node);
  if (step.action.kind != std::string("fill")) return CUDA_ERROR_INVALID_VALUE;
  const Fill& before = step.action.fill;
  // The driver updates memset nodes "opportunistically". This one refuses a change between one and
  // two dimensions, and another shape of a two-dimensional fill.
  if (before.rows != params->height || before.element != params->elementSize)
    return CUDA_ERROR_INVALID_VALUE;
  if (before.rows > 1 && (before.columns != params->width || before.pitch != params->pitch))
    return CUDA_ERROR_INVALID_VALUE;
  Fill fill;
  const CUresult result = read_fill(call, *params, &fill);
  if (result == CUDA_SUCCESS) step.action.fill = fill;
  return result;
}

}  // namespace fake

uint64_t fake_captured_work(int32_t (*is_of)(const void* data, const void* user),
                            const void* user) {
  const std::lock_guard lock(fake::state().mutex);
  const auto is_found = [&](const fake::Action& action) {
    return action.recorded && action.recorded->data && is_of(action.recorded->data->data(), user);
  };
  uint64_t found = 0;
  for (const fake::Exec* exec : fake::execs()) {
    if (!exec->live) continue;
    for (const fake::Exec::Step& step : exec->steps) {
      found += is_found(step.action);
      if (!step.action.child) continue;
      for (const fake::Node* node : step.action.child->nodes) found += is_found(node->action);
    }
  }
  return found;
}
