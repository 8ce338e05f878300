#include "daemon/http_parser.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/text.h"

namespace hutch::daemon {
namespace {

namespace http = boost::beast::http;
using boost::beast::iequals;
using boost::system::error_code;
using BeastParser = http::request_parser<http::string_body>;
using Fields = BeastParser::value_type;

constexpr std::string_view kHeadEnd = "\r\n\r\n";

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

Error Malformed(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

Error TooLargeABody() {
  return Error{.code = Code::kTooLarge,
               .what = "a body of more than " + std::to_string(kMaxBodyBytes) + " bytes"};
}

Error TooManyLargeRequests() {
  return Error{.code = Code::kUnavailable, .what = "too many large requests at once"};
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool SameWord(std::string_view a, std::string_view b) {
  return iequals(boost::beast::string_view(a.data(), a.size()),
                 boost::beast::string_view(b.data(), b.size()));
}

// "a;x=y" is the token a, but "a;q=0" is what the client does not want (RFC 9110, 12.4.2).
bool IsToken(std::string_view part, std::string_view wanted) {
  const size_t semicolon = part.find(';');
  if (!SameWord(Trim(part.substr(0, semicolon)), wanted)) return false;
  if (semicolon == std::string_view::npos) return true;
  for (const std::string& parameter : Split(part.substr(semicolon + 1), ';')) {
    const std::string_view text = Trim(parameter);
    if (SameWord(text.substr(0, 3), "q=0") &&
        text.substr(3).find_first_not_of(".0") == std::string_view::npos)
      return false;
  }
  return true;
}

bool HasToken(const Fields& fields, http::field name, std::string_view wanted) {
  const auto range = fields.equal_range(name);
  for (auto it = range.first; it != range.second; ++it)
    for (const std::string& part : Split(View(it->value()), ','))
      if (IsToken(part, wanted)) return true;
  return false;
}

// One length, told in one way: two would let this side and a proxy in front disagree about where a
// request ends.
Status CheckFraming(const Fields& fields) {
  const size_t lengths = fields.count(http::field::content_length);
  const size_t codings = fields.count(http::field::transfer_encoding);
  if (lengths > 1) return Malformed("more than one Content-Length");
  if (codings > 1) return Malformed("more than one Transfer-Encoding");
  if (lengths + codings > 1) return Malformed("both Content-Length and Transfer-Encoding");
  if (codings == 1 && fields.version() < 11) return Malformed("Transfer-Encoding in HTTP/1.0");
  if (codings == 1 && !iequals(fields[http::field::transfer_encoding], "chunked"))
    return Malformed("a Transfer-Encoding other than chunked");
  if (lengths == 1) {
    const std::string_view value = View(fields[http::field::content_length]);
    if (!ParseUint(value).has_value()) return Malformed("malformed Content-Length");
  }
  const size_t hosts = fields.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && fields.version() >= 11))
    return Malformed("exactly one Host is needed");
  return OkStatus();
}

Status ParseQuery(std::string_view text, std::vector<std::pair<std::string, std::string>>* query) {
  if (text.empty()) return OkStatus();
  for (const std::string& part : Split(text, '&')) {
    if (part.empty()) continue;
    if (query->size() >= kMaxQueryParameters) return Malformed("too many query parameters");
    const size_t equals = part.find('=');
    std::string name, value;
    if (!PercentDecode(std::string_view(part).substr(0, equals), Plus::kSpace, &name) ||
        (equals != std::string::npos &&
         !PercentDecode(std::string_view(part).substr(equals + 1), Plus::kSpace, &value)))
      return Malformed("malformed escape in the query");
    query->emplace_back(std::move(name), std::move(value));
  }
  return OkStatus();
}

}  // namespace

bool PercentDecode(std::string_view text, Plus plus, std::string* out) {
  out->clear();
  for (size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (c == '+' && plus == Plus::kSpace) c = ' ';
    if (c == '%') {
      if (at + 2 >= text.size()) return false;
      const int high = HexDigit(text[at + 1]), low = HexDigit(text[at + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high << 4 | low);
      at += 2;
    }
    if (c == '\0') return false;
    *out += c;
  }
  return IsUtf8(*out);
}

struct HttpParser::Head {
  Head() {
    parser.header_limit(kMaxHeaderBytes);
    parser.body_limit(UINT64_MAX);  // bodies are read here, and bounded
  }
  BeastParser parser;
};

HttpParser::HttpParser(BodyBudget* budget, const BodyLookup* lookup)
    : budget_(budget), lookup_(lookup) {}
HttpParser::~HttpParser() { Release(); }

bool HttpParser::Reserve(size_t bytes) {
  if (bytes <= reserved_) return true;
  const size_t more = bytes - reserved_;
  if (budget_->used_bytes + more > budget_->max_bytes) return false;
  budget_->used_bytes += more;
  reserved_ = bytes;
  return true;
}

void HttpParser::Release() {
  if (reserved_ == 0) return;
  budget_->used_bytes -= reserved_;
  reserved_ = 0;
}

HttpParser::Progress HttpParser::Fail(Code code, std::string what) {
  error_ = Error{.code = code, .what = std::move(what)};
  stage_ = Stage::kFailed;
  keep_alive_ = false;
  return Progress::kFailed;
}

HttpParser::Progress HttpParser::Parse() {
  CHECK(stage_ != Stage::kStream);
  if (stage_ == Stage::kFailed) return Progress::kFailed;
  if (stage_ == Stage::kHead) {
    const Progress progress = ParseHead();
    if (stage_ != Stage::kBody || progress != Progress::kComplete) return progress;
  }
  if (stage_ == Stage::kBody && continue_wanted_) {
    continue_wanted_ = false;
    if (buffer_.empty()) return Progress::kSendContinue;
  }
  return stage_ == Stage::kBody ? ParseBody() : Progress::kComplete;
}

// Beast takes a bare LF nowhere, but waits for more where garbage will never become a head: judge
// each byte as it arrives.
Status HttpParser::ScanHead() {
  for (; scanned_ < buffer_.size(); ++scanned_) {
    const char c = buffer_[scanned_];
    const char before = scanned_ == 0 ? '\0' : buffer_[scanned_ - 1];
    if (before == '\r' && c != '\n')
      return Malformed("a carriage return without a line feed in the head");
    if (c == '\n' && before != '\r')
      return Malformed("a line feed without a carriage return in the head");
    if ((c == ' ' || c == '\t') && before == '\n') return Malformed("a folded header line");
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\r' && c != '\n' && c != '\t') || byte == 0x7f)
      return Malformed("a control character in the head");
    if (c == '\n' &&
        scanned_ == 1) {  // an empty line before the request line is skipped (RFC 9112, 2.2)
      buffer_.erase(0, 2);
      scanned_ = static_cast<size_t>(-1);
      continue;
    }
    if (c == '\n' && scanned_ >= 3 &&
        std::string_view(buffer_).substr(scanned_ - 3, 4) == kHeadEnd) {
      head_end_ = ++scanned_;
      return OkStatus();
    }
    if (scanned_ >= kMaxHeaderBytes)
      return Error{.code = Code::kTooLarge,
                   .what = "a head of more than " + std::to_string(kMaxHeaderBytes) + " bytes"};
  }
  return OkStatus();
}

HttpParser::Progress HttpParser::ParseHead() {
  const Status scan = ScanHead();
  if (!scan.has_value()) return Fail(scan.error().code, scan.error().what);
  if (head_end_ == 0) return Progress::kNeedMore;
  Head head;
  error_code error;
  head.parser.put(boost::asio::buffer(buffer_.data(), head_end_), error);
  buffer_.erase(0, head_end_);
  scanned_ = head_end_ = 0;
  if (error == http::error::header_limit)
    return Fail(Code::kTooLarge,
                "a head of more than " + std::to_string(kMaxHeaderBytes) + " bytes");
  if (error && error != http::error::need_more)
    return Fail(Code::kInvalidArgument, "malformed HTTP: " + error.message());
  if (!head.parser.is_header_done()) return Fail(Code::kInvalidArgument, "malformed HTTP head");
  const Status accepted = AcceptHead(head);
  if (!accepted.has_value()) return Fail(accepted.error().code, accepted.error().what);
  stage_ = body_over() || streams_ ? Stage::kDone : Stage::kBody;
  return Progress::kComplete;
}

Status HttpParser::AcceptHead(const Head& head) {
  const Fields& fields = head.parser.get();
  is_http_1_0_ = fields.version() < 11;
  keep_alive_ = head.parser.keep_alive();
  RETURN_IF_ERROR(CheckFraming(fields));
  RETURN_IF_ERROR(FillRequest(head));
  continue_wanted_ = !is_http_1_0_ && HasToken(fields, http::field::expect, "100-continue");
  if (const auto length = head.parser.content_length()) request_.content_length = *length;
  if (head.parser.chunked())
    chunks_.emplace();
  else
    body_left_ = request_.content_length.value_or(0);
  return BeginBody();
}

Status HttpParser::BeginBody() {
  const Body wanted = body_over() ? Body::kNone : WantedBody();
  streams_ = wanted == Body::kStream || wanted == Body::kTakeOver;
  if (streams_) return OkStatus();
  if (body_left_ > kMaxBodyBytes) return TooLargeABody();
  if (!Reserve(static_cast<size_t>(body_left_))) return TooManyLargeRequests();
  return OkStatus();
}

Status HttpParser::FillRequest(const Head& head) {
  const Fields& fields = head.parser.get();
  request_ = Request();
  request_.method = fields.method_string().to_string();
  for (const auto& field : fields)
    request_.headers.emplace_back(field.name_string().to_string(),
                                  std::string(Trim(View(field.value()))));
  std::string_view target = View(fields.target());
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(
          kScheme)) {  // absolute form (RFC 9112, 3.2.2); the authority does not matter
    target.remove_prefix(kScheme.size());
    const size_t slash = target.find('/');
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (target.empty() || target[0] != '/') return Malformed("the request target must be a path");
  const size_t question = target.find('?');
  request_.path = target.substr(0, question);
  request_.wants_events = HasToken(fields, http::field::accept, "text/event-stream");
  request_.wants_ndjson = HasToken(fields, http::field::accept, "application/x-ndjson");
  if (question == std::string_view::npos) return OkStatus();
  request_.query_text = target.substr(question + 1);
  if (WantedBody() == Body::kTakeOver) return OkStatus();  // another's, in a form of its own
  return ParseQuery(request_.query_text, &request_.query);
}

Body HttpParser::WantedBody() const {
  return lookup_ != nullptr && *lookup_ ? (*lookup_)(request_) : Body::kJson;
}

HttpParser::Progress HttpParser::ParseBody() {
  const Status moved = MoveBody(&request_.body);
  if (!moved.has_value()) return Fail(moved.error().code, moved.error().what);
  if (request_.body.size() > kMaxBodyBytes) return Fail(Code::kTooLarge, TooLargeABody().what);
  if (!Reserve(request_.body.size())) return Fail(Code::kUnavailable, TooManyLargeRequests().what);
  if (!body_over()) return Progress::kNeedMore;
  stage_ = Stage::kDone;
  return Progress::kComplete;
}

Request HttpParser::Take() {
  if (streams_) {
    stage_ = Stage::kStream;
    streams_ = false;
    return std::move(request_);
  }
  Release();  // the handler's memory now: bounded by the number of connections
  EndBody();
  return std::move(request_);
}

std::optional<uint64_t> HttpParser::body_left() const {
  return chunks_ ? std::nullopt : std::optional<uint64_t>(body_left_);
}

bool HttpParser::body_over() const { return chunks_ ? chunks_->done() : body_left_ == 0; }

void HttpParser::EndBody() {
  chunks_.reset();
  continue_wanted_ = false;
  stage_ = Stage::kHead;
}

void HttpParser::SkipBody(uint64_t bytes) {
  CHECK(stage_ == Stage::kStream && !chunks_ && bytes <= body_left_);
  body_left_ -= bytes;
  if (body_left_ == 0) EndBody();
}

bool HttpParser::TakeContinueWanted() {
  return std::exchange(continue_wanted_, false) && buffer_.empty();
}

Status HttpParser::MoveBody(std::string* out) {
  size_t count = 0;
  if (chunks_) {
    ASSIGN_OR_RETURN(count, chunks_->Take(buffer_, out));
  } else {
    count = static_cast<size_t>(std::min<uint64_t>(body_left_, buffer_.size()));
    out->append(buffer_, 0, count);
    body_left_ -= count;
  }
  buffer_.erase(0, count);
  return OkStatus();
}

Status HttpParser::ReadBody(std::string* out) {
  if (stage_ != Stage::kStream) return OkStatus();
  RETURN_IF_ERROR(MoveBody(out));
  if (body_over()) EndBody();
  return OkStatus();
}

}  // namespace hutch::daemon
