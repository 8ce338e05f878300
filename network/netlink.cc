#include "network/netlink.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace hutch::network {
namespace {

constexpr size_t kReadBytes = 64 << 10;

size_t Aligned(size_t size) { return (size + 3) & ~size_t{3}; }

// What Run and Ask have found so far.
struct Outcome {
  bool acknowledged = false, done = false;
  int sys = 0;
  uint32_t message = 0;  // the one at fault
  std::string text = {};
};

std::string_view Payload(const nlmsghdr* header) {
  return {reinterpret_cast<const char*>(header) + NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN};
}

// An answer of type NLMSG_ERROR: zero is an acknowledgement.
void TakeError(const nlmsghdr* header, Outcome* outcome) {
  const std::string_view payload = Payload(header);
  if (payload.size() < sizeof(nlmsgerr)) return;
  nlmsgerr error;
  std::memcpy(&error, payload.data(), sizeof error);
  if (error.error == 0) {
    outcome->acknowledged = true;
    return;
  }
  if (outcome->sys != 0) return;
  outcome->sys = -error.error;
  outcome->message = header->nlmsg_seq;
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) != 0)
    outcome->text = NetlinkAttributes(payload.substr(sizeof error)).FindText(NLMSGERR_ATTR_MSG);
}

void Take(std::string_view bytes, const NetlinkSocket::Handler* handler, Outcome* outcome) {
  while (bytes.size() >= sizeof(nlmsghdr)) {
    const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
    if (header->nlmsg_len < sizeof(nlmsghdr) || header->nlmsg_len > bytes.size()) return;
    if (header->nlmsg_type == NLMSG_ERROR)
      TakeError(header, outcome);
    else if (header->nlmsg_type == NLMSG_DONE)
      outcome->done = true;
    else if (handler != nullptr)
      (*handler)(*header, Payload(header));
    bytes.remove_prefix(std::min(bytes.size(), Aligned(header->nlmsg_len)));
  }
}

Error Failure(const NetlinkRequest& request, const Outcome& outcome, const char* what) {
  const int sys = outcome.sys;
  const char* needs = outcome.message < request.messages() ? request.NeedsOf(outcome.message) : "";
  Error error = SysError(sys, what);
  if (!outcome.text.empty()) error.what += " (" + outcome.text + ")";
  const bool unknown = sys == EOPNOTSUPP || sys == EPROTONOSUPPORT || sys == EAFNOSUPPORT ||
                       (sys == ENOENT && *needs != '\0');
  if (unknown) {
    error.code = Code::kUnsupported;
    if (*needs != '\0') error.hint = std::string("the kernel needs ") + needs;
  } else if (sys == ENOENT || sys == ENODEV || sys == ESRCH) {
    error.code = Code::kNotFound;
  } else if (sys == EEXIST) {
    error.code = Code::kExists;
  }
  return error;
}

}  // namespace

void NetlinkRequest::Raw(const void* bytes, size_t size) {
  bytes_.append(static_cast<const char*>(bytes), size);
  bytes_.resize(Aligned(bytes_.size()));
}

