#include "files/request.h"

#include "base/base64.h"
#include "base/text.h"
#include "files/limits.h"

namespace hutch::files {
namespace {

constexpr mode_t kPermissions = 0777;

// Reads `name` as text or `name`_base64 as bytes; false when neither or both are there.
bool ReadBytes(oci::ObjectReader& reader, const std::string& name, std::string* bytes,
               size_t max_bytes) {
  const std::string encoded_name = name + "_base64";
  std::string encoded;
  const bool plain = reader.Member(name.c_str()) != nullptr;
  if (plain == (reader.Member(encoded_name.c_str()) != nullptr)) {
    reader.Fail(name.c_str(), plain ? "is given twice" : "is missing");
    return false;
  }
  if (plain) {
    // Through Json, not reader.String(): a content may hold NUL bytes.
    const oci::Json* member = reader.Member(name.c_str());
    if (!member->is_string()) return reader.Fail(name.c_str(), "must be a string"), false;
    *bytes = member->get<std::string>();
  } else {
    reader.String(encoded_name.c_str(), &encoded, max_bytes * 2);
    if (!Base64Decode(encoded, bytes))
      return reader.Fail(encoded_name.c_str(), "is not base64"), false;
  }
  if (bytes->size() <= max_bytes) return true;
  reader.Fail(name.c_str(), "has more than " + std::to_string(max_bytes) + " bytes");
  return false;
}

}  // namespace

void ReadPath(oci::ObjectReader& reader, const std::string& name, std::string* path) {
  if (!ReadBytes(reader, name, path, kMaxPathBytes)) return;
  if (path->find('\0') != std::string::npos) reader.Fail(name.c_str(), "holds a NUL byte");
  if (!path->starts_with('/')) reader.Fail(name.c_str(), "must be absolute");
}

void ReadMode(oci::ObjectReader& reader, const char* name, std::optional<mode_t>* mode) {
  std::string text;
  reader.String(name, &text, 8);
  if (text.empty()) return;
  mode_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '7') return reader.Fail(name, "must be octal, like \"0644\"");
    value = value * 8 + static_cast<mode_t>(c - '0');
  }
  if (value > kPermissions) return reader.Fail(name, "has more than the permissions 0777");
  *mode = value;
}

void ReadContent(oci::ObjectReader& reader, const std::string& name, std::string* content) {
  ReadBytes(reader, name, content, kMaxRequestBytes);
}

void PutPath(oci::Json& object, const std::string& name, const std::string& path) {
  if (IsUtf8(path))
    object[name] = path;
  else
    object[name + "_base64"] = Base64Encode(path);
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

std::string DirectoryOf(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const size_t slash = trimmed.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : trimmed.substr(0, slash);
}

std::string NameOf(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return trimmed.substr(trimmed.rfind('/') + 1);
}

}  // namespace hutch::files
