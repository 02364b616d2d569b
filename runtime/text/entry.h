// An entry of the metadata husk.text.model: an object with numbers and lists of them.
#pragma once

#include "text/json.h"

namespace husk::text {

class Entry {
 public:
  static constexpr double kMost = 1 << 30;  // of all numbers

  // `what` is what the entry describes, for messages.
  Entry(const Json& json, const char* name, const char* what, husk_error* error)
      : json_(json), object_(json.member(json.root(), name)), what_(what), error_(error) {}

  bool exists() const { return object_ != nullptr; }
  // The member; null if there is none.
  const JsonValue* member(const char* name) const { return json_.member(object_, name); }
  // Reads a number that is at least `least`.
  Status number(const char* name, int64_t least, int64_t& to) const;
  // Reads a list of sizes, and their product.
  Status sizes(const char* name, List<int64_t>& to, int64_t& product) const;
  // Fails with HUSK_INVALID_FILE: the member is missing, or is not what it must be.
  Status wrong(const char* name) const;

 private:
  const Json& json_;
  const JsonValue* object_;
  const char* what_;
  husk_error* error_;
};

}  // namespace husk::text
