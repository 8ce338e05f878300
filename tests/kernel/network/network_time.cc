// Prints what the kernel's side of a sandbox's network costs on this machine: the figures of
// docs/network.md. Not a test. All happens in a network namespace of its own.
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "network/inside.h"
#include "network/netns.h"
#include "network/open_network.h"

namespace {

using namespace hutch;
using namespace hutch::network;

constexpr int kRounds = 300;

double Microseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <class T>
T Must(Result<T> result) {
  if (result) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().ToString().c_str());
  std::exit(1);
}

class Part {
 public:
  explicit Part(const char* name) : name_(name) {}
  template <class F>
  auto operator()(F f) {
    const double begin = Microseconds();
    auto value = Must(f());
    times_.push_back(Microseconds() - begin);
    return value;
  }
  void Print() {
    std::ranges::sort(times_);
    std::printf("%-28s p50 %8.1f us  p95 %8.1f us\n", name_, times_[times_.size() / 2],
                times_[times_.size() * 95 / 100]);
  }

 private:
  const char* name_;
  std::vector<double> times_ = {};
};

struct Pace {
  double gigabytes_per_second, round_trip_us;
};
Pace TimePair(UniqueFd client, UniqueFd server) {
  constexpr int kTrips = 20000;
  constexpr size_t kBytes = size_t{4} << 30;
  char byte = 0;
  std::thread echo([fd = server.get()] {
    char c;
    for (int i = 0; i < kTrips && ::read(fd, &c, 1) == 1; ++i)
      if (::write(fd, &c, 1) != 1) return;
  });
  double begin = Microseconds();
  for (int i = 0; i < kTrips; ++i)
    if (::write(client.get(), &byte, 1) != 1 || ::read(client.get(), &byte, 1) != 1) std::exit(1);
  const double trip = (Microseconds() - begin) / kTrips;
  echo.join();
  std::thread sink([fd = server.get()] {
    std::vector<char> buffer(1 << 20);
    while (::read(fd, buffer.data(), buffer.size()) > 0) {
    }
  });
  const std::vector<char> data(64 << 10);
  begin = Microseconds();
  for (size_t sent = 0; sent < kBytes; sent += data.size())
    if (::write(client.get(), data.data(), data.size()) < 0) std::exit(1);
  client.reset();
  sink.join();
  return {static_cast<double>(kBytes) / 1e3 / (Microseconds() - begin), trip};
}
void Print(const char* name, const Pace& pace) {
  std::printf("%-28s %6.2f GB/s  round trip %6.2f us\n", name, pace.gigabytes_per_second,
              pace.round_trip_us);
}

void TimeInside() {
  Part make{"MakeNetns"}, open{"OpenCatch"}, prepared{"OpenCatch, prepared"},
      listen{"MakeListeners, all"}, dns{"MakeListeners, DNS"}, socket{"SocketIn"},
      read{"ReadCatch"}, ports{"ListeningPorts"}, close{"CloseCatch"};
  for (int round = 0; round < kRounds; ++round) {
    const UniqueFd netns = make([] { return MakeNetns(); });
    open([&] { return OpenCatch(netns.get()); });
    {
      const auto all = listen([&] {
        return MakeListeners(netns.get(), {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp,
                                           ListenerKind::kProxy, ListenerKind::kCatch});
      });
      ports([&] { return ListeningPorts(netns.get()); });
    }
    dns([&] { return MakeListeners(netns.get(), {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp}); });
    socket([&] { return SocketIn(netns.get(), AF_INET, SOCK_STREAM); });
    read([&] { return ReadCatch(netns.get()); });
    close([&] { return CloseCatch(netns.get()); });
    const UniqueFd ready = Must(MakeNetns(NetnsKind::kCatch));
    prepared([&] { return OpenCatch(ready.get()); });
  }
  for (Part* part : {&make, &open, &prepared, &listen, &dns, &socket, &read, &ports, &close})
    part->Print();
}

// A stream of 64 KiB writes and a one-byte ping-pong over the loopback of a namespace.
void TimeLoopback(const char* name, int netns) {
  const UniqueFd listener = Must(SocketIn(netns, AF_INET, SOCK_STREAM));
  UniqueFd client = Must(SocketIn(netns, AF_INET, SOCK_STREAM));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(8080);
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(listener.get(), plain, sizeof address) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::connect(client.get(), plain, sizeof address) != 0)
    std::exit(1);
  UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Print(name, TimePair(std::move(client), std::move(server)));
}

void TimeLoopbacks() {
  const UniqueFd bare = Must(MakeNetns()), with = Must(MakeNetns());
  Must(OpenCatch(with.get()));
  for (int round = 0; round < 3; ++round) {
    TimeLoopback("lo", bare.get());
    TimeLoopback("lo with the catch", with.get());
  }
}

Address V4Of(uint8_t a, uint8_t b) {
  return {.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, 0, 0}};
}

// 500 sandboxes with mode "open" at once.
void TimeOpen() {
  OpenConfig config;
  config.pool_v4 = {.base = V4Of(100, 96), .bits = 112};
  config.pool_v6.base.bytes[0] = 0xfd;
  config.pool_v6.bits = 112;
  for (const char* path :
       {"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"})
    Must(WriteExisting(path, "1"));
  const auto network = Must(OpenNetwork::Start(config));
  constexpr int kMany = 500;
  Part cold{"Attach, cold"}, prepare{"Prepare"}, warm{"Attach, prepared"}, change{"Change"},
      count{"Count"}, detach{"Detach"};
  std::vector<UniqueFd> held;
  Policy limited;
  limited.limits = {1 << 20, 1 << 30, 100};
  for (int i = 0; i < kMany; ++i) {
    held.push_back(Must(MakeNetns()));
    const std::string id = "sandbox-" + std::to_string(i);
    const int netns = held.back().get();
    if (i % 2 == 0) {
      cold([&] { return network->Attach(id, netns, {}); });
    } else {
      prepare([&] { return network->Prepare(netns); });
      warm([&] { return network->Attach(id, netns, {}); });
    }
    change([&] { return network->Change(id, limited); });
    count([&] { return network->Count(id); });
  }
  for (int i = 0; i < kMany; ++i)
    detach([&] { return network->Detach("sandbox-" + std::to_string(i)); });
  const double begin = Microseconds();
  held.clear();
  std::printf("closing %d namespaces        %8.1f us\n", kMany, Microseconds() - begin);
  for (Part* part : {&cold, &prepare, &warm, &change, &count, &detach}) part->Print();
}

}  // namespace

int main() {
  if (::unshare(CLONE_NEWNET) != 0) {
    std::perror("unshare");
    return 1;
  }
  TimeInside();
  TimeLoopbacks();
  TimeOpen();
  return 0;
}
