// A tree of one test's own on the real kernel, and processes in its groups the way a sandbox has
// them: an agent cloned into agent/, and what it clones into work/<process>.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {

inline constexpr int kPatienceMs = 60000;  // generous: the same tests run in an emulated kernel
inline constexpr uid_t kTenantUid = 1879048192;

template <class T>
T Must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().ToString();
    std::abort();
  }
  return std::move(result).value();
}

// oci::LinuxResources by name.
struct Limits {
  std::optional<uint64_t> memory_bytes = {}, pids = {}, cpu_quota_us = {};
  uint64_t cpu_period_us = 100000;
  std::optional<uint64_t> cpu_weight = {};
  operator oci::LinuxResources() const;
};

// Polls until it holds; false when patience ends.
bool Eventually(const std::function<bool()>& holds);

// What a child runs: returns its exit code. After clone in a single-threaded test: it may allocate.
using Body = std::function<int()>;

class GroupsTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  SandboxGroup MakeSandbox(const std::string& id);
  // Starts an agent in agent/ (kHybrid: attached to the v1 groups) that becomes `uid`, clones
  // `body` into each of `groups` and ends when they have. Its wait status: 0 when every clone
  // worked and every body returned 0, else the first body's code, or 128 + its signal; 120 + errno
  // / 2 when a clone failed.
  pid_t StartAgent(const SandboxGroup& sandbox, const std::vector<int>& groups, const Body& body,
                   uid_t uid = 0);
  int Wait(pid_t agent);  // exit code, 128 + signal, -1 when patience ended
  int Run(const SandboxGroup& sandbox, const ProcessGroup& group, const Body& body, uid_t uid = 0);

  std::string V2Path(const std::string& below) const;             // of <parent>/sandboxes/<below>
  std::vector<std::string> V1Paths(const std::string& id) const;  // one for each hierarchy

  std::unique_ptr<Tree> tree_;

 private:
  std::vector<pid_t> agents_;  // not waited for yet
};

}  // namespace hutch::cgroups
