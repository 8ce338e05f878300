#include "rootfs/registry/credentials.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/base64.h"
#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/child_program.h"
#include "rootfs/reference.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr char kDockerKey[] = "https://index.docker.io/v1/";
constexpr char kTokenUser[] = "<token>";  // of a helper: the secret is an identity token
constexpr char kHelperPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

Error Invalid(const std::string& where, const std::string& why) {
  return Error{.code = Code::kInvalidArgument, .what = where + ": " + why};
}

// "auth" is base64 of "user:password".
Status TakeAuth(const std::string& where, const std::string& auth, Credential* credential) {
  std::string pair;
  if (!Base64Decode(auth, &pair)) return Invalid(where, "\"auth\" is not base64");
  pair.resize(std::min(pair.find('\0'), pair.size()));  // as Docker pads it
  const size_t colon = pair.find(':');
  if (colon == std::string::npos) return Invalid(where, "\"auth\" is not a user and a password");
  credential->username = pair.substr(0, colon);
  credential->password = pair.substr(colon + 1);
  return OkStatus();
}

Status TakeEntry(const std::string& key, const oci::Json& json, DockerConfig* config) {
  const std::string where = "auths[\"" + key.substr(0, 80) + "\"]";
  Credential credential;
  std::string auth;
  oci::ObjectReader reader(json, where);
  reader.String("auth", &auth)
      .String("username", &credential.username)
      .String("password", &credential.password)
      .String("identitytoken", &credential.identity_token);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  if (!auth.empty()) RETURN_IF_ERROR(TakeAuth(where, auth, &credential));
  const std::string host = HostOfConfigKey(key);
  if (!host.empty() && !credential.IsEmpty()) config->auths[host] = std::move(credential);
  return OkStatus();
}

bool IsHelperName(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), good);
}

Status CheckConfigFile(const std::string& path, const struct stat& st, bool holds_secrets) {
  const auto refuse = [&](const std::string& why, const std::string& hint) {
    return Error{.code = Code::kForbidden, .what = path + " " + why, .hint = hint};
  };
  if (!S_ISREG(st.st_mode)) return refuse("is not a file", "");
  if (st.st_uid != 0 && st.st_uid != ::geteuid())
    return refuse("belongs to another user", "chown it to root");
  // Whoever may write it chooses programs that are run.
  if ((st.st_mode & 022) != 0) return refuse("may be written by others", "chmod 600 " + path);
  if (holds_secrets && (st.st_mode & 077) != 0)
    return refuse("holds credentials and may be read by others", "chmod 600 " + path);
  return OkStatus();
}

// All that the helper writes, if it is not too much and does not take too long.
Result<std::string> ReadHelper(const std::string& name, int fd) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kHelperSeconds);
  const auto failed = [&](const std::string& why) {
    return Error{.code = Code::kUnavailable, .what = name + " " + why};
  };
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    struct pollfd wait = {fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return failed("does not answer");
    char block[4096];
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read from " + name);
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kMaxHelperBytes) return failed("says too much");
  }
}

Result<Credential> AskHelper(const std::string& helper, const std::string& host) {
  const std::string name = "docker-credential-" + helper;
  ASSIGN_OR_RETURN(Pipe in, MakePipe());
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  // Far less than a pipe holds.
  RETURN_IF_ERROR(WriteAll(in.write.get(), (host == kDefaultRegistry ? kDockerKey : host) + "\n"));
  in.write.reset();
  const char* const home = ::getenv("HOME");
  auto child = ChildProgram::Start(
      {.path = name,
       .args = {name, "get"},
       .env = {kHelperPath, std::string("HOME=") + (home == nullptr ? "/root" : home)},
       .fds = {in.read.get(), out.write.get(), -1}});
  if (!child) return Error{.code = Code::kUnavailable, .what = child.error().what};
  out.write.reset();
  ASSIGN_OR_RETURN(const std::string text, ReadHelper(name, out.read.get()));
  if (!child->WaitEnded(static_cast<int>(kHelperSeconds) * 1000))
    return Error{.code = Code::kUnavailable, .what = name + " does not end"};
  ASSIGN_OR_RETURN(const int code, child->Wait());
  if (code != 0 && text.find("credentials not found") != std::string::npos) return Credential();
  if (code != 0)
    return Error{.code = Code::kUnavailable,
                 .what = name + " failed for " + host + " with " + std::to_string(code)};
  auto credential = ParseHelperAnswer(text);
  if (credential) return credential;
  return Error{.code = Code::kUnavailable, .what = name + " for " + host + ": malformed answer"};
}

}  // namespace

