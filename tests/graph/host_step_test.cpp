// Steps that run on the host between kernels, and the copies from and to the host around them. The
// fake driver protects host memory while a queued copy uses it.
#include <cstring>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

// out[i] = in[i]^2, on the host. `user` counts the calls, or is null.
husk_status square(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                   husk_error* error) {
  if (count != 2 || context->stream) {
    error->code = HUSK_INVALID_ARGUMENT;
    std::snprintf(error->text, sizeof error->text, "a wrong call");
    return error->code;
  }
  const float* in = static_cast<const float*>(args[0].data);
  float* out = static_cast<float*>(args[1].data);
  for (int64_t i = 0; i < args[0].sizes[0]; ++i) out[i] = in[i] * in[i];
  if (context->user) ++*static_cast<int*>(context->user);
  return HUSK_OK;
}

husk_op host_op(const char* name, husk_op_fn call, const char* contract, void* user = nullptr) {
  husk_op op = HUSK_OP_INIT;
  op.name = name;
  op.call = call;
  op.contract = contract;
  op.user = user;
  op.place = HUSK_OP_ON_HOST;
  return op;
}

const husk_op kSquare = host_op("test::square", square, "in out:w");

std::vector<float> run_once(LoadedProgram& m, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  void *in = m.alloc(x.size() * 4), *out = m.alloc(x.size() * 4);
  EXPECT_EQ(m.upload(in, x.data(), x.size() * 4), HUSK_OK);
  DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
  husk_value inputs[] = {from.value(), integer(3)}, output = to.value();
  EXPECT_EQ(husk_session_resize(m.session, 0, inputs, 2, &m.error), HUSK_OK) << m.error.text;
  for (int run = 0; run < 3; ++run)
    EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, &output, 1, &m.error), HUSK_OK)
        << m.error.text;
  std::vector<float> y(x.size());
  EXPECT_EQ(m.download(y.data(), out, x.size() * 4), HUSK_OK);
  return y;
}

class HostSteps : public FakeTest {};

TEST_F(HostSteps, RunBetweenKernels) {
  LoadedProgram m(kSquareOnHost, nullptr, nullptr, {kSquare});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const std::vector<float> x = {1, 2, 3, 4, 5};
  EXPECT_EQ(run_once(m, x), square_of(x, 3));
  EXPECT_EQ(husk_program_host_step_count(m.program, 0), 1u);
  const husk_session_stats stats = m.stats(m.session);
  EXPECT_EQ(stats.runs_as_list, 3u);
  EXPECT_EQ(stats.graph_nodes, 0u);
  EXPECT_GE(stats.host_arena_bytes, 2 * 1000 * 4u);
}

}  // namespace
}  // namespace husk::test
