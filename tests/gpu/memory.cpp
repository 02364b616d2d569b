// The cost of a program for the host: resident memory over the bare context, for a small program
// and for one with 2 GiB of weights, and the time to open a program of six kernels in six images
// after the context was made.
//   husk_gpu_memory make IMAGE DIR [MIB]    writes DIR/{six,large}.husk over the kernels of
//   tests/port, a cubin husk_gpu_memory measure FILE [OPENS]    each in a process of its own
//   husk_gpu_memory share FILE              opens the large program twice: the cost of the second,
//   and that an update affects one program only
#include <dlfcn.h>

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

constexpr int kKernels = 6, kWeights = 32, kNumbers = 1000;

// y = (((x + k) + k) ...) by six kernels. The large program has `weights` constants of `bytes` each
// and reads one of them.
std::string text(const std::string& image, int weights, uint64_t bytes) {
  std::string hir = "hir 1\nproducer \"tests\"\ntarget gpu cuda \"sm_90\"\n";
  for (int i = 0; i < kKernels; ++i) {
    const std::string n = std::to_string(i);
    hir += "image image" + n + " gpu cubin \"" + image + "\"\nkernel add" + n + " image" + n +
           " \"add_scalar\" (ptr, ptr, i32, i32) block 128 1 1\n";
  }
  for (int i = 0; i < weights; ++i) {
    const std::string n = std::to_string(i);
    hir += "constant weight" + n + " i32 [" + std::to_string(bytes / 4) +
           "] file \"weights.safetensors\" tensor \"" + n + "\"\n";
  }
  hir += R"(function add {
  input x tensor i32 [1..100000]
  input k int -1000..1000
  output y tensor i32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64
    buffer b bytes mul(n, 4) align 64
)";
  for (int i = 0; i < kKernels; ++i) {
    const char* const from = i > 0 ? (i % 2 ? "a" : "b") : weights ? "weight7" : "x";
    hir += "    launch add" + std::to_string(i) + " grid (cdiv(n, 128), 1, 1) (write " +
           (i == kKernels - 1 ? "y"
            : i % 2           ? "b"
                              : "a") +
           ", read " + from + ", k, n)\n";
  }
  return hir + "    return (tensor y i32 [n] [1])\n  }\n}\n";
}

// Element i of weight w is w * 1000 + i.
void write_weights(const std::filesystem::path& path, uint64_t bytes) {
  std::string head = "{";
  for (int w = 0; w < kWeights; ++w) {
    const uint64_t begin = static_cast<uint64_t>(w) * bytes;
    head += std::string(w ? "," : "") + "\"" + std::to_string(w) +
            "\":{\"dtype\":\"I32\",\"shape\":[" + std::to_string(bytes / 4) +
            "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + bytes) +
            "]}";
  }
  head += "}";
  head.resize((head.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = head.size();
  file.write(reinterpret_cast<const char*>(&size), 8)
      .write(head.data(), static_cast<std::streamsize>(size));
  std::vector<int32_t> numbers(bytes / 4);
  for (int w = 0; w < kWeights; ++w) {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = w * 1000 + static_cast<int32_t>(i);
    file.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(bytes));
  }
  if (!file) give_up("cannot write " + path.string());
}

int make(const std::filesystem::path& image, const std::filesystem::path& folder,
         uint64_t megabytes) {
  std::filesystem::create_directories(folder);
  const uint64_t bytes = (megabytes << 20) / kWeights;
  std::filesystem::copy_file(image, folder / "image",
                             std::filesystem::copy_options::overwrite_existing);
  write_weights(folder / "weights.safetensors", bytes);
  for (const bool large : {false, true}) {
    const char* const name = large ? "large" : "six";
    std::ofstream(folder / (std::string(name) + ".hir"))
        << text("image", large ? kWeights : 0, bytes);
    const auto summary_or_error = husk::compiler::compile_file(
        folder / (std::string(name) + ".hir"), folder / (std::string(name) + ".husk"));
    if (auto* error = std::get_if<husk::compiler::Error>(&summary_or_error))
      give_up(husk::compiler::describe(*error, name));
  }
  std::filesystem::remove(folder / "weights.safetensors");
  return 0;
}

// MB of this process that are resident: all, anonymous ones, and those of files.
struct Resident {
  double all = 0, anonymous = 0, files = 0;
  Resident() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      double kib = 0;
      if (std::sscanf(line.c_str(), "VmRSS: %lf", &kib) == 1) all = kib * 1024 / 1e6;
      if (std::sscanf(line.c_str(), "RssAnon: %lf", &kib) == 1) anonymous = kib * 1024 / 1e6;
      if (std::sscanf(line.c_str(), "RssFile: %lf", &kib) == 1) files = kib * 1024 / 1e6;
    }
  }
};

void print(const char* what, const Resident& now, const Resident& base) {
  std::printf(
      "  %-34s VmRSS %8.2f MB, RssAnon %8.2f, RssFile %8.2f;  over the context %+7.2f, %+7.2f, "
      "%+7.2f\n",
      what, now.all, now.anonymous, now.files, now.all - base.all, now.anonymous - base.anonymous,
      now.files - base.files);
}

constexpr int kBase = 7000;  // weight 7 adds this to i

