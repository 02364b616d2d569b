// The entries of husk_op.contract, as <husk/op.h> describes the text.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace husk::host_test {

struct Entry {
  std::string name;
  bool read = true, written = false, optional = false;
  int same = -1;            // the argument that this one may be the same tensor as
  bool well_formed = true;  // the marks are among those of <husk/op.h>
};

inline std::vector<Entry> parse_contract(const std::string& text) {
  std::vector<Entry> entries;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    std::string token = text.substr(at, end - at);
    Entry entry;
    if (!token.empty() && token.back() == '?') {
      entry.optional = true;
      token.pop_back();
    }
    const size_t colon = token.find(':');
    entry.name = token.substr(0, colon);
    if (colon != std::string::npos) {
      const std::string marks = token.substr(colon + 1);
      const size_t equals = marks.find('=');
      const std::string use = marks.substr(0, equals);
      entry.written = true;
      entry.read = use == "rw";
      entry.well_formed = use == "w" || use == "rw";
      if (equals != std::string::npos) {
        for (size_t i = 0; i < entries.size(); ++i)
          if (entries[i].name == marks.substr(equals + 1)) entry.same = static_cast<int>(i);
        entry.well_formed = entry.well_formed && entry.same >= 0;
      }
    }
    for (char c : entry.name)
      entry.well_formed = entry.well_formed && (c == '_' || (c >= '0' && c <= '9') ||
                                                (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    entry.well_formed = entry.well_formed && !entry.name.empty();
    for (const Entry& other : entries)
      entry.well_formed = entry.well_formed && other.name != entry.name &&
                          (entry.optional || !other.optional);
    entries.push_back(entry);
    at = end + 1;
  }
  return entries;
}

inline bool has_entry(const std::vector<Entry>& entries, const char* name) {
  return std::any_of(entries.begin(), entries.end(),
                     [name](const Entry& entry) { return entry.name == name; });
}

}  // namespace husk::host_test
