// husk::unsuppressed, the greedy part of a non-maximum suppression: it goes through boxes in the
// order of their scores, and keeps a box if it overlaps none that it has kept before.
#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"

namespace husk::host {

namespace {

// std::max and std::min, whose results decide what a NaN among the coordinates means.
template <class V>
V max_of(V a, V b) {
  return a < b ? b : a;
}
template <class V>
V min_of(V a, V b) {
  return b < a ? b : a;
}

template <class V>
struct Box {
  V left, top, right, bottom;

  V area() const { return (right - left) * (bottom - top); }
};

template <class V>
V intersection_over_union(const Box<V>& a, const Box<V>& b) {
  const V width = min_of(a.right, b.right) - max_of(a.left, b.left);
  const V height = min_of(a.bottom, b.bottom) - max_of(a.top, b.top);
  const V shared = max_of(V(0), width) * max_of(V(0), height);
  return shared / (a.area() + b.area() - shared);
}

}  // namespace

husk_status unsuppressed(const Arguments& args) {
  constexpr ArgumentsOf named("unsuppressed");
  constexpr uint32_t kBoxes = named["boxes"], kThreshold = named["iou_threshold"],
                     kOut = named["out"];
  HUSK_TRY(args.check_tensor(kBoxes, 2, 2));
  HUSK_TRY(args.check_size(kBoxes, 1, 4, "the coordinates of a box"));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_dtype(kOut, HUSK_BOOL));
  const husk_op_arg &boxes = args[kBoxes], &out = args[kOut];
  const int64_t count = boxes.sizes[0], stride = boxes.strides[1];
  HUSK_TRY(args.check_vector(kOut, count, "the number of boxes"));
  double threshold;
  HUSK_TRY(args.get_number(kThreshold, threshold));
  return visit_argument<Floats | Halves>(args, kBoxes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto box_at = [&](int64_t i) {
      const T* box = data_of<T>(boxes) + i * boxes.strides[0];
      return Box<Value<T>>{get(box), get(box + stride), get(box + 2 * stride),
                           get(box + 3 * stride)};
    };
    uint8_t* const kept = writable<uint8_t>(out);
    const int64_t step = out.strides[0];
    each_index(args.cancellation, count, [&](int64_t i) { kept[i * step] = 1; });
    each_index_while(args.cancellation, count, [&](int64_t i) {
      if (!kept[i * step]) return true;
      const auto box = box_at(i);
      return each_index(args.cancellation, count - i - 1, [&](int64_t behind) {
        const int64_t j = i + 1 + behind;
        if (kept[j * step] && intersection_over_union(box, box_at(j)) > threshold)
          kept[j * step] = 0;
      });
    });
  });
}

}  // namespace husk::host
