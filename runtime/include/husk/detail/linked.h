/** @file
 * The table of kernels and launches that an object file of `huskc --emit=obj` contains (FORMAT.md,
 * "Linked artifacts"), for the compiler, which writes it, for ports, which find kernels in it, and
 * for the core, which finds launches in it. The header is private: applications do not include it.
 * C++17. */
#ifndef HUSK_DETAIL_LINKED_H
#define HUSK_DETAIL_LINKED_H

#include <stdint.h>

#include <husk/port.h>
#include <husk/types.h>

namespace husk::detail {

/** The bit of the header's feature bits which says that the bytes are part of an object file. */
constexpr uint64_t kLinkedFeature = 1;
/** The address of the offset of the table is the first multiple of this number behind the bytes. */
constexpr uint64_t kLinkedAlign = 64;
/** The first word of a LinkedTable. It changes with the layout of these structs. */
constexpr uint64_t kLinkedMagic = 0x324b4e4c4b535548;  // "HUSKLNK2"

enum LinkedSymbolType : uint64_t { kLinkedFunction = 1, kLinkedObject = 2 };

/** A symbol that an image defines. */
struct LinkedSymbol {
  const char* name;
  void* address;
  uint64_t size;  // bytes of an object
  uint64_t type;  // LinkedSymbolType
};

/** What changes while programs use an image. All bytes are zero at first. */
struct LinkedState {
  uint32_t lock;         // 1 while a thread reads or changes the other fields
  uint32_t users;        // modules that are loaded
  husk_threads threads;  // those of the first user; `parallel` is null if it has none
};

struct LinkedImage {
  const char* name;  // of the image's row
  const LinkedSymbol* symbols;
  uint64_t symbol_count;
  LinkedState* state;
};

/** Launches that follow one another in a segment, as straight-line code. Each has the grid 1 1 1
 * for all inputs, and a kernel of an image of the table. */
struct LinkedLaunches {
  husk_linked_launches code;
  uint32_t function, variant;  // indices of the rows in the artifact
  uint32_t first_step, count;
};

struct LinkedTable {
  uint64_t magic;    // kLinkedMagic
  uint64_t machine;  // e_machine of the ELF specification
  const LinkedImage* images;
  uint64_t image_count;
  const LinkedLaunches* launches;
  uint64_t launches_count;
};

}  // namespace husk::detail

#endif
