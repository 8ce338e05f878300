// State files, and what a new hutchd makes of what the last one left.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/sys_raw.h"
#include "oci/json.h"
#include "runtime/agent_protocol.h"
#include "runtime/runtime_impl.h"

namespace hutch::runtime {
namespace {

constexpr uint64_t kStateVersion = 1;
constexpr size_t kMaxStateBytes = 4u << 20;
constexpr int kRemoveAttempts = 400;  // of 5 ms each
constexpr char kStateName[] = "state.json";

Result<UniqueFd> ConnectAgent(int directory_fd) {
  // An agent that does not accept must not hold up the start: EAGAIN, and it is not taken up.
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SysError(errno, "socket for the agent");
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBufferBytes,
               sizeof kSocketBufferBytes);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory_fd) + "/agent.sock";
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return SysError(errno, "connect to agent.sock");
  return fd;
}

// The one process of agent/; looked up again once the handle is held, so that it cannot be somebody
// else's pid.
Result<Pidfd> OpenInit(const cgroups::SandboxGroup& group) {
  ASSIGN_OR_RETURN(const std::vector<pid_t> before, group.AgentPids());
  if (before.size() != 1) return Error{.code = Code::kNotFound, .what = "no agent is running"};
  ASSIGN_OR_RETURN(Pidfd init, Pidfd::Open(before[0]));
  ASSIGN_OR_RETURN(const std::vector<pid_t> after, group.AgentPids());
  if (after != before || init.HasEnded())
    return Error{.code = Code::kNotFound, .what = "the agent ended"};
  return init;
}

// The agent's descriptor, believed only when it is what the agent was told to keep: a directory of
// the host's root on a tmpfs, which nothing inside a sandbox can make.
UniqueFd TakeProcFiles(const Pidfd& init) {
  UniqueFd fd(std::max(-1, sys::PidfdGetfd(init.fd(), kProcFilesFd)));
  if (!fd.valid()) return fd;
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  struct stat info {};
  struct statfs fs {};
  const bool sound = ::fstat(fd.get(), &info) == 0 && ::fstatfs(fd.get(), &fs) == 0 &&
                     S_ISDIR(info.st_mode) && info.st_uid == 0 && info.st_gid == 0 &&
                     (info.st_mode & 0022) == 0 && fs.f_type == TMPFS_MAGIC;
  if (!sound) fd.reset();
  return fd;
}

std::chrono::system_clock::time_point ReadActivity(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::chrono::system_clock::now();
  const auto since =
      std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec);
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
}

}  // namespace

Status RuntimeImpl::SaveState(const Sandbox& sandbox, const std::string& saved) {
  ASSIGN_OR_RETURN(const oci::Json scratch, SaveScratch(sandbox.scratch()));
  const oci::Json state = {{"version", kStateVersion},
                           {"id", sandbox.id()},
                           {"host_id_start", sandbox.host_id_start()},
                           {"live_proc", sandbox.proc_files_fd() >= 0},
                           {"scratch", scratch},
                           {"saved", saved}};
  FaultPoint("state file unwritten");
  // On a tmpfs: it dies with a reboot exactly as sandboxes do.
  RETURN_IF_ERROR(WriteFileAtomic(workshop_.sandboxes_dir + "/" + sandbox.id() + "/" + kStateName,
                                  oci::PrintJson(state), Durability::kMemory));
  FaultPoint("state file written");
  return OkStatus();
}

