// Hashes of constants and images, which an open compares with the bytes of the file.
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "edited_artifact.h"

namespace husk::test {
namespace {

const char* const kTwoConstants = R"(
constant v f32 [4] bytes "0000803f000000400000404000008040"
constant w f32 [4] bytes "0000803f0000803f0000803f0000803f"
state memory f32 [4] constant w
function f {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 16
    launch add grid (1, 1, 1) (read v, read memory, write y, 4)
    return (tensor y f32 [4] [1])
  }
}
)";

husk_engine_options verifying() {
  husk_engine_options options = Machine::defaults();
  options.verify_content = 1;
  return options;
}

// Changes one byte of a blob.
void damage(std::vector<uint8_t>& file, const fb::Blob* blob) {
  uint32_t metadata;
  std::memcpy(&metadata, file.data() + 12, 4);
  const uint64_t base = (64 + metadata + 4095) / 4096 * 4096;
  file[base + blob->offset() + blob->size() - 1] ^= 1;
}

TEST(Content, AConstantThatDiffersIsNamed) {
  EditedArtifact edited(kTwoConstants);
  EXPECT_NE(Machine(edited.file, verifying()).session, nullptr);
  const auto* constants = fb::GetProgram(edited.file.data() + 64)->constants();
  ASSERT_STREQ(constants->Get(1)->name()->c_str(), "w");
  damage(edited.file, constants->Get(1)->blob());
  Machine unverified(edited.file);
  EXPECT_NE(unverified.session, nullptr) << unverified.error.text;
  Machine m(edited.file, verifying());
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_INVALID_FILE);
  EXPECT_STREQ(m.error.text,
               "constant 'w' does not match its hash: the file was changed or damaged");
}

TEST(Content, AnImageThatDiffersIsAlwaysRefused) {
  EditedArtifact edited(kTwoConstants);
  damage(edited.file, fb::GetProgram(edited.file.data() + 64)->images()->Get(0)->blob());
  Machine m(edited.file);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_STREQ(m.error.text,
               "image 'kernels' does not match its hash: the file was changed or damaged");
}

// A device with memory of its own, which counts its allocations.
TEST(Content, ADeviceGetsNothingThatDiffers) {
  static int allocations;
  allocations = 0;
  husk_port port = *husk_port_host();
  port.map = nullptr;
  port.properties = [](void* device, husk_port_properties* out) {
    husk_port_host()->properties(device, out);
    out->host_memory = 0;
  };
  port.alloc = [](void* device, uint64_t size, void** memory, husk_error* error) {
    ++allocations;
    return husk_port_host()->alloc(device, size, memory, error);
  };
  EditedArtifact edited(kTwoConstants);
  husk_engine_options options = verifying();
  options.port = &port;
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  const Aligned good(edited.file);
  ASSERT_EQ(husk_program_load(engine, good.data(), good.size(), nullptr, nullptr, &program, &error),
            HUSK_OK)
      << error.text;
  husk_program_release(program);
  EXPECT_EQ(allocations, 1);
  damage(edited.file, fb::GetProgram(edited.file.data() + 64)->constants()->Get(0)->blob());
  const Aligned bad(edited.file);
  EXPECT_EQ(husk_program_load(engine, bad.data(), bad.size(), nullptr, nullptr, &program, &error),
            HUSK_INVALID_FILE);
  EXPECT_NE(std::strstr(error.text, "constant 'v'"), nullptr) << error.text;
  EXPECT_EQ(allocations, 1);
  husk_engine_release(engine);
}

// Calls of husk_engine_options.progress.
struct Reports {
  std::vector<uint64_t> done, totals;
  uint64_t last = ~uint64_t{0};  // ends the open when so much is done

  static int32_t report(void* user, uint64_t done, uint64_t total) {
    auto* reports = static_cast<Reports*>(user);
    reports->done.push_back(done);
    reports->totals.push_back(total);
    return done >= reports->last;
  }
  husk_engine_options options() {
    husk_engine_options all = verifying();
    all.progress = report;
    all.progress_user = this;
    return all;
  }
};

constexpr uint64_t kMiB = 1 << 20;

