// Wrong programs, wrong inputs and device faults on a real device. Each must give an error with the
// expected words, and the program that was open before must work afterwards. The exception is a
// kernel that fails: nothing works on the device until the process ends, and all handles can be
// released. Prints every error.
//   husk_gpu_faults IMAGE      IMAGE: the kernels of tests/port as a cubin for this device, or for
//   the fake driver
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compile.h"
#include "gpu.h"

using namespace husk::gpu;
using husk::test::integer;

namespace {

int wrong = 0;

// Fails unless the error's text contains all `words`.
void expect(const char* what, husk_status status, husk_status wanted, const husk_error& error,
            const std::vector<const char*>& words) {
  bool right = status == wanted;
  for (const char* word : words) right = right && std::strstr(error.text, word);
  wrong += !right;
  std::printf("%s%s: %s: %s\n", right ? "" : "WRONG  ", what, husk_status_name(status), error.text);
}

void expect(const char* what, bool right) {
  wrong += !right;
  if (!right) std::printf("WRONG  %s\n", what);
}

// A program with the functions `add` (y = x + k), `large` (the same through a buffer of n GiB) and
// `fail` (its kernel fails unless k is 0).
std::string text(const std::string& image, const char* arch = "sm_90",
                 const char* symbol = "add_scalar", const char* parameters = "ptr, ptr, i32, i32",
                 const char* arguments = "write y, read x, k, n") {
  return std::string("hir 1\nproducer \"tests\"\ntarget gpu cuda \"") + arch +
         "\"\nimage kernels gpu cubin \"" + image + "\"\nkernel add kernels \"" + symbol + "\" (" +
         parameters + R"() block 128 1 1
kernel sum kernels "add_scalar" (ptr, ptr, i32, i32) block 128 1 1
kernel failing kernels "trap_if" (ptr, i32) block 1 1 1
function add {
  input x tensor i32 [1..100000]
  input k int -1000..1000
  output y tensor i32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    launch add grid (cdiv(n, 128), 1, 1) ()" +
         arguments + R"() at "model.py:3"
    return (tensor y i32 [n] [1])
  }
}
function large {
  input x tensor i32 [1..100000]
  input gigabytes int 1..1000
  output y tensor i32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer between bytes mul(gigabytes, 1073741824)
    launch sum grid (cdiv(n, 128), 1, 1) (write between, read x, 1, n)
    launch sum grid (cdiv(n, 128), 1, 1) (write y, read between, 1, n)
    return (tensor y i32 [n] [1])
  }
}
function fail {
  input x tensor i32 [1..100000]
  input k int -1000..1000
  output y tensor i32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    launch sum grid (cdiv(n, 128), 1, 1) (write y, read x, 1, n) at "model.py:8"
    launch failing grid (1, 1, 1) (write y, k) at "model.py:9"
    return (tensor y i32 [n] [1])
  }
}
)";
}

// An artifact in aligned memory, compiled from text with images in a folder.
struct Artifact {
  Artifact(const std::string& hir, const std::filesystem::path& folder) {
    auto artifact_or_error = husk::compiler::compile_text(hir, folder);
    if (auto* error = std::get_if<husk::compiler::Error>(&artifact_or_error))
      give_up(husk::compiler::describe(*error, "text"));
    const std::vector<uint8_t>& file = std::get<0>(artifact_or_error);
    size = file.size();
    bytes = static_cast<char*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
    std::memcpy(bytes, file.data(), size);
  }
  Artifact(const Artifact&) = delete;
  ~Artifact() { std::free(bytes); }
  char* bytes;
  size_t size;
};

husk_status load(const Place& place, const Artifact& file, husk_error* error) {
  husk_program* program = nullptr;
  const husk_status status = husk_program_load(place.engine, file.bytes, file.size, nullptr,
                                               nullptr, &program, error);
  husk_program_release(program);
  return status;
}

