// Copies of constants in the layouts that operators read fastest (husk_op.pack).
#pragma once

#include <husk/op.h>

#include "base/blake2b.h"
#include "model/container.h"
#include "model/rows.h"
#include "program/shared_memory.h"

namespace husk::runtime {

struct Program;

// The arguments of calls as far as the file fixes them, one call at a time.
class KnownArguments {
 public:
  // Writes the arguments of a step of the chosen variant. No tensor has an address.
  Status write(const Program& program, uint32_t function, uint32_t step, husk_error* error);
  // The first argument of the call that was written.
  husk_op_arg* call = nullptr;

 private:
  uint32_t function_ = kNone;
  Array<husk_op_arg> values_;  // by argument of the variant
  Array<int64_t> numbers_;     // by operand of the variant
};

class PackedConstants {
 public:
  // More layouts of one constant than this are not copied. The limit keeps the time and the memory
  // in proportion to the file, whatever it says.
  static constexpr uint32_t kMaxLayouts = 4;

  PackedConstants() = default;
  PackedConstants(const PackedConstants&) = delete;
  PackedConstants& operator=(const PackedConstants&) = delete;
  ~PackedConstants();

  // Copies what the operators of the chosen variants want. The constants must be loaded, and
  // `program` must live as long as the copies.
  Status load(const Program* program, husk_error* error);

  // By argument of the function's variant: its copy, or null. Null if the program has no copies.
  const void* const* of(uint32_t function) const {
    return by_argument_.size() == 0 ? nullptr : by_argument_.data() + first_argument_[function];
  }
  // The bytes of the copies, those that other programs use too included. Copies that the file has
  // take no memory.
  uint64_t bytes() const { return bytes_; }

  // The copies, for a program that writes them to a file. write_key() returns false for one that no
  // file may have.
  size_t count() const { return copies_.size(); }
  const uint8_t* data(size_t copy) const { return copies_[copy].data; }
  uint64_t bytes(size_t copy) const { return copies_[copy].bytes; }
  bool write_key(size_t copy, uint8_t* key) const { return write_key(copies_[copy], key); }

  // Copies that an update replaces: by update and layout of its constant; null if there is none.
  struct Staged {
    explicit Staged(Engine* of) : engine(of) {}
    Staged(const Staged&) = delete;
    Staged& operator=(const Staged&) = delete;
    ~Staged();
    Engine* engine;
    Array<void*> memory;
  };
  // Lays out new values, which are at `values` by update, next to the old copies.
  Status stage(const husk_constant_part* updates, uint32_t n, const Array<void*>& values,
               Staged* staged, husk_error* error) const;
  // Puts them into the place of the old copies. No run may be in progress.
  void swap(const husk_constant_part* updates, uint32_t n, Staged& staged);

 private:
  // A copy, with the first call that reads it.
  struct Copy {
    uint32_t function, step, argument;  // the argument counts from the step's first one
    uint32_t constant;
    uint32_t previous;  // the previous copy of the same constant, or kNone
    uint64_t bytes, layout;
    const char* name;  // husk_packing.name
    uint8_t* data;
    bool in_file;    // `data` is in the file, until an update replaces it
    void* replaced;  // the memory of its own that an update gave it, or null
    // A hash of the constant's content, of the tensor, and of how the op lays it out. Copies with
    // the same hash are the same.
    uint8_t hash[32];
  };
  Status find_copies(uint32_t function, KnownArguments* known, husk_error* error);
  Status ask(uint32_t function, uint32_t step, husk_op_arg* arguments, husk_error* error);
  Status pack(const Copy& copy, const uint8_t* constant, void* to, KnownArguments* known,
              Progress* progress, husk_error* error) const;
  // Calls husk_op.pack of a step.
  Status call(uint32_t function, uint32_t step, husk_op_arg* arguments, husk_packing* packing,
              Progress* progress, husk_error* error) const;
  void add_tensor(const Copy& copy, Blake2b* hash) const;
  void write_hash(Copy* copy) const;
  bool write_key(const Copy& copy, uint8_t* key) const;
  const uint8_t* find_in_file(const Copy& copy) const;
  uint32_t find_same(const Copy& wanted, uint32_t* layouts) const;
  void place();

  const Program* program_ = nullptr;
  List<Copy> copies_;
  Array<uint32_t> last_copy_;  // by constant: its last copy plus 1; 0 if there is none
  // By argument of the chosen variants, one after another: its copy; and the number of the copy
  // plus 1, 0 if there is none.
  Array<const void*> by_argument_;
  Array<uint32_t> copy_of_;
  Array<uint32_t> first_argument_;  // by function
  SharedMemory memory_;
  uint64_t bytes_ = 0;
};

}  // namespace husk::runtime