// A program with a constant of 33 MiB and one of 16 bytes.
std::vector<uint8_t> large_artifact() {
  char path[] = "/tmp/husk-large-XXXXXX";
  close(mkstemp(path));
  const std::string bytes = std::to_string(9 * kMiB);
  std::string header = R"({"large":{"dtype":"U8","shape":[)" + bytes + R"(],"data_offsets":[0,)" +
                       bytes + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), 8) << header;
  file << std::string(9 * kMiB, 'x');
  file.close();
  std::vector<uint8_t> out = artifact("constant large u8 [" + bytes + "] file \"" + path +
                                      "\" tensor \"large\"\n" + kTwoConstants);
  unlink(path);
  return out;
}

TEST(Content, ProgressIsReported) {
  const std::vector<uint8_t> file = large_artifact();
  const uint64_t total = 9 * kMiB + 32;
  Reports reports;
  EXPECT_NE(Machine(file, reports.options()).session, nullptr);
  EXPECT_EQ(reports.done,
            (std::vector<uint64_t>{0, 4 * kMiB, 8 * kMiB, 9 * kMiB, total - 16, total}));
  EXPECT_EQ(reports.totals, (std::vector<uint64_t>(6, total)));

  husk_engine_options unverified = reports.options();
  unverified.verify_content = 0;
  reports.done.clear();
  EXPECT_NE(Machine(file, unverified).session, nullptr);
  EXPECT_TRUE(reports.done.empty()) << "nothing is compared";
  EXPECT_NE(Machine("function f { variant cpu { return () } }", reports.options()).session,
            nullptr);
  EXPECT_EQ(reports.done, (std::vector<uint64_t>{0})) << "there is no constant";
}

// Three rows name the same bytes.
TEST(Content, BytesThatConstantsShareAreComparedOnce) {
  std::string program = kTwoConstants;
  program.replace(program.find("0000803f00000040"), 16, "0000803f0000803f");
  program.replace(program.find("0000404000008040"), 16, "0000803f0000803f");
  EditedArtifact edited("constant u f32 [2, 2] bytes \"0000803f0000803f0000803f0000803f\"\n" +
                        program);
  Reports reports;
  EXPECT_NE(Machine(edited.file, reports.options()).session, nullptr);
  EXPECT_EQ(reports.done, (std::vector<uint64_t>{0, 16}));
  EXPECT_EQ(reports.totals, (std::vector<uint64_t>{16, 16}));
  damage(edited.file, edited.program()->constants()->Get(2)->blob());
  Machine m(edited.file, verifying());
  EXPECT_EQ(m.error.code, HUSK_INVALID_FILE);
}

// A port that counts modules, and can do something before it loads one.
struct Modules {
  Modules() {
    port = *husk_port_host();
    port.module_load = [](void* device, const husk_port_image* image, void** module,
                          husk_error* error) {
      ++current->loaded;
      if (current->before) current->before(*image);
      return husk_port_host()->module_load(device, image, module, error);
    };
    port.module_unload = [](void* device, void* module) {
      ++current->unloaded;
      husk_port_host()->module_unload(device, module);
    };
    current = this;
  }
  husk_engine_options options() {
    husk_engine_options options = Machine::defaults();
    options.port = &port;
    return options;
  }
  inline static Modules* current = nullptr;
  husk_port port;
  int loaded = 0, unloaded = 0;
  std::function<void(const husk_port_image&)> before;
};

const char* const kTwoImages = "image again cpu elf \"" HUSK_TEST_KERNELS R"("
kernel second again "add" (ptr, ptr, ptr, i64) block 1 1 1
constant v f32 [4] bytes "0000803f000000400000404000008040"
function f {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 16
    buffer x bytes 16
    launch add grid (1, 1, 1) (read v, read v, write x, 4)
    launch second grid (1, 1, 1) (read x, read v, write y, 4)
    return (tensor y f32 [4] [1])
  }
}
)";

