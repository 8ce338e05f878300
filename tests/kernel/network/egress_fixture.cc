#include "tests/kernel/network/egress_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "network/egress/dns_message.h"
#include "network/egress/http_head.h"
#include "network/inside.h"
#include "network/netns.h"
#include "oci/json.h"

namespace hutch::network {
namespace {

constexpr int kPatienceMs = 5000;  // only ever waited out by what should not be
constexpr int kTickMs = 20;

bool AwaitInput(int fd, int timeout_ms) {
  pollfd waiting = {fd, POLLIN, 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

void SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::string Number(size_t value, size_t size) {
  std::string text;
  for (size_t i = size; i-- > 0;) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return text;
}
std::string Vector(const std::string& body, size_t size) {
  return Number(body.size(), size) + body;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Said& said) {
  constexpr const char* kEnds[] = {"closed", "reset", "silence"};
  return out << "connect " << said.connect_error << ", " << kEnds[static_cast<int>(said.end)]
             << ": " << said.text;
}

Origin::~Origin() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Origin::Serve(const Peer& at, Manner manner) {
  listeners_.push_back(Listen(netns_, at));
  threads_.emplace_back([this, fd = listeners_.back().get(), manner] { Accepts(fd, manner, ""); });
}

void Origin::ServeOnce(const Peer& at, std::string answer) {
  listeners_.push_back(Listen(netns_, at));
  threads_.emplace_back([this, fd = listeners_.back().get(), text = std::move(answer)] {
    Accepts(fd, Manner::kEcho, text);
  });
}

void Origin::Accepts(int listener, Manner manner, const std::string& answer) {
  std::vector<std::thread> talks;
  while (!stop_) {
    if (!AwaitInput(listener, kTickMs)) continue;
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) continue;
    ++connections_;
    talks.emplace_back([this, f = std::make_shared<UniqueFd>(std::move(fd)), manner, answer] {
      Talk(std::move(*f), manner, answer);
    });
  }
  for (std::thread& talk : talks) talk.join();
}

void Origin::Talk(UniqueFd fd, Manner manner, const std::string& answer) {
  std::string heard, request;
  if (manner == Manner::kGreet) SendAll(fd.get(), "SSH-2.0-test\r\n");
  std::array<char, 65536> bytes;
  while (!stop_) {
    if (!AwaitInput(fd.get(), kTickMs)) continue;
    const ssize_t n = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (n <= 0) break;
    const std::string_view got(bytes.data(), static_cast<size_t>(n));
    {
      const std::lock_guard lock(mutex_);
      heard += got;
    }
    if (!answer.empty()) {
      SendAll(fd.get(), answer);
      break;
    }
    if (manner == Manner::kEcho || manner == Manner::kGreet) SendAll(fd.get(), got);
    if (manner != Manner::kHttp) continue;
    request += got;
    for (size_t end; (end = request.find("\r\n\r\n")) != std::string::npos;) {
      const std::string head = request.substr(0, end + 4);
      request.erase(0, end + 4);
      SendAll(fd.get(), "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(head.size()) +
                            "\r\n\r\n" + head);
    }
  }
  const std::lock_guard lock(mutex_);
  heard_.push_back(heard);
}

std::vector<std::string> Origin::Heard() {
  const std::lock_guard lock(mutex_);
  return heard_;
}

NameServer::NameServer(int netns) : fd_(BindUdp(netns, {kLoopbackV4, 53})) {
  thread_ = std::thread([this] { Run(); });
}

NameServer::~NameServer() {
  stop_ = true;
  thread_.join();
}

void NameServer::Set(const std::string& name, std::vector<Address> addresses) {
  const std::lock_guard lock(mutex_);
  table_[name] = std::move(addresses);
}

size_t NameServer::asked(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return asked_[name];
}

void NameServer::Run() {
  while (!stop_) {
    if (!AwaitInput(fd_.get(), kTickMs)) continue;
    std::array<char, 1500> bytes;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t n = ::recvfrom(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &size);
    if (n <= 0) continue;
    const DnsQuestion question = ReadQuestion({bytes.data(), static_cast<size_t>(n)});
    const std::lock_guard lock(mutex_);
    ++asked_[question.name];
    const auto it = table_.find(question.name);
    const bool known = it != table_.end();
    const std::string answer = MakeAnswer(question, known ? DnsCode::kOk : DnsCode::kNoSuchName,
                                          known ? it->second : std::vector<Address>(), 60, 1232);
    if (::sendto(fd_.get(), answer.data(), answer.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&from), size) < 0)
      return;
  }
}

std::string MakeHello(const std::string& name, bool encrypted) {
  std::string extensions;
  if (!name.empty())
    extensions += Number(0, 2) + Vector(Vector(Number(0, 1) + Vector(name, 2), 2), 2);
  extensions += Number(43, 2) + Vector(Vector(Number(0x0304, 2), 1), 2);
  if (encrypted) extensions += Number(0xfe0d, 2) + Vector(std::string(64, 'e'), 2);
  const std::string body = Number(0x0303, 2) + std::string(32, 'r') + Vector("", 1) +
                           Vector(Number(0x1301, 2), 2) + Vector(std::string(1, '\0'), 1) +
                           Vector(extensions, 2);
  return Number(0x160301, 3) + Vector(Number(1, 1) + Vector(body, 3), 2);
}

void EgressTest::SetUp() {
  LeaveTheMachinesNetwork();
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  char name[] = "/tmp/hutch-egress-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  directory_ = name;
  const std::pair<const char*, const char*> files[] = {{"resolv.conf", "nameserver 127.0.0.1\n"},
                                                       {"hosts", "11.0.0.2 from-hosts.test\n"}};
  for (const auto& [file, text] : files) {
    const std::string path = directory_ + "/" + file;
    ASSERT_TRUE(WriteFileAtomic(path, text, Durability::kMemory));
    ASSERT_EQ(
        ::mount(path.c_str(), (std::string("/etc/") + file).c_str(), nullptr, MS_BIND, nullptr), 0);
  }
  auto own = Open("/proc/thread-self/ns/net", O_RDONLY);
  auto internet = MakeNetns(), box = MakeNetns();
  ASSERT_TRUE(own && internet && box);
  host_ = std::move(*own), internet_ = std::move(*internet), box_ = std::move(*box);
  const std::string there =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(internet_.get());
  ASSERT_EQ(Command(host_.get(),
                    "ip link add out0 type veth peer name in0 netns " + there +
                        " && ip addr add 11.0.0.1/24 dev out0 && ip addr add 11.0.0.9/24 dev out0"
                        " && ip addr add 2600::1/64 dev out0 nodad && ip link set out0 up"),
            0);
  ASSERT_EQ(Command(internet_.get(),
                    "ip addr add 11.0.0.2/24 dev in0 && ip addr add 11.0.0.3/24 dev in0 && "
                    "ip addr add 10.0.0.2/24 dev in0 && "
                    "ip addr add 2600::2/64 dev in0 nodad && ip link set in0 up"),
            0);
  ASSERT_EQ(Command(host_.get(), "ip route add 10.0.0.0/24 dev out0"), 0);
  names_ = std::make_unique<NameServer>(host_.get());
  origin_ = std::make_unique<Origin>(internet_.get());
  auto client = EgressClient::Start(HUTCH_EGRESS);
  ASSERT_TRUE(client) << client.error().ToString();
  client_ = std::move(*client);
  counters_fd_ = UniqueFd(::memfd_create("counters", MFD_CLOEXEC));
  auto counters = CountersFile::Map(counters_fd_.get());
  ASSERT_TRUE(counters);
  counters_.emplace(std::move(*counters));
  const Status opened = OpenCatch(box_.get());
  ASSERT_TRUE(opened) << opened.error().ToString();
  auto listeners = MakeListeners(box_.get(), {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp,
                                              ListenerKind::kProxy, ListenerKind::kCatch});
  ASSERT_TRUE(listeners);
  listeners_ = std::move(*listeners);
}

void EgressTest::TearDown() {
  client_.reset();
  origin_.reset();
  names_.reset();
  if (!directory_.empty()) {
    EXPECT_EQ(::umount2("/etc/resolv.conf", MNT_DETACH), 0);
    EXPECT_EQ(::umount2("/etc/hosts", MNT_DETACH), 0);
    EXPECT_TRUE(RemoveTree(directory_));
  }
}

void EgressTest::Allow(const std::string& network_json, std::map<std::string, Secret> secrets,
                       std::map<std::string, std::vector<Address>> hosts) {
  const auto json = oci::ParseJson(network_json);
  ASSERT_TRUE(json) << json.error().ToString();
  auto policy = ParsePolicy(*json, {});
  ASSERT_TRUE(policy) << policy.error().ToString();
  Apply({std::move(*policy), std::move(hosts), std::move(secrets)});
}

void EgressTest::Apply(const EgressSettings& settings) {
  const auto number =
      client_->Set("box", settings, listening_ ? std::vector<Listener>() : std::move(listeners_),
                   listening_ ? -1 : counters_fd_.get());
  listening_ = true;
  ASSERT_TRUE(number) << number.error().ToString();
  const EgressEvent applied = Await(EgressEvent::Kind::kApplied);
  ASSERT_EQ(applied.number, *number);
  ASSERT_FALSE(applied.error) << applied.error->ToString();
}

EgressEvent EgressTest::Await(EgressEvent::Kind kind) {
  while (true) {
    const auto it = std::find_if(events_.begin(), events_.end(),
                                 [&](const EgressEvent& event) { return event.kind == kind; });
    if (it != events_.end()) {
      EgressEvent event = *it;
      events_.erase(it);
      return event;
    }
    if (!AwaitInput(client_->fd(), kPatienceMs)) {
      ADD_FAILURE() << "no event of this kind came";
      return {.kind = EgressEvent::Kind::kEnded, .sandbox = "", .number = 0};
    }
    for (EgressEvent& event : client_->Read()) events_.push_back(std::move(event));
  }
}

Denial EgressTest::AwaitDenial(const std::string& reason) {
  std::string others;
  while (true) {
    const EgressEvent event = Await(EgressEvent::Kind::kDenied);
    if (event.kind == EgressEvent::Kind::kEnded) {
      ADD_FAILURE() << "no denial with: " << reason << "; but:" << others;
      return {};
    }
    if (event.denial.reason.find(reason) != std::string::npos) return event.denial;
    others += " [" + event.denial.reason + "]";
  }
}

Said EgressTest::SayOn(int fd, const std::string& bytes, const std::string& until) {
  Said said;
  SendAll(fd, bytes);
  std::array<char, 65536> block;
  while (until.empty() || said.text.find(until) == std::string::npos) {
    if (!AwaitInput(fd, kPatienceMs)) return said;
    const ssize_t n = ::recv(fd, block.data(), block.size(), 0);
    if (n <= 0) {
      said.end = n == 0 ? Said::End::kClosed : Said::End::kReset;
      return said;
    }
    said.text.append(block.data(), static_cast<size_t>(n));
  }
  return said;
}

Said EgressTest::Say(const Peer& to, const std::string& bytes, const std::string& until) {
  UniqueFd fd;
  Said said;
  said.connect_error = Connect(box(), to, &fd);
  if (said.connect_error == -ECONNRESET) said.end = Said::End::kReset;  // sooner than we looked
  if (said.connect_error != 0) return said;
  const int flags = ::fcntl(fd.get(), F_GETFL);
  EXPECT_EQ(::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK), 0);
  return SayOn(fd.get(), bytes, until);
}

Said EgressTest::Proxy(const std::string& bytes, const std::string& until) {
  return Say({kLoopbackV4, kProxyPort}, bytes, until);
}

Said EgressTest::ThroughConnect(const std::string& authority, const std::string& bytes,
                                const std::string& until) {
  UniqueFd fd;
  Said said;
  said.connect_error = Connect(box(), {kLoopbackV4, kProxyPort}, &fd);
  if (said.connect_error != 0) return said;
  EXPECT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
  said = SayOn(fd.get(), "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n",
               "\r\n\r\n");
  if (said.text.find(" 200 ") == std::string::npos) {
    const Said rest = SayOn(fd.get(), "");
    said.text += rest.text;
    said.end = rest.end;
    return said;
  }
  const std::string first = said.text.substr(said.text.find("\r\n\r\n") + 4);
  said = SayOn(fd.get(), bytes, until);
  said.text.insert(0, first);
  return said;
}

DnsReply EgressTest::Resolve(const std::string& name, uint16_t type, bool tcp) {
  std::string labels;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    labels += Vector(name.substr(at, end - at), 1);
    at = end + 1;
  }
  const std::string question = Number(0x1234, 2) + Number(0x0100, 2) + Number(1, 2) + Number(0, 6) +
                               labels + Number(0, 1) + Number(type, 2) + Number(1, 2);
  UniqueFd fd;
  std::string answer;
  if (tcp) {
    EXPECT_EQ(Connect(box(), {V4(9, 9, 9, 9), 53}, &fd), 0);
    SendAll(fd.get(), Vector(question, 2));
  } else {
    EXPECT_EQ(SendUdp(box(), {kLoopbackV4, 53}, &fd), 0);  // one byte: no question, no answer
    SendAll(fd.get(), question);
  }
  std::array<char, 2048> bytes;
  DnsReply reply;
  if (!AwaitInput(fd.get(), kPatienceMs)) return reply;
  const ssize_t n = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
  const size_t skip = tcp ? 2 : 0;
  if (n < static_cast<ssize_t>(12 + skip)) return reply;
  answer.assign(bytes.data() + skip, static_cast<size_t>(n) - skip);
  reply.code = answer[3] & 0x0f;
  reply.cut = (answer[2] & 2) != 0;
  size_t count = static_cast<uint8_t>(answer[7]);
  const size_t size = type == kTypeA ? 4 : 16;
  for (size_t at = question.size(); count-- > 0; at += 12 + size) {
    Address address = type == kTypeA ? V4(0, 0, 0, 0) : Address();
    std::copy_n(answer.begin() + static_cast<ptrdiff_t>(at + 12), size,
                address.bytes.begin() + static_cast<ptrdiff_t>(16 - size));
    reply.addresses.push_back(address);
  }
  return reply;
}

}  // namespace hutch::network
