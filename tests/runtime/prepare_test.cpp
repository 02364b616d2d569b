// Ops with a `prepare` function, and ops that the port provides.
#include <cstring>

#include <husk/port_host.h>

#include "../values.h"
#include "fixture.h"

namespace husk::test {
namespace {

const char* const kTwice = R"(
function twice {
  input x tensor f32 [1..1024]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    extern "test::twice" (read tensor x f32 [n] [1], write tensor t f32 [n] [1]) at "model.py:3"
    extern "test::twice" (read tensor t f32 [n] [1], write tensor y f32 [n] [1]) at "model.py:4"
    return (tensor y f32 [n] [1])
  }
}
)";

// The calls that an op has received.
struct Asked {
  int prepared = 0, called = 0;
  std::vector<int64_t> sizes;     // of prepare
  std::vector<const void*> data;  // addresses of input and output in prepare
  husk_status answer = HUSK_OK;   // of prepare
};

husk_status twice(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                  husk_error*) {
  if (count != 2) return HUSK_INVALID_ARGUMENT;
  ++static_cast<Asked*>(context->user)->called;
  for (int64_t i = 0; i < args[0].sizes[0]; ++i)
    static_cast<float*>(args[1].data)[i] = 2 * static_cast<const float*>(args[0].data)[i];
  return HUSK_OK;
}

husk_status choose(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                   husk_error* error) {
  Asked& asked = *static_cast<Asked*>(context->user);
  if (count != 2 || !context->device) return HUSK_INVALID_ARGUMENT;
  ++asked.prepared;
  asked.sizes.push_back(args[0].sizes[0]);
  asked.data.insert(asked.data.end(), {args[0].data, args[1].data});
  if (asked.answer != HUSK_OK) std::strcpy(error->text, "nothing fits");
  return asked.answer;
}

