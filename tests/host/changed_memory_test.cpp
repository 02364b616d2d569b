// Another thread or process may change the memory of tensors while an operator works. Here the
// function that the operator asks whether its call is to end changes it, so that a test does not
// depend on the timing of threads: operators ask between and inside their passes over a tensor. A
// call must then end, with any status and any results, and touch no memory but that of its tensors,
// which AddressSanitizer checks, and, for indices far outside, every processor.
#include <random>

#include "contract.h"
#include "correct_calls.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

enum class Contents { Zeros, Ones, Random, AllBits };

// Changes the tensors of a call at question `change_at`, and ends a call that asks for ever.
struct Changer {
  std::vector<std::vector<unsigned char>*> blocks;
  Contents contents;
  int64_t change_at, end_at;
  int64_t asked = 0;

  static int32_t answer(void* user) {
    auto* self = static_cast<Changer*>(user);
    if (++self->asked == self->change_at)
      for (std::vector<unsigned char>* block : self->blocks) self->overwrite(*block);
    return self->asked == self->end_at;
  }
  void overwrite(std::vector<unsigned char>& block) const {
    switch (contents) {
      case Contents::Zeros: std::memset(block.data(), 0, block.size()); break;
      case Contents::Ones: std::memset(block.data(), 1, block.size()); break;
      case Contents::AllBits: std::memset(block.data(), 0xff, block.size()); break;
      case Contents::Random: {
        uint64_t number = 0x9e3779b97f4a7c15;
        for (size_t i = 0; i + 8 <= block.size(); i += 8) {
          number = number * 6364136223846793005 + 1442695040888963407;
          std::memcpy(block.data() + i, &number, 8);
        }
      }
    }
  }
};

