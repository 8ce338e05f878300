#include "rootfs/registry/documents.h"

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/registry/exchange.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr int kWaitMs = 100;
constexpr const char* kManifestTypes[] = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
};
constexpr char kSchema1[] = "application/vnd.docker.distribution.manifest.v1+";

Error Corrupt(const std::string& digest, const std::string& why) {
  return Error{.code = Code::kCorrupt, .what = digest + ": " + why};
}

Error Schema1() {
  return Error{.code = Code::kUnsupported,
               .what = "the image is in Docker's schema 1, which nothing writes any more",
               .hint = "push it again with a tool of this decade"};
}

std::vector<std::string> AcceptHeaders(DocumentKind kind) {
  if (kind == DocumentKind::kConfig) return {};
  std::string types;
  for (const char* type : kManifestTypes) types += (types.empty() ? "" : ", ") + std::string(type);
  return {"Accept: " + types};
}

// "application/json; charset=utf-8" without what is behind the ";", in lower case.
std::string WithoutParameters(const std::string& content_type) {
  std::string type(Trim(content_type.substr(0, content_type.find(';'))));
  for (char& c : type)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return type;
}

Result<HttpReply> Get(Session& session, Endpoint& endpoint, const std::string& path,
                      DocumentKind kind, uint64_t retries) {
  Exchange exchange(session, endpoint,
                    {.path = path,
                     .headers = [kind] { return AcceptHeaders(kind); },
                     .max_body_bytes = kMaxDocumentBytes,
                     .total_seconds = kDocumentSeconds,
                     .retries = retries});
  std::vector<struct pollfd> none;
  while (true) {
    RETURN_IF_ERROR(session.CheckCancelled());
    ASSIGN_OR_RETURN(const bool answered, exchange.Step());
    if (answered && exchange.reply().status != 200)
      return Error{.code = Code::kUnavailable,
                   .what = endpoint.host + ": " + session.WordsOf(exchange.reply())};
    if (answered) return exchange.reply();
    RETURN_IF_ERROR(session.loop().Wait(&none, kWaitMs));
  }
}

// From each endpoint in turn until `take` is content with what one says: which one that was.
Result<size_t> FromAny(Session& session, const std::string& path, DocumentKind kind,
                       const std::function<Status(const HttpReply&)>& take) {
  std::string tried;
  for (size_t i = 0;; ++i) {
    Endpoint& endpoint = session.endpoints()[i];
    const bool last = i + 1 == session.endpoints().size();
    // A mirror that is down is no reason to wait: there is somebody else to ask.
    const auto reply = Get(session, endpoint, path, kind, last ? session.options().retries : 0);
    const Status taken = reply ? take(*reply) : Status(reply.error());
    if (taken.has_value()) return i;
    RETURN_IF_ERROR(session.CheckCancelled());
    if (last) {
      Error error = taken.error();
      error.what = tried + error.what;
      return error;
    }
    tried += "mirror " + endpoint.host + ": " + taken.error().what + "; ";
  }
}

}  // namespace

Result<std::string> MediaTypeOf(const std::string& text, const std::string& content_type) {
  const std::string said = WithoutParameters(content_type);
  if (said.starts_with(kSchema1)) return Schema1();
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes, .max_depth = 32}));
  std::string own;
  uint64_t version = 2;
  RETURN_IF_ERROR(oci::ObjectReader(json, "")
                      .String("mediaType", &own)
                      .Uint("schemaVersion", &version)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  if (version == 1 || own.starts_with(kSchema1)) return Schema1();
  const bool known = std::find(std::begin(kManifestTypes), std::end(kManifestTypes), said) !=
                     std::end(kManifestTypes);
  if (!own.empty() && own != said)
    return Error{.code = Code::kCorrupt,
                 .what = "calls itself " + own.substr(0, 100) + ", the registry says " +
                         (said.empty() ? "nothing" : said.substr(0, 100))};
  if (!known)
    return Error{.code = Code::kUnsupported,
                 .what = "the registry says \"" + said.substr(0, 100) +
                         "\", which is neither an image nor an index of images"};
  return said;
}

Result<Document> FetchNamed(Session& session) {
  const Reference& reference = session.reference();
  Document document;
  const std::string named = reference.digest.empty() ? reference.tag : reference.digest;
  ASSIGN_OR_RETURN(
      const size_t from,
      FromAny(session, "/v2/" + reference.repository + "/manifests/" + named,
              DocumentKind::kManifest, [&](const HttpReply& reply) -> Status {
                document.text = reply.body;
                document.descriptor.digest = DigestOf(document.text);
                document.descriptor.size = document.text.size();
                if (!reference.digest.empty() && document.descriptor.digest != reference.digest)
                  return Corrupt(reference.digest,
                                 "its bytes have digest " + document.descriptor.digest);
                auto type = MediaTypeOf(document.text, reply.Header("content-type"));
                if (!type)
                  return Error{.code = type.error().code,
                               .what = document.descriptor.digest + ": " + type.error().what,
                               .hint = type.error().hint};
                document.descriptor.media_type = *std::move(type);
                return OkStatus();
              }));
  // Mirrors that did not have it are not asked for its parts.
  session.endpoints().erase(session.endpoints().begin(),
                            session.endpoints().begin() + static_cast<ptrdiff_t>(from));
  return document;
}

Result<std::string> FetchDocument(Session& session, const oci::Descriptor& descriptor,
                                  DocumentKind kind) {
  RETURN_IF_ERROR(HexOf(descriptor.digest));
  if (descriptor.size > kMaxDocumentBytes)
    return Error{
        .code = Code::kTooLarge,
        .what = descriptor.digest + ": more than " + std::to_string(kMaxDocumentBytes) + " bytes"};
  const char* const place = kind == DocumentKind::kManifest ? "/manifests/" : "/blobs/";
  std::string text;
  RETURN_IF_ERROR(FromAny(
      session, "/v2/" + session.reference().repository + place + descriptor.digest, kind,
      [&](const HttpReply& reply) -> Status {
        if (reply.body.size() != descriptor.size)
          return Corrupt(descriptor.digest, "has " + std::to_string(reply.body.size()) +
                                                " bytes, not " + std::to_string(descriptor.size));
        if (DigestOf(reply.body) != descriptor.digest)
          return Corrupt(descriptor.digest, "its bytes have digest " + DigestOf(reply.body));
        text = reply.body;
        if (kind == DocumentKind::kConfig) return OkStatus();
        const auto type = MediaTypeOf(text, reply.Header("content-type"));
        if (!type) return Corrupt(descriptor.digest, type.error().what);
        return descriptor.media_type.empty() || *type == descriptor.media_type
                   ? OkStatus()
                   : Corrupt(descriptor.digest, "is " + *type + ", its index says " +
                                                    descriptor.media_type.substr(0, 100));
      }));
  return text;
}

}  // namespace hutch::rootfs::registry
