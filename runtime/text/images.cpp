#include "text/images.h"

#include "text/entry.h"

namespace husk::text {

Status ImageKind::read(const Json& json, husk_error* error) {
  const Entry image(json, "image", "images", error);
  if (!image.exists()) return Status::ok;
  HUSK_TRY(image.number("token", 0, token));
  HUSK_TRY(image.number("rows", 2, rows));
  HUSK_TRY(image.number("width", 1, width));
  HUSK_TRY(image.sizes("shape", shape, pixels));
  const JsonValue* truth = image.member("two_way");
  two_way = truth && truth->kind == JsonKind::boolean && truth->truth;
  const JsonValue* grid = image.member("grid");
  if (!grid) return Status::ok;
  if (grid->kind != JsonKind::array || grid->number != 2 || two_way) return image.wrong("grid");
  grid_rows = whole(*json.first(grid), Entry::kMost);
  grid_columns = whole(*json.after(json.first(grid)), Entry::kMost);
  return grid_rows > 0 && grid_columns > 0 && grid_rows * grid_columns == rows
             ? Status::ok
             : image.wrong("grid");
}

Status PromptImages::read(const ImageKind& kind, List<int32_t>& prompt, const float* embeddings,
                          size_t rows, husk_error* error) {
  kind_ = &kind;
  if (!kind.exists()) {
    if (!rows) return Status::ok;
    return fail(error, HUSK_UNSUPPORTED,
                "the file takes no images: export a model that does, with images among the "
                "--features, or set embedding_count to 0");
  }
  const auto each = static_cast<size_t>(kind.rows);
  size_t found = 0;
  for (const int32_t token : prompt) found += token == kind.token;
  const size_t images = rows / each;
  if (rows % each || (found != rows && found != images)) {
    return fail(error, HUSK_INVALID_INPUT,
                "the prompt has %zu image tokens (number %lld), but embedding_count is %zu: give "
                "%lld rows for each image, and as many image tokens as rows, or one for each image",
                found, static_cast<long long>(kind.token), rows, static_cast<long long>(kind.rows));
  }
  if (!rows) return Status::ok;
  if (found == images) {
    List<int32_t> longer;
    HUSK_TRY(longer.reserve(prompt.size() + rows - found, error));
    for (const int32_t token : prompt) {
      const size_t count = token == kind.token ? each : 1;
      for (size_t i = 0; i < count; ++i) HUSK_TRY(longer.push(token, error));
    }
    prompt.swap(longer);
  }
  size_ = static_cast<int64_t>(prompt.size());
  for (size_t at = 0; at < prompt.size(); ++at) {
    if (prompt[at] != kind.token) continue;
    HUSK_TRY(starts_.push(static_cast<int64_t>(at), error));
    size_t last = at;
    while (last < prompt.size() && last < at + each && prompt[last] == kind.token) ++last;
    if (last < at + each) {
      return fail(error, HUSK_INVALID_INPUT,
                  "the tokens of image number %zu are not one after the other: it has %lld",
                  starts_.size() - 1, static_cast<long long>(kind.rows));
    }
    at = last - 1;
  }
  return embeddings_.append(embeddings, rows * static_cast<size_t>(kind.width), error);
}

size_t PromptImages::image_at(int64_t position) const {
  size_t image = 0;
  while (image < starts_.size() && starts_[image] + kind_->rows <= position) ++image;
  return image;
}

bool PromptImages::is_image(int64_t position) const {
  const size_t image = image_at(position);
  return image < starts_.size() && starts_[image] <= position;
}

int64_t PromptImages::shift(int64_t position) const {
  if (empty() || !kind_->has_grid()) return 0;
  const auto before = static_cast<int64_t>(image_at(position));
  return before * (kind_->longer_side() - kind_->rows);
}

int64_t PromptImages::end(int64_t begin, int64_t chunk) const {
  int64_t end = begin + chunk < size_ ? begin + chunk : size_;
  // A single token is that of `decode`, which takes no rows.
  if (size_ - end == 1 && is_image(end)) --end;
  // Tokens that see one another are in one call.
  if (kind_->two_way && end < size_ && is_image(end)) {
    const int64_t start = starts_[image_at(end)];
    if (start > begin) end = start;
  }
  return end;
}

bool PromptImages::are_in(int64_t begin, int64_t end) const {
  if (empty()) return false;
  if (kind_->has_grid()) return end > starts_[0];
  const size_t image = image_at(begin);
  return image < starts_.size() && starts_[image] < end;
}

// Positions in time, height and width: an image is at one time, and takes as many positions as its
// longer side has.
void PromptImages::fill_grid(int64_t begin, int64_t end, int64_t* places) const {
  const int64_t count = end - begin;
  for (int64_t at = begin; at < end; ++at) {
    int64_t* const to = places + at - begin;
    const size_t image = image_at(at);
    const int64_t shift_before = shift(at);
    if (image == starts_.size() || at < starts_[image]) {
      to[0] = to[count] = to[2 * count] = at + shift_before;
      continue;
    }
    const int64_t place = starts_[image] + shift_before, row = at - starts_[image];
    to[0] = place;
    to[count] = place + row / kind_->grid_columns;
    to[2 * count] = place + row % kind_->grid_columns;
  }
}

void PromptImages::fill(int64_t begin, int64_t end, int64_t* rows, int64_t* extras, int64_t* first,
                        int64_t* count) const {
  int64_t lowest = -1, last = 0;
  for (int64_t at = begin; at < end; ++at) {
    const size_t image = image_at(at);
    const bool is_row = image < starts_.size() && starts_[image] <= at;
    const int64_t number = is_row ? static_cast<int64_t>(image) * kind_->rows + at - starts_[image]
                                  : -1;
    rows[at - begin] = number;
    if (kind_->two_way) extras[at - begin] = is_row ? starts_[image] + kind_->rows : at + 1;
    if (!is_row) continue;
    if (lowest < 0) lowest = number;
    last = number + 1;
  }
  if (lowest < 0) lowest = 0, last = 1;
  *first = lowest;
  *count = last - lowest;
  for (int64_t i = 0; i < end - begin; ++i) {
    if (rows[i] >= 0) rows[i] -= lowest;
  }
  if (kind_->has_grid()) fill_grid(begin, end, extras);
}

}  // namespace husk::text