std::string HostOfConfigKey(std::string_view key) {
  for (const std::string_view scheme : {"https://", "http://"})
    if (key.starts_with(scheme)) key.remove_prefix(scheme.size());
  const size_t slash = key.find('/');
  const std::string_view path = slash == std::string_view::npos ? "" : key.substr(slash);
  if (!path.empty() && path != "/" && path != "/v1" && path != "/v1/" && path != "/v2" &&
      path != "/v2/")
    return "";
  const std::string host(key.substr(0, slash));
  if (host == "index.docker.io" || host == "registry-1.docker.io") return kDefaultRegistry;
  return IsRegistryHost(host) ? host : "";
}

Result<DockerConfig> ParseDockerConfig(std::string_view text) {
  auto json = oci::ParseJson(text, {.max_bytes = kMaxAuthFileBytes, .max_depth = 16});
  // Not its words: they quote what they do not like.
  if (!json) return Invalid("the file", "not one JSON object without repeated keys");
  DockerConfig config;
  std::map<std::string, std::string> helpers;
  oci::ObjectReader reader(*json, "");
  reader.StringMap("credHelpers", &helpers).String("credsStore", &config.default_helper);
  const oci::Json* auths = reader.Member("auths");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  if (auths != nullptr && !auths->is_object()) return Invalid("auths", "must be an object");
  if (auths != nullptr)
    for (const auto& [key, value] : auths->items()) RETURN_IF_ERROR(TakeEntry(key, value, &config));
  for (auto& [key, helper] : helpers) {
    if (!IsHelperName(helper)) return Invalid("credHelpers", "a name of no program");
    const std::string host = HostOfConfigKey(key);
    if (!host.empty()) config.helpers[host] = helper;
  }
  if (!config.default_helper.empty() && !IsHelperName(config.default_helper))
    return Invalid("credsStore", "a name of no program");
  return config;
}

Result<Credential> ParseHelperAnswer(std::string_view text) {
  const auto json = oci::ParseJson(text, {.max_bytes = kMaxHelperBytes, .max_depth = 4});
  std::string username, secret;
  const bool good = json.has_value() && oci::ObjectReader(*json, "")
                                            .String("Username", &username)
                                            .String("Secret", &secret)
                                            .Done(oci::ObjectReader::Unknown::kIgnore)
                                            .has_value();
  if (!good || secret.empty()) return Invalid("the answer", "not a user and a secret");
  if (username == kTokenUser) return Credential{.identity_token = secret};
  return Credential{.username = username, .password = secret};
}

Result<DockerConfig> ReadDockerConfig(const std::string& path) {
  if (path.empty()) return DockerConfig();
  auto fd = Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd && fd.error().code == Code::kNotFound) return DockerConfig();
  if (!fd) return std::move(fd).error();
  struct stat st {};
  if (::fstat(fd->get(), &st) != 0) return SysError(errno, "stat " + path);
  RETURN_IF_ERROR(CheckConfigFile(path, st, false));
  ASSIGN_OR_RETURN(const std::string text, ReadAll(fd->get(), kMaxAuthFileBytes));
  auto config = ParseDockerConfig(text);
  if (!config) return Error{.code = Code::kUnavailable, .what = path + ": " + config.error().what};
  RETURN_IF_ERROR(CheckConfigFile(path, st, !config->auths.empty()));
  return config;
}

Result<Credential> FindCredential(const DockerConfig& config, const std::string& host) {
  if (const auto it = config.helpers.find(host); it != config.helpers.end())
    return AskHelper(it->second, host);
  if (!config.default_helper.empty()) {
    ASSIGN_OR_RETURN(Credential credential, AskHelper(config.default_helper, host));
    if (!credential.IsEmpty()) return credential;
  }
  const auto it = config.auths.find(host);
  return it == config.auths.end() ? Credential() : it->second;
}

}  // namespace hutch::rootfs::registry
