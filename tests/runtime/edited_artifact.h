// Artifacts whose rows a test edits after the compiler has written them, for the rules that no text
// can break.
#pragma once

#include <cstring>
#include <functional>
#include <stdexcept>

#include "content_hash.h"
#include "fixture.h"
#include "model/rows.h"

namespace husk::test {

// Verifies an artifact, expects `status`, and returns the error text.
inline std::string verify_error(const std::vector<uint8_t>& file,
                                husk_status status = HUSK_INVALID_FILE) {
  husk_error error = {};
  const Aligned bytes(file);
  EXPECT_EQ(husk_program_verify(bytes.data(), file.size(), &error), status) << error.text;
  return error.text;
}

// The structs of husk.fbs with fields that a test can assign.
struct Instruction {
  uint16_t op, aux;
  uint32_t a, b, c;
};
struct Argument {
  uint8_t kind, access, type, flags;
  uint32_t index, count, reserved;
};
struct Buffer {
  uint8_t space, device, align_log2, reserved;
  uint32_t index, size, reserved2;
};
struct View {
  uint32_t buffer, offset, extent, reserved;
};
struct TensorRow {
  uint32_t view, first;
  uint8_t dtype, rank;
  uint16_t reserved;
  uint32_t reserved2;
};
struct BlobRow {
  uint64_t offset, size;
  uint8_t hash[32];
};
struct Range {
  int64_t min, max;
};
struct Segment {
  uint32_t scalar_begin, scalar_end, step_begin, step_end, when, back;
};

// An artifact with one function and one variant. Its rows are edited in place:
//   edited.step(2).argument(4).access = HUSK_ACCESS_WRITE;
class EditedArtifact {
 public:
  // A step and the arguments of all steps.
  struct Step {
    Instruction& row;
    Argument* arguments;
    Argument& argument(uint32_t i) const { return arguments[row.b + i]; }
  };

  explicit EditedArtifact(const std::string& program) : file(artifact(program)) {}

  const fb::Program* program() const { return fb::GetProgram(file.data() + 64); }
  const fb::Function* function(uint32_t i = 0) const { return program()->functions()->Get(i); }
  const fb::Variant* variant() const { return function()->variants()->Get(0); }
  Instruction& scalar(uint32_t i) { return row<Instruction>(variant()->scalars(), i); }
  Step step(uint32_t i) {
    return {row<Instruction>(variant()->steps(), i), &row<Argument>(variant()->arguments(), 0)};
  }
  Step last_step() { return step(variant()->steps()->size() - 1); }
  Buffer& buffer(uint32_t i) { return row<Buffer>(variant()->buffers(), i); }
  View& view(uint32_t i) { return row<View>(variant()->views(), i); }
  TensorRow& tensor(uint32_t i) { return row<TensorRow>(variant()->tensors(), i); }
  Segment& segment(uint32_t i) { return row<Segment>(variant()->segments(), i); }
  Segment& last_segment() { return segment(variant()->segments()->size() - 1); }
  Argument& result(uint32_t i) { return row<Argument>(variant()->results(), i); }

  // The register of the first scalar op of that kind, from register `from` on.
  uint32_t find(Scalar op, uint32_t from = 0) {
    while (scalar(from).op != static_cast<uint16_t>(op)) ++from;
    return from;
  }
  // The first scalar op of that kind.
  Instruction& scalar(Scalar op) { return scalar(find(op)); }
  // The first buffer of that space.
  Buffer& buffer(Space space) {
    uint32_t i = 0;
    while (buffer(i).space != static_cast<uint8_t>(space)) ++i;
    return buffer(i);
  }

  // A field of a table. It must be stored, and it is if its value is not the default one.
  template <class T, class Table>
  T& field(const Table* table, flatbuffers::voffset_t slot) {
    const uint8_t* at = reinterpret_cast<const flatbuffers::Table*>(table)->GetAddressOf(slot);
    if (!at) throw std::logic_error("the field has its default value");
    return edit<T>(at);
  }
  // The place of data that a const accessor returns.
  template <class T>
  T& edit(const void* at) {
    return *reinterpret_cast<T*>(file.data() + (static_cast<const uint8_t*>(at) - file.data()));
  }
  // The number of elements of a vector or string, which precedes them.
  template <class T>
  uint32_t& length(const flatbuffers::Vector<T>* vector) {
    return edit<uint32_t>(vector->Data() - 4);
  }
  // Replaces a string by one that is not longer.
  void rename(const flatbuffers::String* old, const std::string& text) {
    if (text.size() > old->size()) throw std::logic_error("the text is too long");
    std::memcpy(&edit<char>(old->Data()), text.c_str(), text.size() + 1);
    edit<uint32_t>(old->Data() - 4) = static_cast<uint32_t>(text.size());
  }
  BlobRow& blob(const fb::Blob* row) { return edit<BlobRow>(row); }

  // Corrects the hash and returns the error of the verifier, which must refuse the artifact.
  std::string verify_error() {
    write_hash(file);
    return test::verify_error(file);
  }

  std::vector<uint8_t> file;

 private:
  template <class T, class Row>
  static T& row(const flatbuffers::Vector<const Row*>* rows, uint32_t i) {
    static_assert(sizeof(T) == sizeof(Row));
    return reinterpret_cast<T*>(const_cast<uint8_t*>(rows->Data()))[i];
  }
};

// An edit of an artifact, and a part of the reason for which the verifier refuses the result.
struct RowCase {
  const char* text;
  std::function<void(EditedArtifact&)> edit;
};

inline void expect_refused(const std::string& program, const std::vector<RowCase>& cases) {
  for (const RowCase& c : cases) {
    EditedArtifact edited(program);
    c.edit(edited);
    const std::string text = edited.verify_error();
    EXPECT_NE(text.find(c.text), std::string::npos)
        << "case " << &c - cases.data() << " is: " << text << "\nexpected: " << c.text;
  }
}

}  // namespace husk::test
