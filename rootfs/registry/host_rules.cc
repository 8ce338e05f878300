#include "rootfs/registry/host_rules.h"

#include <arpa/inet.h>
#include <libpsl.h>

#include <algorithm>

#include "base/file.h"

namespace hutch::rootfs::registry {
namespace {

constexpr char kDockerBase[] = "registry-1.docker.io";
constexpr size_t kMaxCertificateBytes = 1u << 20;

// Registries whose token service is elsewhere, and known to be theirs.
struct RealmPair {
  const char* registry;
  const char* realm;
};
constexpr RealmPair kRealmPairs[] = {{kDockerBase, "auth.docker.io"}};

bool IsAddress(const std::string& host) {
  struct in_addr address {};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::string RegistrableDomain(const std::string& host) {
  const char* const domain = ::psl_registrable_domain(::psl_builtin(), host.c_str());
  return domain == nullptr ? "" : domain;
}

Error Unusable(const std::string& path, const std::string& why) {
  return Error{.code = Code::kUnavailable, .what = path + ": " + why};
}

bool Names(const std::vector<std::string>& list, const Url& url) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    return entry == url.Authority() || entry == url.host + ":" + url.port;
  });
}

}  // namespace

Result<Url> HostRules::BaseOf(const std::string& host) const {
  const std::string at = host == kDefaultRegistry ? kDockerBase : host;
  ASSIGN_OR_RETURN(Url plain, ParseUrl("http://" + at));
  const bool asked_for = request_.plain_http && host == request_.reference.host;
  if (IsListedPlain(plain) || asked_for) return plain;
  return ParseUrl("https://" + at);
}

bool HostRules::IsListedPlain(const Url& url) const { return Names(options_.plain_http, url); }

Status HostRules::CheckScheme(const Url& url) const {
  if (!url.IsPlain() || IsListedPlain(url)) return OkStatus();
  if (request_.plain_http && Names({request_.reference.host}, url)) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = url.Origin() + " would be asked without TLS",
               .hint = "list " + url.Authority() + " among those that may be"};
}

Result<HostTls> HostRules::TlsOf(const Url& url) const {
  HostTls tls;
  if (options_.certs_dir.empty() || url.IsPlain()) return tls;
  const std::string directory = options_.certs_dir + "/" + url.Authority();
  if (!PathExists(directory)) return tls;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    if (name.ends_with(".crt")) {
      ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxCertificateBytes));
      if (pem.find("-----BEGIN") == std::string::npos) return Unusable(path, "no certificate");
      tls.extra_ca_pem += pem + "\n";
    }
    if (!name.ends_with(".cert") || !tls.client_cert.empty()) continue;
    tls.client_cert = path;
    tls.client_key = path.substr(0, path.size() - 4) + "key";
    if (!PathExists(tls.client_key)) return Unusable(path, "there is no " + tls.client_key);
  }
  return tls;
}

bool IsSameSite(const std::string& host, const std::string& other) {
  if (host == other) return true;
  if (IsAddress(host) || IsAddress(other)) return false;
  const std::string domain = RegistrableDomain(host);
  return !domain.empty() && domain == RegistrableDomain(other);
}

Status CheckRealm(const HostRules& rules, const Url& registry, const Url& realm) {
  RETURN_IF_ERROR(rules.CheckScheme(realm));
  if (realm.IsPlain() && !registry.IsPlain())
    return Error{.code = Code::kForbidden,
                 .what = registry.Authority() + " wants its credentials sent to " + realm.Origin() +
                         ", without TLS: they were not sent"};
  const bool listed =
      std::any_of(std::begin(kRealmPairs), std::end(kRealmPairs), [&](const RealmPair& pair) {
        return registry.host == pair.registry && realm.host == pair.realm;
      });
  if (listed || IsSameSite(registry.host, realm.host)) return OkStatus();
  return Error{.code = Code::kForbidden,
               .what = registry.Authority() + " wants its credentials sent to " +
                       realm.Authority() + ", which is not of the same domain: they were not sent"};
}

}  // namespace hutch::rootfs::registry
