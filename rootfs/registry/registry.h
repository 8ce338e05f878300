// Images from registries: the OCI distribution specification 1.1 and what Docker's registries do
// besides (token authentication, manifest lists, schema 2). HTTP by libcurl.
//
// What a registry says is untrusted: documents are parsed only after their digest was verified over
// the exact bytes, sizes are bounded before a byte is asked for, credentials go to the registry's
// own host (and to a token service that may have them, see below) and never into a log, an error or
// an argument.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/reference.h"
#include "rootfs/store.h"

namespace hutch::rootfs {

// What the operator says about registries.
struct RegistryOptions {
  std::string default_registry = kDefaultRegistry;  // of a reference that names none
  std::vector<std::string> plain_http = {};         // "host:port" that may be asked without TLS
  std::map<std::string, std::vector<std::string>> mirrors =
      {};  // host -> "host[:port]" tried before it
  // <certs_dir>/<host[:port]>/ may hold *.crt (CAs, besides the system's), and pairs NAME.cert,
  // NAME.key (client certificates), as Docker and podman lay them out. Empty: none.
  std::string certs_dir = {};
  // Docker's config.json: "auths", "credHelpers", "credsStore". Must not be readable by others
  // (0600) where it holds credentials. Empty: none.
  std::string auth_file = {};
  uint64_t layers_at_once = 4;  // downloads of one pull
  uint64_t retries = 5;         // of one request, with back-off; Retry-After is kept, bounded
  uint64_t stall_seconds = 30;  // of less than 1 KiB/s, then a request is tried again
};

struct PullRequest {
  Reference reference;      // canonical
  bool plain_http = false;  // asked for by the client for this pull
  // For this pull only, instead of the auth file; never stored. Empty: the file's.
  std::string username = {}, password = {};
};

// Progress stages: "resolve" (subject: the reference), "download" (subject: a layer's digest; done
// and total in bytes; done starts at what an earlier pull left), "exists" (a layer that is here),
// "verify", "unpack". Reports of several layers are interleaved.
//
// Downloads into <state-dir>/downloads/*.part, which outlives a failure and is gone on with by
// Range (If-Range semantics are not needed: the digest tells); removed after the image is in the
// store. Names the image by reference.ToString(). An image whose manifest digest is here already is
// not downloaded again, only named. `cancelled` is looked at several times a second.
//
// kNotFound (no such repository or tag: the registry's own words), kForbidden (authentication
// wanted or refused; names the registry, never a credential), kUnavailable (unreachable, TLS, too
// many failures: says what was tried; or cancelled), kCorrupt (names the digest), kTooLarge,
// kUnsupported, kNoSpace, kInvalidArgument.
Result<Image> Pull(Store& store, const RegistryOptions& options, const PullRequest& request,
                   const ProgressFn& progress, const std::atomic<bool>& cancelled);

}  // namespace hutch::rootfs
