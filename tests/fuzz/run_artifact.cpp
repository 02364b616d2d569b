#include "run_artifact.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <husk/ops.h>
#include <husk/port_host.h>

#include "checking_port.h"
#include "op_calls.h"

namespace husk::fuzz {
namespace {

constexpr size_t kMemory = 1 << 20;

// Inputs or outputs of a run, with the memory of their tensors.
struct Values {
  std::vector<husk_value> values;
  std::vector<DLTensor> tensors;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<void*> memory;

  ~Values() {
    for (void* m : memory) std::free(m);
  }

  bool add(const husk_value_info& info, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    husk_value value = {info.kind, 0, {}};
    if (info.kind == HUSK_VALUE_INT && info.ranges) value.as.i = info.ranges[0];
    if (info.kind == HUSK_VALUE_FLOAT) value.as.f = 1.5;
    if (info.kind == HUSK_VALUE_TENSOR) {
      const size_t width = husk_dtype_size(info.dtype);
      uint64_t bytes = width;
      for (size_t d = 0; d < sizes.size(); ++d) {
        if (sizes[d] < 0) return false;
        auto reach = static_cast<uint64_t>(sizes[d]);
        if (!strides.empty()) {
          const uint64_t steps = reach ? reach - 1 : 0, stride = static_cast<uint64_t>(strides[d]);
          if (__builtin_mul_overflow(steps, stride, &reach) ||
              __builtin_add_overflow(reach, 1, &reach))
            return false;
        }
        if (__builtin_mul_overflow(bytes, reach, &bytes) || bytes > kMemory) return false;
      }
      // An address with the alignment that the kernels need; a sanitizer sees accesses behind it.
      void* data = nullptr;
      if (posix_memalign(&data, info.alignment < 64 ? 64 : info.alignment, bytes) != 0)
        std::abort();
      fill_pattern(data, info.dtype, bytes / width);
      announce(data, bytes);
      memory.push_back(data);
      shapes.push_back(std::move(sizes));
      const size_t shape = shapes.size() - 1;
      if (!strides.empty()) shapes.push_back(std::move(strides));
      DLTensor tensor = {};
      tensor.data = data;
      tensor.device = {kDLCPU, 0};
      tensor.ndim = info.rank;
      tensor.dtype = husk_dtype_to_dlpack(info.dtype);
      tensor.shape = shapes[shape].data();
      tensor.strides = shape + 1 < shapes.size() ? shapes[shape + 1].data() : nullptr;
      tensors.push_back(tensor);
      value.as.tensor = &tensors.back();
    }
    values.push_back(value);
    return true;
  }
};

// Keeps the reason of a refusal.
void refuse(husk_status status, const husk_error& error, Outcome* outcome) {
  if (status != error.code || std::strlen(error.text) < 8) {
    std::fprintf(stderr, "refused with %s and no reason: '%s'\n", husk_status_name(status),
                 error.text);
    std::abort();
  }
  outcome->reason = error.text;
}

void run(husk_session* session, const husk_program* program, uint32_t function, int64_t extra,
         Outcome* outcome) {
  husk_error error = {};
  Values in, out;
  const uint32_t inputs = husk_program_input_count(program, function);
  const uint32_t outputs = husk_program_output_count(program, function);
  if (inputs > 64 || outputs > 64) return;
  in.tensors.reserve(inputs);
  out.tensors.reserve(outputs);
  in.shapes.reserve(2 * inputs);
  out.shapes.reserve(2 * outputs);
  bool dynamic = false;
  for (uint32_t i = 0; i < inputs; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    if (husk_program_input(program, function, i, &info, &error) != HUSK_OK) std::abort();
    std::vector<int64_t> sizes;
    for (int32_t d = 0; d < info.rank; ++d) {
      const int64_t low = info.ranges[2 * d], high = info.ranges[2 * d + 1];
      dynamic = dynamic || low != high;
      sizes.push_back(high - low >= extra || high < low ? low + extra : low);
    }
    if (!in.add(info, sizes, {})) return;
  }
  if (extra == 3 && !dynamic) return;  // the shapes are those of the call before
  husk_status status = husk_session_resize(session, function, in.values.data(), inputs, &error);
  if (status != HUSK_OK) return refuse(status, error, outcome);
  for (uint32_t i = 0; i < outputs; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    if (husk_program_output(program, function, i, &info, &error) != HUSK_OK) std::abort();
    std::vector<int64_t> sizes(static_cast<size_t>(info.rank)), strides(sizes.size());
    // An output whose shape depends on data is in memory of the session. So are all outputs of the
    // last shape.
    if (info.kind == HUSK_VALUE_TENSOR &&
        (husk_session_output_shape(session, function, i, sizes.data(), strides.data(), &error) !=
             HUSK_OK ||
         extra == 1))
      info.kind = HUSK_VALUE_NONE;
    for (int64_t stride : strides)
      if (stride < 0) return;
    if (!out.add(info, sizes, strides)) return;
  }
  for (int i = 0; i < 2; ++i) {
    status = husk_session_run(session, function, nullptr, in.values.data(), inputs,
                              out.values.data(), outputs, &error);
    if (status == HUSK_OK)
      ++outcome->finished;
    else
      refuse(status, error, outcome);
  }
}

// The answer to the questions of husk_engine_options.cancel: one of them ends a run.
struct Cancel {
  uint32_t questions_left = 0;
};

Cancel* cancel() {
  static Cancel state;
  return &state;
}

// With `budgets`, an engine has limits that some artifacts pass, and cancels a run.
husk_engine* new_engine(PortKind port, bool budgets) {
  husk_error error = {};
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  const bool checking = port != PortKind::host;
  options.port = port == PortKind::checking ? checking_port()
                 : checking                 ? checking_port_beside_host()
                                            : husk_port_host();
  options.allow_host_images = checking;
  options.require_op_contracts = !checking;  // test::op takes any arguments
  options.rank = 3;  // the place of seeds/world.hir; other seeds are for any rank
  options.world = 4;
  options.max_metadata_bytes = 1 << 20;
  options.max_state_bytes = 1 << 20;
  options.max_program_bytes = 1 << 24;
  if (budgets) {
    options.max_steps = 12;
    options.max_step_elements = 20000;
    options.cancel_user = cancel();
    options.cancel = [](void* user) {
      uint32_t& left = static_cast<Cancel*>(user)->questions_left;
      return int32_t{left > 0 && --left == 0};
    };
  }
  husk_engine* engine = nullptr;
  if (husk_engine_create(&options, &engine, &error) != HUSK_OK) std::abort();
  if (!checking) {
    add_counted_ops(engine);
    return engine;
  }
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  const auto add = [&](husk_op op) {
    for (const int32_t place : {HUSK_OP_ON_DEVICE, HUSK_OP_ON_HOST}) {
      op.place = place;
      if (husk_engine_add_op(engine, &op, &error) != HUSK_OK) std::abort();
    }
  };
  for (uint32_t i = 0; i < count; ++i) {
    husk_op op = touching_op(ops[i].name);
    op.contract = ops[i].contract;
    add(op);
  }
  for (const char* name : {"test::op", "test::op:sizes"}) add(touching_op(name));
  return engine;
}

// The engine for an artifact. It lives as long as the process: whatever a file did, it stays
// usable. The content hash also decides which question ends a run.
husk_engine* engine_of(PortKind port, const Artifact& artifact, Budgets budgets) {
  static husk_engine* const engines[][2] = {
      {new_engine(PortKind::checking, false), new_engine(PortKind::checking, true)},
      {new_engine(PortKind::host, false), new_engine(PortKind::host, true)},
      {new_engine(PortKind::beside_host, false), new_engine(PortKind::beside_host, true)}};
  const uint8_t* hash = static_cast<const uint8_t*>(artifact.data) + 32;
  cancel()->questions_left = 1 + hash[1] % 8;
  return engines[static_cast<int>(port)][budgets == Budgets::by_hash && hash[0] % 4 == 0];
}

}  // namespace

Outcome run_artifact(const Artifact& artifact, PortKind port, Budgets budgets) {
  Outcome outcome;
  husk_error error = {};
  husk_status status = husk_program_verify(artifact.data, artifact.size, &error);
  if (status != HUSK_OK) {
    refuse(status, error, &outcome);
    return outcome;
  }
  husk_engine* engine = engine_of(port, artifact, budgets);
  const size_t live_before = live();
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  outcome.stage = Stage::open;
  status = husk_program_load(engine, artifact.data, artifact.size, nullptr, nullptr, &program,
                             &error);
  if (status == HUSK_OK) {
    husk_session_options small = HUSK_SESSION_OPTIONS_INIT;
    small.bound_limit = 1 << 20;
    small.memory_limit = 1 << 22;
    small.loop_limit = 20;
    small.copy_misaligned = 1;
    small.stage_host_tensors = 1;  // tensors lie on the host, if the port is beside it too
    outcome.stage = Stage::session;
    // The port allocates constants and state, so it knows all memory that a step may access.
    status = husk_session_create(program, &small, &session, &error);
  }
  if (status == HUSK_OK) {
    outcome.stage = Stage::run;
    const uint32_t functions = husk_program_function_count(program);
    for (uint32_t f = 0; f < functions && f < 4; ++f)
      for (int64_t extra : {0, 3, 1}) run(session, program, f, extra, &outcome);
  } else {
    refuse(status, error, &outcome);
  }
  husk_session_release(session);
  husk_program_release(program);
  forget();
  if (live() != live_before) std::abort();
  return outcome;
}

}  // namespace husk::fuzz
