// SHA-256 as the bytes go by, written as OCI digests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_md_ctx_st;

namespace hutch::rootfs {

class Sha256 {
 public:
  Sha256();
  void Add(const void* bytes, size_t size);
  // "sha256:<hex>" of all that was added; call it once.
  std::string Digest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string DigestOf(std::string_view bytes);
// Reads the descriptor from where it stands to its end.
Result<std::string> DigestOfFile(int fd, uint64_t* size_bytes);
// "<hex>" of "sha256:<hex>". kUnsupported for another algorithm; the digest is valid by its shape.
Result<std::string> HexOf(const std::string& digest);

}  // namespace hutch::rootfs