Status RuntimeImpl::NoteActivity(const Sandbox& sandbox,
                                 std::chrono::system_clock::time_point when) {
  const std::string path = workshop_.sandboxes_dir + "/" + sandbox.id() + "/" + kStateName;
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  const struct timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                                static_cast<long>(ns % 1'000'000'000)};
  const struct timespec times[2] = {time, time};
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return OkStatus();
  return SysError(errno, "utimensat " + path);
}

// One of a newer hutchd is that one's: nothing of it is touched, and nobody else gets its ids.
Status RuntimeImpl::CheckVersion(const std::string& id, const oci::Json& state) {
  uint64_t version = 0, host_id_start = 0;
  RETURN_IF_ERROR(oci::ObjectReader(state, "")
                      .Uint("version", &version)
                      .Uint("host_id_start", &host_id_start, 0, UINT32_MAX)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  if (version <= kStateVersion) return OkStatus();
  IgnoreError(workshop_.host_ids.Claim(static_cast<uint32_t>(host_id_start)),
              "it may have none, or not one of ours");
  return Error{.code = Code::kUnsupported,
               .what = "sandbox " + id + " has a state of version " + std::to_string(version) +
                       ", of a newer hutchd, and is left alone",
               .field = "version"};
}

Result<Recovered> RuntimeImpl::TakeUp(const std::string& id) {
  auto shell = std::make_unique<Shell>();
  shell->workshop = &workshop_;
  shell->id = id;
  const auto last_activity = ReadActivity(shell->DirectoryPath() + "/" + kStateName);
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(shell->DirectoryPath() + "/" + kStateName, kMaxStateBytes));
  ASSIGN_OR_RETURN(const oci::Json state,
                   oci::ParseJson(text, {.max_bytes = kMaxStateBytes, .max_depth = 8}));
  FaultPoint("state file of a sandbox read");
  RETURN_IF_ERROR(CheckVersion(id, state));
  uint64_t version = 0, host_id_start = 0;
  std::string saved;
  bool live_proc = false;
  oci::ObjectReader reader(state, "");
  const oci::Json* scratch = reader.Member("scratch");
  RETURN_IF_ERROR(reader.Uint("version", &version, kStateVersion, kStateVersion)
                      .Uint("host_id_start", &host_id_start, 1, UINT32_MAX)
                      .String("saved", &saved, kMaxStateBytes)
                      .Bool("live_proc", &live_proc)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  ASSIGN_OR_RETURN(shell->directory, Open(shell->DirectoryPath(), O_RDONLY | O_DIRECTORY));
  ASSIGN_OR_RETURN(shell->group, workshop_.tree->OpenExisting(id));
  shell->has_cgroups = true;
  RETURN_IF_ERROR(shell->group.DelegateTo(static_cast<uint32_t>(host_id_start)));
  ASSIGN_OR_RETURN(shell->init, OpenInit(shell->group));
  ASSIGN_OR_RETURN(shell->conn, ConnectAgent(shell->directory.get()));
  shell->host_id_start = static_cast<uint32_t>(host_id_start);
  if (live_proc) shell->proc_files = TakeProcFiles(shell->init);
  // Without it the sandbox serves on; only what its commands change is not told any more.
  if (auto view = scratch != nullptr ? TakeUpScratch(shell->init, *scratch) : ScratchView())
    shell->scratch_view = std::move(*view);
  auto sandbox = std::make_unique<SandboxImpl>(std::move(shell), false);
  sandbox->on_destroy = OnSandboxDestroyed;
  sandbox->owner = this;
  RETURN_IF_ERROR(sandbox->TakeUpProcesses());
  RETURN_IF_ERROR(workshop_.host_ids.Claim(
      sandbox->host_id_start()));  // last: what fails before is not taken up
  living_[sandbox->pid()] = sandbox.get();
  return Recovered{std::move(sandbox), std::move(saved), last_activity};
}

void RuntimeImpl::RemoveRemains(const std::string& id, std::vector<std::string>* removed) {
  Shell shell;
  shell.workshop = &workshop_;
  shell.id = id;
  if (auto group = workshop_.tree->OpenExisting(id)) {
    shell.group = std::move(*group);
    shell.has_cgroups = true;
  }
  Status status = OkStatus();
  for (int i = 0; i < kRemoveAttempts; ++i) {
    status = UndoSteps(ShellSteps(), shell);
    if (status || status.error().code != Code::kBadState) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  removed->push_back(id + (status ? "" : ": " + status.error().ToString()));
}

Result<std::vector<Recovered>> RuntimeImpl::Recover(std::vector<std::string>* removed) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListDirectory(workshop_.sandboxes_dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> grouped, workshop_.tree->List());
  ids.insert(ids.end(), grouped.begin(), grouped.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<Recovered> recovered;
  for (const std::string& id : ids) {
    auto taken = TakeUp(id);
    if (taken)
      recovered.push_back(std::move(*taken));
    else if (taken.error().field == "version")
      left_alone_[id] = taken.error();
    else
      RemoveRemains(id, removed);
  }
  return recovered;
}

}  // namespace hutch::runtime
