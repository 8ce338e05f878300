#include "rootfs/tar_stream.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kNameBytes = 100;  // of ustar's name and link fields
constexpr uint64_t kMaxOctal11 = (uint64_t{1} << 33) - 1;
constexpr uint64_t kMaxOctal7 = (uint64_t{1} << 21) - 1;

struct UstarHeader {  // tar(5)
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
  char magic[6], version[2], user[32], group[32], device_major[8], device_minor[8], prefix[155];
  char padding[12];
};
static_assert(sizeof(UstarHeader) == kBlock);

template <size_t kSize>
void PutOctal(char (&field)[kSize], uint64_t value) {
  std::snprintf(field, kSize, "%0*" PRIo64, static_cast<int>(kSize - 1), value);
}

// Cut where it does not fit: then a pax record says all of it.
template <size_t kSize>
void PutText(char (&field)[kSize], std::string_view text) {
  std::memcpy(field, text.data(), std::min(kSize, text.size()));
}

std::string Block(const TarHeader& header, uint64_t size) {
  UstarHeader block{};
  PutText(block.name, header.path);
  PutText(block.link, header.link);
  PutOctal(block.mode, header.mode & 07777u);
  PutOctal(block.uid, std::min<uint64_t>(header.uid, kMaxOctal7));
  PutOctal(block.gid, std::min<uint64_t>(header.gid, kMaxOctal7));
  PutOctal(block.size, std::min(size, kMaxOctal11));
  const auto seconds = header.mtime.tv_sec < 0 ? 0 : static_cast<uint64_t>(header.mtime.tv_sec);
  PutOctal(block.mtime, std::min(seconds, kMaxOctal11));
  block.type = header.type;
  std::memcpy(block.magic, "ustar", 6);
  std::memcpy(block.version, "00", 2);
  std::memset(block.checksum, ' ', sizeof block.checksum);
  std::string bytes(reinterpret_cast<const char*>(&block), sizeof block);
  uint64_t sum = 0;
  for (const char c : bytes) sum += static_cast<unsigned char>(c);
  std::snprintf(block.checksum, sizeof block.checksum, "%06" PRIo64, sum);
  block.checksum[7] = ' ';
  bytes.assign(reinterpret_cast<const char*>(&block), sizeof block);
  return bytes;
}

// "LENGTH KEY=VALUE\n", where LENGTH counts itself.
std::string PaxRecord(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (length != rest + std::to_string(length).size())
    length = rest + std::to_string(length).size();
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

// Of times before 1970 whole seconds: readers disagree about what the fraction of a negative number
// counts.
std::string TimeText(const timespec& time) {
  if (time.tv_sec < 0) return std::to_string(time.tv_sec);
  char text[48];
  std::snprintf(text, sizeof text, "%" PRId64 ".%09ld", int64_t{time.tv_sec}, time.tv_nsec);
  return text;
}

std::string SparseMap(const std::vector<DataPiece>& pieces) {
  std::string map = std::to_string(pieces.size()) + "\n";
  for (const DataPiece& piece : pieces)
    map += std::to_string(piece.offset) + "\n" + std::to_string(piece.size) + "\n";
  map.resize((map.size() + kBlock - 1) / kBlock * kBlock, '\0');
  return map;
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Result<std::string> Records(const TarHeader& header, uint64_t stored_bytes) {
  std::string records;
  const bool sparse = !header.pieces.empty();
  const bool long_path = header.path.size() > kNameBytes && !sparse;
  const bool long_link = header.link.size() > kNameBytes;
  if ((long_path && !IsUtf8(header.path)) || (long_link && !IsUtf8(header.link)) ||
      (sparse && !IsUtf8(header.path)))
    records += PaxRecord("hdrcharset", "BINARY");
  if (sparse)
    records += PaxRecord("GNU.sparse.major", "1") + PaxRecord("GNU.sparse.minor", "0") +
               PaxRecord("GNU.sparse.name", header.path) +
               PaxRecord("GNU.sparse.realsize", std::to_string(header.size));
  if (long_path) records += PaxRecord("path", header.path);
  if (long_link) records += PaxRecord("linkpath", header.link);
  if (header.mtime.tv_nsec != 0 || header.mtime.tv_sec < 0 ||
      static_cast<uint64_t>(header.mtime.tv_sec) > kMaxOctal11)
    records += PaxRecord("mtime", TimeText(header.mtime));
  if (header.uid > kMaxOctal7) records += PaxRecord("uid", std::to_string(header.uid));
  if (header.gid > kMaxOctal7) records += PaxRecord("gid", std::to_string(header.gid));
  if (stored_bytes > kMaxOctal11) records += PaxRecord("size", std::to_string(stored_bytes));
  for (const auto& [name, value] : header.xattrs) {
    if (name.find('=') != std::string::npos)
      return Error{
          .code = Code::kUnsupported,
          .what = "\"" + header.path + "\" has an attribute that a tar cannot hold: " + name};
    records += PaxRecord("SCHILY.xattr." + name, value);
  }
  return records;
}

}  // namespace

Status TarStream::Data(std::string_view bytes) {
  written_ += bytes.size();
  return sink_(bytes);
}

Status TarStream::Pad() {
  const size_t over = written_ % kBlock;
  written_ = 0;
  return over == 0 ? OkStatus() : sink_(std::string(kBlock - over, '\0'));
}

Status TarStream::Record(const TarHeader& header, const std::string& records) {
  const TarHeader extended{.path = "PaxHeaders/" + NameOf(header.path), .type = 'x'};
  RETURN_IF_ERROR(Data(Block(extended, records.size())));
  RETURN_IF_ERROR(Data(records));
  return Pad();
}

Status TarStream::Begin(const TarHeader& header) {
  std::string map;
  uint64_t stored = header.size;
  if (!header.pieces.empty()) {
    map = SparseMap(header.pieces);
    stored = map.size();
    for (const DataPiece& piece : header.pieces) stored += piece.size;
  }
  ASSIGN_OR_RETURN(const std::string records, Records(header, stored));
  if (!records.empty()) RETURN_IF_ERROR(Record(header, records));
  TarHeader shown = header;
  if (!header.pieces.empty()) shown.path = "GNUSparseFile.0/" + NameOf(header.path);
  if (header.type == '5') shown.path += '/';
  RETURN_IF_ERROR(sink_(Block(shown, stored)));
  written_ = 0;
  return map.empty() ? OkStatus() : Data(map);
}

Status TarStream::End() { return sink_(std::string(2 * kBlock, '\0')); }

uint64_t PlainEntryBytes(uint64_t size) {
  const uint64_t record = size > kMaxOctal11 ? 2 * kBlock : 0;  // that says the size
  return record + kBlock + (size + kBlock - 1) / kBlock * kBlock;
}

}  // namespace hutch::rootfs