// Calls of operators that use numbers in tensors as places, counts or masks, which are not among
// the long calls.
void add_calls_with_places(std::deque<Call>& calls) {
  constexpr int64_t n = int64_t{1} << 19, k = 1 << 9;
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  const auto f32 = int{HUSK_F32}, f64 = int{HUSK_F64}, i32 = int{HUSK_I32}, mask = int{HUSK_BOOL};
  call("aten::index.Tensor").f32({k, k}).i64({n}, 0, 7, k).i64({n}, 0, 7, k).as_list(2).f32({n});
  call("aten::index.Tensor:sizes").f32({n}).mask({n}).as_list(1).result();
  call("aten::index_put_").f32({n}).mask({n}).as_list(1).f32({n / 2}).number(0);
  call("aten::index_put_").f32({n}).mask({n}).as_list(1).f32({n / 2}).number(1);
  call("aten::index_put_").f32({n}).i64({n}, 0, 7, n).as_list(1).f32({n}).number(0);
  call("aten::scatter_.src").f32({n}).number(0).i64({n}, 0, 7, n).f32({n});
  call("aten::scatter_.value").f32({n}).number(0).i64({n}, 0, 7, n).real(2);
  for (const char* reduce : {"add", "multiply"}) {
    call("aten::scatter_.reduce").f32({n}).number(0).i64({n}, 0, 7, n).f32({n}).text(reduce);
    call("aten::scatter_.value_reduce").f32({n}).number(0).i64({n}, 0, 7, n).real(2).text(reduce);
  }
  call("aten::scatter.src").f32({n}).number(0).i64({n}, 0, 7, n).f32({n}).f32({n});
  call("aten::scatter.value").f32({n}).number(0).i64({n}, 0, 7, n).real(2).f32({n});
  call("aten::scatter_add_").f32({n}).number(0).i64({n}, 0, 7, n).f32({n});
  call("aten::scatter_add_")
      .tensor(HUSK_BF16, {2 * k, k})
      .number(1)
      .i64({2 * k, k}, 0, 7, k)
      .tensor(HUSK_BF16, {2 * k, k});
  for (const char* reduce : {"amax", "mean"}) {
    call("aten::scatter_reduce_.two")
        .f32({n})
        .number(0)
        .i64({n}, 0, 7, n)
        .f32({n})
        .text(reduce)
        .number(0);
    call("aten::scatter_reduce.two")
        .f32({9 * k})
        .number(0)
        .i64({n}, 0, 7, 9 * k)
        .f32({n})
        .text(reduce)
        .number(1)
        .f32({9 * k});
    call("aten::index_reduce")
        .f32({9 * k})
        .number(0)
        .i64({n}, 0, 7, 9 * k)
        .f32({n})
        .text(reduce)
        .number(0)
        .f32({9 * k});
  }
  call("aten::gather").f32({k, k}).number(0).i64({k, k}, 0, 7, k).number(0).f32({k, k});
  call("aten::searchsorted.Tensor")
      .f32({n})
      .f32({k})
      .number(0)
      .number(0)
      .none()
      .i64({n}, 0, 7, n)
      .i64({k});
  call("aten::bincount").i64({n}, 0, 7, k).none().number(2).i64({k});
  call("aten::bincount:sizes").i64({n}, 0, 7, k).none().number(2).result();
  call("aten::nonzero:sizes").mask({n}).result();
  call("husk::unsuppressed").f32({k, 4}).real(0.5).mask({k});
  call("aten::nonzero_static").mask({n}).number(n).number(-1).i64({n, 1});
  call("aten::masked_select").f32({n}).mask({n}).f32({n / 2});
  call("aten::masked_select:sizes").f32({n}).mask({n}).result();
  call("aten::masked_scatter").f32({n}).mask({n}).f32({n / 2}).f32({n});
  call("aten::repeat_interleave.Tensor").tensor(i32, {n}, 1).none().tensor(i32, {n});
  call("aten::repeat_interleave.Tensor").i64({4}, n / 4).none().i64({n});
  for (const int64_t mode : {0, 1, 2}) {
    call("aten::_embedding_bag")
        .f32({k, 3})
        .i64({n}, 0, 7, k)
        .i64({k}, 0, n / k, n)
        .number(0)
        .number(mode)
        .number(0)
        .none()
        .number(0)
        .number(-1)
        .f32({k, 3})
        .i64({n})
        .i64({k})
        .i64({k, 3});
  }
  call("aten::_embedding_bag")
      .f32({9, 4 * k})
      .i64({k}, 0, 1, 9)
      .i64({2}, 0, k / 2, k)
      .number(0)
      .number(0)
      .number(0)
      .f32({k})
      .number(0)
      .number(1)
      .f32({2, 4 * k})
      .none(3);
  call("aten::embedding_renorm").f32({k, 3}).i64({n}, 0, 7, k).real(1).real(2).f32({k, 3});
  call("aten::segment_reduce")
      .f32({n})
      .text("max")
      .i64({n}, 1)
      .none(2)
      .number(0)
      .number(0)
      .none()
      .f32({n});
  call("aten::segment_reduce")
      .f32({n})
      .text("sum")
      .none(2)
      .i64({n + 1}, 0, 1, n + 1)
      .number(0)
      .number(0)
      .none()
      .f32({n});
  // Many columns, so that Husk asks while rows are exchanged.
  constexpr int64_t rows = 40, columns = 1 << 15;
  const auto diagonal = [&](Call& solver_call) -> Call& {
    solver_call.tensor(f32, {rows, rows});
    auto* elements = static_cast<float*>(solver_call.args.back().data);
    for (int64_t i = 0; i < rows; ++i) elements[i * rows + i] = 2;
    return solver_call;
  };
  for (const int64_t adjoint : {0, 1}) {
    diagonal(call("aten::linalg_lu_solve"))
        .tensor(i32, {rows}, rows)
        .f32({rows, columns})
        .number(1)
        .number(adjoint)
        .f32({rows, columns});
  }
  diagonal(call("aten::_linalg_solve_ex"))
      .f32({rows, columns})
      .number(1)
      .number(0)
      .f32({rows, columns})
      .f32({rows, rows})
      .tensor(i32, {rows})
      .tensor(i32, {});
  diagonal(call("aten::linalg_ldl_solve"))
      .tensor(i32, {rows}, rows)
      .f32({rows, columns})
      .number(0)
      .f32({rows, columns})
      .tensor(f64, {rows * rows + rows * columns});
  call("aten::lu_unpack")
      .f32({k, k})
      .tensor(i32, {k}, 1)
      .number(1)
      .number(1)
      .f32({k, k})
      .f32({k, k})
      .f32({k, k});
  call("aten::unique_consecutive").f32({n}).number(1).number(1).none().f32({n}).i64({n}).i64({n});
  call("aten::kthvalue").f32({n}).number(k).number(0).number(0).f32({}).i64({});
  call("aten::where.self").mask({n}).f32({n}).f32({n}).f32({n});
  call("aten::_unique2:sizes").i64({n}, 0, 7, n).number(1).number(0).number(0).result();
  call("aten::histogram.bins_tensor")
      .f32({n})
      .tensor(f32, {9})
      .none()
      .number(0)
      .tensor(f32, {8})
      .tensor(f32, {9});
  call("aten::sort").i64({n}, 0, 77777, n).number(0).number(0).i64({n}).i64({n});
  call("aten::sort").f32({n}).number(0).number(1).f32({n}).i64({n});
  call("aten::native_dropout")
      .f32({n})
      .real(0.5)
      .number(1)
      .f32({n})
      .tensor(mask, {n})
      .i64({HUSK_HOST_GENERATOR_BYTES / 8});
}

