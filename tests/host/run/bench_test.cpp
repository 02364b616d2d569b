// The parts of husk-bench, and the program itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "bench/inputs.h"
#include "bench/profile.h"
#include "bench/statistics.h"
#include "command.h"
#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace husk::run_test {
namespace {

using bench_tool::Profile;
using bench_tool::ProfileRow;
using Json = nlohmann::json;

TEST(BenchStatistics, Percentiles) {
  std::vector<double> times;
  for (int i = 200; i > 0; --i) times.push_back(i);
  const bench_tool::Distribution d = bench_tool::distribution_of(times);
  EXPECT_EQ(d.count, 200u);
  EXPECT_EQ(d.least, 1);
  EXPECT_EQ(d.p10, 20);
  EXPECT_EQ(d.p50, 100);
  EXPECT_EQ(d.p90, 180);
  EXPECT_EQ(d.p99, 198);
  EXPECT_EQ(d.most, 200);
  EXPECT_EQ(d.mean, 100.5);
  EXPECT_EQ(d.spread, 1.6);
}

TEST(BenchStatistics, OneRunAndNone) {
  const bench_tool::Distribution one = bench_tool::distribution_of({7});
  EXPECT_EQ(one.least, 7);
  EXPECT_EQ(one.p10, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(one.spread, 0);
  EXPECT_EQ(bench_tool::distribution_of({}).count, 0u);
}

TEST(BenchInputs, Shapes) {
  const bench_tool::Shapes shapes = bench_tool::shapes_parse("x=8x64,1=3,a=b=0");
  EXPECT_EQ(shapes.at("x"), (std::vector<int64_t>{8, 64}));
  EXPECT_EQ(shapes.at("1"), (std::vector<int64_t>{3}));
  EXPECT_EQ(shapes.at("a=b"), (std::vector<int64_t>{0}));
  for (const char* wrong : {"", "x", "=3", "x=", "x=3x", "x=-1", "x=3,", "x=3,x=4", "x=1e3"})
    EXPECT_THROW(bench_tool::shapes_parse(wrong), run::RunError) << wrong;
}

TEST(BenchProfile, ModulesOfOrigins) {
  EXPECT_EQ(bench_tool::module_of("layers.0.attention model.py:12 x + 1"), "layers.0.attention");
  EXPECT_EQ(bench_tool::module_of("model.py:12 x + 1"), "");
  EXPECT_EQ(bench_tool::module_of("layers.0"), "layers.0");
  EXPECT_EQ(bench_tool::module_of("x = y + z"), "");
  EXPECT_EQ(bench_tool::module_of(""), "");
}

// Two runs of three steps, whose second step is a loop's that runs once in the first run only.
std::vector<ProfileRow> two_runs() {
  Profile profile;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  profile.attach(options);
  const auto step = [&](uint32_t index, const char* kind, const char* name, const char* origin,
                        uint64_t nanoseconds) {
    const int32_t clock = std::strcmp(kind, "launch") == 0 ? HUSK_CLOCK_DEVICE : HUSK_CLOCK_HOST;
    const husk_trace_event event = {sizeof event, index,  {4, 2, 1},   0,     "f", kind,
                                    name,         origin, nanoseconds, clock, 0};
    options.trace(options.trace_user, &event);
  };
  step(9, "launch", "cleared", "", 1);
  profile.clear();
  for (const uint64_t time : {1000, 3000}) {
    step(0, "launch", "gelu", "a.b model.py:1 x", time);
    if (time == 1000) step(2, "extern", "aten::mm", "a.c model.py:2 <\"&>", 5000);
    step(5, "launch", "gelu", "", 500);
  }
  return profile.steps();
}

TEST(BenchProfile, StepsOperatorsAndModules) {
  const std::vector<ProfileRow> steps = two_runs();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].microseconds, 1);  // the median of two is the smaller one
  EXPECT_EQ(steps[0].grid, "4 2 1");
  EXPECT_EQ(bench_tool::clock_name({steps[0]}), "device");
  EXPECT_EQ(bench_tool::clock_name({steps[1]}), "host");
  EXPECT_EQ(steps[1].grid, "");
  const std::vector<ProfileRow> operators = Profile::by_operator(steps);
  ASSERT_EQ(operators.size(), 2u);
  EXPECT_EQ(operators[0].name, "aten::mm");
  EXPECT_EQ(operators[1].name, "gelu");
  EXPECT_EQ(operators[1].steps, 2u);
  EXPECT_EQ(operators[1].microseconds, 1.5);
  const std::vector<ProfileRow> modules = Profile::by_module(steps);
  ASSERT_EQ(modules.size(), 3u);
  EXPECT_EQ(modules[0].name, "a.c");
  EXPECT_EQ(modules[2].name, "");
  const std::string tables = bench_tool::profile_tables(steps);
  EXPECT_NE(tables.find("3 steps, 6.50 us by the clock of the device and host\n"),
            std::string::npos)
      << tables;
  EXPECT_NE(tables.find("      0.50    7.7      1  (no module)\n"), std::string::npos) << tables;
}

TEST(BenchProfile, BytesOfConstantsInASecond) {
  std::vector<ProfileRow> steps = two_runs();
  steps[0].constant_bytes = 5000;
  const std::string tables = bench_tool::profile_tables(steps);
  for (const char* line : {"    0       1.00   15.4    5.0  launch gelu",
                           "    1       5.00   76.9         extern aten::mm",
                           "      1.50   23.1    3.3      2  launch gelu",
                           "        us      %   GB/s  steps  operator"})
    EXPECT_NE(tables.find(line), std::string::npos) << line << "\n" << tables;
}

