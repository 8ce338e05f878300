// What libarchive takes the names in an archive for.
#pragma once

namespace hutch::files {

// libarchive converts names between the archive's character set and that of the locale, which it
// asks nl_langinfo(3) for. Names are bytes here, and a static program has no locale but "C", so
// this program answers nl_langinfo(CODESET) itself (codeset.cc).
enum class Codeset {
  kAscii,  // reading tar: what is not ASCII comes as the bytes that are there, unconverted
  kUtf8,   // zip, and writing: UTF-8 names are marked as such, without conversion
};
void UseCodeset(Codeset codeset);

}  // namespace hutch::files
