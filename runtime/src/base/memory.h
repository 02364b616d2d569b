// Host memory. All memory that the runtime owns comes from the engine's allocator; the lack of
// memory is a status.
#pragma once

#include <new>
#include <type_traits>

#include "base/status.h"

namespace husk {

// The allocator of an engine whose options have none: mimalloc, or malloc in a build without it.
const husk_allocator* default_allocator();

// Returns memory aligned to 16 bytes, or null after filling `error`.
void* allocate(const husk_allocator& allocator, size_t bytes, husk_error* error);

// Returns a value-initialised object, or null after filling `error`.
template <class T>
T* create(const husk_allocator& allocator, husk_error* error) {
  static_assert(alignof(T) <= 16);
  void* memory = allocate(allocator, sizeof(T), error);
  return memory ? ::new (memory) T() : nullptr;
}

template <class T>
void destroy(const husk_allocator& allocator, T* object) {
  if (!object) return;
  object->~T();
  allocator.release(allocator.user, object);
}

// The part of Array that does not depend on the type of the elements.
class RawArray {
 public:
  RawArray() = default;
  RawArray(const RawArray&) = delete;
  RawArray& operator=(const RawArray&) = delete;
  ~RawArray() { reset(); }
  void reset();

 protected:
  Status allocate(const husk_allocator& allocator, size_t size, size_t element, husk_error* error);
  void swap(RawArray& other);
  Status enlarge(const husk_allocator& allocator, size_t size, size_t element, husk_error* error);

  void* data_ = nullptr;
  size_t size_ = 0;
};

// An owned array of a fixed size. Elements are plain data and start zeroed.
template <class T>
class Array : public RawArray {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

 public:
  // Replaces the content by `size` zeroed elements. The array is empty after a failure.
  Status allocate(const husk_allocator& allocator, size_t size, husk_error* error) {
    return RawArray::allocate(allocator, size, sizeof(T), error);
  }
  // Keeps the elements and adds zeroed ones at the end.
  Status enlarge(const husk_allocator& allocator, size_t size, husk_error* error) {
    return RawArray::enlarge(allocator, size, sizeof(T), error);
  }

  T* data() { return static_cast<T*>(data_); }
  const T* data() const { return static_cast<const T*>(data_); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
};

// An owned array that grows at its end.
template <class T>
class List {
 public:
  Status push(const husk_allocator& allocator, const T& value, husk_error* error) {
    if (size_ == room_.size())
      HUSK_TRY(room_.enlarge(allocator, size_ < 8 ? 16 : size_ * 2, error));
    room_[size_++] = value;
    return Status::ok;
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return room_[i]; }
  const T& operator[](size_t i) const { return room_[i]; }
  const T* begin() const { return room_.data(); }
  const T* end() const { return room_.data() + size_; }

 private:
  Array<T> room_;
  size_t size_ = 0;
};

}  // namespace husk
