// How the inputs and outputs of a function nest in tuples, lists and dicts.
#ifndef HUSK_PYTHON_TREE_H
#define HUSK_PYTHON_TREE_H

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace husk::python {

namespace nb = nanobind;

// A leaf with the number of an input or output, or a container of trees.
class Tree {
 public:
  // Reads a tree whose leaves are ints, such as (0, {"mask": 1}). An object with the attributes
  // `parts`, `split` and `make` stands for one of a class of the application (see
  // husk/runtime/objects.py). It counts the leaves of each
  // number in `uses`, one entry for each value of the function, and refuses other numbers.
  static Tree read(nb::handle shape, std::vector<uint32_t>& uses);

  // Writes the leaves of `value` to `leaves`. Throws TypeError if `value` does not nest as this
  // tree does; `name` is what the message calls the value.
  void flatten(nb::handle value, nb::object* leaves, const std::string& name) const;

  // Makes a value that nests as this tree does; takes the references in `leaves`.
  nb::object unflatten(nb::object* leaves) const;

  bool is_leaf() const { return kind_ == Kind::leaf; }
  size_t leaf() const { return index_; }
  const std::vector<Tree>& children() const { return children_; }
  const std::vector<nb::object>& keys() const { return keys_; }

 private:
  static Tree read(nb::handle shape, std::vector<uint32_t>& uses, int depth);

  enum class Kind { leaf, list, tuple, dict, object };
  Kind kind_ = Kind::leaf;
  size_t index_ = 0;              // of a leaf
  std::vector<Tree> children_;    // of a container
  std::vector<nb::object> keys_;  // of a dict: one str for each child
  nb::object split_, make_;       // of an object
};

}  // namespace husk::python

#endif
