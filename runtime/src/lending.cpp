// Constants of the same bytes lie on the device once, whichever programs of an engine they belong to.
#include "program.h"

#include <cstring>

namespace {

// The address of the blob's bytes among what `of` shares, most often of the constant at the same place; null if there
// is none.
uint8_t* find_same(const husk_program* of, const husk::fb::Blob* blob, uint32_t place) {
  const uint32_t n = static_cast<uint32_t>(of->constants.size());
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t c = (place + i) % n;
    const husk::fb::Blob* other = of->rows()->constants()->Get(c)->blob();
    if (other->size() != blob->size() || memcmp(other->hash().bytes()->Data(), blob->hash().bytes()->Data(), 32) != 0)
      continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(of->shared->memory);
    if (reinterpret_cast<uintptr_t>(of->constants[c]) - begin < of->shared->bytes) return of->constants[c];
  }
  return nullptr;
}

}  // namespace

// Takes those that another program shares, and their bytes from `total`: where that is most of the constants and of
// what is shared, as all of it stays while anyone uses it.
void husk_program::borrow_constants(uint64_t* total) {
  husk::Lock lock(engine->mutex);
  for (husk_program* other = engine->lenders; other && !shared; other = other->next_lender) {
    uint64_t same = 0;
    for (int pass = other->changed ? 2 : 0; pass < 2; ++pass) {
      for (uint32_t i = 0; i < constants.size(); ++i) {
        const husk::fb::Blob* blob = rows()->constants()->Get(i)->blob();
        uint8_t* found = blob->size() ? find_same(other, blob, i) : nullptr;
        if (found && pass == 0) same += husk::padded(blob->size());
        if (found && pass > 0) constants[i] = found;
      }
      if (pass > 0 || same * 2 < *total || same * 2 < other->shared->bytes) break;
      *total -= same;
      shared = other->shared;
      shared->references.retain();
    }
  }
}

void husk_program::lend_constants() {
  husk::Lock lock(engine->mutex);
  next_lender = engine->lenders;
  engine->lenders = this;
}

void husk_program::drop_constants() {
  if (!shared) return;
  {
    husk::Lock lock(engine->mutex);
    for (husk_program** at = &engine->lenders; *at; at = &(*at)->next_lender)
      if (*at == this) {
        *at = next_lender;
        break;
      }
  }
  engine->port->stream_wait(engine->device, nullptr, &sink.spare);   // uploads of a load that failed half-way
  for (husk::Weights* weights : {shared, rest}) {
    if (!weights || !weights->references.drop()) continue;
    engine->port->free(engine->device, weights->memory);
    husk::destroy(engine->allocator, weights);
  }
}

// True if the values may be overwritten: nobody else uses them, nor will.
bool husk_program::change_constants() {
  husk::Lock lock(engine->mutex);
  changed = true;
  return shared && shared->references.alone();
}
