// Artifacts in which one list or text of the schema is 1, 2 and 4 times as long. The work of each
// reader of a file must grow with it: the verifier, an open with a session, all outputs of
// husk-dump and the queries of the C interface, which the bindings call. A list or text of husk.fbs
// that no artifact here lengthens fails.
//   husk_growth [PART_OF_A_NAME]
// Work is counted, not timed: comparisons of numbers in the instrumented libraries
// (-fsanitize-coverage=trace-cmp), and bytes that are allocated or compared by the C library.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "fields.h"
#include "large_program.h"
#include "mutate.h"
#include "read/artifact.h"
#include "read/report.h"

namespace {
uint64_t work;
constexpr uint64_t kBytes = 16;  // that count as one comparison
}  // namespace

extern "C" {
void __sanitizer_cov_trace_cmp1(uint8_t, uint8_t) { ++work; }
void __sanitizer_cov_trace_cmp2(uint16_t, uint16_t) { ++work; }
void __sanitizer_cov_trace_cmp4(uint32_t, uint32_t) { ++work; }
void __sanitizer_cov_trace_cmp8(uint64_t, uint64_t) { ++work; }
void __sanitizer_cov_trace_const_cmp1(uint8_t, uint8_t) { ++work; }
void __sanitizer_cov_trace_const_cmp2(uint16_t, uint16_t) { ++work; }
void __sanitizer_cov_trace_const_cmp4(uint32_t, uint32_t) { ++work; }
void __sanitizer_cov_trace_const_cmp8(uint64_t, uint64_t) { ++work; }
void __sanitizer_cov_trace_switch(uint64_t, uint64_t*) { ++work; }
void __sanitizer_malloc_hook(const volatile void*, size_t bytes) { work += bytes / kBytes; }
void __sanitizer_weak_hook_memcmp(void*, const void*, const void*, size_t bytes, int) {
  work += bytes / kBytes;
}
void __sanitizer_weak_hook_strcmp(void*, const char* a, const char*, int) {
  work += std::strlen(a) / kBytes;
}
}

namespace husk::fuzz {
namespace {

using namespace test;
using String = flatbuffers::Offset<flatbuffers::String>;

// A program that grows with `n`. `long_text` has 16 bytes for each of n rows, `number` is a
// register that is 8, and `all` a view of an arena buffer of 8 bytes.
struct Growing {
  explicit Growing(uint32_t rows) : n(rows) {
    number = v.number(8);
    zero = v.number(0);
    all = v.view(v.arena_buffer(number), zero, number);
    long_text = b().CreateString(std::string(16 * n, 'x'));
    text = b().CreateString("text");
  }
  flatbuffers::FlatBufferBuilder& b() { return file.builder; }
  std::string name(uint32_t i) const { return "name" + std::to_string(i); }
  String string(uint32_t i) { return b().CreateString(name(i)); }
  template <class F>
  void each(F f) {
    for (uint32_t i = 0; i < n; ++i) f(i);
  }
  // An op without results.
  void op(uint32_t arguments = 0) { v.step(Step::op_extern, 0, arguments, arguments); }
  void image(String of_name) {
    const fb::Blob blob(0, 0, fb::Hash());
    file.images.push_back(fb::CreateImage(b(), 0, HUSK_IMAGE_ELF, &blob, of_name));
  }
  void kernel(String of_name, String symbol, uint32_t parameters = 0) {
    if (file.images.empty()) image(text);
    const auto params = b().CreateVector(std::vector<uint8_t>(parameters, HUSK_I32));
    const auto block = b().CreateVector(std::vector<uint32_t>{1, 1, 1});
    file.kernels.push_back(fb::CreateKernel(b(), of_name, symbol, 0, params, block));
  }
  void constant(String of_name, uint32_t rank = 1) {
    const fb::Blob blob(0, 8, fb::Hash());
    std::vector<int64_t> dims(rank, 1);
    dims[0] = 8;
    file.constants.push_back(
        fb::CreateConstant(b(), of_name, HUSK_U8, b().CreateVector(dims), &blob));
  }
  void state(String of_name, uint32_t init = kNone) {
    const std::vector<int64_t> dims = {8};
    file.states.push_back(fb::CreateState(b(), of_name, HUSK_U8, b().CreateVector(dims), init, 0));
  }
  void input(String of_name, uint8_t kind = HUSK_VALUE_INT, uint32_t rank = 0) {
    const std::vector<fb::Dim> dims(rank, fb::Dim(1, 8));
    inputs.push_back(fb::CreateValue(b(), of_name, kind, kind == HUSK_VALUE_TENSOR ? HUSK_F32 : 0,
                                     uint8_t(rank), b().CreateVectorOfStructs(dims)));
  }
  void output(String of_name) {
    outputs.push_back(fb::CreateValue(b(), of_name, HUSK_VALUE_INT));
    v.results.emplace_back(uint8_t(ArgumentKind::integer), uint8_t{0}, uint8_t{0}, uint8_t{0},
                           number, 0u, 0u);
  }
  std::vector<uint8_t> finish() {
    if (!file.ops.size()) file.ops.push_back(text);
    if (v.segments.empty() || v.segments.back().scalar_end() != v.scalars.size() ||
        v.segments.back().step_end() != v.steps.size())
      v.segment();
    variants.insert(variants.begin(), file.variant(v));
    file.function("f", variants, b().CreateVector(inputs), b().CreateVector(outputs));
    return file.finish(64);
  }

