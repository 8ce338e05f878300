#include "tests/kernel/seccomp/confined.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>

namespace hutch::seccomp {
namespace {

constexpr uint32_t kMarker = 0x7ab5e77e;  // in the sixth argument: this call is a question
constexpr int kIntercepted = 512;         // the supervisor's errno; no call has it

long Load(const Program& program, unsigned flags) {
  const sock_fprog fprog = {static_cast<unsigned short>(program.size()),
                            const_cast<sock_filter*>(program.data())};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
}

Program Interceptor() {
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 5 * sizeof(uint64_t)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMarker, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
}

void Supervise(int listener, const std::atomic<bool>& done) {
  while (!done) {
    pollfd ready = {listener, POLLIN, 0};
    if (poll(&ready, 1, 20) <= 0) continue;
    seccomp_notif request = {};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) continue;
    seccomp_notif_resp answer = {};
    answer.id = request.id;
    answer.error = -kIntercepted;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

// Two threads of one child: the asker is filtered, the supervisor is not.
int AskInChild(Layers layers, const FilterSet& filters, const std::vector<Probe>& probes,
               int* answers) {
  std::atomic<int> listener{-1};
  std::atomic<bool> done{false};
  std::thread asker([&] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
      listener = static_cast<int>(Load(Interceptor(), SECCOMP_FILTER_FLAG_NEW_LISTENER));
    if (listener >= 0 && Install(filters, layers)) {
      for (size_t i = 0; i < probes.size(); ++i) {
        const Probe& p = probes[i];
        const long value = syscall(static_cast<long>(p.number), p.args[0], p.args[1], p.args[2], 0,
                                   0, static_cast<unsigned long>(kMarker));
        answers[i] = value == -1 ? (errno == kIntercepted ? kLetThrough : errno) : kNotAsked;
      }
    }
    done = true;
  });
  while (listener < 0 && !done) std::this_thread::yield();
  Supervise(listener, done);
  asker.join();
  return 0;
}

}  // namespace

bool Install(const FilterSet& filters, Layers layers) {
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && Load(filters.agent, 0) == 0 &&
         (layers == Layers::kAgent || Load(filters.process, filters.process_flags) == 0);
}

int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(20);
    _exit(body());
  }
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

int Confined(Layers layers, const std::function<int()>& body) {
  const auto filters = DefaultFilters();
  return InChild([&] {
    if (!filters.has_value() || !Install(**filters, layers)) return 125;
    return body();
  });
}

std::vector<int> Ask(Layers layers, const std::vector<Probe>& probes) {
  const size_t size = (probes.size() + 1) * sizeof(int);
  void* shared = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int* answers = static_cast<int*>(shared);
  for (size_t i = 0; i < probes.size(); ++i) answers[i] = kNotAsked;
  const auto filters = DefaultFilters();
  if (filters.has_value()) InChild([&] { return AskInChild(layers, **filters, probes, answers); });
  std::vector<int> result(answers, answers + probes.size());
  munmap(shared, size);
  return result;
}

int ErrnoOf(long number, long a0, long a1, long a2, long a3, long a4) {
  return syscall(number, a0, a1, a2, a3, a4, 0L) == -1 ? errno : 0;
}

}  // namespace hutch::seccomp
