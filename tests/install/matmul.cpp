// Runs matmul.husk on [[1, 2], [3, 4]] and prints the result: what a C++ program needs of Husk's
// headers and libraries.
#include <cstdio>

#include <husk/husk.hpp>
#include <husk/ops.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>

int main(int argc, char** argv) {
  if (argc != 2 || !husk_port_cuda()) return 2;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.require_op_contracts = 1;
  husk::Engine engine(options);
  engine.add_ops(husk_ops_add_all);
  const husk::Program program(engine, argv[1]);
  husk::Session session(program);

  alignas(64) float x[4] = {1, 2, 3, 4};
  husk::Tensor tensor(x, {2, 2});
  const std::vector<husk::Value> outputs = session.run({tensor});
  const float* y = static_cast<const float*>(outputs[0].tensor()->data);
  std::printf("husk %s: %g %g %g %g\n", husk_version(), y[0], y[1], y[2], y[3]);
}
