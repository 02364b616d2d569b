// An index out of range is a status, and the session stays usable: the functions of asserts.py, as
// a list and as a graph.
//   husk_gpu_asserts asserts_status.husk [host]
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>

namespace {

constexpr int64_t kRows = 50, kColumns = 16;
int failures = 0;

void expect(bool good, const std::string& what, const char* text) {
  if (good) return;
  std::printf("FAILED  %s: %s\n", what.c_str(), text);
  ++failures;
}

struct Tensor {
  Tensor(void* data, int32_t device, husk_dtype dtype, std::vector<int64_t> sizes)
      : shape(std::move(sizes)) {
    dl = {data,
          {static_cast<DLDeviceType>(device), 0},
          static_cast<int32_t>(shape.size()),
          husk_dtype_to_dlpack(dtype),
          shape.data(),
          nullptr,
          0};
  }
  Tensor(const Tensor&) = delete;
  husk_value value() {
    husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
    v.as.tensor = &dl;
    return v;
  }
  std::vector<int64_t> shape;
  DLTensor dl;
};

struct Device {
  const husk_port* port;
  bool host;
  void *handle = nullptr, *stream = nullptr, *x = nullptr, *i = nullptr, *y = nullptr;
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error = {};

  bool open(const char* file) {
    static const husk_allocator allocator = {nullptr,
                                             [](void*, size_t size, size_t align) {
                                               return std::aligned_alloc(
                                                   align, (size + align - 1) / align * align);
                                             },
                                             [](void*, void* memory) { std::free(memory); }};
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = port;
    options.allow_host_images = 1;
    options.require_op_contracts = 1;
    if (port->open(port->user, 0, &allocator, nullptr, &handle, &error) ||
        port->stream_create(handle, &stream, &error))
      return false;
    for (void** memory : {&x, &i, &y})
      if (port->alloc(handle, 1 << 20, memory, &error)) return false;
    return husk_engine_create(&options, &engine, &error) == HUSK_OK &&
           husk_program_open(engine, file, &program, &error) == HUSK_OK;
  }
  ~Device() {
    husk_program_release(program);
    husk_engine_release(engine);
    for (void* memory : {x, i, y}) port->free(handle, memory);
    port->stream_destroy(handle, stream);
    port->close(handle);
  }
};

float at(int64_t row, int64_t column) { return static_cast<float>(row * 100 + column); }

// The expected results of a function for indices that are in range.
std::vector<float> expected(const std::string& name, const std::vector<int64_t>& indices) {
  std::vector<float> out;
  if (name.rfind("put", 0) == 0) {
    for (int64_t n = 0; n < kRows * kColumns; ++n) out.push_back(at(n / kColumns, n % kColumns));
    for (int64_t index : indices)
      for (int64_t c = 0; c < kColumns; ++c)
        out[static_cast<size_t>((index < 0 ? index + kRows : index) * kColumns + c)] = -1;
    return out;
  }
  for (int64_t index : indices) {
    const int64_t row = index < 0 ? index + kRows : index;
    float sum = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      sum += at(row, c);
      if (name.rfind("sum", 0) != 0) out.push_back(at(row, c));
    }
    if (name.rfind("sum", 0) == 0)
      out.push_back((index < 1000 ? sum : 0) + static_cast<float>(index));
  }
  return out;
}

class Runner {
 public:
  Runner(Device& device, uint32_t function, husk_session* session)
      : d_(device),
        function_(function),
        session_(session),
        name_(husk_program_function_name(device.program, function)) {}

  // The status of the run; if the run succeeds and `waits` is true, the status of the wait after
  // it.
  husk_status run(const std::vector<int64_t>& indices, bool waits) {
    const auto n = static_cast<int64_t>(indices.size());
    const bool put = name_.rfind("put", 0) == 0, sum = name_.rfind("sum", 0) == 0;
    if (husk_status status = d_.port->upload(d_.handle, d_.stream, d_.i, indices.data(),
                                             indices.size() * 8, &d_.error))
      return status;
    husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
    d_.port->properties(d_.handle, &properties);
    const int32_t kind = properties.dl_device_type;
    Tensor x(d_.x, kind, HUSK_F32, {kRows, kColumns}), i(d_.i, kind, HUSK_I64, {n});
    Tensor y(d_.y, kind, HUSK_F32,
             sum ? std::vector<int64_t>{n} : std::vector<int64_t>{put ? kRows : n, kColumns});
    husk_value inputs[] = {x.value(), i.value()}, output = y.value();
    if (husk_status status = husk_session_resize(session_, function_, inputs, 2, &d_.error))
      return status;
    const husk_status status = husk_session_run(session_, function_, d_.stream, inputs, 2, &output,
                                                1, &d_.error);
    return status == HUSK_OK && waits ? husk_session_wait(session_, &d_.error) : status;
  }

