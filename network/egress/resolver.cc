#include "network/egress/resolver.h"

#include <ares.h>
#include <netinet/in.h>
#include <sys/time.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace hutch::network {
namespace {

constexpr int kTryMs = 2000, kTries = 3;
constexpr size_t kMaxServers = 3;  // as in resolv.conf(5)
constexpr std::chrono::seconds kHostsTtl{60};
constexpr Milliseconds kMinTick{5};

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line.substr(0, line.find_first_of("#;"))) {
    if (c != ' ' && c != '\t' && c != '\r') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::map<std::string, std::vector<Address>> ReadHostsFile(const std::string& text) {
  std::map<std::string, std::vector<Address>> hosts;
  for (const std::string& line : Split(text, '\n')) {
    const auto words = Words(line);
    if (words.size() < 2) continue;
    const auto address = ParseAddress(words[0]);
    if (!address) continue;
    for (size_t i = 1; i < words.size(); ++i)
      if (const auto name = NormalHost(words[i]))
        if (hosts[*name].size() < kMaxAddressesPerName) hosts[*name].push_back(*address);
  }
  return hosts;
}

Resolved FromInfo(int status, const ares_addrinfo* info) {
  Resolved resolved;
  if (status == ARES_ENOTFOUND || status == ARES_ENODATA)
    resolved.state = Resolved::State::kMissing;
  if (status != ARES_SUCCESS || info == nullptr) return resolved;
  int ttl = INT32_MAX;
  for (const ares_addrinfo_node* node = info->nodes; node != nullptr; node = node->ai_next) {
    Address address;
    if (node->ai_family == AF_INET) {
      address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(node->ai_addr);
      std::copy_n(reinterpret_cast<const uint8_t*>(&v4->sin_addr), 4, &address.bytes[12]);
    } else if (node->ai_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(node->ai_addr);
      std::copy_n(reinterpret_cast<const uint8_t*>(&v6->sin6_addr), 16, address.bytes.data());
    } else {
      continue;
    }
    ttl = std::min(ttl, node->ai_ttl);
    const bool known = std::find(resolved.addresses.begin(), resolved.addresses.end(), address) !=
                       resolved.addresses.end();
    if (!known && resolved.addresses.size() < kMaxAddressesPerName)
      resolved.addresses.push_back(address);
  }
  for (const ares_addrinfo_cname* alias = info->cnames; alias != nullptr; alias = alias->next)
    ttl = std::min(ttl, alias->ttl);
  resolved.state = resolved.addresses.empty() ? Resolved::State::kMissing : Resolved::State::kFound;
  resolved.ttl = std::chrono::seconds(std::max(ttl, 0));
  return resolved;
}

class AresResolver final : public Resolver {
 public:
  explicit AresResolver(Loop& loop) : loop_(loop), timer_(loop) {}
  ~AresResolver() override {
    if (channel_ != nullptr) ::ares_destroy(channel_);
  }

  Status Init() {
    ares_options options{};
    options.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS;
    options.timeout = kTryMs;
    options.tries = kTries;
    options.sock_state_cb = [](void* self, ares_socket_t fd, int read, int write) {
      static_cast<AresResolver*>(self)->OnSocket(fd, read != 0, write != 0);
    };
    options.sock_state_cb_data = this;
    char lookups[] = "b";
    options.lookups = lookups;
    const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
                     ARES_OPT_LOOKUPS;
    int rc = ::ares_library_init(ARES_LIB_INIT_ALL);
    if (rc == ARES_SUCCESS) rc = ::ares_init_options(&channel_, &options, mask);
    if (rc != ARES_SUCCESS)
      return Error{.code = Code::kKernel, .what = std::string("c-ares: ") + ::ares_strerror(rc)};
    return OkStatus();
  }

  void Configure(const std::string& resolv_conf, const std::string& hosts) override {
    hosts_ = ReadHostsFile(hosts);
    // Lookups under way would be lost: they fail, and are tried again by whoever asked.
    ::ares_cancel(channel_);
    const int rc = ::ares_set_servers_ports_csv(channel_, NameServers(resolv_conf).c_str());
    usable_ = rc == ARES_SUCCESS;
    Tick();
  }

  void Lookup(const std::string& host, std::function<void(Resolved)> callback) override {
    if (const auto it = hosts_.find(host); it != hosts_.end())
      return callback({Resolved::State::kFound, it->second, kHostsTtl});
    if (!usable_) return callback({});
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_flags = ARES_AI_NOSORT;
    ::ares_getaddrinfo(
        channel_, host.c_str(), nullptr, &hints,
        [](void* arg, int status, int /*timeouts*/, ares_addrinfo* info) {
          const std::unique_ptr<std::function<void(Resolved)>> f(
              static_cast<std::function<void(Resolved)>*>(arg));
          Resolved resolved = FromInfo(status, info);
          if (info != nullptr) ::ares_freeaddrinfo(info);
          (*f)(std::move(resolved));
        },
        new std::function<void(Resolved)>(std::move(callback)));
    Tick();
  }

 private:
  void OnSocket(ares_socket_t fd, bool read, bool write) {
    if (!read && !write) {
      watches_.erase(fd);
      return;
    }
    auto it = watches_.find(fd);
    if (it == watches_.end())
      it = watches_.emplace(fd, loop_.Add(fd, [this, fd](Ready ready) { OnReady(fd, ready); }))
               .first;
    if (read) it->second.Arm(Ready::kReadable);
    if (write) it->second.Arm(Ready::kWritable);
  }

  void OnReady(ares_socket_t fd, Ready ready) {
    ::ares_process_fd(channel_, ready == Ready::kReadable ? fd : ARES_SOCKET_BAD,
                      ready == Ready::kWritable ? fd : ARES_SOCKET_BAD);
    if (const auto it = watches_.find(fd); it != watches_.end()) it->second.Arm(Ready::kReadable);
    Tick();
  }

  void Tick() {
    timeval wait{};
    if (::ares_timeout(channel_, nullptr, &wait) == nullptr) return timer_.Cancel();
    const Milliseconds delay(wait.tv_sec * 1000 + wait.tv_usec / 1000);
    timer_.Start(std::max(delay, kMinTick), [this] {
      ::ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
      Tick();
    });
  }

  Loop& loop_;
  Timer timer_;
  ares_channel channel_ = nullptr;
  std::map<ares_socket_t, Watch> watches_;
  std::map<std::string, std::vector<Address>> hosts_;
  bool usable_ = false;
};

}  // namespace

std::string NameServers(const std::string& resolv_conf) {
  std::vector<std::string> servers;
  for (const std::string& line : Split(resolv_conf, '\n')) {
    const auto words = Words(line);
    if (words.size() < 2 || words[0] != "nameserver" || servers.size() == kMaxServers) continue;
    // A link-local server with its zone is taken as it stands.
    const bool zone = words[1].find('%') != std::string::npos;
    if (zone || ParseAddress(words[1]).has_value())
      servers.push_back(words[1].find(':') != std::string::npos ? "[" + words[1] + "]:53"
                                                                : words[1]);
  }
  return servers.empty() ? "127.0.0.1" : Join(servers, ",");
}

Result<std::unique_ptr<Resolver>> Resolver::Make(Loop& loop) {
  auto resolver = std::make_unique<AresResolver>(loop);
  RETURN_IF_ERROR(resolver->Init());
  return Result<std::unique_ptr<Resolver>>(std::move(resolver));
}

}  // namespace hutch::network
