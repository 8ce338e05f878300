// What a tenant's programs do all day still works under both filters.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "seccomp/filters.h"
#include "tests/kernel/seccomp/confined.h"

namespace hutch::seccomp {
namespace {

void ExpectSuccess(int status) {
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

int Shell(const char* script) {
  return Confined(Layers::kTenant, [script] {
    execl("/bin/sh", "sh", "-c", script, static_cast<char*>(nullptr));
    return 126;
  });
}

TEST(OrdinaryPrograms, ShellsForkPipeAndExec) {
  ExpectSuccess(
      Shell("set -e; test \"$(echo a b | tr a-z A-Z)\" = 'A B'; (exit 3) || test $? = 3; "
            "ls / > /dev/null; cat /proc/self/status | grep -q 'Seccomp:.2'"));
}

TEST(OrdinaryPrograms, Threads) {
  ExpectSuccess(Confined(Layers::kTenant, [] {
    int sum = 0;
    std::thread thread([&sum] { sum = 42; });
    thread.join();
    return sum == 42 ? 0 : 1;
  }));
}

TEST(OrdinaryPrograms, TcpOverLoopback) {
  ExpectSuccess(Confined(Layers::kTenant, [] {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (bind(server, raw, length) != 0 || listen(server, 1) != 0) return 1;
    if (getsockname(server, raw, &length) != 0) return 2;
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, raw, length) != 0) return 3;
    const int peer = accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
    char byte = 0;
    return write(client, "x", 1) == 1 && read(peer, &byte, 1) == 1 && byte == 'x' ? 0 : 4;
  }));
}

TEST(OrdinaryPrograms, UnixPairsUdpMemfdsEventsAndFifos) {
  ExpectSuccess(Confined(Layers::kTenant, [] {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 1;
    if (socket(AF_INET6, SOCK_DGRAM, 0) < 0 && errno != EAFNOSUPPORT) return 2;
    if (socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP) < 0) return 3;
    if (memfd_create("m", 0) < 0) return 4;
    if (eventfd(0, 0) < 0) return 5;
    char directory[] = "/tmp/hutch-seccomp-XXXXXX";
    if (mkdtemp(directory) == nullptr || chdir(directory) != 0) return 6;
    const int made = mkfifo("fifo", 0600);
    unlink("fifo");
    rmdir(directory);
    return made == 0 ? 0 : 7;
  }));
}

TEST(OrdinaryPrograms, MayFilterThemselvesFurther) {
  ExpectSuccess(Confined(Layers::kTenant, [] {
    sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog program = {1, &allow};
    return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
  }));
}

// A profile of the caller's: the guard for the agent, the whole of it for the process.
TEST(CustomFilters, BothLayersApply) {
  oci::LinuxSeccomp profile;
  profile.default_action = "SCMP_ACT_ALLOW";
  oci::SeccompSyscall rule;
  rule.names = {"getppid"};
  rule.action = "SCMP_ACT_ERRNO";
  rule.errno_ret = EIO;
  profile.syscalls = {rule};
  const auto filters = CompileFilters(profile);
  ASSERT_TRUE(filters.has_value()) << filters.error().ToString();
  ExpectSuccess(InChild([&] {
    if (!Install(**filters, Layers::kAgent)) return 1;
    if (ErrnoOf(SYS_getppid) != 0) return 2;
    if (ErrnoOf(SYS_swapon, -1) != EPERM || ErrnoOf(SYS_kexec_load, -1) != EPERM) return 3;
    if (ErrnoOf(SYS_init_module, -1) != EPERM) return 4;
    if (!Install(**filters, Layers::kTenant)) return 5;
    return ErrnoOf(SYS_getppid) == EIO ? 0 : 6;
  }));
}

}  // namespace
}  // namespace hutch::seccomp
