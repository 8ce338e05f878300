#include "network/netns.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "network/inside.h"

namespace hutch::network {
namespace {

constexpr char kThreadNetns[] = "/proc/thread-self/ns/net";

struct SysctlRow {
  const char* path;
  const char* value;
};
// /proc/sys/net is the calling thread's. The first two as Docker and podman set them: servers on
// low ports and ping without privilege. The others are for links made later: what is on the other
// end (a member of a joined network, with CAP_NET_RAW) must not be able to change addresses or
// routes, and nothing waits a second for duplicate addresses that cannot be.
constexpr SysctlRow kSysctls[] = {
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
    {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
    {"/proc/sys/net/ipv4/conf/all/accept_redirects", "0"},
    {"/proc/sys/net/ipv4/conf/default/accept_redirects", "0"},
    {"/proc/sys/net/ipv4/conf/default/arp_ignore", "1"},
    {"/proc/sys/net/ipv4/conf/default/arp_announce", "2"},
    {"/proc/sys/net/ipv6/conf/default/disable_ipv6", "0"},
    {"/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0"},
    {"/proc/sys/net/ipv6/conf/default/accept_ra", "0"},
    {"/proc/sys/net/ipv6/conf/default/accept_redirects", "0"},
    {"/proc/sys/net/ipv6/conf/default/accept_dad", "0"},
    {"/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1"},  // no link-local address
};

Status BringUpLoopback() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SysError(errno, "socket for lo");
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return SysError(errno, "bring lo up");
  return OkStatus();
}

// In the new namespace, on its thread.
Result<UniqueFd> Furnish() {
  for (const SysctlRow& row : kSysctls) {
    // A kernel built without the sysctl has nothing to relax; the sandbox then has less, not more.
    if (PathExists(row.path)) RETURN_IF_ERROR(WriteExisting(row.path, row.value));
  }
  RETURN_IF_ERROR(BringUpLoopback());
  return Open(kThreadNetns, O_RDONLY);
}

class Pool : public NetnsPool {
 public:
  Pool(size_t target, NetnsKind kind) : target_(target), kind_(kind) {
    if (target == 0) return;
    // Signals are the program's business: a thread with an open mask would take them from whoever
    // waits for them.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Fill(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Pool() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Result<UniqueFd> Take() override {
    {
      const std::lock_guard lock(mutex_);
      if (!ready_.empty()) {
        UniqueFd fd = std::move(ready_.back());
        ready_.pop_back();
        wake_.notify_one();
        return fd;
      }
    }
    return MakeNetns();  // who waits for it prepares what it needs and no more
  }
  size_t ready() const override {
    const std::lock_guard lock(mutex_);
    return ready_.size();
  }
  void Prefer(NetnsKind kind) override {
    const std::lock_guard lock(mutex_);
    if (kind != refused_) kind_ = kind;
  }

 private:
  // Once said; a sandbox that needs it meets the error, and names the kernel's option.
  void Refuse(NetnsKind kind, const Error& error) {
    refused_ = kind;
    kind_ = NetnsKind::kPlain;
    Log(LogLevel::kWarning, "network namespaces cannot be prepared ahead",
        {{"error", error.ToString()}});
  }
  void Fill() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (ready_.size() >= target_) {
        wake_.wait(lock);
        continue;
      }
      const NetnsKind kind = kind_;
      lock.unlock();
      auto made = MakeNetns(kind);
      lock.lock();
      if (made)
        ready_.push_back(std::move(*made));
      else if (kind != NetnsKind::kPlain)
        Refuse(kind, made.error());
      else
        wake_.wait_for(lock,
                       std::chrono::seconds(1));  // Take() will meet and report the error itself
    }
  }

  const size_t target_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  NetnsKind kind_;
  std::optional<NetnsKind> refused_;
  std::vector<UniqueFd> ready_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

Result<UniqueFd> MakeNetns(NetnsKind kind) {
  ASSIGN_OR_RETURN(const UniqueFd own, Open(kThreadNetns, O_RDONLY));
  if (::unshare(CLONE_NEWNET) != 0) return SysError(errno, "unshare network namespace");
  auto made = Furnish();
  // A thread left in the wrong network would do its later work there: that must not go on.
  CHECK(::setns(own.get(), CLONE_NEWNET) == 0);
  if (made && kind == NetnsKind::kCatch) RETURN_IF_ERROR(PrepareCatch(made->get()));
  return made;
}

std::unique_ptr<NetnsPool> NetnsPool::Start(size_t target, NetnsKind kind) {
  return std::make_unique<Pool>(target, kind);
}

}  // namespace hutch::network
