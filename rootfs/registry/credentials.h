// Credentials: Docker's config.json and the helper programs it names. No value of them is ever in
// an argument, an environment, an error or a log.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs::registry {

struct Credential {
  std::string username = {}, password = {};
  std::string identity_token = {};  // then the other two do not count
  bool IsEmpty() const { return username.empty() && password.empty() && identity_token.empty(); }
};

struct DockerConfig {
  std::map<std::string, Credential> auths;     // by host, of entries that hold something
  std::map<std::string, std::string> helpers;  // by host
  std::string default_helper;                  // credsStore
};

// "https://index.docker.io/v1/" -> "docker.io"; "host[:port]" of anything else; empty for keys that
// name more than a host.
std::string HostOfConfigKey(std::string_view key);
// kInvalidArgument says where, never what.
Result<DockerConfig> ParseDockerConfig(std::string_view text);
// A helper's answer to "get". kInvalidArgument.
Result<Credential> ParseHelperAnswer(std::string_view text);

// Reads the file. One that is not there holds nothing. kForbidden when others than root or this
// user could have written it, or may read the credentials in it.
Result<DockerConfig> ReadDockerConfig(const std::string& path);
// Of one host: its helper's (docker-credential-NAME, run with nothing but PATH and HOME, the host
// on its stdin), else the file's; empty when there is none. kUnavailable when the helper fails.
Result<Credential> FindCredential(const DockerConfig& config, const std::string& host);

}  // namespace hutch::rootfs::registry
