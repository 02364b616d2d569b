#include "text/entry.h"

namespace husk::text {

Status Entry::number(const char* name, int64_t least, int64_t& to) const {
  const JsonValue* found = member(name);
  to = found ? whole(*found, kMost) : -1;
  return to < least ? wrong(name) : Status::ok;
}

Status Entry::sizes(const char* name, List<int64_t>& to, int64_t& product) const {
  const JsonValue* list = member(name);
  if (!list || list->kind != JsonKind::array || list->number < 1) return wrong(name);
  product = 1;
  for (const JsonValue* one = json_.first(list); one != json_.end(list); one = json_.after(one)) {
    const int64_t size = whole(*one, kMost);
    if (size < 1 || __builtin_mul_overflow(product, size, &product) ||
        product > (int64_t{1} << 40)) {
      return wrong(name);
    }
    HUSK_TRY(to.push(size, error_));
  }
  return Status::ok;
}

Status Entry::wrong(const char* name) const {
  return fail(error_, HUSK_INVALID_FILE,
              "the metadata husk.text.model describes %s with a wrong `%s`: export the model again",
              what_, name);
}

}  // namespace husk::text
