// Runs mlp.husk on the CPU as examples/hello does, with the C++ header: handles release themselves
// and a failed call throws husk::Error.
#include <array>
#include <cstdio>
#include <vector>

#include <husk/husk.hpp>
#include <husk/ops.h>
#include <husk/port_host.h>

namespace {

void run(const char* path) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.allow_host_images = 1;     // the file holds native code: open only files that you trust
  options.require_op_contracts = 1;  // this program has no operators of its own
  husk::Engine engine(options);
  engine.add_ops(husk_ops_add_all);
  husk::Program program(engine, path);
  husk::Session session(program);

  alignas(64) std::array<float, 4 * 32> numbers;
  for (int i = 0; i < 4 * 32; ++i) numbers[i] = 0.01f * static_cast<float>(i);
  husk::Tensor x(numbers.data(), {4, 32});
  std::vector<husk::Value> outputs = session.run({x});
  session.wait();

  const DLTensor* y = outputs[0].tensor();
  const float* logits = static_cast<const float*>(y->data);
  for (int64_t row = 0; row < y->shape[0]; ++row) {
    for (int64_t i = 0; i < y->shape[1]; ++i) std::printf(" %7.4f", logits[row * y->shape[1] + i]);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "mlp.husk");
  } catch (const husk::Error& error) {
    std::fprintf(stderr, "%s: %s\n", husk_status_name(error.status()), error.what());
    return 1;
  }
  return 0;
}