void NetlinkRequest::EndMessage() {
  if (needs_.empty()) return;
  CHECK(nests_.empty());
  const auto size = static_cast<uint32_t>(bytes_.size() - message_);
  std::memcpy(bytes_.data() + message_ + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
}

void NetlinkRequest::Begin(uint16_t type, uint16_t flags, const char* needs) {
  EndMessage();
  message_ = bytes_.size();
  nlmsghdr header = {};
  header.nlmsg_type = type;
  header.nlmsg_flags = static_cast<uint16_t>(flags | NLM_F_REQUEST);
  header.nlmsg_seq = static_cast<uint32_t>(needs_.size());
  needs_.push_back(needs);
  Raw(&header, sizeof header);
}

void NetlinkRequest::Bytes(uint16_t type, std::string_view value) {
  CHECK(value.size() < 60000);  // nla_len has 16 bits
  nlattr header = {};
  header.nla_len = static_cast<uint16_t>(NLA_HDRLEN + value.size());
  header.nla_type = type;
  bytes_.append(reinterpret_cast<const char*>(&header), sizeof header);
  Raw(value.data(), value.size());
}

void NetlinkRequest::Text(uint16_t type, std::string_view value) {
  Bytes(type, std::string(value) + '\0');
}

void NetlinkRequest::Nest(uint16_t type) {
  nests_.push_back(bytes_.size());
  Bytes(static_cast<uint16_t>(type | NLA_F_NESTED), {});
}

void NetlinkRequest::EndNest() {
  const size_t begin = nests_.back();
  nests_.pop_back();
  CHECK(bytes_.size() - begin < 60000);
  const auto size = static_cast<uint16_t>(bytes_.size() - begin);
  std::memcpy(bytes_.data() + begin + offsetof(nlattr, nla_len), &size, sizeof size);
}

void NetlinkRequest::AcknowledgeLast() {
  uint16_t flags;
  char* at = bytes_.data() + message_ + offsetof(nlmsghdr, nlmsg_flags);
  std::memcpy(&flags, at, sizeof flags);
  flags |= NLM_F_ACK;
  std::memcpy(at, &flags, sizeof flags);
}

std::string NetlinkRequest::Finish() {
  EndMessage();
  return bytes_;
}

void NetlinkAttributes::ForEach(
    const std::function<void(uint16_t type, std::string_view value)>& f) const {
  std::string_view rest = bytes_;
  while (rest.size() >= NLA_HDRLEN) {
    nlattr header;
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > rest.size()) break;
    f(header.nla_type & NLA_TYPE_MASK,
      rest.substr(NLA_HDRLEN, header.nla_len - size_t{NLA_HDRLEN}));
    rest.remove_prefix(std::min(rest.size(), Aligned(header.nla_len)));
  }
}

std::string_view NetlinkAttributes::Find(uint16_t type) const {
  std::string_view found;
  bool first = true;
  ForEach([&](uint16_t each, std::string_view value) {
    if (each == type && std::exchange(first, false)) found = value;
  });
  return found;
}

uint64_t NetlinkAttributes::FindBe64(uint16_t type) const {
  const std::string_view value = Find(type);
  uint64_t number = 0;
  if (value.size() == sizeof number) std::memcpy(&number, value.data(), sizeof number);
  return __builtin_bswap64(number);
}

std::string NetlinkAttributes::FindText(uint16_t type) const {
  const std::string_view value = Find(type);
  return std::string(value.substr(0, value.find('\0')));
}

Result<NetlinkSocket> NetlinkSocket::Open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.valid()) {
    Error error = SysError(errno, "netlink socket");
    if (error.sys == EPROTONOSUPPORT) {
      error.code = Code::kUnsupported;
      error.hint = "the kernel needs CONFIG_NETFILTER_NETLINK and CONFIG_NF_TABLES";
    }
    return error;
  }
  const int on = 1;
  // Texts beside error numbers, and no copy of the request: neither decides anything.
  for (const int option : {NETLINK_CAP_ACK, NETLINK_EXT_ACK})
    if (::setsockopt(fd.get(), SOL_NETLINK, option, &on, sizeof on) != 0)
      return SysError(errno, "netlink socket option");
  return NetlinkSocket(std::move(fd));
}

Status NetlinkSocket::Run(NetlinkRequest request, const char* what) {
  return Ask(std::move(request), what, nullptr);
}

Status NetlinkSocket::Ask(NetlinkRequest request, const char* what, const Handler& handler) {
  const std::string bytes = request.Finish();
  sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&kernel),
               sizeof kernel) < 0)
    return SysError(errno, what);
  // The kernel has worked the messages off by now and all answers wait, but for the later parts of
  // a dump, which it makes as they are read.
  Outcome outcome;
  alignas(nlmsghdr) char buffer[kReadBytes];
  for (;;) {
    const ssize_t size = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) return SysError(errno, what);
    if (static_cast<size_t>(size) > sizeof buffer) return SysError(EMSGSIZE, what);
    Take({buffer, static_cast<size_t>(size)}, handler ? &handler : nullptr, &outcome);
    if (outcome.done) break;
  }
  if (outcome.sys != 0) return Failure(request, outcome, what);
  // Silence is no success: an answer may have been lost (ENOBUFS is told once).
  if (!outcome.acknowledged && !outcome.done)
    return Error{Code::kKernel, 0, "", std::string(what) + ": the kernel did not answer"};
  return OkStatus();
}

}  // namespace hutch::network
