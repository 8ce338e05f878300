#include "rootfs/registry/http.h"

#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr size_t kMaxBundleBytes = 16u << 20;
static_assert(CURL_ERROR_SIZE <= 256);

// Failures that the same request would meet again.
constexpr CURLcode kForGood[] = {
    CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT,     CURLE_PEER_FAILED_VERIFICATION,
    CURLE_SSL_CACERT_BADFILE,   CURLE_SSL_CERTPROBLEM,   CURLE_SSL_ISSUER_ERROR,
    CURLE_WRITE_ERROR,          CURLE_FILESIZE_EXCEEDED, CURLE_SSL_CIPHER,
};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

template <class T>
void Set(void* easy, CURLoption option, T value) {
  CHECK(::curl_easy_setopt(easy, option, value) == CURLE_OK);
}

// The system's CAs as text: CAs given as a blob are instead of them, not besides them.
std::string SystemCas() {
  const curl_version_info_data* const info = ::curl_version_info(CURLVERSION_NOW);
  if (info->cainfo == nullptr) return "";
  const auto text = ReadFile(info->cainfo, kMaxBundleBytes);
  return text ? *text : "";  // no ca-certificates on this host: the extra ones are all there is
}

// libcurl's own are inherited by programs that are started meanwhile.
curl_socket_t OpenSocket(void*, curlsocktype, struct curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

void InitOnce() {
  static const bool ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  CHECK(ready);
}

}  // namespace

std::string HttpReply::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

HttpTransfer::HttpTransfer(HttpLoop& loop, HttpRequest request)
    : loop_(loop), request_(std::move(request)), easy_(::curl_easy_init()) {
  CHECK(easy_ != nullptr);
  Prepare();
}

void HttpTransfer::Prepare() {
  curl_slist* list = nullptr;
  for (const std::string& header : request_.headers)
    list = ::curl_slist_append(list, header.c_str());
  list = ::curl_slist_append(list, "Expect:");
  header_list_ = list;
  Set(easy_, CURLOPT_URL, request_.url.ToString().c_str());
  Set(easy_, CURLOPT_PROTOCOLS_STR, request_.url.scheme.c_str());
  Set(easy_, CURLOPT_FOLLOWLOCATION, 0L);
  Set(easy_, CURLOPT_NOSIGNAL, 1L);
  Set(easy_, CURLOPT_QUICK_EXIT, 1L);  // one that is cancelled does not wait for a name server
  Set(easy_, CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  Set(easy_, CURLOPT_HTTPHEADER, list);
  Set(easy_, CURLOPT_USERAGENT, "hutch/" HUTCH_VERSION);
  Set(easy_, CURLOPT_ERRORBUFFER, curl_text_.data());
  Set(easy_, CURLOPT_PRIVATE, static_cast<void*>(this));
  Set(easy_, CURLOPT_HEADERFUNCTION, &HeaderCallback);
  Set(easy_, CURLOPT_HEADERDATA, static_cast<void*>(this));
  Set(easy_, CURLOPT_WRITEFUNCTION, &BodyCallback);
  Set(easy_, CURLOPT_WRITEDATA, static_cast<void*>(this));
  Set(easy_, CURLOPT_CONNECTTIMEOUT, static_cast<long>(request_.stall_seconds));
  Set(easy_, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kMinBytesPerSecond));
  Set(easy_, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request_.stall_seconds));
  Set(easy_, CURLOPT_TIMEOUT, static_cast<long>(request_.total_seconds));
  if (!request_.form.empty()) Set(easy_, CURLOPT_COPYPOSTFIELDS, request_.form.c_str());
  // The environment's proxy is for what is encrypted on its way through it.
  if (request_.url.IsPlain()) Set(easy_, CURLOPT_NOPROXY, "*");
  if (!request_.url.IsPlain()) SetTls();
}