TEST(BenchProfile, TraceNestsModules) {
  const Json trace = Json::parse(bench_tool::profile_trace(two_runs(), "a title"));
  std::vector<std::string> spans;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    spans.push_back(event.at("name").get<std::string>() + " " +
                    std::to_string(event.at("ts").get<double>()).substr(0, 3) + " " +
                    std::to_string(event.at("dur").get<double>()).substr(0, 3));
  }
  EXPECT_EQ(spans, (std::vector<std::string>{"a 0.0 6.0", "b 0.0 1.0", "gelu 0.0 1.0", "c 1.0 5.0",
                                             "aten::mm 1.0 5.0", "gelu 6.0 0.5"}));
}

TEST(BenchProfile, PictureIsXml) {
  const std::string svg = bench_tool::profile_picture(two_runs(), "a < b");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("a &lt; b: 6.5 us in 3 steps, clock of the device and host"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("model.py:2 &lt;&quot;&amp;&gt;"), std::string::npos) << svg;
  EXPECT_NE(bench_tool::profile_picture({}, "").find("</svg>"), std::string::npos);
}

class BenchCommand : public ::testing::Test {
 protected:
  // Runs the program for a moment.
  Outcome bench(const std::string& arguments) {
    return run_command(std::string(HUSK_BENCH) +
                       " " HUSK_TEST_MODEL " --duration-s=0.01 --warmup-ms=1 --shapes=x=2x3 " +
                       arguments);
  }
  void fails(const std::string& arguments, const std::string& words) {
    const Outcome got = run_command(std::string(HUSK_BENCH) + " " HUSK_TEST_MODEL " " + arguments);
    EXPECT_EQ(got.code, 2) << got.text;
    EXPECT_EQ(got.text.rfind("husk-bench: ", 0), 0u) << got.text;
    EXPECT_NE(got.text.find(words), std::string::npos) << got.text;
  }
  const TemporaryFolder folder{"husk_bench_test"};
};

TEST_F(BenchCommand, PrintsTimesAndCounts) {
  const Outcome got = bench("");
  EXPECT_EQ(got.code, 0) << got.text;
  EXPECT_TRUE(std::regex_search(
      got.text, std::regex("forward for host .*, 1 thread, 1 session\nopened in .* constants 24 "
                           "bytes, packed copies 0 bytes, state of a session 16 bytes\n")))
      << got.text;
  EXPECT_NE(got.text.find("inputs: x f32[2, 3], n 1, t 0.5, flag 1\n"), std::string::npos);
  EXPECT_NE(got.text.find("a run: 4 steps; calls of the port 4: launches 2, copies and fills 1, "
                          "graphs 0, patches 0, waits 1\n"),
            std::string::npos)
      << got.text;
}

TEST_F(BenchCommand, WritesFiles) {
  const Outcome got = bench(
      "--json=" + folder.path("out.json") + " --trace=" + folder.path("trace.json") +
      " --picture=" + folder.path("p.svg") + " --profile --sessions=3 --threads=2 --new-pointers");
  EXPECT_EQ(got.code, 0) << got.text;
  EXPECT_NE(got.text.find("aten::mm.out"), std::string::npos) << got.text;
  Json numbers;
  std::ifstream(folder.path("out.json")) >> numbers;
  EXPECT_EQ(numbers.at("sessions"), 3);
  EXPECT_EQ(numbers.at("profile").size(), 4u);
  EXPECT_EQ(numbers.at("profile").at(0).at("clock"), "host");
  uint64_t bytes = 0;
  for (const Json& step : numbers.at("profile")) bytes += step.at("constant_bytes").get<uint64_t>();
  EXPECT_EQ(bytes, 24u);  // of w, which aten::mm.out reads
  const Json& result = numbers.at("results").at(0);
  EXPECT_GE(result.at("run_us").at("count"), 3);
  EXPECT_LE(result.at("run_us").at("least"), result.at("run_us").at("median"));
  EXPECT_EQ(result.at("calls_a_run").at("launches"), 2);
  EXPECT_TRUE(std::filesystem::exists(folder.path("p.svg")));
  Json trace;
  std::ifstream(folder.path("trace.json")) >> trace;
  EXPECT_FALSE(trace.at("traceEvents").empty());
}

TEST_F(BenchCommand, ValuesOfTheUser) {
  EXPECT_NE(run_command(std::string(HUSK_BENCH) +
                        " " HUSK_TEST_MODEL
                        " --duration-s=0 --warmup-ms=0 --input=2x3xf32=iota --input=7")
                .text.find("inputs: x f32[2, 3], n 7, t 0.5, flag 1\n"),
            std::string::npos);
}

TEST_F(BenchCommand, WrongCommandLines) {
  fails("--shapes=y=3", "the inputs are: x: f32[1..8, 3]; n: int");
  fails("--shapes=x=3", "1 sizes for x, which is x: f32[1..8, 3]");
  fails("--shapes=n=3", "n: int is not a tensor");
  fails("--input=2x3xf32=iota --shapes=x=2x3", "has a value by --input already");
  fails("--shapes=x=2x3 --new-shapes", "write several or none");
  fails("--sessions=0", "--sessions");
  fails("--duration-s=-1", "--duration-s");
  fails("--device=tpu", "--device=tpu");
  fails("--shapes=x=2x3 --duration-s=0 --warmup-ms=0 --json=/absent/out.json",
        "/absent/out.json: cannot be written");
}

TEST_F(BenchCommand, AFailedRunIsNamed) {
  const Outcome got = run_command(std::string(HUSK_BENCH) + " " HUSK_TEST_MODEL
                                                            " --shapes=x=3x3 --sessions=2");
  EXPECT_EQ(got.code, 4);
  EXPECT_NE(got.text.find("the batch of x"), std::string::npos) << got.text;
}

}  // namespace
}  // namespace husk::run_test
