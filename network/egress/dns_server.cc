#include "network/egress/dns_server.h"

#include <sys/socket.h>

#include <array>

namespace hutch::network {
namespace {

constexpr uint16_t kDnsWirePort = 53;
constexpr size_t kMaxTcpAnswer = 65535;
constexpr size_t kMaxQuestionBytes = 4096;
constexpr uint32_t kMemberTtl = 5;
constexpr int kQuestionsPerTurn = 32;
constexpr Milliseconds kDnsIdle{10000};

bool IsLocalhost(const std::string& name) {
  return name == "localhost" || name.ends_with(".localhost");
}

std::vector<Address> Loopback() {
  Address v4, v6;
  v4.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  v6.bytes[15] = 1;
  return {v4, v6};
}

// What the host found, as far as the sandbox may know it.
std::string FromHost(Tenant& tenant, const DnsQuestion& question, const std::string& name,
                     const NameAnswer& answer, size_t max_bytes) {
  const auto ttl = static_cast<uint32_t>(answer.left.count());
  switch (answer.state) {
    case NameAnswer::State::kMissing:
      return MakeAnswer(question, DnsCode::kNoSuchName, {}, ttl, max_bytes);
    case NameAnswer::State::kFailed:
      ++tenant.counters().failed;
      return MakeAnswer(question, DnsCode::kServerFailure, {}, 0, max_bytes);
    case NameAnswer::State::kTooMany:
      tenant.Deny("dns", name, "", kDnsWirePort, "too many names at once");
      return MakeAnswer(question, DnsCode::kRefused, {}, 0, max_bytes);
    case NameAnswer::State::kFound:
      break;
  }
  std::vector<Address> addresses = answer.addresses;
  if (tenant.settings.policy.mode == Mode::kAllowlist) {
    std::string why;
    addresses = OpenAddresses(tenant.settings, addresses, std::nullopt, &why);
    if (addresses.empty()) {
      ++tenant.counters().names_denied;
      tenant.Deny("dns", name, answer.addresses.front().ToString(), kDnsWirePort,
                  "DNS rebinding: " + why);
      return MakeAnswer(question, DnsCode::kNoSuchName, {}, 0, max_bytes);
    }
  }
  ++tenant.counters().names_answered;
  return MakeAnswer(question, DnsCode::kOk, addresses, ttl, max_bytes);
}

}  // namespace

void AnswerQuestion(Tenant& tenant, std::string_view message, size_t max_bytes,
                    std::function<void(std::string)> send) {
  const DnsQuestion question = ReadQuestion(message);
  if (!question.answerable) return;
  max_bytes = std::max(max_bytes, question.max_bytes);
  const auto reply = [&](DnsCode code, std::span<const Address> addresses, uint32_t ttl) {
    send(MakeAnswer(question, code, addresses, ttl, max_bytes));
  };
  if (question.code != DnsCode::kOk) return reply(question.code, {}, 0);
  const auto name = NormalHost(question.name);
  const auto refuse = [&](const std::string& reason) {
    ++tenant.counters().names_denied;
    tenant.Deny("dns", name ? *name : question.name, "", kDnsWirePort, reason);
    reply(DnsCode::kRefused, {}, 0);
  };
  if (!name) return refuse("it is no host name");
  if (question.type == kTypeAny) return refuse("questions for all types are not answered");
  const bool is_address = question.type == kTypeA || question.type == kTypeAaaa;
  if (IsLocalhost(*name)) return reply(DnsCode::kOk, Loopback(), kMemberTtl);
  if (const auto it = tenant.settings.hosts.find(*name); it != tenant.settings.hosts.end()) {
    ++tenant.counters().names_answered;
    return reply(DnsCode::kOk, it->second, kMemberTtl);
  }
  if (tenant.settings.policy.mode != Mode::kOpen && !AllowsName(tenant.settings.policy, *name))
    return refuse("it is not in the allowlist");
  // Text, mail and service records would carry what nobody has judged; HTTPS records the keys that
  // encrypt a ClientHello.
  if (!is_address) return reply(DnsCode::kOk, {}, 0);
  tenant.names.Lookup(*name, [&tenant, question, host = *name, max_bytes,
                              send = std::move(send)](const NameAnswer& answer) {
    send(FromHost(tenant, question, host, answer, max_bytes));
  });
}

DnsSocket::DnsSocket(Services& services, Tenant& tenant, UniqueFd fd)
    : tenant_(tenant), fd_(std::make_shared<UniqueFd>(std::move(fd))) {
  watch_ = services.loop.Add(fd_->get(), [this](Ready) { OnReadable(); });
  watch_.Arm(Ready::kReadable);
}

void DnsSocket::OnReadable() {
  std::array<char, kMaxDnsMessageBytes> bytes;
  for (int i = 0; i < kQuestionsPerTurn; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t n = ::recvfrom(fd_->get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) break;
    AnswerQuestion(
        tenant_, {bytes.data(), static_cast<size_t>(n)}, 0,
        [weak = std::weak_ptr<UniqueFd>(fd_), from, size](const std::string& answer) {
          const auto fd = weak.lock();
          // Lost, as with any datagram, when there is no room.
          if (fd == nullptr ||
              ::sendto(fd->get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                       reinterpret_cast<const sockaddr*>(&from), size) < 0)
            return;
        });
  }
  watch_.Arm(Ready::kReadable);
}

void DnsConnection::Start(Services& services, Tenant& tenant, UniqueFd fd, Set& set) {
  if (set.size() >= kMaxDnsConnections) return;
  const auto connection = std::make_shared<DnsConnection>(services, tenant, std::move(fd), set);
  set.insert(connection);
  connection->Advance();
}

DnsConnection::DnsConnection(Services& services, Tenant& tenant, UniqueFd fd, Set& set)
    : services_(services),
      tenant_(tenant),
      set_(set),
      stream_(services.loop, std::move(fd), [this] { Advance(); }),
      deadline_(services.loop) {}

void DnsConnection::Close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  services_.loop.Post([self] {});
  set_.erase(self);
}

