// Growing lists of plain data, and texts, in memory of malloc: the library needs no C++ library.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "base/status.h"

namespace husk::text {

// Bytes that belong to somebody else.
struct Span {
  const char* data = nullptr;
  size_t size = 0;

  Span() = default;
  Span(const char* bytes, size_t count) : data(bytes), size(count) {}
  explicit Span(const char* literal) : data(literal), size(strlen(literal)) {}
  Span from(size_t begin) const { return {data + begin, size - begin}; }
  Span slice(size_t begin, size_t end) const { return {data + begin, end - begin}; }
};

inline bool equal(Span a, Span b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
inline bool equal(Span a, const char* literal) { return equal(a, Span(literal)); }

template <class T>
class List {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

 public:
  List() = default;
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() { free(data_); }

  Status reserve(size_t capacity, husk_error* error) {
    if (capacity <= capacity_) return Status::ok;
    if (capacity < 2 * capacity_) capacity = 2 * capacity_;
    if (capacity < 16) capacity = 16;
    size_t bytes;
    void* larger = nullptr;
    if (!__builtin_mul_overflow(capacity, sizeof(T), &bytes)) larger = realloc(data_, bytes);
    if (!larger) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the text");
    data_ = static_cast<T*>(larger);
    capacity_ = capacity;
    return Status::ok;
  }
  Status push(const T& value, husk_error* error) {
    HUSK_TRY(reserve(size_ + 1, error));
    data_[size_++] = value;
    return Status::ok;
  }
  Status append(const T* values, size_t count, husk_error* error) {
    HUSK_TRY(reserve(size_ + count, error));
    if (count) memcpy(data_ + size_, values, count * sizeof(T));
    size_ += count;
    return Status::ok;
  }
  // Sets the size; new elements are zeroed.
  Status resize(size_t size, husk_error* error) {
    HUSK_TRY(reserve(size, error));
    if (size > size_) memset(static_cast<void*>(data_ + size_), 0, (size - size_) * sizeof(T));
    size_ = size;
    return Status::ok;
  }
  void shrink(size_t size) { size_ = size; }
  void clear() { size_ = 0; }
  void swap(List& other) {
    T* const data = data_;
    const size_t size = size_, capacity = capacity_;
    data_ = other.data_, size_ = other.size_, capacity_ = other.capacity_;
    other.data_ = data, other.size_ = size, other.capacity_ = capacity;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// Objects of the library are made in memory of calloc, and begin as their constructors leave them.
template <class T>
T* create(husk_error* error) {
  void* memory = calloc(1, sizeof(T));
  if (!memory) {
    (void)fail(error, HUSK_OUT_OF_MEMORY, "no memory for the text");
    return nullptr;
  }
  return ::new (memory) T();
}

template <class T>
void destroy(T* object) {
  if (!object) return;
  object->~T();
  free(object);
}

// Makes an object that `fill`, a function that takes it and returns a Status, fills. `made` is not
// changed if there is no memory, or if that fails.
template <class T, class Fill>
husk_status make(T** made, husk_error* error, const Fill& fill) {
  T* object = create<T>(error);
  if (!object) return HUSK_OUT_OF_MEMORY;
  const Status status = fill(*object);
  if (failed(status)) {
    destroy(object);
    return static_cast<husk_status>(status);
  }
  *made = object;
  return HUSK_OK;
}

}  // namespace husk::text