// The program that stays open during all faults.
struct Good {
  Good(Place& p, const Artifact& file, int mode) : place(p), stream(p.stream()) {
    husk_error error;
    require(husk_program_load(p.engine, file.bytes, file.size, nullptr, nullptr, &program, &error),
            error);
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    require(husk_session_create(program, &options, &session, &error), error);
    for (int i = 0; i < n; ++i) numbers.push_back(i * 7);
    x = p.alloc(sizeof(int32_t) * n);
    y = p.alloc(sizeof(int32_t) * n);
    p.upload(stream, x, numbers.data(), sizeof(int32_t) * n);
  }
  ~Good() {
    husk_session_release(session);
    husk_program_release(program);
  }
  husk_status run(const char* name, void* from, DLDevice device, int64_t number,
                  husk_error* error) {
    DLTensor in = {}, out = {};
    int64_t shape = n;
    in.data = from;
    in.device = device;
    out.data = y;
    out.device = {kDLCUDA, place.index};
    for (DLTensor* each : {&in, &out}) {
      each->ndim = 1;
      each->shape = &shape;
      each->dtype = husk_dtype_to_dlpack(HUSK_I32);
    }
    husk_value inputs[] = {{HUSK_VALUE_TENSOR, 0, {}}, integer(number)},
               output = {HUSK_VALUE_TENSOR, 0, {}};
    inputs[0].as.tensor = &in;
    output.as.tensor = &out;
    uint32_t function = 0;
    require(husk_program_find_function(program, name, &function, error), *error);
    const husk_status status = husk_session_resize(session, function, inputs, 2, error);
    return status != HUSK_OK
               ? status
               : husk_session_run(session, function, stream, inputs, 2, &output, 1, error);
  }
  husk_status run(const char* name, int64_t number, husk_error* error) {
    return run(name, x, {kDLCUDA, place.index}, number, error);
  }
  // Computes y = x + 5 by `add`, and x + 2 through a buffer of a GiB.
  bool works() {
    std::vector<int32_t> got(n);
    for (const bool large : {false, true}) {
      husk_error error;
      require(run(large ? "large" : "add", large ? 1 : 5, &error), error);
      place.download(stream, got.data(), y, sizeof(int32_t) * n);
      for (int i = 0; i < n; ++i)
        if (got[static_cast<size_t>(i)] != numbers[static_cast<size_t>(i)] + (large ? 2 : 5))
          return false;
    }
    return true;
  }
  static constexpr int n = 1000;
  Place& place;
  void *stream, *x, *y;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  std::vector<int32_t> numbers;
};

