#include "network/egress/client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>

#include "base/file.h"
#include "network/egress/protocol.h"

namespace hutch::network {
namespace {

constexpr char kResolvConf[] = "/etc/resolv.conf", kHosts[] = "/etc/hosts";
constexpr int kEventsPerRead = 256;
constexpr int kFirstHighFd = 64;  // above every number the program gets

// A file as it was when it was last sent.
struct Seen {
  dev_t device = 0;
  ino_t inode = 0;
  timespec changed{};
  bool Changed(const char* path) {
    struct stat st {};
    if (::stat(path, &st) != 0) st = {};
    if (st.st_dev == device && st.st_ino == inode && st.st_ctim.tv_sec == changed.tv_sec &&
        st.st_ctim.tv_nsec == changed.tv_nsec)
      return false;
    device = st.st_dev, inode = st.st_ino, changed = st.st_ctim;
    return true;
  }
};

// Missing, unreadable or too large: as if it were empty, which is what resolvers make of it.
std::string TextOf(const char* path) {
  auto text = ReadFile(path, kMaxResolverFileBytes);
  return text ? std::move(*text) : std::string();
}

class SpawnSetup {
 public:
  SpawnSetup() {
    CHECK(::posix_spawn_file_actions_init(&actions) == 0);
    CHECK(::posix_spawnattr_init(&attributes) == 0);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    CHECK(::posix_spawnattr_setsigmask(&attributes, &none) == 0);
    CHECK(::posix_spawnattr_setsigdefault(&attributes, &all) == 0);
    CHECK(::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ==
          0);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

Result<Pidfd> Spawn(const std::string& program, int control_fd) {
  SpawnSetup setup;
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd high(::fcntl(control_fd, F_DUPFD_CLOEXEC, kFirstHighFd));
  if (!null.valid() || !high.valid()) return SysError(errno, "start hutch-egress");
  for (const int target : {0, 1})
    CHECK(::posix_spawn_file_actions_adddup2(&setup.actions, null.get(), target) == 0);
  CHECK(::posix_spawn_file_actions_adddup2(&setup.actions, high.get(), kControlFd) == 0);
  CHECK(::posix_spawn_file_actions_addclosefrom_np(&setup.actions, kControlFd + 1) == 0);
  std::string name = "hutch-egress";
  char* argv[] = {name.data(), nullptr};
  char* envp[] = {nullptr};
  pid_t pid = 0;
  const int err =
      ::posix_spawn(&pid, program.c_str(), &setup.actions, &setup.attributes, argv, envp);
  if (err != 0) return SysError(err, "start " + program);
  auto process = Pidfd::Open(pid);
  if (process) return process;
  ::kill(pid, SIGKILL);  // ours and not yet waited for, so the number is still its
  ::waitpid(pid, nullptr, 0);
  return std::move(process).error();
}

class Client final : public EgressClient {
 public:
  Client(UniqueFd socket, Pidfd process)
      : socket_(std::move(socket)), process_(std::move(process)) {}
  ~Client() override {
    IgnoreError(process_.Signal(SIGKILL), "it may have ended");
    siginfo_t info{};
    while (::waitid(P_PIDFD, static_cast<id_t>(process_.fd()), &info, WEXITED) != 0 &&
           errno == EINTR)
      continue;
  }

  // The program says that it is confined, or why it is not.
  Status AwaitReady() {
    RETURN_IF_ERROR(SendNamesIfChanged());
    struct pollfd wait = {socket_.get(), POLLIN, 0};
    int ready;
    do ready = ::poll(&wait, 1, static_cast<int>(kStartDeadline.count()));
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) return Error{.code = Code::kKernel, .what = "hutch-egress does not start"};
    ASSIGN_OR_RETURN(const Message message, ReceiveMessage(socket_.get(), kMaxControlBytes));
    if (message.bytes.empty())
      return Error{.code = Code::kKernel, .what = "hutch-egress ended before it was confined"};
    ASSIGN_OR_RETURN(const ProgramEvent event, ReadEvent(message.bytes));
    if (event.event.error) return *event.event.error;
    if (event.kind != ProgramEvent::Kind::kReady)
      return Error{.code = Code::kInternal, .what = "hutch-egress did not say that it is ready"};
    const int flags = ::fcntl(socket_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
      return SysError(errno, "hutch-egress: its socket");
    return OkStatus();
  }

  int fd() const override { return socket_.get(); }
  const Pidfd& process() const override { return process_; }

  std::vector<EgressEvent> Read() override {
    std::vector<EgressEvent> events;
    for (int i = 0; i < kEventsPerRead && !ended_; ++i) {
      const auto message = ReceiveMessage(socket_.get(), kMaxControlBytes);
      if (!message && message.error().code == Code::kUnavailable) break;
      const auto event = message && !message->bytes.empty() ? ReadEvent(message->bytes) : Error{};
      if (!event) {  // it ended, or it is no longer what we started
        ended_ = true;
        IgnoreError(process_.Signal(SIGKILL), "it may have ended");
        events.push_back({.kind = EgressEvent::Kind::kEnded, .sandbox = "", .number = 0});
        break;
      }
      if (event->kind == ProgramEvent::Kind::kEvent) events.push_back(event->event);
      if (event->kind == ProgramEvent::Kind::kStale)
        IgnoreError(SendNamesIfChanged(), "it is tried again at the next occasion");
    }
    return events;
  }

  Result<uint64_t> Set(const std::string& sandbox, const EgressSettings& settings,
                       const std::vector<Listener>& listeners, int counters_fd) override {
    IgnoreError(SendNamesIfChanged(), "it is tried again at the next occasion");
    std::string text = PrintSet(sandbox, number_ + 1, settings, listeners, counters_fd);
    std::vector<int> fds;
    for (const Listener& listener : listeners) fds.push_back(listener.fd.get());
    if (counters_fd >= 0) fds.push_back(counters_fd);
    const Status sent = SendControl(socket_.get(), text, std::move(fds));
    Wipe(&text);
    RETURN_IF_ERROR(sent);
    return ++number_;
  }

  Status Forget(const std::string& sandbox) override {
    return SendControl(socket_.get(), PrintForget(sandbox), {});
  }

 private:
  Status SendNamesIfChanged() {
    const bool changed = resolv_conf_.Changed(kResolvConf);
    if (!hosts_.Changed(kHosts) && !changed) return OkStatus();
    return SendControl(socket_.get(), PrintNames(TextOf(kResolvConf), TextOf(kHosts)), {});
  }

  UniqueFd socket_;
  Pidfd process_;
  Seen resolv_conf_, hosts_;
  uint64_t number_ = 0;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<EgressClient>> EgressClient::Start(const std::string& program) {
  ASSIGN_OR_RETURN(SocketPair sockets, MakeSeqpacketPair());
  for (const int fd : {sockets.a.get(), sockets.b.get()})
    if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kControlBufferBytes,
                     sizeof kControlBufferBytes) != 0 &&
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kControlBufferBytes, sizeof kControlBufferBytes) !=
            0)
      return SysError(errno, "hutch-egress: its socket");
  ASSIGN_OR_RETURN(Pidfd process, Spawn(program, sockets.b.get()));
  auto client = std::make_unique<Client>(std::move(sockets.a), std::move(process));
  sockets.b.reset();
  RETURN_IF_ERROR(client->AwaitReady());
  return Result<std::unique_ptr<EgressClient>>(std::move(client));
}

}  // namespace hutch::network
