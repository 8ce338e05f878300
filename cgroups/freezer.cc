// Pausing a sandbox: cgroup.freeze of work/, in both modes, and reclaiming its memory:
// memory.reclaim (v2, Linux 5.19) or memory.force_empty (v1).
#include <fcntl.h>

#include <algorithm>

#include "base/file.h"
#include "cgroups/controllers.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {
namespace {

constexpr char kReclaim[] = "memory.reclaim", kForceEmpty[] = "memory.force_empty";

Error InWork(Error error, const std::string& path) {
  error.what = path + "/work: " + error.what;
  return error;
}

Status WriteFreeze(int dir_fd, const std::string& path, const char* value) {
  Status written = WriteExistingAt(dir_fd, "cgroup.freeze", value);
  return written ? std::move(written) : InWork(std::move(written).error(), path);
}

}  // namespace

Status SandboxGroup::Freeze() const { return WriteFreeze(work_dir_.get(), path_, "1"); }
Status SandboxGroup::Thaw() const { return WriteFreeze(work_dir_.get(), path_, "0"); }

Result<bool> SandboxGroup::Frozen() const {
  const auto value = ReadKey(work_dir_.get(), "cgroup.events", "frozen");
  if (value) return *value == 1;
  return InWork({.code = Code::kNotFound, .what = "cgroup.events: no frozen"}, path_);
}

Result<UniqueFd> SandboxGroup::OpenFreezeEvents() const {
  auto file = OpenAt(work_dir_.get(), "cgroup.events", O_RDONLY);
  if (!file) return InWork(std::move(file).error(), path_);
  return file;
}

Result<Reclaimer> SandboxGroup::OpenReclaimer() const {
  const Error none{.code = Code::kUnsupported,
                   .what = "this kernel reclaims no memory of a sandbox on request",
                   .field = "reclaim"};
  int dir = work_dir_.get();
  if (mode_ == Mode::kHybrid) {
    const auto memory = std::find_if(v1_.begin(), v1_.end(), [](const V1Group& v1) {
      return std::find(v1.controllers.begin(), v1.controllers.end(), "memory") !=
             v1.controllers.end();
    });
    if (memory == v1_.end()) return none;
    dir = memory->dir.get();
  }
  if (!HasFile(dir, mode_ == Mode::kV2 ? kReclaim : kForceEmpty)) return none;
  ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(dir));
  return Reclaimer(std::move(copy), mode_);
}

Result<uint64_t> Reclaimer::Run() const {
  const bool v2 = mode_ == Mode::kV2;
  const char* const usage = v2 ? "memory.current" : "memory.usage_in_bytes";
  const uint64_t before = ReadNumber(dir_.get(), usage).value_or(0);
  const Status written = WriteExistingAt(dir_.get(), v2 ? kReclaim : kForceEmpty,
                                         v2 ? std::to_string(before) : std::string("0"));
  // EAGAIN: less than asked for could be had; how much is told.
  if (!written && written.error().sys != EAGAIN) return written.error();
  const uint64_t after = ReadNumber(dir_.get(), usage).value_or(before);
  return before > after ? before - after : 0;
}

}  // namespace hutch::cgroups
