// Requests from inside: what is taken is printed so that it reads as the same request, for the same
// host, with the same body; bodies end at the same byte however they are cut.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "network/egress/http_body.h"
#include "network/egress/http_head.h"
#include "network/egress/judge.h"

namespace {

using namespace hutch::network;

void CheckRequest(const RequestHead& request) {
  if (request.method == "CONNECT") return;
  // What is passed on has been judged by its host, and is printed with that in its normal form.
  const auto normal = NormalHost(request.host);
  const bool is_name = normal.has_value() && *normal == request.host;
  if (!is_name && !ParseAddress(request.host).has_value()) return;
  const std::string authority =
      (request.host.find(':') != std::string::npos ? "[" + request.host + "]" : request.host) +
      ":" + std::to_string(request.port);
  const std::string text = PrintRequest(request, authority, HttpField{"X-Key", "secret"});
  const auto end = FindHeadEnd(text);
  // A longer authority or the secret may make it longer than heads that are taken.
  if (!end.has_value()) return;
  if (*end != text.size()) std::abort();
  const auto again = ReadRequest(text, 80);
  if (!again.has_value()) {
    if (request.fields.size() < 120) std::abort();
    return;
  }
  if (again->host != request.host || again->port != request.port || again->path != request.path ||
      again->method != request.method || again->body != request.body ||
      again->body_bytes != request.body_bytes)
    std::abort();
  size_t keys = 0;
  for (const HttpField& field : again->fields) keys += field.name == "X-Key";
  if (keys != 1) std::abort();
}

size_t BodySize(std::string_view bytes, size_t piece, bool* done, bool* bad) {
  BodyReader body(BodyKind::kChunked, 0);
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() && !body.done() && !body.bad(); at += piece)
    taken += body.Take(bytes.substr(at, piece));
  *done = body.done();
  *bad = body.bad();
  return taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto end = FindHeadEnd(bytes);
  if (end.has_value() && *end > 0) {
    const std::string_view head = bytes.substr(0, *end);
    if (const auto request = ReadRequest(head, 80); request.has_value()) CheckRequest(*request);
    const auto answer = ReadResponse(head, "GET");
    if (answer.has_value() &&
        !ReadResponse(PrintResponse(*answer, Connection::kKeep), "GET").has_value() &&
        answer->fields.size() < 120)
      std::abort();
  }
  bool done = false, bad = false, done_cut = false, bad_cut = false;
  const size_t whole = BodySize(bytes, size + 1, &done, &bad);
  const size_t cut = BodySize(bytes, 1, &done_cut, &bad_cut);
  if (done != done_cut || bad != bad_cut || (done && whole != cut)) std::abort();
  return 0;
}