TEST(Prepare, IsCalledAtResizeAndNowhereElse) {
  for (const int32_t mode : {HUSK_MODE_AUTO, HUSK_MODE_LIST}) {
    Asked asked;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    Machine m(
        kTwice, Machine::defaults(), &options,
        {{sizeof(husk_op), 0, "test::twice", twice, &asked, choose, "x y:w", nullptr, 0, 0, 0, 0}});
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(asked.prepared, 0);
    Tensor x(HUSK_F32, {3}), more(HUSK_F32, {5});
    x.as<float>()[1] = 1.5f;
    Tensor shape(HUSK_F32, {3});
    shape.dl.data = nullptr;  // The caller's memory is not known yet.
    ASSERT_EQ(m.resize({shape.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(asked.prepared, 2);
    EXPECT_EQ(asked.called, 0);
    ASSERT_EQ(m.run({x.value()}, {none()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(static_cast<const float*>(m.results[0].as.tensor->data)[1], 6);
    // This shape was not resized: the op is called all the same.
    ASSERT_EQ(m.run({more.value()}, {none()}), HUSK_OK) << m.error.text;
    // The number of preparations is the same.
    EXPECT_EQ(asked.prepared, 2);
    EXPECT_EQ(asked.called, 4);
    ASSERT_EQ(m.resize({more.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(asked.sizes, (std::vector<int64_t>{3, 3, 5, 5}));
    EXPECT_EQ(asked.data[0], nullptr);
    EXPECT_NE(asked.data[1], nullptr);  // The address in the arena is known.
    EXPECT_EQ(asked.data[3], nullptr);
    EXPECT_EQ(asked.data[4], more.dl.data);  // A resize passes on the addresses that it receives.
  }
}

// The arguments are written once, but the op prepares itself in each resize.
TEST(Prepare, AnOpWithoutTensors) {
  constexpr char kNumbers[] = R"(
function f {
  variant cpu {
    extern "test::numbers" (3)
    return ()
  }
}
)";
  static int prepared, called;
  prepared = called = 0;
  const husk_op_fn call = [](const husk_op_context*, const husk_op_arg* args, uint32_t,
                             husk_error*) {
    called += static_cast<int>(args[0].i);
    return husk_status{HUSK_OK};
  };
  const husk_op_fn prepare = [](const husk_op_context*, const husk_op_arg* args, uint32_t,
                                husk_error*) {
    prepared += static_cast<int>(args[0].i);
    return husk_status{HUSK_OK};
  };
  Machine m(
      kNumbers, Machine::defaults(), nullptr,
      {{sizeof(husk_op), 0, "test::numbers", call, nullptr, prepare, "n", nullptr, 0, 0, 0, 0}});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(m.run({}, {}), HUSK_OK) << m.error.text;
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(m.resize({}), HUSK_OK) << m.error.text;
    EXPECT_EQ(prepared, 3 * i);
  }
  ASSERT_EQ(m.run({}, {}), HUSK_OK) << m.error.text;
  EXPECT_EQ(called, 6);
}

TEST(Prepare, AFailureNamesTheStepAndChangesNothing) {
  Asked asked;
  Machine m(
      kTwice, Machine::defaults(), nullptr,
      {{sizeof(husk_op), 0, "test::twice", twice, &asked, choose, "x y:w", nullptr, 0, 0, 0, 0}});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {3});
  asked.answer = HUSK_UNSUPPORTED;
  EXPECT_EQ(m.resize({x.value()}), HUSK_UNSUPPORTED);
  EXPECT_EQ(m.error.step, 0);
  EXPECT_STREQ(m.error.text, "function 'twice': step 0 test::twice (model.py:3): nothing fits");
  ASSERT_EQ(m.run({x.value()}, {none()}), HUSK_OK) << m.error.text;
  asked.answer = HUSK_OK;
  EXPECT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
}

TEST(Prepare, AnOpWithoutItIsCalledOnly) {
  Asked asked;
  Machine m(
      kTwice, Machine::defaults(), nullptr,
      {{sizeof(husk_op), 0, "test::twice", twice, &asked, nullptr, "x y:w", nullptr, 0, 0, 0, 0}});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {3});
  ASSERT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(asked.called, 0);
  ASSERT_EQ(m.run({x.value()}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(asked.called, 2);
}

// Ops of a port.

Asked ports;
husk_status port_answer = HUSK_OK;
int port_asked = 0;

husk_status find(void* device, const char* name, husk_op* op, husk_error* error) {
  ++port_asked;
  if (!device || std::strcmp(name, "test::twice") != 0) return HUSK_NOT_FOUND;
  if (port_answer != HUSK_OK) std::strcpy(error->text, "the library is not there");
  *op = {sizeof(husk_op), 0, "test::twice", twice, &ports, choose, "x y:w", nullptr, 0, 0, 0, 0};
  return port_answer;
}

class PortOps : public testing::Test {
 protected:
  void SetUp() override {
    ports = {};
    port_answer = HUSK_OK;
    port_asked = 0;
    port = *husk_port_host();
    port.find_op = find;
    options.port = &port;
  }
  husk_port port = {};
  husk_engine_options options = Machine::defaults();
};

TEST_F(PortOps, AreFoundWhereTheApplicationHasNone) {
  Machine m(kTwice, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(port_asked, 1);  // The port is asked once for an op, not once for each call of the op.
  Tensor x(HUSK_F32, {3});
  ASSERT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(m.run({x.value()}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(ports.prepared, 2);
  EXPECT_EQ(ports.called, 2);
}

TEST_F(PortOps, GiveWayToTheApplications) {
  Asked own;
  Machine m(
      kTwice, options, nullptr,
      {{sizeof(husk_op), 0, "test::twice", twice, &own, nullptr, "x y:w", nullptr, 0, 0, 0, 0}});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(port_asked, 0);
  Tensor x(HUSK_F32, {3});
  ASSERT_EQ(m.run({x.value()}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(own.called, 2);
}

TEST_F(PortOps, ThatFailAreToldInThePortsWords) {
  port_answer = HUSK_UNSUPPORTED;
  Machine m(kTwice, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_STREQ(m.error.text, "the library is not there");
}

TEST_F(PortOps, OtherNamesAreNotRegistered) {
  std::string text = kTwice;
  for (size_t at; (at = text.find("test::twice")) != std::string::npos;)
    text.replace(at, 11, "test::none");
  Machine m(text, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_NE(std::string(m.error.text).find("'test::none' (model.py:3), which is not registered"),
            std::string::npos)
      << m.error.text;
}

// A contract of the port's op has the same rules as one of the application's.
TEST_F(PortOps, HaveContractsThatAreRight) {
  port.find_op = [](void*, const char*, husk_op* op, husk_error*) {
    *op = {sizeof(husk_op), 0, "test::twice", twice, &ports, nullptr, "a:x", nullptr, 0, 0, 0, 0};
    return husk_status{HUSK_OK};
  };
  const Machine m(kTwice, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(m.error.text, "op 'test::twice': its contract is wrong at 'a'"), nullptr)
      << m.error.text;
}

}  // namespace
}  // namespace husk::test
