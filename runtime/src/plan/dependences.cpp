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
    dependences->is_chain = false;
    dependences->edges.clear();
    const bool few = code_.steps.size <= kMaxOrderedSteps;
    if (few) HUSK_TRY(order(dependences, allocator, error));
    if (few && work_ <= kMaxOrderWork) return Status::ok;
    return chain(dependences, allocator, error);
  }

 private:
  // Finds the edges. Stops early if that is too much work.
  Status order(Dependences* dependences, const husk_allocator& allocator, husk_error* error) {
    const uint32_t steps = code_.steps.size;
    HUSK_TRY(latest_.allocate(allocator, 2 * size_t{code_.buffers.size}, error));
    HUSK_TRY(previous_.allocate(allocator, accesses_.size(), error));
    HUSK_TRY(used_.allocate(allocator, code_.buffers.size, error));
    HUSK_TRY(is_used_.allocate(allocator, code_.buffers.size, error));
    HUSK_TRY(dependences->ancestors.allocate(allocator, steps, steps, error));
    HUSK_TRY(candidates_.allocate(allocator, 1, steps, error));
    uint32_t access = 0, chained = 0;
    for (uint32_t step = 0; step < steps; ++step) {
      uint64_t* candidates = candidates_.row(0);
      for (size_t w = 0; w < candidates_.words(); ++w) candidates[w] = 0;
      for (; access < accesses_.size() && accesses_[access].step == step; ++access)
        gather(accesses_[access]);
      for (; chained < access; ++chained) remember(chained);
      HUSK_TRY(connect(step, dependences, allocator, error));
      if (work_ > kMaxOrderWork) break;
    }
    return Status::ok;
  }

  Status chain(Dependences* dependences, const husk_allocator& allocator, husk_error* error) {
    dependences->is_chain = true;
    dependences->edges.clear();
    // Redundant: to allocate nothing does not fail.
    HUSK_TRY(dependences->ancestors.allocate(allocator, 0, 0, error));
    for (uint32_t step = 1; step < code_.steps.size; ++step)
      HUSK_TRY(dependences->edges.push(allocator, {step - 1, step}, error));
    return Status::ok;
  }

  bool is_placed(uint32_t buffer) const {
    return placements_ && code_.buffers[buffer].space() == uint8_t(Space::arena);
  }

  void remember(uint32_t access) {
    const uint32_t buffer = accesses_[access].buffer;
    uint32_t& latest = latest_of(buffer, writes(accesses_[access].access));
    previous_[access] = latest;
    latest = access + 1;
    if (!is_placed(buffer) || is_used_[buffer]) return;
    is_used_[buffer] = true;
    used_[used_count_++] = buffer;
  }

  void gather(const Access& access) {
    if (!is_placed(access.buffer)) return gather_from(access, access.buffer, nullptr);
    const Placement here = absolute(access, placements_[access.buffer]);
    work_ += used_count_;
    for (uint32_t n = used_count_; n-- > 0;) {
      const uint32_t b = used_[n];
      const Placement& place = placements_[b];
      if (b == access.buffer)
        gather_from(access, b, nullptr);
      else if (meet(here.offset, here.offset + here.size, place.offset, place.offset + place.size))
        gather_from(access, b, &here);
      if (latest_of(b, true) || latest_of(b, false)) continue;
      is_used_[b] = false;
      used_[n] = used_[--used_count_];
    }
  }

  // Collects the earlier steps whose accesses to buffer `b` conflict with `access`. If `b` is
  // another buffer than that of the access, `here` are the bytes of the arena that the access may
  // touch. If the access writes, it takes the accesses from the lists whose bytes it covers: what
  // conflicts with one of them conflicts with the write too, which waits for it.
  void gather_from(const Access& access, uint32_t b, const Placement* here) {
    const bool writing = writes(access.access);
    for (bool written : {true, false}) {
      if (!written && !writing) return;
      for (uint32_t* at = &latest_of(b, written); *at > 0;) {
        const uint32_t i = *at - 1;
        const Access& other = accesses_[i];
        uint64_t low = other.low, high = other.high, from = access.low, to = access.high;
        if (here) {
          const Placement there = absolute(other, placements_[b]);
          low = there.offset;
          high = there.offset + there.size;
          from = here->offset;
          to = here->offset + here->size;
        }
        ++work_;
        if (meet(from, to, low, high)) candidates_.set(0, other.step);
        if (writing && from <= low && high <= to)
          *at = previous_[i];
        else
          at = &previous_[i];
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
        work_ += candidates_.words() / 4;
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
  uint64_t work_ = 0;
  // The placed buffers that have accesses in the lists.
  Array<uint32_t> used_;
  Array<uint8_t> is_used_;
  uint32_t used_count_ = 0;
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
