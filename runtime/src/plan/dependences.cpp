#include "plan/dependences.h"

namespace husk {
namespace {

bool meet(uint64_t low_a, uint64_t high_a, uint64_t low_b, uint64_t high_b) {
  return low_a < high_b && low_b < high_a;
}

// Returns the bytes of the arena that an access may touch.
Placement absolute(const Access& access, const Placement& place) {
  const uint64_t high = access.high < place.size ? access.high : place.size;
  const uint64_t low = access.low < high ? access.low : high;
  return {place.offset + low, high - low};
}

class Builder {
 public:
  Builder(const Code& code, const Array<Access>& accesses, const Placement* placements)
      : code_(code), accesses_(accesses), placements_(placements) {}

  Status run(Dependences* dependences, const husk_allocator& allocator, husk_error* error) {
    const uint32_t steps = code_.steps.size;
    HUSK_TRY(latest_.allocate(allocator, 2 * size_t{code_.buffers.size}, error));
    HUSK_TRY(previous_.allocate(allocator, accesses_.size(), error));
    HUSK_TRY(dependences->ancestors.allocate(allocator, steps, steps, error));
    HUSK_TRY(candidates_.allocate(allocator, 1, steps, error));
    dependences->edges.clear();
    uint32_t access = 0, chained = 0;
    for (uint32_t step = 0; step < steps; ++step) {
      uint64_t* candidates = candidates_.row(0);
      for (size_t w = 0; w < candidates_.words(); ++w) candidates[w] = 0;
      for (; access < accesses_.size() && accesses_[access].step == step; ++access)
        gather(accesses_[access]);
      for (; chained < access; ++chained) {
        uint32_t& latest = latest_of(accesses_[chained].buffer, writes(accesses_[chained].access));
        previous_[chained] = latest;
        latest = chained + 1;
      }
      HUSK_TRY(connect(step, dependences, allocator, error));
    }
    return Status::ok;
  }

 private:
  void gather(const Access& access) {
    gather_from(access, access.buffer, nullptr);
    if (!placements_ || code_.buffers[access.buffer].space() != uint8_t(Space::arena)) return;
    const Placement here = absolute(access, placements_[access.buffer]);
    for (uint32_t b = 0; b < code_.buffers.size; ++b) {
      const Placement& place = placements_[b];
      if (b != access.buffer && code_.buffers[b].space() == uint8_t(Space::arena) &&
          meet(here.offset, here.offset + here.size, place.offset, place.offset + place.size))
        gather_from(access, b, &here);
    }
  }

  // Collects the earlier steps whose accesses to buffer `b` conflict with `access`. If `b` is
  // another buffer than that of the access, `here` are the bytes of the arena that the access may
  // touch.
  void gather_from(const Access& access, uint32_t b, const Placement* here) {
    for (bool written : {true, false}) {
      if (!written && !writes(access.access)) return;
      for (uint32_t i = latest_of(b, written); i > 0; i = previous_[i - 1]) {
        const Access& other = accesses_[i - 1];
        bool conflict;
        if (here) {
          const Placement there = absolute(other, placements_[b]);
          conflict = meet(here->offset, here->offset + here->size, there.offset,
                          there.offset + there.size);
        } else {
          conflict = meet(access.low, access.high, other.low, other.high);
        }
        if (conflict) candidates_.set(0, other.step);
      }
    }
  }

  uint32_t& latest_of(uint32_t buffer, bool written) {
    return latest_[2 * size_t{buffer} + written];
  }

  // Adds edges from the latest candidate to the earliest. A candidate that another predecessor
  // waits for needs no edge.
  Status connect(uint32_t step, Dependences* dependences, const husk_allocator& allocator,
                 husk_error* error) {
    uint64_t* mine = dependences->ancestors.row(step);
    for (size_t w = candidates_.words(); w-- > 0;) {
      for (;;) {
        const uint64_t open = candidates_.row(0)[w] & ~mine[w];
        if (!open) break;
        const uint32_t from = static_cast<uint32_t>(w * 64 + 63 -
                                                    static_cast<unsigned>(__builtin_clzll(open)));
        HUSK_TRY(dependences->edges.push(allocator, {from, step}, error));
        const uint64_t* theirs = dependences->ancestors.row(from);
        for (size_t k = 0; k < candidates_.words(); ++k) mine[k] |= theirs[k];
        mine[w] |= 1ull << (from % 64);
      }
    }
    return Status::ok;
  }

  const Code& code_;
  const Array<Access>& accesses_;
  const Placement* placements_;
  // Per buffer two linked lists through `accesses_`, one of writes, one of reads: `latest_` is the
  // head, `previous_[i]` the next older access. Indices are stored plus one; 0 ends a list.
  Array<uint32_t> latest_, previous_;
  BitRows candidates_;
};

}  // namespace

Status collect_accesses(const Code& code, const Interval* intervals,
                        const husk_allocator& allocator, Array<Access>* out, husk_error* error) {
  size_t n = 0;
  for (const fb::Instruction& step : code.steps)
    for (uint32_t i = 0; i < step.c(); ++i)
      n += code.view_of(code.arguments[step.b() + i]) != kNone;
  HUSK_TRY(out->allocate(allocator, n, error));
  n = 0;
  for (uint32_t s = 0; s < code.steps.size; ++s)
    for (uint32_t i = 0; i < code.steps[s].c(); ++i) {
      const fb::Argument& argument = code.arguments[code.steps[s].b() + i];
      const uint32_t index = code.view_of(argument);
      if (index == kNone) continue;
      const fb::View& view = code.views[index];
      const Interval offset = intervals[view.offset()], extent = intervals[view.extent()];
      Access access = {s, view.buffer(), argument.access(), 0, UINT64_MAX};
      if (offset.low > 0) access.low = static_cast<uint64_t>(offset.low);
      if (offset.high >= 0 && offset.high != INT64_MAX && extent.high >= 0 &&
          extent.high != INT64_MAX)
        access.high = static_cast<uint64_t>(offset.high) + static_cast<uint64_t>(extent.high);
      (*out)[n++] = access;
    }
  return Status::ok;
}

Status Dependences::build(const Code& code, const Array<Access>& accesses,
                          const Placement* placements, const husk_allocator& allocator,
                          husk_error* error) {
  return Builder(code, accesses, placements).run(this, allocator, error);
}

}  // namespace husk
