// Errors as values. Every fallible function returns Result<T> or Status; nothing of ours throws.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace hutch {

// What the caller can do about an error. The wire names and HTTP statuses are CodeName() and
// CodeHttpStatus().
enum class Code {
  kInvalidArgument,
  kNotFound,
  kExists,
  kBadState,
  kLimit,
  kTooLarge,
  kUnsupported,
  kForbidden,
  kCorrupt,               // bytes do not match their digest, or are not what they claim to be
  kNoSpace,               // a disk or quota is full
  kCommandNotFound,       // the program of an exec does not exist in the sandbox
  kCommandNotExecutable,  // it exists and cannot be executed
  kIsDirectory,           // a directory stands where a file was asked for
  kNotDirectory,          // something else stands where a directory was asked for
  kNotAFile,              // a FIFO, socket or device, which is never read or written as a file
  kPreconditionFailed,    // it is no longer, or not yet, what the request said it is
  kAmbiguous,             // the text to replace is there another number of times
  kUnavailable,           // try again later
  kKernel,                // a system call failed
  kInternal,              // our bug
};

// The stable name clients switch on ("invalid_argument"), and the HTTP status that goes with it.
const char* CodeName(Code code);
int CodeHttpStatus(Code code);
// The code of a stable name, for errors that another process reports; none for an unknown name.
std::optional<Code> CodeOfName(std::string_view name);

struct Error {
  Code code = Code::kInternal;
  int sys = 0;             // errno value; 0 if no system call failed
  const char* step = "";   // row name of a step table, e.g. "create cgroup"; a string literal
  std::string what;        // lower case, no full stop, names the path or id
  std::string field = {};  // JSON path of the request field at fault, or empty
  std::string hint = {};   // what to do about it, or empty

  // One line for people: "create cgroup: mkdir /sys/...: Permission denied".
  std::string ToString() const;
};

// "EACCES" for EACCES; "errno 4095" for a number without a name.
std::string ErrnoName(int sys);

// An Error for a failed system call: code kKernel (kNoSpace for ENOSPC and EDQUOT), what = "<what>:
// <strerror>".
Error SysError(int sys, std::string what);

struct Ok {};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error)
      : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return v_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    CHECK(has_value());
    return std::get<0>(v_);
  }
  const T& value() const& {
    CHECK(has_value());
    return std::get<0>(v_);
  }
  T&& value() && {
    CHECK(has_value());
    return std::get<0>(std::move(v_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& {
    CHECK(!has_value());
    return std::get<1>(v_);
  }
  Error&& error() && {
    CHECK(!has_value());
    return std::get<1>(std::move(v_));
  }

 private:
  std::variant<T, Error> v_;
};

using Status = Result<Ok>;
inline Status OkStatus() { return Ok{}; }

// Drops a result on purpose; the reason is for the reader.
template <class T>
void IgnoreError(const Result<T>&, const char* /*why*/) {}

#define HUTCH_CONCAT_INNER(a, b) a##b
#define HUTCH_CONCAT(a, b) HUTCH_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(UniqueFd fd, Open(...)): declares fd, or returns the error of Open from this
// function.
#define ASSIGN_OR_RETURN(lhs, expr) \
  HUTCH_ASSIGN_OR_RETURN(HUTCH_CONCAT(result_, __LINE__), lhs, expr)
#define HUTCH_ASSIGN_OR_RETURN(tmp, lhs, expr)         \
  auto tmp = (expr);                                   \
  if (!tmp.has_value()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()

#define RETURN_IF_ERROR(expr)                                              \
  do {                                                                     \
    auto hutch_status = (expr);                                            \
    if (!hutch_status.has_value()) return std::move(hutch_status).error(); \
  } while (0)

}  // namespace hutch
