// Runs a model as AOTInductor's package and as a Husk artifact in turns in one process:
// AOTIModelPackageLoader against the launch list. tests/gpu/aoti.py builds this program on the
// machine with the GPU, since it links the torch that is installed there.
//   husk_aoti compare DEVICE PACKAGE INPUTS REPEATS NAME=ARTIFACT...     DEVICE: cuda, or cpu for a
//   trial husk_aoti open DEVICE PACKAGE INPUTS     the time to open the package, and the memory
//   that it holds
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include <husk/port_host.h>

#include "gpu.h"
#include "inputs.h"

using namespace husk::gpu;
using torch::inductor::AOTIModelPackageLoader;

namespace {

const std::pair<const char*, at::ScalarType> kTypes[] = {
    {"i64", at::kLong},      {"i32", at::kInt},   {"f16", at::kHalf},
    {"bf16", at::kBFloat16}, {"f32", at::kFloat}, {"bool", at::kBool}};

at::ScalarType type_of(const std::string& name) {
  for (const auto& [known, type] : kTypes)
    if (name == known) return type;
  give_up("no type " + name);
}

husk_dtype type_of(at::ScalarType type) {
  for (husk_dtype each : {HUSK_I64, HUSK_I32, HUSK_F16, HUSK_BF16, HUSK_F32, HUSK_BOOL})
    if (type_of(husk_dtype_name(each)) == type) return each;
  give_up("no such type");
}

struct Side {
  std::string name;
  std::function<void()> run;
  std::function<void()> wait;
  std::vector<double> host, total;
  std::vector<at::Tensor> outputs;
};

// An at::Tensor as a value, with the sizes and strides of the tensor.
struct Value {
  explicit Value(const at::Tensor& tensor) {
    dl.data = tensor.data_ptr();
    dl.device = {tensor.is_cuda() ? kDLCUDA : kDLCPU, 0};
    dl.ndim = static_cast<int32_t>(tensor.dim());
    dl.dtype = husk_dtype_to_dlpack(type_of(tensor.scalar_type()));
    dl.shape = const_cast<int64_t*>(tensor.sizes().data());
    dl.strides = const_cast<int64_t*>(tensor.strides().data());
    value.kind = HUSK_VALUE_TENSOR;
    value.as.tensor = &dl;
  }
  Value(const Value&) = delete;
  DLTensor dl = {};
  husk_value value = {};
};

// A Husk artifact with one session, and the tensors of one call.
struct Husk {
  Husk(const std::string& path, const std::string& name, const std::vector<at::Tensor>& tensors,
       bool cpu, int mode)
      : inputs(tensors) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = cpu ? husk_port_host() : husk_port_cuda();
    options.allow_host_images = 1;
    options.require_op_contracts = 1;
    require(husk_engine_create(&options, &engine, &error), error);
    require(husk_program_open(engine, path.c_str(), &program, &error), error);
    require(husk_program_find_function(program, name.c_str(), &function, &error), error);
    husk_session_options settings = HUSK_SESSION_OPTIONS_INIT;
    settings.mode = mode;
    require(husk_session_create(program, &settings, &session, &error), error);
    for (const at::Tensor& tensor : inputs)
      in.push_back((kept.emplace_back(std::make_unique<Value>(tensor)))->value);
    require(
        husk_session_resize(session, function, in.data(), static_cast<uint32_t>(in.size()), &error),
        error);
    for (uint32_t i = 0; i < husk_program_output_count(program, function); ++i) {
      husk_value_info info = HUSK_VALUE_INFO_INIT;
      require(husk_program_output(program, function, i, &info, &error), error);
      const auto rank = static_cast<size_t>(info.rank);
      std::vector<int64_t> sizes(rank), strides(rank);
      require(husk_session_output_shape(session, function, i, sizes.data(), strides.data(), &error),
              error);
      outputs.push_back(at::empty_strided(
          sizes, strides, inputs[0].options().dtype(type_of(husk_dtype_name(info.dtype)))));
      out.push_back((kept.emplace_back(std::make_unique<Value>(outputs.back())))->value);
    }
  }
  void run(void* stream) {
    require(husk_session_run(session, function, stream, in.data(), static_cast<uint32_t>(in.size()),
                             out.data(), static_cast<uint32_t>(out.size()), &error),
            error);
  }
  std::vector<at::Tensor> inputs, outputs;
  std::vector<std::unique_ptr<Value>> kept;
  std::vector<husk_value> in, out;
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  uint32_t function = 0;
  husk_error error;
};