void DnsConnection::Advance() {
  const auto self = shared_from_this();
  while (!closed_ && Step()) continue;
}

bool DnsConnection::Step() {
  if (!out_.empty()) {
    const ssize_t n = stream_.Write(out_.data(), out_.size());
    if (n == -EAGAIN) return false;
    if (n <= 0) Close();
    if (n > 0) out_.erase(0, static_cast<size_t>(n));
    return !closed_;
  }
  if (asking_) return false;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(stream_.in[at]); };
  const size_t size =
      stream_.in.size() < 2 ? 0 : static_cast<size_t>(byte(0)) << 8 | size_t{byte(1)};
  if (size > kMaxQuestionBytes || (stream_.in.size() >= 2 && size == 0)) {
    Close();
    return false;
  }
  if (stream_.in.size() < 2 || stream_.in.size() < 2 + size) {
    if (!deadline_.running()) deadline_.Start(kDnsIdle, [this] { Close(); });
    std::array<char, kMaxQuestionBytes> bytes;
    const ssize_t n = stream_.Read(bytes.data(), bytes.size());
    if (n == -EAGAIN) return false;
    if (n <= 0) Close();
    if (n > 0) stream_.in.append(bytes.data(), static_cast<size_t>(n));
    return !closed_;
  }
  const std::string question = stream_.in.substr(2, size);
  stream_.in.erase(0, 2 + size);
  deadline_.Cancel();
  asking_ = true;
  AnswerQuestion(tenant_, question, kMaxTcpAnswer, [weak = weak_from_this()](std::string answer) {
    const auto self = weak.lock();
    if (self == nullptr || self->closed_) return;
    self->asking_ = false;
    self->out_ = std::string{static_cast<char>(answer.size() >> 8),
                             static_cast<char>(answer.size() & 0xff)} +
                 answer;
    self->services_.loop.Post([self] { self->Advance(); });
  });
  return false;
}

}  // namespace hutch::network
