// Artifacts that are bent after the compiler wrote them, for the rules that no text can break.
#pragma once

#include "blake2b.h"
#include "fixture.h"
#include "rows.h"

#include <cstring>

namespace husk::test {

inline void write_hash(std::vector<uint8_t>& file) {
  uint32_t metadata;
  std::memcpy(&metadata, file.data() + 12, 4);
  Blake2b hash;
  hash.update(file.data() + 64, metadata);
  hash.finish(file.data() + 32);
}

inline std::string refusal(const std::vector<uint8_t>& file, husk_status want = HUSK_INVALID_FILE) {
  husk_error error = {};
  const Aligned bytes(file);
  EXPECT_EQ(husk_program_verify(bytes.data(), file.size(), &error), want) << error.text;
  return error.text;
}

// Rows of the one variant, to be bent in place.
struct Bent {
  std::vector<uint8_t> file;

  explicit Bent(const std::string& program) : file(artifact(program)) {}

  template <class T>
  T* rows(const flatbuffers::Vector<const T*>* vector) {
    return reinterpret_cast<T*>(const_cast<uint8_t*>(vector->Data()));
  }
  const fb::Variant* variant() { return fb::GetProgram(file.data() + 64)->functions()->Get(0)->variants()->Get(0); }
  fb::Instruction* scalars() { return rows(variant()->scalars()); }
  fb::Instruction* steps() { return rows(variant()->steps()); }
  fb::Argument* arguments() { return rows(variant()->arguments()); }
  fb::Buffer* buffers() { return rows(variant()->buffers()); }
  fb::View* views() { return rows(variant()->views()); }
  fb::Tensor* tensors() { return rows(variant()->tensors()); }
  fb::Segment* segments() { return rows(variant()->segments()); }
  fb::Argument* results() { return rows(variant()->results()); }

  uint32_t find_scalar(Scalar op, uint32_t from = 0) {
    for (uint32_t i = from;; ++i)
      if (scalars()[i].op() == static_cast<uint16_t>(op)) return i;
  }
  uint32_t find_buffer(Space space) {
    for (uint32_t i = 0;; ++i)
      if (buffers()[i].space() == static_cast<uint8_t>(space)) return i;
  }
  std::string refused() {
    write_hash(file);
    return refusal(file);
  }
};

inline fb::Instruction with_a(const fb::Instruction& i, uint32_t a) { return {i.op(), i.aux(), a, i.b(), i.c()}; }
inline fb::Instruction with_b(const fb::Instruction& i, uint32_t b) { return {i.op(), i.aux(), i.a(), b, i.c()}; }
inline fb::Argument with_access(const fb::Argument& a, uint8_t access) {
  return {a.kind(), access, a.type(), a.flags(), a.index(), a.count(), a.reserved()};
}
inline fb::Argument with_index(const fb::Argument& a, uint32_t index) {
  return {a.kind(), a.access(), a.type(), a.flags(), index, a.count(), a.reserved()};
}

}  // namespace husk::test
