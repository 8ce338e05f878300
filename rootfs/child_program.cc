#include "rootfs/child_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <memory>

#include "base/file.h"

namespace hutch::rootfs {
namespace {

constexpr std::array<const char*, 4> kPlaces = {"/", "/../bin/", "/../libexec/hutch/",
                                                "/../../libexec/hutch/"};
constexpr int kFirstHighFd = 64;  // above every number a child's descriptor gets

class FileActions {
 public:
  FileActions() { CHECK(::posix_spawn_file_actions_init(&actions_) == 0); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<ChildProgram> ChildProgram::Start(const ProgramRequest& request) {
  FileActions actions;
  std::vector<UniqueFd> high;  // out of the way first, so that no target overwrites a source
  for (const int fd : request.fds) {
    high.emplace_back(fd < 0 ? ::open("/dev/null", O_RDWR | O_CLOEXEC)
                             : ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd));
    if (!high.back().valid()) return SysError(errno, "duplicate a descriptor");
    const int target = static_cast<int>(high.size()) - 1;
    CHECK(::posix_spawn_file_actions_adddup2(actions.get(), high.back().get(), target) == 0);
  }
  CHECK(::posix_spawn_file_actions_addclosefrom_np(actions.get(),
                                                   static_cast<int>(request.fds.size())) == 0);
  std::vector<std::string> args = request.args, env = request.env;
  pid_t pid = 0;
  const int err = ::posix_spawnp(&pid, request.path.c_str(), actions.get(), nullptr,
                                 Pointers(args).data(), Pointers(env).data());
  if (err == ENOENT)
    return Error{.code = Code::kNotFound, .sys = err, .what = request.path + " is not installed"};
  if (err != 0) return SysError(err, "start " + request.path);
  auto process = Pidfd::Open(pid);
  if (process) return ChildProgram(std::move(*process));
  ::kill(pid, SIGKILL);  // ours and not yet waited for, so the number is still its
  ::waitpid(pid, nullptr, 0);
  return std::move(process).error();
}

Result<int> ChildProgram::Wait() {
  siginfo_t info{};
  int rc;
  do rc = ::waitid(P_PIDFD, static_cast<id_t>(process_.fd()), &info, WEXITED);
  while (rc != 0 && errno == EINTR);
  if (rc != 0) return SysError(errno, "wait for a program");
  process_ = Pidfd();
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

ChildProgram::~ChildProgram() {
  if (!process_.valid()) return;
  IgnoreError(Kill(), "it may have ended");
  IgnoreError(Wait(), "nobody asks for its exit code any more");
}

Result<std::string> FindProgram(const std::string& name) {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  if (size <= 0) return SysError(errno, "readlink /proc/self/exe");
  const std::string path(self, static_cast<size_t>(size));
  const std::string directory = path.substr(0, path.rfind('/'));
  std::string tried;
  for (const char* place : kPlaces) {
    const std::string candidate = directory + place + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  return Error{.code = Code::kNotFound,
               .what = name + " is not installed (looked for " + tried + ")"};
}

}  // namespace hutch::rootfs