class ChangedMemory : public HostDevice {
 protected:
  static constexpr int64_t kMaxQuestions = 40;

  husk_status run(const Call& op_call, Changer& changer) {
    const husk_op& row = op(op_call.name);
    husk_op_context context = context_of(row);
    context.cancel = Changer::answer;
    context.cancel_user = &changer;
    error = {};
    return row.call(&context, op_call.args.data(), static_cast<uint32_t>(op_call.args.size()),
                    &error);
  }
  // The memory of the tensors, but not of the workspace, which is the session's own.
  std::vector<std::vector<unsigned char>*> changeable(Call& op_call) {
    const std::vector<Entry> entries = parse_contract(op(op_call.name).contract);
    std::vector<std::vector<unsigned char>*> blocks;
    for (std::vector<unsigned char>& block : op_call.blocks()) {
      bool is_workspace = false;
      for (size_t i = 0; i < op_call.args.size(); ++i)
        is_workspace |= op_call.args[i].data == block.data() && entries[i].name == "workspace";
      if (!is_workspace) blocks.push_back(&block);
    }
    return blocks;
  }
  // Changes the memory at several questions of the call.
  void change(Call& op_call) {
    Changer changer{changeable(op_call), Contents::Zeros, -1, -1};
    std::vector<std::vector<unsigned char>> before;
    for (const auto* block : changer.blocks) before.push_back(*block);
    const auto restore = [&] {
      for (size_t i = 0; i < before.size(); ++i)
        std::memcpy(changer.blocks[i]->data(), before[i].data(), before[i].size());
    };
    changer.end_at = kMaxQuestions + 1;
    const husk_status status = run(op_call, changer);
    const int64_t questions = changer.asked;
    ASSERT_GT(questions, 0) << op_call.name;
    if (questions > kMaxQuestions) return;  // such a call takes long, and others are like it
    ASSERT_EQ(status, HUSK_OK) << error.text;
    const int64_t step = questions / 3 + 1;
    int contents = 0;
    for (int64_t at = 1; at <= questions; at += step) {
      for (int variant = 0; variant < 2; ++variant) {
        restore();
        changer.contents = static_cast<Contents>(contents++ % 4);
        changer.change_at = at;
        changer.asked = 0;
        changer.end_at = 100 * questions + 10000;
        (void)run(op_call, changer);
        EXPECT_LT(changer.asked, changer.end_at)
            << op_call.name << " goes on for ever after a change at question " << at;
      }
    }
    restore();
  }
};

// The calls are parts of tests of their own, which run beside each other.
constexpr size_t kChangedParts = 4;
class ChangedMemoryPart : public ChangedMemory, public testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, ChangedMemoryPart, testing::Range(size_t{0}, kChangedParts));

TEST_P(ChangedMemoryPart, HarmsNoOtherMemory) {
  std::deque<Call> calls;
  add_calls_with_places(calls);
  add_long_calls(calls);
  for (size_t i = GetParam(); i < calls.size(); i += kChangedParts) {
    SCOPED_TRACE(calls[i].name);
    change(calls[i]);
    calls[i].blocks().clear();
  }
}

}  // namespace
}  // namespace husk::host_test
