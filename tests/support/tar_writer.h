// Tars entry by entry, with whatever a header can be made to say: tar(5), ustar with pax records.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hutch {

struct TarEntry {
  std::string name = {};
  char type =
      '0';  // '0' file, '1' hard link, '2' symlink, '3' char, '4' block, '5' directory, '6' FIFO
  std::string data = {};
  std::string link = {};
  uint32_t mode = 0644;
  int64_t uid = 0, gid = 0;
  int64_t mtime = 1'600'000'000;
  std::map<std::string, std::string> pax = {};  // "SCHILY.xattr.user.a", "path", "mtime", ...
};

class TarWriter {
 public:
  // Names and links that do not fit go into pax records. Owners above 2^21 are written in base 256.
  TarWriter& Add(const TarEntry& entry);
  TarWriter& Directory(const std::string& name, uint32_t mode = 0755);
  TarWriter& File(const std::string& name, const std::string& data, uint32_t mode = 0644);
  TarWriter& Symlink(const std::string& name, const std::string& target);
  TarWriter& HardLink(const std::string& name, const std::string& target);
  // The whole tar, with its end mark.
  std::string Bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  void Header(const TarEntry& entry, const std::string& name, const std::string& link,
              uint64_t size);
  std::string bytes_;
};

}  // namespace hutch