TEST(Content, ImagesThatShareBytesAreOneModule) {
  Modules modules;
  {
    Machine m(kTwoImages, modules.options());
    ASSERT_NE(m.session, nullptr) << m.error.text;
    Tensor y(HUSK_F32, {4});
    ASSERT_EQ(m.run({}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<float>()[3], 12);
    EXPECT_EQ(modules.loaded, 1);
  }
  EXPECT_EQ(modules.unloaded, 1);
}

// Somebody writes to the file after its hash was compared: the code that runs is the one that was.
TEST(Content, AnImageThatChangesLaterIsNotUsed) {
  const std::vector<uint8_t> file = artifact(kTwoConstants);
  char path[] = "/tmp/husk-image-XXXXXX";
  const int descriptor = mkstemp(path);
  ASSERT_EQ(write(descriptor, file.data(), file.size()), ssize_t(file.size()));
  const fb::Blob* blob = fb::GetProgram(file.data() + 64)->images()->Get(0)->blob();
  uint32_t metadata;
  std::memcpy(&metadata, file.data() + 12, 4);
  const size_t at = (64 + metadata + 4095) / 4096 * 4096 + blob->offset();
  Modules modules;
  modules.before = [&](const husk_port_image& image) {
    const std::vector<uint8_t> zeros(blob->size());
    ASSERT_EQ(pwrite(descriptor, zeros.data(), zeros.size(), off_t(at)), ssize_t(zeros.size()));
    ASSERT_EQ(image.size, blob->size());
    EXPECT_EQ(std::memcmp(image.data, file.data() + at, image.size), 0);
  };
  const husk_engine_options options = modules.options();
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  EXPECT_EQ(husk_program_open(engine, path, &program, &error), HUSK_OK) << error.text;
  EXPECT_EQ(modules.loaded, 1);
  husk_program_release(program);
  EXPECT_EQ(husk_program_open(engine, path, &program, &error), HUSK_INVALID_FILE);
  EXPECT_EQ(modules.loaded, 1);
  husk_engine_release(engine);
  close(descriptor);
  unlink(path);
}

TEST(Content, TheApplicationEndsTheOpen) {
  const Aligned file(large_artifact());
  Reports reports;
  const husk_engine_options options = reports.options();
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
  const auto load = [&](uint64_t last) {
    reports.last = last;
    reports.done.clear();
    return husk_program_load(engine, file.data(), file.size(), nullptr, nullptr, &program, &error);
  };
  EXPECT_EQ(load(0), HUSK_CANCELLED);
  EXPECT_EQ(reports.done.size(), 1u);
  EXPECT_EQ(load(5 * kMiB), HUSK_CANCELLED);
  EXPECT_EQ(program, nullptr);
  EXPECT_EQ(reports.done.size(), 3u);
  EXPECT_STREQ(error.text,
               "husk_engine_options.progress ended the open after 8388608 of 9437216 bytes of "
               "constants");
  EXPECT_STREQ(husk_status_name(HUSK_CANCELLED), "cancelled");
  EXPECT_EQ(load(~uint64_t{0}), HUSK_OK) << error.text;
  husk_program_release(program);
  husk_engine_release(engine);
}

// A device with memory of its own, which counts what it holds, and what is copied to it.
struct UploadedTo {
  static inline int held;
  static inline std::vector<std::pair<const uint8_t*, uint64_t>> pieces;

  static husk_port port(bool has_batches) {
    held = 0;
    pieces.clear();
    husk_port out = *husk_port_host();
    out.map = nullptr;
    out.properties = [](void* device, husk_port_properties* properties) {
      husk_port_host()->properties(device, properties);
      properties->host_memory = 0;
    };
    out.alloc = [](void* device, uint64_t size, void** memory, husk_error* error) {
      ++held;
      return husk_port_host()->alloc(device, size, memory, error);
    };
    out.free = [](void* device, void* memory) {
      held -= memory != nullptr;
      husk_port_host()->free(device, memory);
    };
    out.upload = [](void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
      return copy({to, from, size});
    };
    out.upload_batch = nullptr;
    if (has_batches)
      out.upload_batch = [](void*, const husk_upload* uploads, uint32_t count, const husk_mapping*,
                            husk_error*) {
        for (uint32_t i = 0; i < count; ++i) (void)copy(uploads[i]);
        return husk_status{HUSK_OK};
      };
    return out;
  }
  static husk_status copy(const husk_upload& upload) {
    std::memcpy(upload.to, upload.from, upload.size);
    pieces.emplace_back(static_cast<const uint8_t*>(upload.from), upload.size);
    return HUSK_OK;
  }
};

// The application hears of the copies to a device, and ends the open between them.
TEST(Content, UploadsReportTheirProgress) {
  const Aligned file(large_artifact());
  for (const bool has_batches : {false, true}) {
    husk_port port = UploadedTo::port(has_batches);
    Reports reports;
    husk_engine_options options = reports.options();
    options.verify_content = 0;
    options.port = &port;
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_error error = {};
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    const auto load = [&](uint64_t last) {
      reports = {{}, {}, last};
      UploadedTo::pieces.clear();
      return husk_program_load(engine, file.data(), file.size(), nullptr, nullptr, &program,
                               &error);
    };
    const uint64_t total = 9 * kMiB + 32;  // with two constants of 16 bytes
    EXPECT_EQ(load(0), HUSK_CANCELLED);
    EXPECT_TRUE(UploadedTo::pieces.empty());
    EXPECT_EQ(load(has_batches ? total : 5 * kMiB), HUSK_CANCELLED);
    EXPECT_EQ(program, nullptr);
    EXPECT_EQ(UploadedTo::held, 0);
    EXPECT_EQ(reports.done.size(), has_batches ? 2u : 3u);
    ASSERT_EQ(load(~uint64_t{0}), HUSK_OK) << error.text;
    EXPECT_EQ(reports.done, has_batches ? (std::vector<uint64_t>{0, total})
                                        : (std::vector<uint64_t>{0, 4 * kMiB, 8 * kMiB, total}));
    EXPECT_EQ(reports.totals, std::vector<uint64_t>(reports.done.size(), total));
    uint64_t bytes = 0;
    for (size_t i = 0; i < UploadedTo::pieces.size(); ++i) {
      const auto& [from, size] = UploadedTo::pieces[i];
      EXPECT_LE(size, has_batches ? total : 4 * kMiB);
      EXPECT_TRUE(i == 0 || size < kMiB || from > UploadedTo::pieces[i - 1].first);
      bytes += size;
    }
    EXPECT_EQ(bytes, total);
    husk_program_release(program);
    EXPECT_EQ(UploadedTo::held, 0);
    husk_engine_release(engine);
  }
}

// Constants that share the bytes of a file of 64 TiB, which takes no memory: their sizes, each
// aligned, have a sum that wraps in 64 bits.
TEST(Content, ASumOfConstantsThatWraps) {
#ifdef HUSK_EMULATED
  GTEST_SKIP() << "qemu keeps a row for each page of 64 TiB";
#endif
  constexpr uint64_t kFile = uint64_t{1} << 46, kConstant = kFile / 2;
  void* memory = mmap(nullptr, kFile, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of 64 TiB";
  auto* bytes = static_cast<uint8_t*>(memory);
  const auto refusal = [&](uint32_t constants) {
    flatbuffers::FlatBufferBuilder b;
    const fb::Blob blob(0, kConstant, fb::Hash());
    const int64_t dims[] = {int64_t{kConstant}};
    std::vector<flatbuffers::Offset<fb::Constant>> rows;
    for (uint32_t i = 0; i < constants; ++i)
      rows.push_back(fb::CreateConstant(b, b.CreateString(std::to_string(i)), HUSK_U8,
                                        b.CreateVector(dims, 1), &blob));
    const auto all = b.CreateVector(rows);
    const auto targets = b.CreateVector(
        std::vector{fb::CreateTarget(b, b.CreateString("host"), b.CreateString("x"))});
    const auto functions = b.CreateVector(std::vector<flatbuffers::Offset<fb::Function>>());
    fb::FinishProgramBuffer(
        b, fb::CreateProgram(b, b.CreateString("test"), targets, 0, 0, 0, all, 0, functions));
    std::vector<uint8_t> head = artifact(kTwoConstants);  // its header is edited
    head.resize(64);
    const uint32_t metadata = b.GetSize();
    std::memcpy(head.data() + 12, &metadata, 4);
    std::memcpy(head.data() + 16, &kFile, 8);
    head.insert(head.end(), b.GetBufferPointer(), b.GetBufferPointer() + metadata);
    write_hash(head);
    std::memcpy(bytes, head.data(), head.size());
    husk_error error = {};
    EXPECT_EQ(husk_program_verify(bytes, kFile, &error), HUSK_INVALID_FILE);
    return std::string(error.text);
  };
  EXPECT_EQ(refusal(1 << 17), "the artifact has no function");
  EXPECT_EQ(refusal((1 << 17) + 1),
            "constant '131072': with those before it, it has more than 2^62 bytes");
  munmap(memory, kFile);
}

}  // namespace
}  // namespace husk::test
