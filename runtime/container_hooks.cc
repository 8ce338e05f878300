#include "runtime/container_hooks.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstring>
#include <ctime>

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

  int Prepare(int in_fd, int out_fd, const std::string& directory) {
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int err = ::posix_spawn_file_actions_adddup2(&actions_, in_fd, 0);
    if (err == 0) err = ::posix_spawn_file_actions_adddup2(&actions_, out_fd, 1);
    if (err == 0) err = ::posix_spawn_file_actions_adddup2(&actions_, out_fd, 2);
    if (err == 0) err = ::posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    if (err == 0 && !directory.empty())
      err = ::posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str());
    if (err == 0) err = ::posix_spawnattr_setsigmask(&attributes_, &none);
    if (err == 0) err = ::posix_spawnattr_setsigdefault(&attributes_, &all);
    if (err == 0)
      err =
          ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return err;
  }
  int Run(const oci::Hook& hook, const std::vector<std::string>& env, pid_t* pid) {
    const std::vector<std::string> args =
        hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args;
    return ::posix_spawn(pid, hook.path.c_str(), &actions_, &attributes_, Pointers(args).data(),
                         Pointers(env).data());
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// A filter may know no pidfds.
Result<bool> AwaitHookByPolling(pid_t pid, int timeout_ms, int* wait_status) {
  constexpr int kTickMs = 10;
  for (int waited_ms = 0;; waited_ms += kTickMs) {
    const bool late = timeout_ms >= 0 && waited_ms >= timeout_ms;
    if (late && ::kill(pid, SIGKILL) != 0) return SysError(errno, "kill the hook");
    const pid_t ended = ::waitpid(pid, wait_status, timeout_ms < 0 || late ? 0 : WNOHANG);
    if (ended == pid) return !late;
    if (ended < 0 && errno != EINTR) return SysError(errno, "wait for the hook");
    const timespec tick{0, kTickMs * 1000000};
    ::nanosleep(&tick, nullptr);
  }
}

// Waits for the process and reaps it; false when it had to be killed.
Result<bool> AwaitHook(pid_t pid, int timeout_ms, int* wait_status) {
  const Result<Pidfd> process = Pidfd::Open(pid);
  if (!process) return AwaitHookByPolling(pid, timeout_ms, wait_status);
  const bool in_time = process->WaitEnded(timeout_ms);
  if (!in_time) RETURN_IF_ERROR(process->Signal(SIGKILL));
  while (::waitpid(pid, wait_status, 0) < 0)
    if (errno != EINTR) return SysError(errno, "wait for the hook");
  return in_time;
}

std::string SignalText(int signal) {
  const char* known = ::sigdescr_np(signal);
  std::string text = known != nullptr ? known : std::to_string(signal);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

Result<HookRunner> HookRunner::Make(const oci::Json& state, std::string directory) {
  ASSIGN_OR_RETURN(UniqueFd in, SealedMemfd("state", oci::PrintJson(state)));
  UniqueFd out(::memfd_create("output", MFD_CLOEXEC));
  if (!out.valid()) return SysError(errno, "memfd_create");
  return HookRunner(std::move(in), std::move(out), std::move(directory));
}

Status HookRunner::RunOne(const oci::Hook& hook, const std::vector<std::string>* env,
                          const std::string& exit_words) const {
  const std::string name = "hook " + hook.path + ": ";
  if (::lseek(state_.get(), 0, SEEK_SET) != 0) return SysError(errno, "lseek");
  if (::ftruncate(output_.get(), 0) != 0 || ::lseek(output_.get(), 0, SEEK_SET) != 0)
    return SysError(errno, "ftruncate");
  SpawnPlan plan;
  pid_t pid = 0;
  if (const int err = plan.Prepare(state_.get(), output_.get(), directory_); err != 0)
    return SysError(err, name + "posix_spawn");
  if (const int err = plan.Run(hook, env != nullptr && hook.env.empty() ? *env : hook.env, &pid);
      err != 0)
    return SysError(err, name + "cannot be run");
  int wait_status = 0;
  const int timeout_ms = hook.timeout_seconds ? static_cast<int>(*hook.timeout_seconds) * 1000 : -1;
  ASSIGN_OR_RETURN(const bool in_time, AwaitHook(pid, timeout_ms, &wait_status));
  Error error{.code = Code::kKernel, .what = ""};
  if (!in_time)
    error.what = name + "hook ran past specified timeout of " +
                 std::to_string(*hook.timeout_seconds) + " s and was killed";
  else if (WIFSIGNALED(wait_status))
    error.what = name + "signal: " + SignalText(WTERMSIG(wait_status));
  else if (WEXITSTATUS(wait_status) != 0)
    error.what = name + exit_words + std::to_string(WEXITSTATUS(wait_status));
  else
    return OkStatus();
  if (const std::string output = ReadOutput(output_.get()); !output.empty())
    error.what += ", output: " + output;
  return error;
}

Status HookRunner::Run(const char* point, const std::vector<oci::Hook>& hooks,
                       const std::vector<std::string>* env) const {
  for (size_t i = 0; i < hooks.size(); ++i) {
    Status done = RunOne(hooks[i], env, "exit status ");
    if (done) continue;
    Error error = std::move(done).error();
    error.what =
        "error running " + std::string(point) + " hook #" + std::to_string(i) + ": " + error.what;
    return error;
  }
  return OkStatus();
}

std::vector<std::string> HookRunner::RunAnyway(const char* point,
                                               const std::vector<oci::Hook>& hooks) const {
  std::vector<std::string> failures;
  const std::string exit_words = std::string(point) + " hook failed with exit code ";
  for (const oci::Hook& hook : hooks)
    if (const Status done = RunOne(hook, nullptr, exit_words); !done)
      failures.push_back(done.error().ToString());
  return failures;
}

std::string HookDirectory(const ContainerRecord& record) {
  return PathExists(record.bundle) ? record.bundle : "/";
}

std::vector<std::string> RunPoststopHooks(const oci::ContainerConfig& config,
                                          const ContainerRecord& record) {
  if (config.hooks.poststop.empty()) return {};
  const Result<HookRunner> runner =
      HookRunner::Make(StateDocument(record, ContainerStatus::kStopped), HookDirectory(record));
  if (!runner) return {"poststop hooks: " + runner.error().ToString()};
  return runner->RunAnyway("poststop", config.hooks.poststop);
}

}  // namespace hutch::runtime
