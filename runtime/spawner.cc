#include "runtime/spawner.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>

#include "base/fd_socket.h"
#include "base/file.h"
#include "runtime/spawn_protocol.h"

namespace hutch::runtime {
namespace {

constexpr int kChildControlFd = 3;

// posix_spawn, so that it is safe beside threads when a dead server is replaced.
Result<pid_t> StartProcess(int init_memfd, int control_fd) {
  // Through our own /proc entry: by the time of the exec the child has closed its copy.
  const std::string path =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(init_memfd);
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0)
    return Error{.code = Code::kInternal, .what = "posix_spawn setup"};
  for (int fd = 0; fd < 3; ++fd)
    ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_adddup2(&actions, control_fd, kChildControlFd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kChildControlFd + 1);
  char name[] = "hutch-init", mode[] = "spawner";
  char* const argv[] = {name, mode, nullptr};
  char* const envp[] = {nullptr};
  pid_t pid = 0;
  const int err = ::posix_spawn(&pid, path.c_str(), &actions, nullptr, argv, envp);
  ::posix_spawn_file_actions_destroy(&actions);
  if (err != 0) return SysError(err, "start the spawn server");
  return pid;
}

Result<SpawnOutcome> Interpret(Message message) {
  SpawnReply reply;
  if (message.bytes.size() != sizeof reply)
    return Error{.code = Code::kInternal, .what = "spawn server: a message of the wrong size"};
  std::memcpy(&reply, message.bytes.data(), sizeof reply);
  SpawnOutcome outcome;
  outcome.number = reply.number;
  outcome.pid = reply.pid;
  outcome.wait_status = reply.wait_status;
  if (reply.answer == SpawnAnswer::kExited) {
    outcome.kind = SpawnOutcome::Kind::kExited;
  } else if (reply.answer == SpawnAnswer::kSpawned && message.fds.size() == kSpawnedFdCount) {
    outcome.kind = SpawnOutcome::Kind::kSpawned;
    outcome.pidfd = Pidfd(std::move(message.fds[kSpawnedPidfd]), reply.pid);
    outcome.userns = std::move(message.fds[kSpawnedUserns]);
  } else {
    outcome.kind = SpawnOutcome::Kind::kFailed;
    const bool known = reply.step < static_cast<uint32_t>(SpawnStep::kCount);
    outcome.error = SysError(reply.error, known ? kSpawnStepNames[reply.step] : "spawn");
    outcome.error->step = known ? kSpawnStepNames[reply.step] : "spawn";
    if (reply.error == ENOSPC ||
        reply.error == EAGAIN)  // clone: a user.max_*_namespaces or threads-max limit, not a disk
      outcome.error->code = Code::kLimit,
      outcome.error->hint = "see user.max_*_namespaces and kernel.threads-max";
  }
  return outcome;
}

}  // namespace

Result<Spawner> Spawner::Start(int init_memfd, const cgroups::Tree& tree) {
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  ASSIGN_OR_RETURN(const UniqueFd leaf, tree.CreateSpawnerLeaf());
  ASSIGN_OR_RETURN(const pid_t pid, StartProcess(init_memfd, pair.b.get()));
  Spawner spawner;
  spawner.socket_ = std::move(pair.a);
  ASSIGN_OR_RETURN(spawner.process_, Pidfd::Open(pid));
  // A fresh leaf that is never killed: otherwise every clone into another group would be killed at
  // birth.
  RETURN_IF_ERROR(WriteExistingAt(leaf.get(), "cgroup.procs", std::to_string(pid)));
  return spawner;
}

Status Spawner::Send(const SpawnOrder& order) const {
  SpawnRequest request{};
  request.number = order.number;
  request.host_id_start = order.host_id_start;
  request.v1_count = static_cast<uint32_t>(order.v1_procs.size());
  CHECK(order.hostname.size() < sizeof request.hostname && order.v1_procs.size() <= kMaxV1Fds);
  std::memcpy(request.hostname, order.hostname.data(), order.hostname.size());
  std::vector<int> fds = {order.cgroup_fd, order.conn_fd, order.listen_fd, order.netns_fd};
  for (const UniqueFd& fd : order.v1_procs) fds.push_back(fd.get());
  const std::string_view bytes(reinterpret_cast<const char*>(&request), sizeof request);
  return SendMessage(socket_.get(), {&bytes, 1}, fds);
}

std::vector<SpawnOutcome> Spawner::Receive() const {
  std::vector<SpawnOutcome> outcomes;
  while (true) {
    auto message = ReceiveMessage(socket_.get(), sizeof(SpawnReply) + 1, MSG_DONTWAIT);
    if (!message && message.error().code == Code::kUnavailable) return outcomes;
    auto outcome = message && !message->bytes.empty()
                       ? Interpret(std::move(*message))
                       : Result<SpawnOutcome>(Error{.what = "spawn server ended"});
    if (outcome) {
      outcomes.push_back(std::move(*outcome));
      continue;
    }
    SpawnOutcome ended;
    ended.kind = SpawnOutcome::Kind::kServerEnded;
    ended.error = std::move(outcome).error();
    outcomes.push_back(std::move(ended));
    ::waitpid(process_.pid(), nullptr, WNOHANG);
    return outcomes;
  }
}

}  // namespace hutch::runtime
