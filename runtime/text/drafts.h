// Drafts of speculative decoding by prompt look-up: what followed the last tokens of a text
// earlier.
#pragma once

#include <cstdint>

namespace husk::text {

// Writes up to `most` tokens that may follow `tokens` after them, and returns how many. They
// followed the latest earlier place of the last three tokens, or else of the last two. A draft goes
// on with its own tokens, since a text may repeat a few tokens many times.
int64_t draft(int32_t* tokens, int64_t count, int64_t most);

}  // namespace husk::text
