// Ownership of one descriptor. A bare int parameter named *_fd elsewhere means "borrowed".
#pragma once

#include <unistd.h>

#include <utility>

namespace hutch {

class UniqueFd {  // closes on destruction; every descriptor is O_CLOEXEC from birth
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& o) noexcept : fd_(o.release()) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    reset(o.release());
    return *this;
  }
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_;
};

}  // namespace hutch
