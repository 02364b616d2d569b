// Runs an artifact as a launch list, as graphs, and inside a capture of the stream, with the same
// inputs. Prints the time of each, and compares the results bit for bit.
//   husk_gpu_capture FILE RUNS SHAPE...     SHAPE: 1x128, for each tensor that function 0 takes
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gpu.h"

using namespace husk::gpu;

namespace {

void print_line(void*, int32_t, const char* text) { std::printf("log: %s\n", text); }

std::vector<int64_t> read_shape(const char* text) {
  std::vector<int64_t> sizes;
  for (const char* at = text; at && *at; at = std::strchr(at, 'x') ? std::strchr(at, 'x') + 1 : "")
    sizes.push_back(std::atoll(at));
  return sizes;
}

// Small numbers of any dtype that a model may take.
std::vector<char> make_elements(husk_dtype dtype, size_t count) {
  const size_t width = husk_dtype_size(dtype);
  std::vector<char> bytes(count * width);
  const uint16_t halves[] = {0x3C00, 0xBC00, 0x3800, 0xB400, 0x0000},
                 words[] = {0x3F80, 0xBF80, 0x3F00, 0xBE80, 0};
  for (size_t i = 0; i < count; ++i) {
    const float single = static_cast<float>(i * 37 % 101) / 50 - 1;
    const double wide = single;
    const int64_t whole = static_cast<int64_t>(i * 37 % 101 % 2);  // a token, or a part of a mask
    const void* from = dtype == HUSK_F32    ? static_cast<const void*>(&single)
                       : dtype == HUSK_F64  ? static_cast<const void*>(&wide)
                       : dtype == HUSK_F16  ? static_cast<const void*>(&halves[i * 7 % 5])
                       : dtype == HUSK_BF16 ? static_cast<const void*>(&words[i * 7 % 5])
                                            : static_cast<const void*>(&whole);
    std::memcpy(&bytes[i * width], from, width);
  }
  return bytes;
}

// A tensor of the program in device memory.
struct DeviceTensor {
  std::vector<int64_t> sizes, strides;
  DLTensor tensor = {};
  size_t bytes = 0;
};

struct Program {
  explicit Program(const char* path) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = husk_port_cuda();
    options.log = print_line;
    require(husk_engine_create(&options, &engine, &error), error);
    require(husk_program_open(engine, path, &program, &error), error);
  }
  ~Program() {
    for (void* each : memory) husk_engine_free(engine, each);
    husk_program_release(program);
    husk_engine_release(engine);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void place(DeviceTensor* tensor, husk_dtype dtype) {
    size_t count = 1;
    for (const int64_t size : tensor->sizes) count *= static_cast<size_t>(size);
    tensor->bytes = count * husk_dtype_size(dtype);
    void* at = nullptr;
    require(husk_engine_alloc(engine, tensor->bytes, &at, &error), error);
    memory.push_back(at);
    tensor->tensor = {at,
                      {kDLCUDA, 0},
                      static_cast<int32_t>(tensor->sizes.size()),
                      husk_dtype_to_dlpack(dtype),
                      tensor->sizes.data(),
                      nullptr,
                      0};
  }
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error = {};
  std::vector<void*> memory;
};

// A session with outputs of its own.
struct Way {
  Way(Program& of, const char* title, int32_t mode, const std::vector<husk_value>& in)
      : name(title), inputs(in), owner(of) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    require(husk_session_create(of.program, &options, &session, &of.error), of.error);
    require(husk_session_resize(session, 0, inputs.data(), static_cast<uint32_t>(inputs.size()),
                                &of.error),
            of.error);
    const uint32_t count = husk_program_output_count(of.program, 0);
    tensors.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      husk_value_info info = HUSK_VALUE_INFO_INIT;
      require(husk_program_output(of.program, 0, i, &info, &of.error), of.error);
      husk_value value = {info.kind, 0, {}};
      if (info.kind == HUSK_VALUE_TENSOR) {
        const auto rank = static_cast<size_t>(info.rank);
        tensors[i].sizes.resize(rank + 1);  // the call wants an address at rank 0 too
        tensors[i].strides.resize(rank + 1);
        require(husk_session_output_shape(session, 0, i, tensors[i].sizes.data(),
                                          tensors[i].strides.data(), &of.error),
                of.error);
        tensors[i].sizes.resize(rank);
        of.place(&tensors[i], static_cast<husk_dtype>(info.dtype));
        value.as.tensor = &tensors[i].tensor;
      }
      outputs.push_back(value);
    }
  }
  ~Way() { husk_session_release(session); }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;
  husk_status run(CUstream stream) {
    return husk_session_run(session, 0, stream, inputs.data(), static_cast<uint32_t>(inputs.size()),
                            outputs.data(), static_cast<uint32_t>(outputs.size()), &owner.error);
  }
  std::vector<char> result(CUstream stream) {
    std::vector<char> all;
    for (DeviceTensor& tensor : tensors) {
      const size_t at = all.size();
      all.resize(at + tensor.bytes);
      require(husk_engine_download(owner.engine, stream, all.data() + at, tensor.tensor.data,
                                   tensor.bytes, &owner.error),
              owner.error);
    }
    return all;
  }
  std::string name;
  std::vector<husk_value> inputs, outputs;
  std::vector<DeviceTensor> tensors;
  husk_session* session = nullptr;
  Program& owner;
};

