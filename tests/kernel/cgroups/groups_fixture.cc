#include "tests/kernel/cgroups/groups_fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/sys_raw.h"

namespace hutch::cgroups {
namespace {

constexpr int kCloneFailed = 120;
constexpr int kSignalled = 128;

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? kSignalled + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// Not through glibc: its fork knows no CLONE_INTO_CGROUP.
long CloneInto(int group_fd) {
  clone_args args = {};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(group_fd);
  return sys::Clone3(&args);
}

// Runs in the agent, after fork.
int RunAgent(int go_fd, const std::vector<int>& groups, const Body& body, uid_t uid) {
  char byte;
  if (::read(go_fd, &byte, 1) != 1) return 1;
  if (uid != 0 && (::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0)) return 1;
  for (const int group : groups) {
    const long pid = CloneInto(group);
    if (pid < 0) return kCloneFailed + static_cast<int>(-pid) / 2;
    if (pid == 0) ::_exit(body());
  }
  int first = 0;
  for (int status; ::wait(&status) > 0;)
    if (first == 0) first = ExitCode(status);
  return first;
}

}  // namespace

Limits::operator oci::LinuxResources() const {
  oci::LinuxResources resources;
  resources.memory_limit_bytes = memory_bytes;
  resources.pids_limit = pids;
  resources.cpu_quota_us = cpu_quota_us;
  resources.cpu_period_us = cpu_period_us;
  resources.cpu_weight = cpu_weight;
  return resources;
}

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void GroupsTest::SetUp() {
  tree_ = std::make_unique<Tree>(Must(
      Tree::Open(Must(DetectLayout()), {.parent = "/hutch-test-" + std::to_string(::getpid())})));
}

void GroupsTest::TearDown() {
  if (tree_ == nullptr) return;
  for (const std::string& id : Must(tree_->List())) {
    SandboxGroup sandbox = Must(tree_->OpenExisting(id));
    EXPECT_TRUE(sandbox.Kill());
    while (!agents_.empty()) Wait(agents_.front());
    EXPECT_TRUE(Eventually([&] { return sandbox.Remove().has_value(); }));
  }
  EXPECT_TRUE(tree_->RemoveParents());
  EXPECT_FALSE(PathExists(tree_->layout().v2_root + tree_->parent()));
  for (const auto& [controller, root] : tree_->layout().v1_roots)
    EXPECT_FALSE(PathExists(root + tree_->parent())) << controller;
}

SandboxGroup GroupsTest::MakeSandbox(const std::string& id) { return Must(tree_->Create(id)); }

pid_t GroupsTest::StartAgent(const SandboxGroup& sandbox, const std::vector<int>& groups,
                             const Body& body, uid_t uid) {
  Pipe go = Must(MakePipe());
  const std::vector<UniqueFd> v1 = Must(sandbox.OpenAttachFiles());
  const long pid = CloneInto(sandbox.agent_fd());
  if (pid == 0) {
    go.write.reset();
    // As the agent does it: from inside, with descriptors that root opened, before it forks.
    for (const UniqueFd& procs : v1)
      if (::write(procs.get(), "0", 1) != 1) ::_exit(1);
    ::_exit(RunAgent(go.read.get(), groups, body, uid));
  }
  EXPECT_GT(pid, 0) << ErrnoName(static_cast<int>(-pid));
  EXPECT_EQ(::write(go.write.get(), "g", 1), 1);
  agents_.push_back(static_cast<pid_t>(pid));
  return static_cast<pid_t>(pid);
}

int GroupsTest::Wait(pid_t agent) {
  std::erase(agents_, agent);
  const Pidfd handle = Must(Pidfd::Open(agent));
  if (!handle.WaitEnded(kPatienceMs)) return -1;
  int status = 0;
  return ::waitpid(agent, &status, 0) == agent ? ExitCode(status) : -1;
}

int GroupsTest::Run(const SandboxGroup& sandbox, const ProcessGroup& group, const Body& body,
                    uid_t uid) {
  return Wait(StartAgent(sandbox, {group.fd()}, body, uid));
}

std::string GroupsTest::V2Path(const std::string& below) const {
  return tree_->layout().v2_root + tree_->parent() + "/sandboxes/" + below;
}

std::vector<std::string> GroupsTest::V1Paths(const std::string& id) const {
  std::vector<std::string> paths;
  for (const auto& [controller, root] : tree_->layout().v1_roots) {
    const std::string path = root + tree_->parent() + "/sandboxes/" + id;
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

}  // namespace hutch::cgroups