  void is_right(const std::vector<int64_t>& indices) {
    const husk_status status = run(indices, true);
    expect(status == HUSK_OK, name_ + ", in range", d_.error.text);
    if (status != HUSK_OK) return;
    const std::vector<float> wanted = expected(name_, indices);
    std::vector<float> got(wanted.size());
    expect(d_.port->download(d_.handle, d_.stream, got.data(), d_.y, got.size() * 4, &d_.error) ==
               HUSK_OK,
           name_, d_.error.text);
    for (size_t n = 0; n < got.size(); ++n) {
      if (std::fabs(got[n] - wanted[n]) <= 1e-5f * std::fabs(wanted[n])) continue;
      expect(false, name_,
             ("value " + std::to_string(n) + " is " + std::to_string(got[n])).c_str());
      return;
    }
  }

  void is_told(const char* when, husk_status status) {
    const bool told = status == HUSK_KERNEL && std::strstr(d_.error.text, "index out of bounds");
    expect(told, name_ + ", " + when, status ? d_.error.text : "no failure");
    if (told && first_text_.empty()) first_text_ = d_.error.text;
  }

  void play() {
    const bool may_be_negative = name_.rfind("index", 0) == 0 || name_.rfind("put", 0) == 0;
    std::vector<int64_t> good;
    for (int64_t n = 0; n < 300; ++n) good.push_back(n * 7 % kRows);
    if (may_be_negative) good[5] = -kRows;
    if (name_.rfind("sum", 0) == 0) good[5] = 1000000;  // no index that is looked up
    is_right(good);
    for (int64_t wrong : {kRows, int64_t{999}, -kRows - 1, -(int64_t{1} << 40)}) {
      std::vector<int64_t> bad = good;
      bad[bad.size() / 2] = wrong;
      is_told("at the wait", run(bad, true));
      is_right(good);
      if (d_.host) continue;
      expect(run(bad, false) == HUSK_OK, name_ + ", enqueued", d_.error.text);
      expect(d_.port->stream_wait(d_.handle, d_.stream, &d_.error) == HUSK_OK,
             name_ + ", the stream", d_.error.text);
      is_told("at the next run", run(good, false));
      is_right(good);
    }
    std::vector<int64_t> all(4096, INT64_MAX);
    if (name_.rfind("sum", 0) != 0) is_told("all of them", run(all, true));
    is_right(good);
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    husk_session_stats_get(session_, function_, &stats, &d_.error);
    std::printf("%-12s %3llu runs as a list, %3llu as a graph: \"%s\"\n", name_.c_str(),
                static_cast<unsigned long long>(stats.runs_as_list),
                static_cast<unsigned long long>(stats.runs_as_graph), first_text_.c_str());
  }

 private:
  Device& d_;
  uint32_t function_;
  husk_session* session_;
  std::string name_, first_text_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool host = argc > 2 && std::strcmp(argv[2], "host") == 0;
  if (argc < 2) return std::printf("usage: husk_gpu_asserts asserts_status.husk [host]\n"), 2;
  Device device = {host ? husk_port_host() : husk_port_cuda(), host};
  if (!device.open(argv[1])) return std::printf("%s\n", device.error.text), 2;
  std::vector<float> x;
  for (int64_t n = 0; n < kRows * kColumns; ++n) x.push_back(at(n / kColumns, n % kColumns));
  if (device.port->upload(device.handle, device.stream, device.x, x.data(), x.size() * 4,
                          &device.error))
    return 2;
  for (int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    if (host && mode == HUSK_MODE_GRAPH) continue;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    husk_session* session = nullptr;
    if (husk_session_create(device.program, &options, &session, &device.error))
      return std::printf("%s\n", device.error.text), 2;
    for (uint32_t f = 0; f < husk_program_function_count(device.program); ++f)
      Runner(device, f, session).play();
    husk_session_release(session);
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
