#include "runtime/container_hooks.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "base/pidfd.h"
#include "base/text.h"

namespace hutch::runtime {
namespace {

constexpr size_t kShownOutputBytes = 2048;

// The end of what a hook wrote, for the message.
std::string ReadOutput(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(std::min(kShownOutputBytes, static_cast<size_t>(size)), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return std::string(Trim(text));
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int Prepare(int in_fd, int out_fd, const char* directory) {
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int err = ::posix_spawn_file_actions_adddup2(&actions_, in_fd, 0);
    if (err == 0) err = ::posix_spawn_file_actions_adddup2(&actions_, out_fd, 1);
    if (err == 0) err = ::posix_spawn_file_actions_adddup2(&actions_, out_fd, 2);
    if (err == 0) err = ::posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    if (err == 0) err = ::posix_spawn_file_actions_addchdir_np(&actions_, directory);
    if (err == 0) err = ::posix_spawnattr_setsigmask(&attributes_, &none);
    if (err == 0) err = ::posix_spawnattr_setsigdefault(&attributes_, &all);
    if (err == 0)
      err =
          ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return err;
  }
  int Run(const oci::Hook& hook, pid_t* pid) {
    const std::vector<std::string> args =
        hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args;
    return ::posix_spawn(pid, hook.path.c_str(), &actions_, &attributes_, Pointers(args).data(),
                         Pointers(hook.env).data());
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Waits for the process and reaps it; false when it had to be killed.
Result<bool> AwaitHook(pid_t pid, int timeout_ms, int* wait_status) {
  ASSIGN_OR_RETURN(const Pidfd process, Pidfd::Open(pid));
  const bool in_time = process.WaitEnded(timeout_ms);
  if (!in_time) RETURN_IF_ERROR(process.Signal(SIGKILL));
  while (::waitpid(pid, wait_status, 0) < 0)
    if (errno != EINTR) return SysError(errno, "wait for the hook");
  return in_time;
}

Status RunHook(const char* point, const oci::Hook& hook, std::string_view state,
               const std::string& directory) {
  const std::string name = hook.path + ": ";
  ASSIGN_OR_RETURN(const UniqueFd in, SealedMemfd("state", state));
  if (::lseek(in.get(), 0, SEEK_SET) != 0) return SysError(errno, "lseek");
  const UniqueFd out(::memfd_create("output", MFD_CLOEXEC));
  if (!out.valid()) return SysError(errno, "memfd_create");
  SpawnPlan plan;
  const char* where = ::access(directory.c_str(), X_OK) == 0 ? directory.c_str() : "/";
  pid_t pid = 0;
  if (const int err = plan.Prepare(in.get(), out.get(), where); err != 0)
    return SysError(err, name + "posix_spawn");
  if (const int err = plan.Run(hook, &pid); err != 0) return SysError(err, name + "cannot be run");
  int wait_status = 0;
  const int timeout_ms = hook.timeout_seconds ? static_cast<int>(*hook.timeout_seconds) * 1000 : -1;
  ASSIGN_OR_RETURN(const bool in_time, AwaitHook(pid, timeout_ms, &wait_status));
  Error error{.code = Code::kKernel, .what = ""};
  if (!in_time)
    error.what = name + "hook ran past specified timeout of " +
                 std::to_string(*hook.timeout_seconds) + " s and was killed";
  else if (WIFSIGNALED(wait_status))
    error.what = name + "ended by signal " + std::to_string(WTERMSIG(wait_status));
  else if (WEXITSTATUS(wait_status) != 0)
    error.what =
        name + point + " hook failed with exit code " + std::to_string(WEXITSTATUS(wait_status));
  else
    return OkStatus();
  if (const std::string output = ReadOutput(out.get()); !output.empty())
    error.what += ", output: " + output;
  return error;
}

}  // namespace

Status RunHooks(const char* point, const std::vector<oci::Hook>& hooks, const oci::Json& state,
                const std::string& directory) {
  if (hooks.empty()) return OkStatus();
  const std::string text = oci::PrintJson(state);
  for (size_t i = 0; i < hooks.size(); ++i) {
    Status done = RunHook(point, hooks[i], text, directory);
    if (done) continue;
    Error error = std::move(done).error();
    error.what =
        "error running " + std::string(point) + " hook #" + std::to_string(i) + ": " + error.what;
    return error;
  }
  return OkStatus();
}

std::vector<std::string> RunHooksAnyway(const char* point, const std::vector<oci::Hook>& hooks,
                                        const oci::Json& state, const std::string& directory) {
  std::vector<std::string> failures;
  for (const oci::Hook& hook : hooks)
    if (const Status done = RunHooks(point, {hook}, state, directory); !done)
      failures.push_back(done.error().ToString());
  return failures;
}

}  // namespace hutch::runtime
