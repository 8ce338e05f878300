#include "files/codeset.h"

#include <langinfo.h>

namespace hutch::files {
namespace {

// Mutable, since nl_langinfo takes no context; one request runs in one process.
Codeset current = Codeset::kUtf8;

}  // namespace

void UseCodeset(Codeset codeset) { current = codeset; }

}  // namespace hutch::files

// In place of the C library's, for this program alone; libarchive asks for CODESET and nothing
// else.
extern "C" char* nl_langinfo(nl_item) {
  static char ascii[] = "ANSI_X3.4-1968", utf8[] = "UTF-8";
  return hutch::files::current == hutch::files::Codeset::kAscii ? ascii : utf8;
}
