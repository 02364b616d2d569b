// Programs whose kernels are linked as code, compared with the same programs whose kernels are
// loaded.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <husk/detail/linked.h>
#include <husk/husk.h>
#include <husk/port_host.h>

#include "../values.h"
#include "base/align.h"
#include "compile.h"

extern "C" {
extern const unsigned char husk_model[];  // of model.hir
extern const unsigned char husk_again[];  // of model.husk
}

namespace husk::linked_test {
namespace {

using test::integer;

// The number of images that this process has loaded from anonymous files.
size_t loaded_images() {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    found += line.find("memfd:husk-image") != std::string::npos;
  return found;
}

class Linked : public ::testing::Test {
 protected:
  struct Opened {
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
  };
  void TearDown() override {
    for (const Opened& each : opened_) {
      husk_session_release(each.session);
      husk_program_release(each.program);
      husk_engine_release(each.engine);
    }
    for (husk_threads& each : pools_) husk_host_threads_release(&each);
  }
  const husk_threads* pool(uint32_t count) {
    pools_.reserve(4);
    EXPECT_EQ(husk_host_threads_create(count, nullptr, &pools_.emplace_back(), &error), HUSK_OK);
    return &pools_.back();
  }
  husk_engine* engine(const husk_port* port, const husk_threads* threads) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = port;
    options.threads = threads;
    options.allow_host_images = port != husk_port_host_linked();
    EXPECT_EQ(husk_engine_create(&options, &opened_.emplace_back().engine, &error), HUSK_OK);
    return opened_.back().engine;
  }
  // Opens model.husk, which has the same steps.
  void open(const husk_port* port = husk_port_host()) {
    husk_engine* on = engine(port, nullptr);
    ASSERT_EQ(
        husk_program_open(on, HUSK_LINKED_FOLDER "/model.husk", &opened_.back().program, &error),
        HUSK_OK)
        << error.text;
  }
  husk_status link(const void* artifact, const husk_threads* threads = nullptr) {
    husk_engine* on = engine(husk_port_host_linked(), threads);
    return husk_program_link(on, artifact, &opened_.back().program, &error);
  }
  husk_session* session(const husk_session_options* options = nullptr) {
    Opened& last = opened_.back();
    EXPECT_EQ(husk_session_create(last.program, options, &last.session, &error), HUSK_OK)
        << error.text;
    return last.session;
  }
  // Runs a function and returns the elements of its first output.
  template <class T>
  std::vector<T> run(husk_session* on, const char* name, std::vector<husk_value> inputs,
                     uint32_t outputs = 1) {
    uint32_t function = 0;
    EXPECT_EQ(husk_program_find_function(opened_.back().program, name, &function, &error), HUSK_OK);
    std::vector<husk_value> out(outputs, husk_value{HUSK_VALUE_NONE, 0, {}});
    status = husk_session_run(on, function, nullptr, inputs.data(),
                              static_cast<uint32_t>(inputs.size()), out.data(), outputs, &error);
    if (status != HUSK_OK) return {};
    const DLTensor* tensor = out[outputs - 1].as.tensor;
    const T* data = static_cast<const T*>(tensor->data);
    return {data, data + tensor->shape[0]};
  }

  husk_status status = HUSK_OK;
  husk_error error{};
  std::vector<Opened> opened_;
  std::vector<husk_threads> pools_;
};

husk_value floats(DLTensor& tensor, std::vector<float>& data, int64_t& size) {
  size = static_cast<int64_t>(data.size());
  tensor = {data.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0};
  husk_value out = {HUSK_VALUE_TENSOR, 0, {}};
  out.as.tensor = &tensor;
  return out;
}

TEST_F(Linked, RunsWithoutLoadingAnImage) {
  for (const unsigned char* artifact : {husk_model, husk_again}) {
    ASSERT_EQ(link(artifact), HUSK_OK) << error.text;
    EXPECT_EQ(run<float>(session(), "add", {}), (std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f}));
  }
  EXPECT_EQ(loaded_images(), 0u);
}