template <class Run>
void print_time(const Driver& driver, const char* name, int runs, const Run& run) {
  std::vector<double> waited, returned;
  for (int i = 0; i < runs + 20; ++i) {
    const double begin = now();
    run();
    const double enqueued = now();
    require(driver.cuStreamSynchronize_(driver.stream), "synchronize");
    if (i < 20) continue;
    waited.push_back(now() - begin);
    returned.push_back(enqueued - begin);
  }
  std::printf("%-10s median %8.1f us, of which the call takes %7.1f us\n", name, median(waited),
              median(returned));
}

int compare(const char* name, const std::vector<char>& result, const std::vector<char>& list) {
  size_t different = 0;
  for (size_t i = 0; i < list.size(); ++i) different += result[i] != list[i];
  if (different)
    std::printf("%s: %zu of %zu bytes differ from the list\n", name, different, list.size());
  return different != 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) give_up("usage: husk_gpu_capture FILE RUNS SHAPE...");
  const int runs = std::atoi(argv[2]);
  const Driver driver;
  Program program(argv[1]);
  husk_error& error = program.error;
  const uint32_t count = husk_program_input_count(program.program, 0);
  std::vector<DeviceTensor> tensors(count);
  std::vector<husk_value> inputs(count);
  for (uint32_t i = 0, shape = 3; i < count; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    require(husk_program_input(program.program, 0, i, &info, &error), error);
    inputs[i].kind = info.kind;
    if (info.kind != HUSK_VALUE_TENSOR) continue;
    if (static_cast<int>(shape) >= argc) give_up("a shape for each tensor is needed");
    tensors[i].sizes = read_shape(argv[shape++]);
    const auto dtype = static_cast<husk_dtype>(info.dtype);
    program.place(&tensors[i], dtype);
    const std::vector<char> bytes = make_elements(dtype, tensors[i].bytes / husk_dtype_size(dtype));
    require(husk_engine_upload(program.engine, driver.stream, tensors[i].tensor.data, bytes.data(),
                               bytes.size(), &error),
            error);
    inputs[i].as.tensor = &tensors[i].tensor;
  }

  Way list(program, "list", HUSK_MODE_LIST, inputs),
      graph(program, "graph", HUSK_MODE_AUTO, inputs),
      inside(program, "captured", HUSK_MODE_LIST, inputs);
  print_time(driver, "list", runs, [&] { require(list.run(driver.stream), error); });
  print_time(driver, "graph", runs, [&] { require(graph.run(driver.stream), error); });
  const std::vector<char> expected = list.result(driver.stream);
  int wrong = compare("graph", graph.result(driver.stream), expected);
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  require(husk_session_stats_get(graph.session, 0, &stats, &error), error);
  std::printf("%u steps in %u segments, %u nodes, %llu runs as graph, %llu as list\n", stats.steps,
              stats.segments, stats.graph_nodes,
              static_cast<unsigned long long>(stats.runs_as_graph),
              static_cast<unsigned long long>(stats.runs_as_list));
  wrong += stats.runs_as_list != 0;

  CUgraph captured = nullptr;
  CUgraphExec exec = nullptr;
  require(driver.cuStreamBeginCapture_v2_(driver.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture");
  const husk_status status = inside.run(driver.stream);
  require(driver.cuStreamEndCapture_(driver.stream, &captured), "end of the capture");
  if (stats.segments > 1) {
    std::printf("captured: %s\n", error.text);
    wrong += status != HUSK_UNSUPPORTED;
  } else {
    require(status, error);
    require(driver.cuGraphInstantiateWithFlags_(&exec, captured, 0), "instantiate");
    print_time(driver, "captured", runs,
               [&] { require(driver.cuGraphLaunch_(exec, driver.stream), "launch"); });
    wrong += compare("captured", inside.result(driver.stream), expected);
    require(driver.cuGraphExecDestroy_(exec), "destroy");
  }
  require(driver.cuGraphDestroy_(captured), "destroy");
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}
