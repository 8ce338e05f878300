#include "rootfs/registry/session.h"

#include <algorithm>

#include "base/base64.h"
#include "oci/json.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr char kClientId[] = "hutch";
constexpr int kWaitMs = 100;
constexpr size_t kMinSecretBytes = 4;  // shorter ones would blacken ordinary words
constexpr size_t kMinPartBytes = 8;    // the same of what is left of one that was cut
constexpr size_t kKeptTokens = 16;     // older ones have run out, or are not ours any more
constexpr size_t kMaxTextBytes = 4096;

Error Forbidden(const std::string& what, const std::string& hint = "") {
  return Error{.code = Code::kForbidden, .what = what, .hint = hint};
}

Error Unavailable(const std::string& what) {
  return Error{.code = Code::kUnavailable, .what = what};
}

const Challenge* Find(const std::vector<Challenge>& challenges, const std::string& scheme) {
  const auto it = std::find_if(challenges.begin(), challenges.end(),
                               [&](const Challenge& c) { return c.scheme == scheme; });
  return it == challenges.end() ? nullptr : &*it;
}

std::string Printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c == '\x7f') c = ' ';
  return text;
}

std::string BasicHeader(const Credential& credential) {
  return "Basic " + Base64Encode(credential.username + ":" + credential.password);
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// In whatever case, for hosts and types are shown in lower case, and the beginning of it where
// somebody cut it.
void Hide(std::string* text, const std::string& secret) {
  constexpr std::string_view kInstead = "***";
  const size_t least = std::min(secret.size(), kMinPartBytes);
  for (size_t at = 0; at + least <= text->size(); ++at) {
    size_t same = 0;
    while (same < secret.size() && at + same < text->size() &&
           Lower((*text)[at + same]) == Lower(secret[same]))
      ++same;
    if (same < least) continue;
    text->replace(at, same, kInstead);
    at += kInstead.size() - 1;
  }
}

// As it is and as it stands in a URL.
std::vector<std::string> FormsOf(const std::string& secret) {
  if (secret.size() < kMinSecretBytes) return {};
  const std::string encoded = UrlEncode(secret);
  return encoded == secret ? std::vector{secret} : std::vector{secret, encoded};
}

// {"errors":[{"code":"NAME_UNKNOWN","message":"...","detail":..}]}, or {"details":"..."} of token
// services; empty for anything else.
std::string ErrorsOf(const std::string& body) {
  const auto json = oci::ParseJson(body, {.max_bytes = kMaxErrorBodyBytes, .max_depth = 16});
  if (!json || !json->is_object()) return "";
  std::string code, message;
  oci::ObjectReader top(*json, "");
  const oci::Json* errors = top.Member("errors");
  if (errors != nullptr && errors->is_array() && !errors->empty()) {
    oci::ObjectReader first((*errors)[0], "errors[0]");
    first.String("code", &code).String("message", &message);
    IgnoreError(first.Done(oci::ObjectReader::Unknown::kIgnore), "what was read is shown");
  } else {
    top.String("details", &message).String("message", &message);
    IgnoreError(top.Done(oci::ObjectReader::Unknown::kIgnore), "what was read is shown");
  }
  return code + (code.empty() || message.empty() ? "" : ": ") + message;
}

}  // namespace

Result<std::string> ParseTokenReply(std::string_view text) {
  const auto json = oci::ParseJson(text, {.max_bytes = kMaxTokenReplyBytes, .max_depth = 8});
  if (!json) return Unavailable("the token service's answer is not JSON");
  std::string token, access_token;
  oci::ObjectReader reader(*json, "");
  reader.String("token", &token, kMaxTokenReplyBytes)
      .String("access_token", &access_token, kMaxTokenReplyBytes);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  if (token.empty()) token = access_token;
  const auto good = [](char c) { return c > ' ' && c < '\x7f'; };
  if (token.empty() || token.size() > kMaxTokenBytes ||
      !std::all_of(token.begin(), token.end(), good))
    return Unavailable("the token service's answer has no token that can be used");
  return token;
}

Result<std::unique_ptr<Session>> Session::Make(const RegistryOptions& options,
                                               const PullRequest& request,
                                               const std::atomic<bool>& cancelled) {
  std::unique_ptr<Session> session(new Session(options, request, cancelled));
  ASSIGN_OR_RETURN(session->config_, ReadDockerConfig(options.auth_file));
  const std::string& host = request.reference.host;
  if (const auto it = options.mirrors.find(host); it != options.mirrors.end())
    for (const std::string& mirror : it->second) RETURN_IF_ERROR(session->AddEndpoint(mirror));
  RETURN_IF_ERROR(session->AddEndpoint(host));
  return session;
}

Status Session::AddEndpoint(const std::string& host) {
  Endpoint endpoint{.host = host, .base = {}, .tls = {}, .authorization = {}};
  ASSIGN_OR_RETURN(endpoint.base, rules_.BaseOf(host));
  ASSIGN_OR_RETURN(endpoint.tls, rules_.TlsOf(endpoint.base));
  endpoints_.push_back(std::move(endpoint));
  return OkStatus();
}

Status Session::CheckCancelled() const {
  return cancelled_.load() ? Unavailable("the pull was cancelled") : OkStatus();
}

void Session::AddToken(const std::string& token) {
  if (std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end()) return;
  tokens_.push_back(token);
  if (tokens_.size() > kKeptTokens) tokens_.pop_front();
}

