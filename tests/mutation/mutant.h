// What tests/mutation/rewrite.py puts around the checks of the runtime. At most one of them, the
// mutant, is removed in a process: the environment variable HUSK_MUTANT has its number. The numbers
// of the checks whose removal makes a difference are written to the file that HUSK_MUTANT_TRACE
// names, if there is one.
#pragma once

namespace husk {

// Returns whether check `number` is removed. It is called if that makes a difference.
bool is_removed(unsigned number);

// Returns the value of a condition, or `without` if the check is removed.
inline bool mutated(unsigned number, bool without, bool value) {
  return value != without && is_removed(number) ? without : value;
}

// Returns the status of a call, or success if the check is removed. `S` is Status or husk_status.
template <class S>
S ignored(unsigned number, S status) {
  return status != S() && is_removed(number) ? S() : status;
}

}  // namespace husk
