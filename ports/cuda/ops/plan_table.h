// Plans that a library has made, kept for later calls.
#pragma once

#include "ops/hash.h"

namespace husk::cuda {

// A table of fixed size, since a run at a shape that was not prepared makes a plan without
// allocating. A full set gives the place of the plan whose last use is oldest to a new one. A table
// begins as memory that is all zeros, and the caller guards it.
//
// A Plan has the members
//
//   key                  what a plan depends on, without padding, since its bytes are compared
//   uint64_t last_used;  the table's clock at the last use; 0 if no plan is in this place
template <class Plan, uint32_t kSets, uint32_t kWays>
class PlanTable {
 public:
  // The plan for a key of this hash, which counts as used; null if there is none.
  template <class Key>
  Plan* find(const Key& key, uint64_t hash) {
    Set& set = sets_[hash % kSets];
    for (uint32_t i = 0; i < kWays; ++i) {
      Plan& plan = set.plans[i];
      if (set.hashes[i] != hash || !plan.last_used || memcmp(&plan.key, &key, sizeof key) != 0)
        continue;
      plan.last_used = ++clock_;
      return &plan;
    }
    return nullptr;
  }
  // The place for a new plan of this hash.
  Plan* place(uint64_t hash) {
    Set& set = sets_[hash % kSets];
    Plan* oldest = set.plans;
    for (Plan& plan : set.plans)
      if (plan.last_used < oldest->last_used) oldest = &plan;
    return oldest;
  }
  // A plan was written to its place, and counts as used.
  void keep(Plan* place, uint64_t hash) {
    Set& set = sets_[hash % kSets];
    set.hashes[place - set.plans] = hash;
    place->last_used = ++clock_;
  }
  // Calls f for each place.
  template <class F>
  void each(const F& f) {
    for (Set& set : sets_)
      for (Plan& plan : set.plans) f(plan);
  }

 private:
  struct Set {
    uint64_t hashes[kWays];  // of the keys, side by side, so that a search reads little memory
    Plan plans[kWays];
  };

  uint64_t clock_;
  Set sets_[kSets];
};

}  // namespace husk::cuda