Result<Credential> Session::CredentialFor(const Endpoint& endpoint) {
  if (const auto it = credentials_.find(endpoint.host); it != credentials_.end()) return it->second;
  Credential credential;
  const bool given = !request_.username.empty() || !request_.password.empty();
  // A client's word alone does not send the operator's credentials without TLS.
  const bool stored_may_go = !endpoint.base.IsPlain() || rules_.IsListedPlain(endpoint.base);
  if (endpoint.host == request_.reference.host && given) {
    credential = {.username = request_.username, .password = request_.password};
  } else if (stored_may_go) {
    ASSIGN_OR_RETURN(credential, FindCredential(config_, endpoint.host));
  }
  for (const std::string& secret : {credential.password, credential.identity_token,
                                    Base64Encode(credential.username + ":" + credential.password)})
    for (std::string& form : FormsOf(secret)) secrets_.push_back(std::move(form));
  credentials_[endpoint.host] = credential;
  return credential;
}

std::string Session::ScopeOf(const Challenge& challenge) const {
  // A mirror may know the repository by another name; more than reading is never asked for.
  const std::string asked = challenge.Parameter("scope");
  if (asked.starts_with("repository:") && asked.ends_with(":pull") &&
      asked.find(' ') == std::string::npos)
    return asked;
  return "repository:" + request_.reference.repository + ":pull";
}

Status Session::Authenticate(Endpoint& endpoint, const HttpReply& reply) {
  const auto challenges = ParseChallenges(reply.Header("www-authenticate"));
  const Challenge* const bearer = Find(challenges, "bearer");
  if (bearer == nullptr && Find(challenges, "basic") == nullptr)
    return Forbidden(endpoint.host + " wants authentication of a kind that is not supported");
  ASSIGN_OR_RETURN(const Credential credential, CredentialFor(endpoint));
  if (bearer != nullptr) {
    ASSIGN_OR_RETURN(const std::string token, FetchToken(endpoint, *bearer, credential));
    AddToken(token);
    endpoint.authorization = "Bearer " + token;
    return OkStatus();
  }
  if (credential.IsEmpty())
    return Forbidden(endpoint.host + " wants authentication, and there are no credentials for it",
                     "give user and password, or put them into the auth file");
  if (!credential.identity_token.empty())
    return Forbidden(endpoint.host + " wants user and password; there is an identity token only");
  endpoint.authorization = BasicHeader(credential);
  return OkStatus();
}

Result<HttpReply> Session::AskTokenService(HttpRequest request) {
  const std::string origin = request.url.Origin();
  const auto transfer = loop_.Start(std::move(request));
  std::vector<struct pollfd> none;
  while (!transfer->done()) {
    RETURN_IF_ERROR(CheckCancelled());
    RETURN_IF_ERROR(loop_.Wait(&none, kWaitMs));
  }
  if (!transfer->reply().failure.empty())
    return Unavailable("token service " + origin + ": " + transfer->reply().failure);
  return transfer->reply();
}

Result<std::string> Session::FetchToken(const Endpoint& endpoint, const Challenge& challenge,
                                        const Credential& credential) {
  auto realm = ParseUrl(challenge.Parameter("realm"));
  if (!realm) return Forbidden(endpoint.host + " names a token service that is no URL");
  RETURN_IF_ERROR(rules_.CheckScheme(*realm));
  if (!credential.IsEmpty()) RETURN_IF_ERROR(CheckRealm(rules_, endpoint.base, *realm));
  const std::string origin = realm->Origin();
  const std::string scope = ScopeOf(challenge), service = challenge.Parameter("service");
  HttpRequest request{.url = *realm,
                      .max_body_bytes = kMaxTokenReplyBytes,
                      .stall_seconds = static_cast<unsigned>(options_.stall_seconds),
                      .total_seconds = kDocumentSeconds};
  ASSIGN_OR_RETURN(request.tls, rules_.TlsOf(*realm));
  const std::string query =
      "scope=" + UrlEncode(scope) + (service.empty() ? "" : "&service=" + UrlEncode(service));
  if (!credential.identity_token.empty()) {
    request.form = "grant_type=refresh_token&client_id=" + std::string(kClientId) + "&" + query +
                   "&refresh_token=" + UrlEncode(credential.identity_token);
  } else {
    request.url.rest += (request.url.rest.find('?') == std::string::npos ? "?" : "&") + query;
    if (!credential.IsEmpty())
      request.headers.push_back("Authorization: " + BasicHeader(credential));
  }
  ASSIGN_OR_RETURN(const HttpReply reply, AskTokenService(std::move(request)));
  if (reply.status == 200) return ParseTokenReply(reply.body);
  if (reply.status == 429 || reply.status >= 500)
    return Unavailable("token service " + origin + ": " + WordsOf(reply));
  return Forbidden(
      endpoint.host + ": its token service " + origin +
          (credential.IsEmpty() ? " wants credentials: " : " refused: ") + WordsOf(reply),
      credential.IsEmpty() ? "give user and password, or put them into the auth file" : "");
}

std::string Session::WordsOf(const HttpReply& reply) const {
  const std::string words = WithoutSecrets(ErrorsOf(reply.body)).substr(0, kMaxShownErrorBytes);
  return "status " + std::to_string(reply.status) + (words.empty() ? "" : ", " + words);
}

std::string Session::WithoutSecrets(std::string text) const {
  for (const std::string& secret : secrets_) Hide(&text, secret);
  for (const std::string& token : tokens_)
    for (const std::string& form : FormsOf(token)) Hide(&text, form);
  return Printable(std::move(text));
}

Error Session::WithoutSecrets(Error error) const {
  for (std::string* text : {&error.what, &error.field, &error.hint})
    *text = WithoutSecrets(text->substr(0, kMaxTextBytes));
  return error;
}

}  // namespace hutch::rootfs::registry
