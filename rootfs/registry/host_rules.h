// What the operator, and for one pull the client, say about hosts: which may be asked without TLS,
// whose certificates are believed, which token services may see a registry's credentials.
#pragma once

#include <string>

#include "base/result.h"
#include "rootfs/registry/http.h"
#include "rootfs/registry/registry.h"
#include "rootfs/registry/url.h"

namespace hutch::rootfs::registry {

class HostRules {
 public:
  // Borrows both.
  HostRules(const RegistryOptions& options, const PullRequest& request)
      : options_(options), request_(request) {}

  // Where a registry is asked: "docker.io" is at registry-1.docker.io. kInvalidArgument.
  Result<Url> BaseOf(const std::string& host) const;
  // Listed by the operator as one that may be asked without TLS. Loopback is not by itself.
  bool IsListedPlain(const Url& url) const;
  // Refuses http:// but to hosts that may be asked without TLS. kUnavailable names the host.
  Status CheckScheme(const Url& url) const;
  // Reads <certs_dir>/<host[:port]>/. kUnavailable names the file that cannot be used.
  Result<HostTls> TlsOf(const Url& url) const;

 private:
  const RegistryOptions& options_;
  const PullRequest& request_;
};

// Whether both belong to one owner: the same host, or the same registrable domain by the public
// suffix list ("auth.docker.io" and "registry-1.docker.io"; not "a.co.uk" and "b.co.uk"). Addresses
// and names of one label only when they are equal.
bool IsSameSite(const std::string& host, const std::string& other);

// Whether a token service may see the credentials of a registry (by the base it is asked at):
// kForbidden says why not.
Status CheckRealm(const HostRules& rules, const Url& registry, const Url& realm);

}  // namespace hutch::rootfs::registry