TEST_F(Linked, ComputesWhatALoadedImageComputes) {
  const husk_threads* threads = pool(3);
  std::vector<float> x(100000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 77) * 0.37f;
  DLTensor tensor;
  int64_t size;
  const husk_value in = floats(tensor, x, size);
  ASSERT_EQ(link(husk_model, threads), HUSK_OK) << error.text;
  const auto linked = run<int64_t>(session(), "sum", {in}, 2);
  float linked_total = 0, loaded_total = 0;
  ASSERT_EQ(husk_session_state_get(opened_.back().session, 0, &linked_total, &error), HUSK_OK);
  engine(husk_port_host(), threads);
  ASSERT_EQ(husk_program_open(opened_.back().engine, HUSK_LINKED_FOLDER "/model.husk",
                              &opened_.back().program, &error),
            HUSK_OK)
      << error.text;
  EXPECT_GT(loaded_images(), 0u);
  const auto loaded = run<int64_t>(session(), "sum", {in}, 2);
  ASSERT_EQ(husk_session_state_get(opened_.back().session, 0, &loaded_total, &error), HUSK_OK);
  EXPECT_EQ(linked, loaded);
  EXPECT_EQ(linked, (std::vector<int64_t>{0 + 1 + 4}));  // three threads have taken part
  EXPECT_EQ(std::memcmp(&linked_total, &loaded_total, sizeof(float)), 0);
  EXPECT_GT(linked_total, 0);
}

TEST_F(Linked, ChecksOfKernelsHaveTheirTexts) {
  ASSERT_EQ(link(husk_model), HUSK_OK) << error.text;
  husk_session* on = session();
  run<float>(on, "fail", {integer(2)});
  EXPECT_EQ(status, HUSK_KERNEL);
  EXPECT_NE(std::strstr(error.text, "index out of range"), nullptr) << error.text;
  run<float>(on, "fail", {integer(0)});
  EXPECT_EQ(status, HUSK_OK) << error.text;
}

// The process has the kernels once, so engines at the same time must agree about their threads.
TEST_F(Linked, EnginesAtATimeHaveTheSameThreads) {
  const husk_threads *two = pool(2), *three = pool(3);
  ASSERT_EQ(link(husk_model, two), HUSK_OK) << error.text;
  ASSERT_EQ(link(husk_model, two), HUSK_OK) << error.text;
  EXPECT_EQ(link(husk_model, three), HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "same husk_threads"), nullptr) << error.text;
  EXPECT_EQ(link(husk_model, nullptr), HUSK_UNSUPPORTED);
  EXPECT_EQ(link(husk_again, three), HUSK_OK) << error.text;  // has its own copy of the code
  std::vector<float> x(9, 1.0f);
  DLTensor tensor;
  int64_t size;
  EXPECT_EQ(run<int64_t>(session(), "sum", {floats(tensor, x, size)}, 2),
            (std::vector<int64_t>{0 + 1 + 4}));
  for (Opened& each : opened_) {
    husk_session_release(each.session);
    husk_program_release(each.program);
    each.session = nullptr;
    each.program = nullptr;
  }
  EXPECT_EQ(link(husk_model, three), HUSK_OK) << error.text;
  EXPECT_EQ(run<int64_t>(session(), "sum", {floats(tensor, x, size)}, 2),
            (std::vector<int64_t>{0 + 1 + 4}));
}

// Counts the calls of a port by which runs launch kernels.
struct Calls {
  int one = 0, list = 0, linked = 0;
  bool operator==(const Calls& other) const {
    return one == other.one && list == other.list && linked == other.linked;
  }
} calls;

husk_port counting_port() {
  husk_port port = *husk_port_host();
  port.launch = [](void* device, void* stream, void* kernel, const husk_launch* launch,
                   husk_error* error) {
    ++calls.one;
    return husk_port_host()->launch(device, stream, kernel, launch, error);
  };
  port.launch_list = [](void* device, void* stream, const husk_listed_launch* launches,
                        uint32_t count, uint32_t* failed, husk_error* error) {
    ++calls.list;
    return husk_port_host()->launch_list(device, stream, launches, count, failed, error);
  };
  port.launch_linked = [](void* device, void* stream, husk_linked_launches code,
                          const husk_listed_launch* launches, uint32_t* failed, husk_error* error) {
    ++calls.linked;
    return husk_port_host()->launch_linked(device, stream, code, launches, failed, error);
  };
  return port;
}

class LinkedLaunches : public Linked {
 protected:
  void SetUp() override {
    port = counting_port();
    calls = {};
  }
  // Links the model with the counting port.
  void link_counted(int32_t (*cancel)(void*) = nullptr) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = &port;
    options.cancel = cancel;
    ASSERT_EQ(husk_engine_create(&options, &opened_.emplace_back().engine, &error), HUSK_OK);
    ASSERT_EQ(husk_program_link(opened_.back().engine, husk_model, &opened_.back().program, &error),
              HUSK_OK)
        << error.text;
  }
  husk_port port{};
};