// Faults of the file.
void files(Good& good, const std::filesystem::path& image) {
  const Place& place = good.place;
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("husk_faults_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::vector<char> right = read_file(image);
  auto write = [&](const char* name, const std::vector<char>& bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  husk_error error = {};
  write("right", right);
  for (const char* arch : {"sm_80", "sm_100a"}) {  // an image may run on later devices of its own
                                                   // generation only
    expect("no variant", load(place, {text("right", arch), folder}, &error), HUSK_UNSUPPORTED,
           error, {"no variant for this device", arch});
    expect("works after it", good.works());
  }
  write("short",
        std::vector<char>(right.begin(), right.begin() + static_cast<long>(right.size() / 2)));
  expect("half a cubin", load(place, {text("short"), folder}, &error), HUSK_INVALID_FILE, error,
         {"cubin 'kernels'", "export it again"});
  std::vector<char> garbled = right;
  for (size_t i = 64; i < garbled.size(); ++i)
    garbled[i] = static_cast<char>(i * 2654435761u >> 13);
  write("garbled", garbled);
  const husk_status status = load(place, {text("garbled"), folder}, &error);
  expect("a garbled cubin", status == HUSK_OK ? HUSK_OK : HUSK_INVALID_FILE, HUSK_INVALID_FILE,
         error, {"cubin 'kernels'"});
  {
    Artifact flipped(text("right"), folder);
    const char* found = static_cast<char*>(
        memmem(flipped.bytes, flipped.size, right.data(), right.size()));
    if (!found) give_up("the artifact does not hold its image");
    flipped.bytes[found - flipped.bytes + static_cast<long>(right.size() / 2)] ^= 1;
    expect("a bit of the image flipped", load(place, flipped, &error), HUSK_INVALID_FILE, error,
           {"image", "hash"});
  }
  expect("works after them", good.works());
  expect("no such kernel", load(place, {text("right", "sm_90", "add_scalars"), folder}, &error),
         HUSK_NOT_FOUND, error, {"'add_scalars'", "'kernels'"});
  expect("one argument too few",
         load(place,
              {text("right", "sm_90", "add_scalar", "ptr, ptr, i32", "write y, read x, k"), folder},
              &error),
         HUSK_INVALID_FILE, error, {"add"});
  expect("one too many",
         load(place,
              {text("right", "sm_90", "add_scalar", "ptr, ptr, i32, i32, i32",
                    "write y, read x, k, n, n"),
               folder},
              &error),
         HUSK_INVALID_FILE, error, {"add"});
  expect("an argument of another size",
         load(place, {text("right", "sm_90", "add_scalar", "ptr, ptr, i64, i32"), folder}, &error),
         HUSK_INVALID_FILE, error, {"add", "2"});
  expect("works after that", good.works());
  std::filesystem::remove_all(folder);
}

// Faults of the inputs, and requests for too much memory.
void inputs(Good& good) {
  husk_error error = {};
  expect("a host tensor", good.run("add", good.numbers.data(), {kDLCPU, 0}, 5, &error),
         HUSK_INVALID_INPUT, error, {"'x'", "device", "copy"});
  expect("works after it", good.works());
  expect("a tensor of a device that is not there", good.run("add", good.x, {kDLCUDA, 9}, 5, &error),
         HUSK_INVALID_INPUT, error, {"'x'"});
  expect("works after it", good.works());
  expect("900 GiB between", good.run("large", 900, &error), HUSK_OUT_OF_MEMORY, error,
         {"966367641600"});
  expect("works after it", good.works());
  void* memory = nullptr;
  expect("200 GB by the port",
         good.place.port.alloc(good.place.device, 200'000'000'000ull, &memory, &error),
         HUSK_OUT_OF_MEMORY, error, {"200000000000"});
  expect("works after it", good.works());
}

// In a process of its own: a kernel fails, and nothing works afterwards.
int lose(const std::filesystem::path& image, const std::string& how) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.check_each = how == "checked";
  Artifact file(text(image.filename().string()), image.parent_path());
  Place place(0, &options);
  Good good(place, file, how == "graph" ? HUSK_MODE_GRAPH : HUSK_MODE_LIST);
  husk_error error = {};
  require(good.run("fail", 0, &error), error);
  require(husk_session_wait(good.session, &error), error);
  expect("works before", good.works());
  husk_status status = good.run("fail", 719, &error);
  if (options.check_each) {
    expect("a kernel that fails, each checked", status, HUSK_DEVICE, error,
           {"in kernel 'trap_if'; last known to have finished: kernel 'add_scalar'", "CUDA_ERROR_",
            "restart"});
  } else {
    expect("the run of a kernel that fails is enqueued", status == HUSK_OK);
    status = husk_session_wait(good.session, &error);
    expect("the wait for it", status, HUSK_DEVICE, error,
           {"nothing since its last wait is known to have finished", "CUDA_ERROR_", "restart"});
  }
  expect("its number", error.driver_code >= 700 && error.driver_code < 720);
  expect("the next run", good.run("add", 5, &error), HUSK_DEVICE, error, {"CUDA_ERROR_"});
  husk_program* program = nullptr;
  status = husk_program_load(place.engine, file.bytes, file.size, nullptr, nullptr, &program,
                             &error);
  expect("the next program", status, HUSK_DEVICE, error, {"CUDA_ERROR_"});
  return wrong;
}

int lose_elsewhere(const char* image, const char* how) {
  std::printf("-- a device that is lost, %s\n", how);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "husk_gpu_faults", image, how, static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("usage: husk_gpu_faults IMAGE");
  const std::filesystem::path image = std::filesystem::absolute(argv[1]);
  if (argc > 2) return lose(image, argv[2]);
  for (const char* how : {"list", "graph", "checked"}) wrong += lose_elsewhere(argv[1], how);
  {
    Artifact file(text(image.filename().string()), image.parent_path());
    Place place(0);
    for (const int mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
      std::printf("-- a device that stays, %s\n", mode == HUSK_MODE_LIST ? "list" : "graph");
      Good good(place, file, mode);
      expect("works before", good.works());
      if (mode == HUSK_MODE_LIST) files(good, image);
      inputs(good);
    }
  }
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}
