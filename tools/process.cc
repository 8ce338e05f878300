#include "tools/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace hutch::tools {
namespace {

constexpr size_t kMaxOutputBytes = size_t{1} << 20;

class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int Prepare(const Streams& streams) {
    const int wanted[] = {streams.in_fd, streams.out_fd, streams.err_fd};
    for (int target = 0; target < 3; ++target) {
      const int failed =
          wanted[target] >= 0
              ? ::posix_spawn_file_actions_adddup2(&actions_, wanted[target], target)
              : ::posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", O_RDWR, 0);
      if (failed != 0) return failed;
    }
    // We ignore SIGPIPE, and run blocks signals; the child starts as from a shell.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    return ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Result<pid_t> Spawn(const std::vector<std::string>& argv, const Streams& streams) {
  CHECK(!argv.empty());
  SpawnSettings settings;
  if (const int failed = settings.Prepare(streams); failed != 0)
    return SysError(failed, "posix_spawn settings");
  std::vector<char*> pointers;
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, pointers[0], settings.actions(), settings.attributes(),
                                    pointers.data(), environ);
  if (failed == 0) return pid;
  Error error = SysError(failed, argv[0]);
  if (failed == ENOENT) error.code = Code::kCommandNotFound;
  return error;
}

Result<int> WaitForExit(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return SysError(errno, "waitpid");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Result<Finished> RunToEnd(const std::vector<std::string>& argv, int in_fd) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, {in_fd, pipe.write.get(), pipe.write.get()}));
  pipe.write.reset();
  auto output = ReadAll(pipe.read.get(), kMaxOutputBytes);
  pipe.read.reset();  // a program that says too much ends by SIGPIPE
  ASSIGN_OR_RETURN(const int exit_code, WaitForExit(pid));
  if (!output) return std::move(output).error();
  return Finished{.exit_code = exit_code, .output = std::move(output).value()};
}

bool ProgramExists(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& directory : Split(path != nullptr ? path : "/usr/bin:/bin", ':'))
    if (::access((directory + "/" + name).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace hutch::tools