// A launch whose grid depends on an input is no part of the code, and ends a row. The variant for
// another processor, which comes first in the file, has code for such a place.
TEST_F(LinkedLaunches, ARowIsOneCall) {
  link_counted();
  husk_session* on = session();
  EXPECT_EQ(run<float>(on, "steps", {integer(0), integer(1)}),
            (std::vector<float>{2.5f, 3.5f, 4.5f, 5.5f}));
  EXPECT_EQ(calls, (Calls{0, 1, 2}));
  EXPECT_EQ(run<float>(on, "steps", {integer(0), integer(0)}),
            (std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f}));
  EXPECT_EQ(calls, (Calls{0, 2, 4}));
  EXPECT_EQ(run<float>(on, "row", {integer(0), integer(0), integer(0)}),
            (std::vector<float>{3.5f, 4.5f, 5.5f, 6.5f}));
  EXPECT_EQ(calls, (Calls{0, 2, 5}));
}

TEST_F(LinkedLaunches, ALoopRunsItsRowInEachTurn) {
  link_counted();
  husk_session* on = session();
  EXPECT_EQ(run<float>(on, "loop", {integer(3)}),
            (std::vector<float>{2.375f, 3.375f, 4.375f, 5.375f}));
  EXPECT_EQ(calls, (Calls{0, 0, 1 + 3 + 1}));
  EXPECT_EQ(run<float>(on, "loop", {integer(0)}),
            (std::vector<float>{1.625f, 2.625f, 3.625f, 4.625f}));
  EXPECT_EQ(calls, (Calls{0, 0, 5 + 1 + 1}));
}

// The port takes the same launches as a list if the program is a file.
TEST_F(LinkedLaunches, AFileHasLists) {
  open(&port);
  EXPECT_EQ(run<float>(session(), "row", {integer(0), integer(0), integer(0)})[0], 3.5f);
  EXPECT_EQ(calls, (Calls{0, 1, 0}));
}

// Ports of applications may be older, or have only some of the functions.
TEST_F(LinkedLaunches, APortNeedsNotTakeThem) {
  port.struct_size = offsetof(husk_port, launch_linked);
  link_counted();
  EXPECT_EQ(run<float>(session(), "row", {integer(0), integer(0), integer(0)})[0], 3.5f);
  EXPECT_EQ(calls, (Calls{0, 1, 0}));
  port = counting_port();
  port.launch_linked = nullptr;
  link_counted();
  EXPECT_EQ(run<float>(session(), "row", {integer(0), integer(0), integer(0)})[0], 3.5f);
  EXPECT_EQ(calls, (Calls{0, 2, 0}));
  port = counting_port();
  port.launch_list = nullptr;
  link_counted();
  EXPECT_EQ(run<float>(session(), "row", {integer(0), integer(0), integer(0)})[0], 3.5f);
  EXPECT_EQ(calls, (Calls{5, 2, 0}));
}

// Each step is told, with its name, and the values are the same.
TEST_F(LinkedLaunches, ATraceTakesSteps) {
  link_counted();
  std::vector<std::string> steps;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.trace = [](void* user, const husk_trace_event* event) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(event->step) + " " +
                                                            event->name);
  };
  options.trace_user = &steps;
  EXPECT_EQ(run<float>(session(&options), "row", {integer(0), integer(0), integer(0)})[0], 3.5f);
  EXPECT_EQ(steps, (std::vector<std::string>{"0 add", "1 fail", "2 fail", "3 fail", "4 add"}));
  EXPECT_EQ(calls, (Calls{5, 0, 0}));
}

// A run can be cancelled before each step.
TEST_F(LinkedLaunches, ACancelIsAskedBeforeEachStep) {
  link_counted([](void*) { return static_cast<int32_t>(calls.one == 2); });
  run<float>(session(), "row", {integer(0), integer(0), integer(0)});
  EXPECT_EQ(status, HUSK_CANCELLED);
  EXPECT_EQ(calls, (Calls{2, 0, 0}));
}