void report(std::vector<Side>& sides) {
  const Side& aoti = sides[0];
  for (const Side& side : sides) {
    const double host = median(side.host), total = median(side.total);
    std::printf("  %-28s host %8.1f us, total %8.1f us", side.name.c_str(), host, total);
    if (&side != &aoti)
      std::printf("   %.3f x AOTInductor (host %.3f x)", total / median(aoti.total),
                  host / median(aoti.host));
    std::printf("\n");
  }
  for (const Side& side : sides)
    for (size_t i = 0; &side != &aoti && i < side.outputs.size() && i < aoti.outputs.size(); ++i) {
      const at::Tensor one = aoti.outputs[i].to(at::kFloat), other = side.outputs[i].to(at::kFloat);
      std::printf("  %s, output %zu: %s, largest difference %g of at most %g\n", side.name.c_str(),
                  i, one.sizes() == other.sizes() ? "same sizes" : "OTHER SIZES",
                  one.sizes() == other.sizes() ? (one - other).abs().max().item<float>() : -1.0f,
                  one.abs().max().item<float>());
    }
}

int compare(bool cpu, const std::string& package, const Inputs& file_inputs,
            const std::vector<at::Tensor>& inputs, int repeats, int argc, char** argv) {
  std::unique_ptr<Driver> driver = cpu ? nullptr : std::make_unique<Driver>();
  auto wait_on = [&driver](CUstream stream) {
    return [&driver, stream] {
      if (driver) require(driver->cuStreamSynchronize_(stream), "cuStreamSynchronize");
    };
  };
  AOTIModelPackageLoader loader(package, "model", /*run_single_threaded=*/true);
  std::vector<Side> sides;
  sides.reserve(static_cast<size_t>(2 * argc + 1));
  sides.push_back({"AOTInductor",
                   [&] { sides[0].outputs = loader.run(inputs); },
                   wait_on(nullptr),
                   {},
                   {},
                   {}});
  std::vector<std::unique_ptr<Husk>> programs;
  for (int i = 0; i < argc; ++i)
    for (const auto& [mode, text] :
         {std::pair(HUSK_MODE_LIST, "list"), std::pair(HUSK_MODE_AUTO, "auto")}) {
      const std::string what = argv[i];
      const size_t equals = what.find('=');
      programs.push_back(
          std::make_unique<Husk>(what.substr(equals + 1), file_inputs.function, inputs, cpu, mode));
      Husk* husk = programs.back().get();
      const CUstream stream = driver ? driver->stream : nullptr;
      sides.push_back({what.substr(0, equals) + ", " + text,
                       [husk, stream] { husk->run(stream); },
                       wait_on(stream),
                       {},
                       {},
                       husk->outputs});
    }
  const Resident before = Resident::now();
  for (int r = 0; r < repeats + 10; ++r)
    for (Side& side : sides) {
      const double start = now();
      side.run();
      const double back = now();
      side.wait();
      const double end = now();
      if (r < 10) continue;
      side.host.push_back(back - start);
      side.total.push_back(end - start);
    }
  report(sides);
  Resident::now().print("after all runs", before);
  return 0;
}

int open(bool cpu, const std::string& package, const std::vector<at::Tensor>& inputs) {
  const Resident bare = Resident::now();  // The inputs are on the device, so the context exists.
  const double start = now();
  AOTIModelPackageLoader loader(package, "model", true);
  const double opened = now();
  const Resident after_open = Resident::now();
  std::unique_ptr<Driver> driver = cpu ? nullptr : std::make_unique<Driver>();
  const double before = now();
  loader.run(inputs);
  if (driver) require(driver->cuStreamSynchronize_(nullptr), "cuStreamSynchronize");
  const double ran = now();
  const Resident after_run = Resident::now();
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    AOTIModelPackageLoader again(package, "model", true);
    times.push_back(now() - begin);
  }
  std::printf("AOTInductor: opened in %.2f ms, again in %.2f (median of 3), first run %.2f\n",
              (opened - start) / 1000, median(times) / 1000, (ran - before) / 1000);
  bare.print("with a bare context", bare);
  after_open.print("opened", bare);
  after_run.print("after a run", bare);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) give_up("husk_aoti compare|open DEVICE PACKAGE INPUTS [REPEATS NAME=ARTIFACT...]");
  const std::string what = argv[1], device = argv[2];
  Inputs file_inputs;
  if (!file_inputs.read(argv[4])) give_up(std::string("cannot read ") + argv[4]);
  const c10::InferenceMode guard;
  std::vector<at::Tensor> inputs;
  for (Input& input : file_inputs.inputs)
    inputs.push_back(
        at::from_blob(input.bytes.data(), input.sizes, at::TensorOptions(type_of(input.type)))
            .clone()
            .to(at::Device(device)));
  try {
    if (what == "open") return open(device == "cpu", argv[3], inputs);
    return compare(device == "cpu", argv[3], file_inputs, inputs,
                   argc > 5 ? std::atoi(argv[5]) : 200, argc - 6, argv + 6);
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}
