// Images in prompts: which tokens they are, and what the functions of a file take for them.
#pragma once

#include "text/json.h"

namespace husk::text {

// How a file takes images, according to its metadata.
struct ImageKind {
  int64_t token = 0;   // stands for a row of embeddings
  int64_t pixels = 0;  // numbers of an image
  int64_t rows = 0;    // tokens of an image; 0: the file takes no images
  int64_t width = 0;   // numbers of a row
  // The rows and columns of an image, if its tokens have positions in three dimensions; else 0.
  int64_t grid_rows = 0, grid_columns = 0;
  List<int64_t> shape;   // of the pixels
  bool two_way = false;  // the tokens of an image see one another

  bool exists() const { return rows != 0; }
  bool has_grid() const { return grid_rows != 0; }
  // The number of ints that `prefill_images` takes for a token beside its row.
  int64_t extras() const { return has_grid() ? 3 : two_way ? 1 : 0; }
  // How many positions an image takes in a grid.
  int64_t longer_side() const { return grid_rows > grid_columns ? grid_rows : grid_columns; }

  // Reads the entry `image` of husk.text.model, if there is one.
  Status read(const Json& json, husk_error* error);
};

// The images of a prompt. Without images, all shifts are 0.
class PromptImages {
 public:
  // Copies the rows of embeddings. In a prompt with one image token for each image, each becomes as
  // many as an image has rows.
  Status read(const ImageKind& kind, List<int32_t>& prompt, const float* embeddings, size_t rows,
              husk_error* error);

  bool empty() const { return starts_.empty(); }
  // The number that is added to the position of a token that is none of an image.
  int64_t shift(int64_t position) const;
  // The end of the part of the prompt that a call takes from `begin` on.
  int64_t end(int64_t begin, int64_t chunk) const;
  // Whether `prefill_images` takes these tokens, and not `prefill`.
  bool are_in(int64_t begin, int64_t end) const;
  // Writes what `prefill_images` takes for the tokens from `begin` to `end`: for each the number of
  // its row among the `count` rows from `first` on, or -1; and the extras, one after another.
  void fill(int64_t begin, int64_t end, int64_t* rows, int64_t* extras, int64_t* first,
            int64_t* count) const;
  const float* row(int64_t number) const {
    return embeddings_.data() + static_cast<size_t>(number * kind_->width);
  }

 private:
  // The image whose tokens are at a position, or, if there is none, the next one.
  size_t image_at(int64_t position) const;
  bool is_image(int64_t position) const;
  void fill_grid(int64_t begin, int64_t end, int64_t* places) const;

  const ImageKind* kind_ = nullptr;
  int64_t size_ = 0;      // tokens of the prompt
  List<int64_t> starts_;  // the first tokens of the images
  List<float> embeddings_;
};

}  // namespace husk::text
