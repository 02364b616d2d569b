// The use of the device by a program: constants in the mapped file or in one upload, one context
// switch for each run, early starts on a stream.
#include "../values.h"
#include "loaded_program.h"

namespace husk::test {
namespace {

const std::string kAffine = affine(kCount, kOnes, "constant nothing f32 [0] bytes \"\"\n");

class DeviceTest : public FakeTest {
 protected:
  DeviceTest() { options.mode = HUSK_MODE_LIST; }
  std::vector<float> run(LoadedProgram& m) { return run_affine(m, m.session); }

  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
};

const std::vector<float> kInitialResult = {-1, -1, -1, -1};

TEST_F(DeviceTest, ARunIsOneCallALaunchAndThreeMore) {
  LoadedProgram m(kAffine, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m), kInitialResult);
  EXPECT_EQ(run_calls, 3u + 3u);  // enter, leave, whether the application captures the stream
  options.mode = HUSK_MODE_GRAPH;
  m.session = m.open_session(&options);
  EXPECT_EQ(run(m), kInitialResult);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 1u);
  EXPECT_LE(run_calls, 3u + 1u + 3u);  // patches, the launch and its event, and these three
}

TEST_F(DeviceTest, ARunLeavesTheDeviceHoweverItEnds) {
  LoadedProgram m(kAffine, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m), kInitialResult);
  DeviceTensor from = device_vector(m.alloc(16), 4), to = device_vector(m.alloc(16), 4);
  husk_value input = from.value(), output = to.value();
  fake.fake_fail_call("cuCtxPushCurrent", 1, 201);
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_DEVICE);
  EXPECT_NE(std::string(m.error.text).find("cuCtxPushCurrent"), std::string::npos) << m.error.text;
  for (const char* call : {"cuLaunchKernel", "cuLaunchKernelEx"}) {
    const uint64_t entered = fake.fake_calls("cuCtxPushCurrent"),
                   left = fake.fake_calls("cuCtxPopCurrent");
    fake.fake_fail_call(call, 1, 1);
    (void)husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error);
    fake.fake_fail_at(0, 0);
    EXPECT_EQ(fake.fake_calls("cuCtxPushCurrent") - entered,
              fake.fake_calls("cuCtxPopCurrent") - left);
    EXPECT_EQ(run(m), kInitialResult);
  }
}

// Kernels that wait first start early on a stream too, unless the session has full_edges.
TEST_F(DeviceTest, AListStartsEarlyWhatWaitsFirst) {
  for (const int32_t full : {0, 1}) {
    options.full_edges = full;
    LoadedProgram m(kAffine, &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    const uint64_t before = fake.fake_calls("cuLaunchKernelEx");
    for (int round = 0; round < 20; ++round) {
      fake.fake_schedule(static_cast<uint64_t>(round), 0);
      EXPECT_EQ(run(m), kInitialResult);
    }
    EXPECT_EQ(fake.fake_calls("cuLaunchKernelEx") - before, full ? 0u : 60u);
  }
  EXPECT_GT(fake.fake_early_starts(), 0u);
}

// An integrated device reads constants from the file's bytes, other devices from one allocation. An
// update does not change the file's bytes.
TEST_F(DeviceTest, ConstantsLieInTheFileWhereTheDeviceReadsThem) {
  const float two[] = {2, 2, 2, 2};
  const husk_constant_update update = {2, 0, two};
  for (const bool integrated : {false, true}) {
    fake.fake_reset();
    fake.fake_set_integrated(integrated, 0);
    LoadedProgram m(kAffine, &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(fake.fake_calls("cuMemHostRegister"), integrated ? 1u : 0u);
    EXPECT_EQ(run(m), kInitialResult);
    ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(run(m), (std::vector<float>{-2, -2, -2, -2})) << integrated;
    EXPECT_EQ(m.intact(), true) << integrated;
    const float three = 3;
    const husk_constant_part part = {2, 0, &three, 8, 4};
    ASSERT_EQ(husk_program_update_constant_parts(m.program, &part, 1, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(run(m), (std::vector<float>{-2, -2, -3, -2})) << integrated;
    EXPECT_EQ(m.intact(), true) << integrated;
  }
}

TEST_F(DeviceTest, ConstantsThatCannotBeMappedAreLoaded) {
  fake.fake_set_integrated(1, 0);
  fake.fake_fail_call("cuMemHostRegister", 1, 1);  // the driver refuses this kind of memory
  {
    LoadedProgram m(kAffine, &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_TRUE(fake.fake_failed());
    EXPECT_EQ(run(m), kInitialResult);
  }
  fake.fake_fail_call("cuMemHostRegister", 1, 700);  // the device is lost
  LoadedProgram lost(kAffine, &options);
  EXPECT_EQ(lost.program, nullptr);
  EXPECT_NE(std::string(lost.error.text).find("cuMemHostRegister"), std::string::npos)
      << lost.error.text;
}

}  // namespace
}  // namespace husk::test
