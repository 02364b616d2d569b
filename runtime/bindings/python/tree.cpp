#include "tree.h"

#include "error.h"
#include "owned.h"
#include "text.h"

namespace husk::python {
namespace {

[[noreturn]] void throw_type_error(const std::string& text) { throw nb::type_error(text.c_str()); }

std::string type_of(nb::handle value) {
  return printable(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()))).attr("__name__"));
}

// A tree is read, flattened and built by a function that calls itself for each level.
constexpr int kMaxDepth = 200;

[[noreturn]] void throw_changed(const std::string& name) {
  throw_type_error(name + " has become shorter while it was read: leave it as it is during a call");
}

}  // namespace

Tree Tree::read(nb::handle shape, std::vector<uint32_t>& uses) { return read(shape, uses, 0); }

Tree Tree::read(nb::handle shape, std::vector<uint32_t>& uses, int depth) {
  if (depth > kMaxDepth) throw_invalid_file("the arguments nest deeper than %d levels", kMaxDepth);
  Tree tree;
  if (PyLong_CheckExact(shape.ptr())) {
    tree.index_ = PyLong_AsSize_t(shape.ptr());
    if (PyErr_Occurred()) PyErr_Clear();  // it is too large then, and the index as well
    if (tree.index_ >= uses.size())
      throw_invalid_file("the arguments nest a value that the function does not have");
    ++uses[tree.index_];
  } else if (PyDict_CheckExact(shape.ptr())) {
    tree.kind_ = Kind::dict;
    for (nb::handle key : dict_keys(shape.ptr())) {
      if (!PyUnicode_CheckExact(key.ptr())) throw_type_error("the keys of a tree are texts");
      nb::object child = dict_item(shape.ptr(), key.ptr());
      if (!child.is_valid()) throw_changed("the tree");
      tree.keys_.push_back(nb::borrow(key));
      tree.children_.push_back(read(child, uses, depth + 1));
    }
  } else if (PyTuple_CheckExact(shape.ptr()) || PyList_CheckExact(shape.ptr())) {
    tree.kind_ = PyTuple_CheckExact(shape.ptr()) ? Kind::tuple : Kind::list;
    for (nb::handle child : nb::tuple(nb::borrow(shape)))
      tree.children_.push_back(read(child, uses, depth + 1));
  } else if (nb::hasattr(shape, "parts") && nb::hasattr(shape, "split") &&
             nb::hasattr(shape, "make")) {
    tree.kind_ = Kind::object;
    for (nb::handle child : nb::tuple(shape.attr("parts")))
      tree.children_.push_back(read(child, uses, depth + 1));
    tree.split_ = shape.attr("split");
    tree.make_ = shape.attr("make");
  } else {
    throw_type_error("a tree consists of ints, tuples, lists and dicts, not of " + type_of(shape));
  }
  return tree;
}

void Tree::flatten(nb::handle value, nb::object* leaves, const std::string& name) const {
  if (kind_ == Kind::leaf) {
    leaves[index_] = nb::borrow(value);
    return;
  }
  const size_t n = children_.size();
  if (kind_ == Kind::dict) {
    if (!PyDict_Check(value.ptr()))
      throw_type_error(name + " is a dict in the model: pass a dict, not " + type_of(value));
    for (size_t i = 0; i < n; ++i) {
      nb::object child = dict_item(value.ptr(), keys_[i].ptr());
      const std::string key = name + "[" + printable(nb::repr(keys_[i])) + "]";
      if (!child.is_valid()) throw_type_error(key + " is missing: the model was exported with it");
      children_[i].flatten(child, leaves, key);
    }
    if (static_cast<size_t>(PyDict_Size(value.ptr())) == n) return;
    for (nb::handle key : dict_keys(value.ptr())) {
      bool known = false;
      for (const nb::object& expected : keys_) known |= expected.equal(key);
      if (!known)
        throw_type_error(name + " has the key " + printable(nb::repr(key)) +
                         ", with which the model was not exported: leave it out");
    }
    return;
  }
  if (kind_ == Kind::object) {
    const nb::object parts = split_(value, name);
    if (!PyTuple_Check(parts.ptr()) || static_cast<size_t>(PyTuple_Size(parts.ptr())) != n)
      throw_type_error("the parts of " + name + " are no tuple of " + std::to_string(n));
    for (size_t i = 0; i < n; ++i)
      children_[i].flatten(PyTuple_GetItem(parts.ptr(), static_cast<Py_ssize_t>(i)), leaves, name);
    return;
  }
  const bool is_list = PyList_Check(value.ptr());
  if (!is_list && !PyTuple_Check(value.ptr()))
    throw_type_error(name + " is a sequence in the model: pass a tuple or a list, not " +
                     type_of(value));
  const size_t size = static_cast<size_t>(is_list ? PyList_Size(value.ptr())
                                                  : PyTuple_Size(value.ptr()));
  if (size != n)
    throw_type_error(name + " has " + std::to_string(size) + " entries, must have " +
                     std::to_string(n) + ", as the model was exported");
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    nb::object child = is_list ? list_item(value.ptr(), at)
                               : nb::borrow(PyTuple_GetItem(value.ptr(), at));
    if (!child.is_valid()) throw_changed(name);
    children_[i].flatten(child, leaves,
                         children_[i].is_leaf() ? name : name + "[" + std::to_string(i) + "]");
  }
}

nb::object Tree::unflatten(nb::object* leaves) const {
  if (kind_ == Kind::leaf) return std::move(leaves[index_]);
  const auto n = static_cast<Py_ssize_t>(children_.size());
  if (kind_ == Kind::dict) {
    nb::dict dict;
    for (size_t i = 0; i < children_.size(); ++i) dict[keys_[i]] = children_[i].unflatten(leaves);
    return dict;
  }
  const bool is_list = kind_ == Kind::list;
  nb::object out = nb::steal(is_list ? PyList_New(n) : PyTuple_New(n));
  if (!out.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* child = children_[static_cast<size_t>(i)].unflatten(leaves).release().ptr();
    // Both functions take the reference.
    if (is_list)
      PyList_SetItem(out.ptr(), i, child);
    else
      PyTuple_SetItem(out.ptr(), i, child);
  }
  if (kind_ != Kind::object) return out;
  nb::object object = nb::steal(PyObject_CallObject(make_.ptr(), out.ptr()));
  if (!object.is_valid()) throw nb::python_error();
  return object;
}

}  // namespace husk::python