void HttpTransfer::SetTls() {
  Set(easy_, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  Set(easy_, CURLOPT_SSL_VERIFYPEER, 1L);
  Set(easy_, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!request_.tls.extra_ca_pem.empty()) {
    std::string cas = SystemCas() + "\n" + request_.tls.extra_ca_pem;
    curl_blob blob = {cas.data(), cas.size(), CURL_BLOB_COPY};
    Set(easy_, CURLOPT_CAINFO_BLOB, &blob);
  }
  if (request_.tls.client_cert.empty()) return;
  Set(easy_, CURLOPT_SSLCERT, request_.tls.client_cert.c_str());
  Set(easy_, CURLOPT_SSLKEY, request_.tls.client_key.c_str());
}

HttpTransfer::~HttpTransfer() {
  if (loop_.running_.erase(easy_) != 0) ::curl_multi_remove_handle(loop_.multi_, easy_);
  ::curl_easy_cleanup(easy_);
  ::curl_slist_free_all(static_cast<curl_slist*>(header_list_));
}

size_t HttpTransfer::HeaderCallback(char* bytes, size_t size, size_t count, void* self) {
  return static_cast<HttpTransfer*>(self)->OnHeader({bytes, size * count});
}
size_t HttpTransfer::BodyCallback(char* bytes, size_t size, size_t count, void* self) {
  return static_cast<HttpTransfer*>(self)->OnBody({bytes, size * count});
}

// 0 (libcurl takes it for an error) ends the transfer.
size_t HttpTransfer::OnHeader(std::string_view line) {
  head_bytes_ += line.size();
  if (head_bytes_ > kMaxHeadBytes) {
    refused_ = "more than " + std::to_string(kMaxHeadBytes) + " bytes of headers";
    return 0;
  }
  if (line.starts_with("HTTP/")) reply_.headers.clear();  // what an interim answer said is over
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  std::string& value = reply_.headers[Lower(line.substr(0, colon))];
  value += (value.empty() ? "" : ", ") + std::string(Trim(line.substr(colon + 1)));
  return line.size();
}

size_t HttpTransfer::OnBody(std::string_view bytes) {
  long status = 0;
  ::curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  reply_.status = static_cast<int>(status);
  const bool good = status == 200 || status == 206;
  if (good && request_.sink != nullptr) {
    Status taken = OkStatus();
    if (!std::exchange(begun_, true)) taken = request_.sink->Begin(reply_);
    if (taken.has_value()) taken = request_.sink->Take(bytes);
    if (taken.has_value()) return bytes.size();
    sink_error_ = std::move(taken).error();
    return 0;
  }
  if (!good) {  // an error's text: what there is too much of it is dropped
    const size_t room = kMaxErrorBodyBytes - std::min(reply_.body.size(), kMaxErrorBodyBytes);
    reply_.body.append(bytes.substr(0, room));
    return reply_.body.size() < kMaxErrorBodyBytes ? bytes.size() : 0;
  }
  if (reply_.body.size() + bytes.size() > request_.max_body_bytes) {
    refused_ = "more than " + std::to_string(request_.max_body_bytes) + " bytes";
    return 0;
  }
  reply_.body.append(bytes);
  return bytes.size();
}

void HttpTransfer::Finish(int result) {
  done_ = true;
  long status = 0;
  ::curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  reply_.status = static_cast<int>(status);
  const bool enough = status >= 300 && result == CURLE_WRITE_ERROR && refused_.empty();
  if (result == CURLE_OK || enough || sink_error_) return;
  const auto code = static_cast<CURLcode>(result);
  reply_.worth_retry = refused_.empty() && std::find(std::begin(kForGood), std::end(kForGood),
                                                     code) == std::end(kForGood);
  reply_.failure = !refused_.empty()       ? refused_
                   : curl_text_[0] != '\0' ? std::string(curl_text_.data())
                                           : std::string(::curl_easy_strerror(code));
}

HttpLoop::HttpLoop() {
  InitOnce();
  multi_ = ::curl_multi_init();
  CHECK(multi_ != nullptr);
}

HttpLoop::~HttpLoop() {
  CHECK(running_.empty());
  ::curl_multi_cleanup(multi_);
}

std::unique_ptr<HttpTransfer> HttpLoop::Start(HttpRequest request) {
  std::unique_ptr<HttpTransfer> transfer(new HttpTransfer(*this, std::move(request)));
  CHECK(::curl_multi_add_handle(multi_, transfer->easy_) == CURLM_OK);
  running_[transfer->easy_] = transfer.get();
  return transfer;
}

bool HttpLoop::MarkDone() {
  bool any = false;
  int left = 0;
  while (const CURLMsg* const message = ::curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const easy = message->easy_handle;
    const int result = message->data.result;
    const auto it = running_.find(easy);
    if (it == running_.end()) continue;
    HttpTransfer* const transfer = it->second;
    running_.erase(it);
    ::curl_multi_remove_handle(multi_, easy);
    transfer->Finish(result);
    any = true;
  }
  return any;
}

Status HttpLoop::Wait(std::vector<struct pollfd>* waits, int timeout_ms) {
  int running = 0;
  if (const CURLMcode code = ::curl_multi_perform(multi_, &running); code != CURLM_OK)
    return Error{.code = Code::kInternal, .what = ::curl_multi_strerror(code)};
  if (MarkDone()) timeout_ms = 0;
  std::vector<curl_waitfd> extra;
  for (const struct pollfd& wait : *waits) extra.push_back({wait.fd, CURL_WAIT_POLLIN, 0});
  if (const CURLMcode code = ::curl_multi_poll(
          multi_, extra.data(), static_cast<unsigned>(extra.size()), timeout_ms, nullptr);
      code != CURLM_OK)
    return Error{.code = Code::kInternal, .what = ::curl_multi_strerror(code)};
  // libcurl does not tell of a pipe whose writer is gone.
  if (::poll(waits->data(), waits->size(), 0) < 0 && errno != EINTR) return SysError(errno, "poll");
  if (::curl_multi_perform(multi_, &running) == CURLM_OK) MarkDone();
  return OkStatus();
}

}  // namespace hutch::rootfs::registry
