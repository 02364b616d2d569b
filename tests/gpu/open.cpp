// The time to open a program after the device's context was made, and the host memory that the
// program then holds.
//   husk_gpu_open FILE INPUTS [repeats]      INPUTS: a file as described in tests/gpu/inputs.h
#include <cstdlib>

#include "gpu.h"
#include "inputs.h"

using namespace husk::gpu;

namespace {

// A tensor on the device, as a value.
struct Tensor {
  Tensor(Driver& driver, const Input& input) : sizes(input.sizes) {
    const CUdeviceptr memory = driver.alloc(input.bytes.size() + 1);
    require(driver.cuMemcpyHtoD_v2_(memory, input.bytes.data(), input.bytes.size()),
            "cuMemcpyHtoD");
    dl.data = reinterpret_cast<void*>(memory);
    dl.device = {kDLCUDA, 0};
    dl.ndim = static_cast<int32_t>(sizes.size());
    const husk_dtype types[] = {HUSK_I64, HUSK_I32, HUSK_F16, HUSK_BF16, HUSK_F32, HUSK_BOOL};
    for (const husk_dtype type : types)
      if (input.type == husk_dtype_name(type)) dl.dtype = husk_dtype_to_dlpack(type);
    dl.shape = sizes.data();
  }
  Tensor(const Tensor&) = delete;
  std::vector<int64_t> sizes;
  DLTensor dl = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) give_up("husk_gpu_open FILE INPUTS [repeats]");
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 9;
  Inputs input_file;
  if (!input_file.read(argv[2])) give_up(std::string("cannot read ") + argv[2]);
  Driver driver;
  CUdeviceptr some = driver.alloc(1 << 20);  // memory that the driver allocates lazily
  require(driver.cuMemsetD8_v2_(some, 0, 1 << 20), "cuMemsetD8");
  require(driver.cuStreamSynchronize_(nullptr), "cuStreamSynchronize");
  const Resident bare = Resident::now();

  const double start = now();
  Loaded* loaded = new Loaded(argv[1]);
  const double opened = now();
  husk_session* session = loaded->session(HUSK_MODE_LIST, false);
  const double created = now();
  const Resident after_open = Resident::now();
  const uint32_t function = loaded->function(input_file.function.c_str());
  std::vector<husk_value> inputs;
  for (const Input& input : input_file.inputs) {
    husk_value value = {HUSK_VALUE_TENSOR, 0, {}};
    value.as.tensor = &(new Tensor(driver, input))->dl;  // The memory lives as long as the program.
    inputs.push_back(value);
  }
  std::vector<husk_value> outputs(husk_program_output_count(loaded->program, function));
  husk_error error;
  const auto count = static_cast<uint32_t>(inputs.size());
  require(husk_session_resize(session, function, inputs.data(), count, &error), error);
  const double before = now();
  require(husk_session_run(session, function, driver.stream, inputs.data(), count, outputs.data(),
                           static_cast<uint32_t>(outputs.size()), &error),
          error);
  require(driver.cuStreamSynchronize_(driver.stream), "cuStreamSynchronize");
  const double ran = now();
  const Resident after_run = Resident::now();
  husk_session_release(session);

  // A second open finds the pages of the library and the driver's caches in memory.
  delete loaded;
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now();
    Loaded again(argv[1]);
    times.push_back(now() - begin);
  }
  std::printf(
      "husk: opened in %.2f ms, again in %.2f (median of %d), session in %.2f, first run %.2f\n",
      (opened - start) / 1000, median(times) / 1000, repeats, (created - opened) / 1000,
      (ran - before) / 1000);
  bare.print("with a bare context", bare);
  after_open.print("opened", bare);
  after_run.print("after a run", bare);
  return 0;
}