  uint32_t n, number, zero, all;
  LargeFile file;
  LargeVariant v;
  String long_text, text;
  std::vector<flatbuffers::Offset<fb::Value>> inputs, outputs;
  std::vector<flatbuffers::Offset<fb::Variant>> variants;
};

struct Kind {
  std::string name;  // of the field that grows, and how
  std::function<void(Growing&)> grow;
  // The planner compares buffers that are live together with one another until its budget of work
  // is used up, so only the sum of the work is limited here.
  bool has_budget = false;
};

// Another variant without rows.
void add_variant(Growing& g, String port, String arch) {
  LargeVariant v;
  v.segment();
  if (!g.inputs.empty() || !g.outputs.empty()) std::abort();
  g.file.targets.push_back(fb::CreateTarget(g.b(), port, arch));
  g.variants.push_back(g.file.variant(v, uint32_t(g.file.targets.size() - 1)));
}

const Kind kKinds[] = {
    // Lists
    {"Program.targets",
     [](Growing& g) {
       g.each([&](uint32_t i) {
         g.file.targets.push_back(fb::CreateTarget(g.b(), g.string(i), g.text));
       });
     }},
    {"Program.images", [](Growing& g) { g.each([&](uint32_t i) { g.image(g.string(i)); }); }},
    {"Program.kernels",
     [](Growing& g) { g.each([&](uint32_t i) { g.kernel(g.string(i), g.string(i), 2); }); }},
    {"Program.ops",
     [](Growing& g) { g.each([&](uint32_t i) { g.file.ops.push_back(g.string(i)); }); }},
    {"Program.constants", [](Growing& g) { g.each([&](uint32_t i) { g.constant(g.string(i)); }); }},
    {"Program.states", [](Growing& g) { g.each([&](uint32_t i) { g.state(g.string(i)); }); }},
    {"Program.functions",
     [](Growing& g) {
       g.each([&](uint32_t i) {
         LargeVariant v;
         v.segment();
         g.file.function(g.name(i), {g.file.variant(v)});
       });
     }},
    {"Program.strings",
     [](Growing& g) { g.each([&](uint32_t i) { g.file.strings.push_back(g.string(i)); }); }},
    {"Program.metadata",
     [](Growing& g) {
       g.each([&](uint32_t i) {
         g.file.entries.push_back(fb::CreateEntry(g.b(), g.string(i), g.text));
       });
     }},
    {"Program.packed",
     [](Growing& g) {
       g.each([&](uint32_t i) {
         const uint8_t key[32] = {uint8_t(i >> 24), uint8_t(i >> 16), uint8_t(i >> 8), uint8_t(i)};
         g.file.packed.push_back(fb::PackedCopy(fb::Hash(key), fb::Blob(0, 8, fb::Hash())));
       });
     }},
    {"Program.asserts",
     [](Growing& g) { g.each([&](uint32_t i) { g.file.asserts.push_back(g.string(i)); }); }},
    {"Kernel.params", [](Growing& g) { g.kernel(g.text, g.text, 16 * g.n); }},
    {"Kernel.block shared",
     [](Growing& g) {
       g.image(g.text);
       const auto block = g.b().CreateVector(std::vector<uint32_t>{1, 1, 1});
       g.each([&](uint32_t i) {
         g.file.kernels.push_back(fb::CreateKernel(g.b(), g.string(i), g.text, 0, 0, block));
       });
     }},
    {"Constant.dims", [](Growing& g) { g.each([&](uint32_t i) { g.constant(g.string(i), 12); }); }},
    {"State.dims", [](Growing& g) { g.each([&](uint32_t i) { g.state(g.string(i)); }); }},
    {"Function.inputs", [](Growing& g) { g.each([&](uint32_t i) { g.input(g.string(i)); }); }},
    {"Function.outputs", [](Growing& g) { g.each([&](uint32_t i) { g.output(g.string(i)); }); }},
    {"Value.dims",
     [](Growing& g) { g.each([&](uint32_t i) { g.input(g.string(i), HUSK_VALUE_TENSOR, 16); }); }},
    {"Function.variants",
     [](Growing& g) { g.each([&](uint32_t i) { add_variant(g, g.text, g.string(i)); }); }},
    {"Variant.scalars",
     [](Growing& g) { g.each([&](uint32_t) { g.v.scalar(Scalar::op_add, g.number, g.number); }); }},
    {"Variant.scalars, each of the one before",
     [](Growing& g) {
       g.each([&](uint32_t) {
         const uint32_t last = g.number;
         g.number = g.v.scalar(Scalar::op_max, last, last);
         g.v.arena_buffer(g.number);
       });
     }},
    {"Variant.scalars, ranges of ranges",
     [](Growing& g) {
       g.each(
           [&](uint32_t) { g.number = g.v.scalar(Scalar::op_range, g.number, g.zero, g.number); });
       g.each([&](uint32_t) {
         g.v.fill(g.v.view(g.v.arena_buffer(g.number), g.zero, g.zero), g.zero);
       });
     }},
    {"Variant.steps", [](Growing& g) { g.each([&](uint32_t) { g.v.fill(g.all, g.zero); }); }},
    {"Variant.segments", [](Growing& g) { g.each([&](uint32_t) { g.v.segment(); }); }},
    {"Variant.segments, loops",
     [](Growing& g) {
       g.v.segment();
       g.each([&](uint32_t) { g.v.segment(g.zero, 1); });
     }},
    {"Variant.arguments",
     [](Growing& g) {
       const uint32_t count = g.n < 30000 ? g.n : 30000;
       for (uint32_t i = 0; i < count; ++i) g.v.argument(ArgumentKind::integer, 0, 0, g.number);
       g.op(count);
     }},
    {"Variant.operands",
     [](Growing& g) {
       g.v.operands.assign(16 * g.n, g.number);
       for (int i = 0; i < 4; ++i) {
         g.v.argument(ArgumentKind::integers, 0, 0, 0, 16 * g.n);
         g.op(1);
       }
     }},
    {"Variant.buffers",
     [](Growing& g) {
       g.each([&](uint32_t) {
         g.v.fill(g.v.view(g.v.arena_buffer(g.number), g.zero, g.number), g.zero);
       });
     }},
    {"Variant.buffers, live together",
     [](Growing& g) {
       const uint32_t first = g.all + 1;
       g.each([&](uint32_t) {
         g.v.fill(g.v.view(g.v.arena_buffer(g.number), g.zero, g.number), g.zero);
       });
       g.each([&](uint32_t i) { g.v.copy(g.all, first + i); });
     },
     true},
    {"Variant.views", [](Growing& g) { g.each([&](uint32_t) { g.v.view(0, g.zero, g.number); }); }},
    {"Variant.tensors",
     [](Growing& g) { g.each([&](uint32_t) { g.v.tensor(g.all, g.zero, g.zero); }); }},
    {"Variant.results", [](Growing& g) { g.each([&](uint32_t i) { g.output(g.string(i)); }); }},
    {"Variant.placement_order",
     [](Growing& g) {
       g.v.order.push_back(0);
       g.each([&](uint32_t i) {
         g.v.fill(g.v.view(g.v.arena_buffer(g.number), g.zero, g.number), g.zero);
         g.v.order.push_back(i + 1);
       });
     }},
    // Long texts that many rows name, by an index or as a field
    {"Target.port",
     [](Growing& g) {
       g.each([&](uint32_t) {
         g.file.targets.push_back(fb::CreateTarget(g.b(), g.long_text, g.text));
       });
     }},
    {"Target.arch",
     [](Growing& g) {
       g.each([&](uint32_t) {
         g.file.targets.push_back(fb::CreateTarget(g.b(), g.text, g.long_text));
       });
     }},
    {"Target.arch, named by images",
     [](Growing& g) {
       g.file.targets.push_back(fb::CreateTarget(g.b(), g.text, g.long_text));
       const fb::Blob blob(0, 0, fb::Hash());
       g.each([&](uint32_t i) {
         g.file.images.push_back(fb::CreateImage(g.b(), 1, HUSK_IMAGE_ELF, &blob, g.string(i)));
       });
     }},
    {"Image.name", [](Growing& g) { g.each([&](uint32_t) { g.image(g.long_text); }); }},
    {"Image.name, named by kernels",
     [](Growing& g) {
       g.image(g.long_text);
       g.each([&](uint32_t i) { g.kernel(g.string(i), g.text); });
     }},
    {"Kernel.name", [](Growing& g) { g.each([&](uint32_t) { g.kernel(g.long_text, g.text); }); }},
    {"Kernel.name, named by steps",
     [](Growing& g) {
       g.kernel(g.long_text, g.text);
       g.each([&](uint32_t) {
         for (int d = 0; d < 3; ++d) g.v.argument(ArgumentKind::integer, 0, 0, g.number);
         g.v.step(Step::op_launch, 0, 3);
       });
     }},
    {"Kernel.symbol",
     [](Growing& g) { g.each([&](uint32_t i) { g.kernel(g.string(i), g.long_text); }); }},
    {"Program.ops, a long one named by steps",
     [](Growing& g) {
       g.file.ops.push_back(g.long_text);
       g.each([&](uint32_t) { g.op(); });
     }},
    {"Constant.name, named by states",
     [](Growing& g) {
       g.constant(g.long_text);
       g.each([&](uint32_t i) { g.state(g.string(i), 0); });
     }},
    {"Constant.name, named by steps",
     [](Growing& g) {
       g.constant(g.long_text);
       const uint32_t from = g.v.view(g.v.outer_buffer(Space::constant, 0, g.number), g.zero,
                                      g.number);
       g.each([&](uint32_t) { g.v.copy(g.all, from); });
     }},
    {"State.name, named by steps",
     [](Growing& g) {
       g.state(g.long_text);
       const uint32_t to = g.v.view(g.v.outer_buffer(Space::state, 0, g.number), g.zero, g.number);
       g.each([&](uint32_t) { g.v.fill(to, g.zero); });
     }},
    {"Value.name, named by formulas",
     [](Growing& g) {
       g.input(g.long_text);
       const uint32_t size = g.v.scalar(Scalar::op_input, 0);
       uint32_t sum = size;
       for (int i = 0; i < 6; ++i) sum = g.v.scalar(Scalar::op_add, sum, sum);
       g.each([&](uint32_t) { g.v.fill(g.v.view(g.v.arena_buffer(sum), g.zero, g.zero), g.zero); });
     }},
    {"Value.name, named by scalars",
     [](Growing& g) {
       g.input(g.long_text);
       g.each([&](uint32_t) { g.v.scalar(Scalar::op_input, 0); });
     }},
    {"Function.name, named by variants",
     [](Growing& g) {
       LargeVariant v;
       v.segment();
       std::vector<flatbuffers::Offset<fb::Variant>> all;
       g.each([&](uint32_t i) {
         g.file.targets.push_back(fb::CreateTarget(g.b(), g.text, g.string(i)));
         all.push_back(g.file.variant(v, i + 1));
       });
       g.file.functions.push_back(
           fb::CreateFunction(g.b(), g.long_text, 0, 0, g.b().CreateVector(all)));
     }},
    {"Function.inputs, of many variants",
     [](Growing& g) {
       LargeVariant v;
       v.segment();
       std::vector<flatbuffers::Offset<fb::Variant>> all;
       std::vector<flatbuffers::Offset<fb::Value>> values;
       g.each([&](uint32_t i) {
         g.file.targets.push_back(fb::CreateTarget(g.b(), g.text, g.string(i)));
         all.push_back(g.file.variant(v, i + 1));
         values.push_back(fb::CreateValue(g.b(), g.string(i), HUSK_VALUE_INT));
         values.push_back(fb::CreateValue(g.b(), g.string(i + g.n), HUSK_VALUE_INT));
       });
       g.file.function("g", all, g.b().CreateVector(values));
     }},
    {"Entry.key",
     [](Growing& g) {
       g.each([&](uint32_t) {
         g.file.entries.push_back(fb::CreateEntry(g.b(), g.long_text, g.text));
       });
     }},
    {"Entry.value",
     [](Growing& g) {
       g.each([&](uint32_t) {
         g.file.entries.push_back(fb::CreateEntry(g.b(), g.text, g.long_text));
       });
     }},
    {"Program.strings, a long one as each argument",
     [](Growing& g) {
       g.file.strings.push_back(g.long_text);
       g.each([&](uint32_t) {
         g.v.argument(ArgumentKind::string, 0, 0, 0);
         g.op(1);
       });
     }},
    {"Program.strings, a long one as each message",
     [](Growing& g) {
       g.file.strings.push_back(g.long_text);
       g.each([&](uint32_t) { g.v.scalar(Scalar::op_check_eq, g.zero, g.zero, 0); });
     }},
    {"Variant.origins",
     [](Growing& g) {
       g.file.strings.push_back(g.long_text);
       g.each([&](uint32_t) {
         g.v.fill(g.all, g.zero);
         g.v.origins.push_back(0);
       });
     }},
    {"Variant.names",
     [](Growing& g) {
       g.file.strings.push_back(g.long_text);
       g.v.names.push_back(0);
       g.each([&](uint32_t) { g.v.fill(g.all, g.zero); });
     }},
    {"Variant.names, of each buffer", [](Growing& g) {
       g.file.strings.push_back(g.long_text);
       g.v.names.push_back(0);
       g.each([&](uint32_t) {
         g.v.fill(g.v.view(g.v.arena_buffer(g.number), g.zero, g.number), g.zero);
         g.v.names.push_back(0);
       });
     }}};

// Fields that cannot be long in a way of their own, and those that all kinds have.
constexpr const char* kCovered[] = {
    "Constant.name",    "State.name",     "Value.name", "Function.name",  // "..., named by"
    "Kernel.block",                                                       // three numbers
    "Program.producer", "Program.pytree",                                 // one text each
};

husk_status call_nothing(const husk_op_context*, const husk_op_arg*, uint32_t, husk_error*) {
  return HUSK_OK;
}

// Opens the file on the host, and creates a session.
struct Opened {
  explicit Opened(const Artifact& file) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = husk_port_host();
    options.allow_host_images = 1;
    husk_error error = {};
    husk_op op = HUSK_OP_INIT;
    op.name = "text";
    op.call = call_nothing;
    if (husk_engine_create(&options, &engine, &error) != HUSK_OK ||
        husk_engine_add_op(engine, &op, &error) != HUSK_OK)
      std::abort();
    if (husk_program_load(engine, file.data, file.size, nullptr, nullptr, &program, &error) ==
        HUSK_OK)
      (void)husk_session_create(program, nullptr, &session, &error);
  }
  Opened(const Opened&) = delete;
  ~Opened() {
    husk_session_release(session);
    husk_program_release(program);
    husk_engine_release(engine);
  }
  // Asks for all that the program has.
  void query() const {
    husk_error error = {};
    husk_value_info value = HUSK_VALUE_INFO_INIT;
    husk_storage_info storage = HUSK_STORAGE_INFO_INIT;
    for (uint32_t f = 0; f < husk_program_function_count(program); ++f) {
      (void)husk_program_function_name(program, f);
      (void)husk_program_function_target(program, f);
      for (uint32_t i = 0; i < husk_program_input_count(program, f); ++i)
        (void)husk_program_input(program, f, i, &value, &error);
      for (uint32_t i = 0; i < husk_program_output_count(program, f); ++i)
        (void)husk_program_output(program, f, i, &value, &error);
    }
    for (uint32_t i = 0; i < husk_program_state_count(program); ++i)
      (void)husk_program_state(program, i, &storage, &error);
    for (uint32_t i = 0; i < husk_program_constant_count(program); ++i)
      (void)husk_program_constant(program, i, &storage, &error);
    for (uint32_t i = 0; i < husk_program_metadata_count(program); ++i) {
      (void)husk_program_metadata_key(program, i);
      (void)husk_program_metadata_value(program, i);
    }
  }
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
};

struct Reader {
  const char* name;
  std::function<void(const std::vector<uint8_t>&)> read;
};

Reader dump(const char* name, std::string (*report)(const compiler::Artifact&)) {
  return {name, [report](const std::vector<uint8_t>& bytes) {
            std::string error;
            const Artifact file(bytes.data(), bytes.size());
            const auto artifact = compiler::Artifact::view({file.data, file.size}, error);
            if (artifact) work += report(*artifact).size() / kBytes;
          }};
}

const Reader kReaders[] = {
    {"verify",
     [](const std::vector<uint8_t>& bytes) {
       const Artifact file(bytes.data(), bytes.size());
       husk_error error = {};
       (void)husk_program_verify(file.data, file.size, &error);
     }},
    {"open",
     [](const std::vector<uint8_t>& bytes) {
       const Artifact file(bytes.data(), bytes.size());
       const Opened opened(file);
     }},
    {"queries",
     [](const std::vector<uint8_t>& bytes) {
       const Artifact file(bytes.data(), bytes.size());
       const Opened opened(file);
       work = 0;
       if (opened.program) opened.query();
     }},
    dump("dump meta", compiler::report_metadata),
    dump("dump code", compiler::report_code),
    dump("dump plan", [](const compiler::Artifact& a) { return compiler::report_plan(a); }),
    dump("dump svg", [](const compiler::Artifact& a) { return compiler::report_svg(a); }),
    dump("dump graph", compiler::report_graph),
    dump("dump sizes", compiler::report_sizes),
    dump("dump json", [](const compiler::Artifact& a) { return compiler::report_json(a); })};

// A linear reader does twice the work for what is twice as long, and a sort a little more. Four
// times is quadratic. Fixed costs, and arrays whose room doubles, make small numbers uneven.
constexpr double kMost = 2.7;
constexpr uint64_t kUneven = 20000, kBudget = 120000000;

int measure(const std::string& part) {
  int wrong = 0;
  uint32_t measured = 0;
  std::set<std::string> grown(std::begin(kCovered), std::end(kCovered));
  for (const Kind& kind : kKinds) {
    grown.insert(kind.name.substr(0, kind.name.find_first_of(", ")));
    if (kind.name.find(part) == std::string::npos) continue;
    std::vector<uint8_t> files[3];
    for (uint32_t i = 0; i < 3; ++i) {
      Growing growing(400u << i);
      kind.grow(growing);
      files[i] = growing.finish();
    }
    for (const Reader& reader : kReaders) {
      uint64_t done[3];
      for (uint32_t i = 0; i < 3; ++i) {
        work = 0;
        reader.read(files[i]);
        done[i] = work;
      }
      ++measured;
      if (done[0] == 0 && std::strcmp(reader.name, "verify") == 0) ++wrong;
      const uint64_t first = done[1] > done[0] ? done[1] - done[0] : 0;
      const uint64_t second = done[2] > done[1] ? done[2] - done[1] : 0;
      if (kind.has_budget ? done[2] < kBudget : double(second) <= kMost * double(first) + kUneven)
        continue;
      std::fprintf(stderr,
                   "%s, %s: %llu, %llu and %llu units of work for files of %zu, %zu and %zu "
                   "bytes\n",
                   kind.name.c_str(), reader.name, (unsigned long long)done[0],
                   (unsigned long long)done[1], (unsigned long long)done[2], files[0].size(),
                   files[1].size(), files[2].size());
      ++wrong;
    }
  }
  for (const std::string& list : lists_of_schema())
    if (!grown.count(list)) {
      std::fprintf(stderr, "%s: nothing here makes it longer\n", list.c_str());
      ++wrong;
    }
  std::printf("%u readings of %zu kinds of files\n", measured, std::size(kKinds));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace husk::fuzz

int main(int argc, char** argv) { return husk::fuzz::measure(argc > 1 ? argv[1] : ""); }
