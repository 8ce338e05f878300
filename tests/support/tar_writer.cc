#include "tests/support/tar_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace hutch {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kNameField = 100;

// "<length> key=value\n", where the length counts itself.
std::string PaxRecord(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

void Number(char* field, size_t size, int64_t value) {
  if (value >= 0 && value < (int64_t{1} << (3 * (size - 1)))) {
    std::snprintf(field, size, "%0*llo", static_cast<int>(size - 1),
                  static_cast<unsigned long long>(value));
    return;
  }
  for (size_t i = 0; i < size; ++i) {  // base 256, big end first
    const size_t shift = 8 * (size - 1 - i);
    field[i] = static_cast<char>(shift < 64 ? value >> shift : value < 0 ? -1 : 0);
  }
  field[0] = static_cast<char>(field[0] | '\x80');
}

}  // namespace

void TarWriter::Header(const TarEntry& entry, const std::string& name, const std::string& link,
                       uint64_t size) {
  char block[kBlock] = {};
  std::memcpy(block, name.data(), std::min(name.size(), kNameField));
  Number(block + 100, 8, entry.mode);
  Number(block + 108, 8, entry.uid);
  Number(block + 116, 8, entry.gid);
  Number(block + 124, 12, static_cast<int64_t>(size));
  Number(block + 136, 12, entry.mtime);
  block[156] = entry.type;
  std::memcpy(block + 157, link.data(), std::min(link.size(), kNameField));
  std::memcpy(block + 257, "ustar\00000", 8);
  Number(block + 329, 8, entry.type == '3' ? 1 : 8);  // device numbers
  Number(block + 337, 8, entry.type == '3' ? 5 : 0);
  std::memset(block + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block + 148, 8, "%06o", sum);
  bytes_.append(block, kBlock);
}

TarWriter& TarWriter::Add(const TarEntry& entry) {
  auto pax = entry.pax;
  if (entry.name.size() > kNameField) pax.emplace("path", entry.name);
  if (entry.link.size() > kNameField) pax.emplace("linkpath", entry.link);
  if (!pax.empty()) {
    TarEntry extra;
    extra.type = 'x';
    for (const auto& [key, value] : pax) extra.data += PaxRecord(key, value);
    Header(extra, "pax", "", extra.data.size());
    bytes_ += extra.data;
    bytes_.resize((bytes_.size() + kBlock - 1) / kBlock * kBlock);
  }
  Header(entry, entry.name, entry.link, entry.data.size());
  bytes_ += entry.data;
  bytes_.resize((bytes_.size() + kBlock - 1) / kBlock * kBlock);
  return *this;
}

TarWriter& TarWriter::Directory(const std::string& name, uint32_t mode) {
  return Add({.name = name, .type = '5', .mode = mode});
}
TarWriter& TarWriter::File(const std::string& name, const std::string& data, uint32_t mode) {
  return Add({.name = name, .type = '0', .data = data, .link = {}, .mode = mode});
}
TarWriter& TarWriter::Symlink(const std::string& name, const std::string& target) {
  return Add({.name = name, .type = '2', .data = {}, .link = target, .mode = 0777});
}
TarWriter& TarWriter::HardLink(const std::string& name, const std::string& target) {
  return Add({.name = name, .type = '1', .data = {}, .link = target});
}

}  // namespace hutch