// One session and a few runs; element i must be `step` * i + `base`, plus the sums of the kernels.
void use(Place& place, husk_program* program, int base, int step = 1) {
  husk_error error;
  husk_session* session = nullptr;
  require(husk_session_create(program, nullptr, &session, &error), error);
  void *stream = place.stream(), *x = place.alloc(4 * kNumbers), *y = place.alloc(4 * kNumbers);
  std::vector<int32_t> numbers(kNumbers);
  for (int i = 0; i < kNumbers; ++i) numbers[static_cast<size_t>(i)] = i;
  place.upload(stream, x, numbers.data(), 4 * kNumbers);
  int64_t shape = kNumbers;
  DLTensor in = {}, out = {};
  in.data = x;
  out.data = y;
  for (DLTensor* each : {&in, &out}) {
    each->device = {kDLCUDA, 0};
    each->ndim = 1;
    each->shape = &shape;
    each->dtype = husk_dtype_to_dlpack(HUSK_I32);
  }
  husk_value inputs[] = {{HUSK_VALUE_TENSOR, 0, {}}, integer(3)},
             output = {HUSK_VALUE_TENSOR, 0, {}};
  inputs[0].as.tensor = &in;
  output.as.tensor = &out;
  require(husk_session_resize(session, 0, inputs, 2, &error), error);
  for (int i = 0; i < 5; ++i)
    require(husk_session_run(session, 0, stream, inputs, 2, &output, 1, &error), error);
  place.download(stream, numbers.data(), y, 4 * kNumbers);
  for (int i = 0; i < kNumbers; ++i)
    if (numbers[static_cast<size_t>(i)] != step * i + 3 * kKernels + base)
      give_up("the results are wrong");
  husk_session_release(session);
}

int measure(const char* path, int opens) {
  const double bytes = static_cast<double>(std::filesystem::file_size(path));
  std::printf("%s, %.1f MB\n", path, bytes / 1e6);
  const Resident start;
  Place place(0);
  const Resident context;
  print("before the context", start, context);
  print("the bare context", context, context);
  double begin = now();
  husk_program* program = place.open(path);
  const double first = now() - begin;
  print("a program is open", Resident(), context);
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  husk_error error;
  const bool large = husk_program_constant(program, 0, &info, &error) == HUSK_OK;
  use(place, program, large ? kBase : 0);
  print("a session has run", Resident(), context);
  husk_program_release(program);
  print("all is released", Resident(), context);
  std::vector<double> took, released;
  for (int i = 0; i < opens; ++i) {
    begin = now();
    program = place.open(path);
    took.push_back(now() - begin);
    begin = now();
    husk_program_release(program);
    released.push_back(now() - begin);
  }
  std::printf("  opened: first %.3f ms, median of %d %.3f ms, released in %.3f ms", first / 1e3,
              opens, median(took) / 1e3, median(released) / 1e3);
  if (large)
    std::printf("; %.1f GB/s first, %.1f then", bytes / first / 1e3, bytes / median(took) / 1e3);
  std::printf("\n");
  return 0;
}

// Free bytes of device 0; 0 on the fake driver, which does not offer its functions by name.
double free_bytes() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  auto* retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
      dlsym(library, "cuDevicePrimaryCtxRetain"));
  auto* release = reinterpret_cast<decltype(&cuDevicePrimaryCtxRelease)>(
      dlsym(library, "cuDevicePrimaryCtxRelease_v2"));
  auto* current = reinterpret_cast<decltype(&cuCtxSetCurrent)>(dlsym(library, "cuCtxSetCurrent"));
  auto* info = reinterpret_cast<decltype(&cuMemGetInfo)>(dlsym(library, "cuMemGetInfo_v2"));
  if (!retain || !release || !current || !info) return 0;
  CUcontext context;
  size_t left = 0, all = 0;
  require(retain(&context, 0), "cuDevicePrimaryCtxRetain");  // the program that is open
  require(current(context), "cuCtxSetCurrent");
  require(info(&left, &all), "cuMemGetInfo");
  require(current(nullptr), "cuCtxSetCurrent");
  require(release(0), "cuDevicePrimaryCtxRelease");
  return static_cast<double>(left);
}

// Two programs with the same weights: the weights are on the device once, an update affects one
// program only, and each program keeps the weights after the other is released.
int share(const char* path) {
  Place place(0);
  husk_program* programs[2];
  for (husk_program*& program : programs) {
    const double before = free_bytes(), begin = now();
    program = place.open(path);
    const double took = now() - begin;
    std::printf("  program %d: opened in %.3f ms, %.1f MB of device memory less\n",
                static_cast<int>(&program - programs), took / 1e3, (before - free_bytes()) / 1e6);
    use(place, program, kBase);
  }
  husk_error error;
  husk_constant_update update = {0, 0, nullptr};
  require(husk_program_find_constant(programs[0], "weight7", &update.constant, &error), error);
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  require(husk_program_constant(programs[0], update.constant, &info, &error), error);
  const std::vector<int32_t> fives(info.bytes / 4, 5);
  update.bytes = fives.data();
  require(husk_program_update_constants(programs[0], &update, 1, &error), error);
  use(place, programs[0], 5, 0);
  use(place, programs[1], kBase);
  husk_program_release(programs[0]);
  use(place, programs[1], kBase);
  const double before = free_bytes();
  husk_program_release(programs[1]);
  std::printf("  the last one gone: %.1f MB more; all results are right\n",
              (free_bytes() - before) / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "make" && argc > 3)
    return make(argv[2], argv[3], argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 2048);
  if (what == "share" && argc > 2) return share(argv[2]);
  if (what == "measure" && argc > 2) return measure(argv[2], argc > 3 ? std::atoi(argv[3]) : 50);
  give_up("usage: husk_gpu_memory make IMAGE DIR [MIB] | measure FILE [OPENS] | share FILE");
}