// Whichever step of a row fails, the error is that of the file, and so are the values before it.
TEST_F(LinkedLaunches, TheErrorNamesTheStep) {
  int failures = 0;
  for (int numbers = 0; numbers < 3 * 3 * 3; ++numbers) {
    const std::vector<husk_value> inputs = {integer(numbers % 3), integer(numbers / 3 % 3),
                                            integer(numbers / 9)};
    ASSERT_EQ(link(husk_model), HUSK_OK) << error.text;
    const auto linked = run<float>(session(), "row", inputs);
    const husk_status linked_status = status;
    const husk_error linked_error = error;
    open();
    const auto loaded = run<float>(session(), "row", inputs);
    EXPECT_EQ(linked_status, status) << numbers;
    EXPECT_EQ(linked, loaded) << numbers;
    if (status == HUSK_OK) continue;
    ++failures;
    EXPECT_EQ(status, HUSK_KERNEL);
    EXPECT_EQ(linked_error.step, error.step) << numbers;
    EXPECT_STREQ(linked_error.text, error.text);
    const int expected = numbers % 3 ? 1 : numbers / 3 % 3 ? 2 : 3;
    EXPECT_EQ(linked_error.step, expected) << numbers;
  }
  EXPECT_EQ(failures, 26);
  // A run after one that failed is right.
  ASSERT_EQ(link(husk_model), HUSK_OK) << error.text;
  husk_session* on = session();
  run<float>(on, "row", {integer(0), integer(1), integer(0)});
  EXPECT_EQ(status, HUSK_KERNEL);
  EXPECT_EQ(run<float>(on, "row", {integer(0), integer(0), integer(0)})[3], 6.5f);
}

// The core reads no launches in a table of another version, whose images the port refuses.
TEST_F(Linked, ATableOfAnotherVersion) {
  const auto text = compiler::compile_text(
      "hir 1\nproducer \"test\"\ntarget cpu host \"" HUSK_TEST_ARCH
      "\"\nfunction f {\n  output y tensor f32 rank 1\n  variant cpu {\n"
      "    buffer y of output bytes 4\n    fill f32 (write y, 1.0)\n"
      "    return (tensor y f32 [1] [1])\n  }\n}\n",
      "");
  const auto& bytes = std::get<std::vector<uint8_t>>(text);
  detail::LinkedTable table = {detail::kLinkedMagic - 1, 0, nullptr, 0, nullptr, 1};
  struct alignas(4096) {
    uint8_t bytes[8192];
  } object;
  ASSERT_LT(bytes.size(), sizeof(object) - 128);
  std::memcpy(object.bytes, bytes.data(), bytes.size());
  std::memcpy(object.bytes + 24, &detail::kLinkedFeature, sizeof(detail::kLinkedFeature));
  uint8_t* const place = object.bytes + align_up(bytes.size(), detail::kLinkedAlign);
  const int64_t distance = reinterpret_cast<uint8_t*>(&table) - place;
  std::memcpy(place, &distance, sizeof(distance));
  ASSERT_EQ(link(object.bytes), HUSK_OK) << error.text;
  EXPECT_EQ(run<float>(session(), "f", {}), std::vector<float>{1.0f});
}

TEST_F(Linked, ALinkedPortLoadsNoImages) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host_linked();
  options.allow_host_images = 1;
  ASSERT_EQ(husk_engine_create(&options, &opened_.emplace_back().engine, &error), HUSK_OK);
  EXPECT_EQ(husk_program_open(opened_.back().engine, HUSK_LINKED_FOLDER "/model.husk",
                              &opened_.back().program, &error),
            HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "--linkable"), nullptr) << error.text;
  EXPECT_NE(std::strstr(error.text, "image kernels"), nullptr) << error.text;
}

// The same port also runs linked programs.
TEST_F(Linked, ThePortWithALoaderTakesLinkedImages) {
  engine(husk_port_host(), nullptr);
  ASSERT_EQ(husk_program_link(opened_.back().engine, husk_model, &opened_.back().program, &error),
            HUSK_OK)
      << error.text;
  EXPECT_EQ(run<float>(session(), "add", {})[3], 4.5f);
  EXPECT_EQ(loaded_images(), 0u);
}

// A file cannot name code of the process: the bytes of an object file are refused elsewhere.
TEST_F(Linked, TheBytesAreNoFile) {
  engine(husk_port_host(), nullptr);
  uint64_t size = 0;
  std::memcpy(&size, husk_model + 16, sizeof(size));
  husk_program* program = nullptr;
  EXPECT_EQ(husk_program_load(opened_.back().engine, husk_model, size, nullptr, nullptr, &program,
                              &error),
            HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "features 0x1"), nullptr) << error.text;
  EXPECT_EQ(husk_program_verify(husk_model, size, &error), HUSK_UNSUPPORTED);
}

}  // namespace
}  // namespace husk::linked_test
