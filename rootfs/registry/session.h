// What one pull knows: hosts, credentials, tokens, and how an answer is dealt with.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/registry/challenge.h"
#include "rootfs/registry/credentials.h"
#include "rootfs/registry/host_rules.h"
#include "rootfs/registry/http.h"
#include "rootfs/registry/registry.h"

namespace hutch::rootfs::registry {

// One place an image can be had from: a mirror or the registry itself.
struct Endpoint {
  std::string host;  // as the reference or the configuration names it
  Url base;
  HostTls tls;
  std::string authorization;  // the header's value that the last answer asked for; a secret
};

class Session {
 public:
  // Borrows all. Reads the auth file. kForbidden, kUnavailable, kInvalidArgument.
  static Result<std::unique_ptr<Session>> Make(const RegistryOptions& options,
                                               const PullRequest& request,
                                               const std::atomic<bool>& cancelled);

  HttpLoop& loop() { return loop_; }
  const HostRules& rules() const { return rules_; }
  const RegistryOptions& options() const { return options_; }
  const Reference& reference() const { return request_.reference; }
  std::vector<Endpoint>& endpoints() { return endpoints_; }  // mirrors first

  // kUnavailable "cancelled".
  Status CheckCancelled() const;
  // Answers a 401: asks the token service, or takes user and password. Blocks, while the loop's
  // transfers go on. kForbidden where there are no credentials or they were refused; never names
  // one.
  Status Authenticate(Endpoint& endpoint, const HttpReply& reply);
  // What a registry says of its error, bounded, printable, without a secret of ours in it.
  std::string WordsOf(const HttpReply& reply) const;
  // The same of an error that may quote a registry anywhere.
  Error WithoutSecrets(Error error) const;

 private:
  Session(const RegistryOptions& options, const PullRequest& request,
          const std::atomic<bool>& cancelled)
      : options_(options), request_(request), rules_(options, request), cancelled_(cancelled) {}
  Status AddEndpoint(const std::string& host);
  Result<Credential> CredentialFor(const Endpoint& endpoint);
  Result<std::string> FetchToken(const Endpoint& endpoint, const Challenge& challenge,
                                 const Credential& credential);
  Result<HttpReply> AskTokenService(HttpRequest request);
  std::string ScopeOf(const Challenge& challenge) const;
  void AddToken(const std::string& token);
  std::string WithoutSecrets(std::string text) const;

  const RegistryOptions& options_;
  const PullRequest& request_;
  const HostRules rules_;
  const std::atomic<bool>& cancelled_;
  HttpLoop loop_;
  DockerConfig config_;
  std::map<std::string, Credential> credentials_;  // by host, once looked for
  std::vector<Endpoint> endpoints_;
  // What may not be in any text: of credentials, and the latest tokens.
  std::vector<std::string> secrets_;
  std::deque<std::string> tokens_;
};

// The token in a token service's answer. kUnavailable when there is none that can stand in a
// header.
Result<std::string> ParseTokenReply(std::string_view text);

}  // namespace hutch::rootfs::registry
