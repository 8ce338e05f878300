// One cgroup as an open directory and its path: every file of it is opened through the descriptor,
// the path is for messages, mkdir and rmdir. Works on plain directories too (tests).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::cgroups {

class GroupDir {
 public:
  GroupDir() = default;
  static Result<GroupDir> Open(std::string path);    // kNotFound
  static Result<GroupDir> Create(std::string path);  // mkdir, then Open; kExists, kLimit
  Result<GroupDir> OpenChild(const std::string& name) const { return Open(path_ + "/" + name); }
  Result<GroupDir> CreateChild(const std::string& name) const { return Create(path_ + "/" + name); }

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

  // One write(2). The error names file and value: kUnsupported when there is no such file,
  // kNotFound when the group is gone, else kKernel.
  Status Write(const char* file, std::string_view value) const;
  Status Write(const char* file, uint64_t value) const;
  bool Has(const char* file) const;
  Status Chown(const char* file, uid_t owner) const;
  Result<UniqueFd> OpenFile(const char* file, int flags) const;

  // What a statistics file holds; absent files and removed groups read as empty.
  std::string Read(const char* file) const;
  std::optional<uint64_t> ReadNumber(const char* file) const;  // nullopt for "max" too
  std::optional<uint64_t> ReadKey(const char* file, std::string_view key) const;
  // Names of child groups, sorted; empty when the group is gone.
  std::vector<std::string> Children() const;

  // rmdir(2). "Already gone" is success; kBadState while something lives in it or below.
  Status Remove() const;

 private:
  GroupDir(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

Status RemoveGroup(const std::string& path);  // the same for a path
bool IsGroupName(std::string_view name);      // one path component that is no dot entry

// "key value" lines (memory.events, cpu.stat, ...): the value of `key`.
std::optional<uint64_t> FindKey(std::string_view text, std::string_view key);
// The decimal number a file begins with; nullopt for "max" and for anything else.
std::optional<uint64_t> LeadingNumber(std::string_view text);

}  // namespace hutch::cgroups
