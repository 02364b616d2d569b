// The functions that tests/mutation/rewrite.py puts around the checks of the runtime. A process
// removes at most one check, the mutant; the environment variable HUSK_MUTANT has the number of the
// mutant. If the environment variable HUSK_MUTANT_TRACE names a file, the process writes to it the
// numbers of the checks whose removal makes a difference.
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
