#include "tree.h"

#include "error.h"

namespace husk::python {
namespace {

[[noreturn]] void throw_type_error(const std::string& text) { throw nb::type_error(text.c_str()); }

std::string type_of(PyObject* value) {
  return nb::cast<std::string>(
      nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(value))).attr("__name__"));
}

}  // namespace

Tree Tree::read(nb::handle shape) {
  Tree tree;
  if (nb::isinstance<nb::int_>(shape)) {
    tree.index_ = nb::cast<size_t>(shape);
  } else if (nb::isinstance<nb::dict>(shape)) {
    tree.kind_ = Kind::dict;
    for (auto [key, value] : nb::borrow<nb::dict>(shape)) {
      tree.keys_.push_back(nb::borrow(key));
      tree.children_.push_back(read(value));
    }
  } else {
    tree.kind_ = nb::isinstance<nb::tuple>(shape) ? Kind::tuple : Kind::list;
    for (nb::handle child : shape) tree.children_.push_back(read(child));
  }
  return tree;
}

void Tree::flatten(PyObject* value, PyObject** leaves, const std::string& name) const {
  if (kind_ == Kind::leaf) {
    leaves[index_] = value;
    return;
  }
  const size_t n = children_.size();
  if (kind_ == Kind::dict) {
    if (!PyDict_Check(value))
      throw_type_error(name + " is a dict in the model: pass a dict, not " + type_of(value));
    for (size_t i = 0; i < n; ++i) {
      PyObject* child = PyDict_GetItemWithError(value, keys_[i].ptr());
      const std::string key = name + "[" + nb::cast<std::string>(nb::repr(keys_[i])) + "]";
      if (!child) throw_type_error(key + " is missing: the model was exported with it");
      children_[i].flatten(child, leaves, key);
    }
    if (static_cast<size_t>(PyDict_Size(value)) == n) return;
    for (auto [key, item] : nb::borrow<nb::dict>(value)) {
      bool known = false;
      for (const nb::object& expected : keys_) known |= expected.equal(key);
      if (!known)
        throw_type_error(name + " has the key " + nb::cast<std::string>(nb::repr(key)) +
                         ", with which the model was not exported: leave it out");
    }
  }
  const bool is_list = PyList_Check(value);
  if (!is_list && !PyTuple_Check(value))
    throw_type_error(name + " is a sequence in the model: pass a tuple or a list, not " +
                     type_of(value));
  const size_t size = static_cast<size_t>(is_list ? PyList_Size(value) : PyTuple_Size(value));
  if (size != n)
    throw_type_error(name + " has " + std::to_string(size) + " entries, must have " +
                     std::to_string(n) + ", as the model was exported");
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* child = is_list ? PyList_GetItem(value, at) : PyTuple_GetItem(value, at);
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
  nb::object out = nb::steal(kind_ == Kind::tuple ? PyTuple_New(n) : PyList_New(n));
  if (!out.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* child = children_[static_cast<size_t>(i)].unflatten(leaves).release().ptr();
    // Both functions take the reference.
    if (kind_ == Kind::tuple)
      PyTuple_SetItem(out.ptr(), i, child);
    else
      PyList_SetItem(out.ptr(), i, child);
  }
  return out;
}

}  // namespace husk::python
