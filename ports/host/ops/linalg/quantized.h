// The layout in which kernels of products read codes (husk_op.pack). It is the same for all
// instruction sets.
//
// A panel consists of kPanelColumns columns, the last one of a matrix perhaps of fewer: their codes
// are 0 then. The depth of a panel is divided into blocks, the last one filled with codes 0. A
// block is a word of 32 bits for each column. With codes of 8 bits, byte i has that of element i of
// the block; with codes of 4 bits, the low half of byte i has element i, the high half element i
// + 4.
//
// Scales and zeros have panels of kPanelColumns columns, too: for each group a number for each
// column, of the dtype that they have. Columns that the matrix has not are 0.
#pragma once

#include "core/cancellation.h"
#include "linalg/product.h"

namespace husk::host {

// Kernels that are compiled for several sets of features use what is in the unnamed namespace.
namespace {

constexpr int64_t kPanelColumns = 16;

// Groups of codes that are packed are multiples of this, so that a word belongs to one group.
constexpr int64_t kMinPackedGroup = 8;

// Up to so many rows are multiplied with codes as they are read.
constexpr int64_t kFewCodeRows = 12;

// The codes of a column in a block.
constexpr int64_t codes_of_word(int32_t bits) { return 32 / bits; }

// The words of a panel.
constexpr int64_t panel_words(int32_t bits, int64_t k) {
  return (k + codes_of_word(bits) - 1) / codes_of_word(bits) * kPanelColumns;
}

}  // namespace

// Writes the copy of scales or of zeros for a matrix of n columns to `to`, unless that is null.
// Returns its bytes. `numbers.packed` is not used.
int64_t pack_group_numbers(const GroupNumbers& numbers, int64_t groups, int64_t n,
                           Cancellation& cancellation, void* to);

}  // namespace husk::host
