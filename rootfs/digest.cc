#include "rootfs/digest.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <vector>

#include "base/text.h"
#include "oci/image_spec.h"

namespace hutch::rootfs {
namespace {

constexpr std::string_view kPrefix = "sha256:";
constexpr size_t kBlockBytes = 1u << 20;

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Add(const void* bytes, size_t size) {
  CHECK(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
}

std::string Sha256::Digest() {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(context_.get(), out, &size) == 1);
  return std::string(kPrefix) + HexEncode({reinterpret_cast<const char*>(out), size});
}

std::string DigestOf(std::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes.data(), bytes.size());
  return hash.Digest();
}

Result<std::string> DigestOfFile(int fd, uint64_t* size_bytes) {
  Sha256 hash;
  std::vector<char> block(kBlockBytes);
  *size_bytes = 0;
  while (true) {
    const ssize_t n = ::read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read");
    if (n == 0) return hash.Digest();
    hash.Add(block.data(), static_cast<size_t>(n));
    *size_bytes += static_cast<uint64_t>(n);
  }
}

Result<std::string> HexOf(const std::string& digest) {
  RETURN_IF_ERROR(oci::ValidateDigest(digest));
  if (!digest.starts_with(kPrefix))
    return Error{.code = Code::kUnsupported, .what = digest + ": only sha256 digests are stored"};
  return digest.substr(kPrefix.size());
}

}  // namespace hutch::rootfs
