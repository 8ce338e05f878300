// What libarchive's return codes mean to us. Header only: for folders that link libarchive.
#pragma once

#include <archive.h>

namespace hutch {

// ARCHIVE_WARN (a name that is not ASCII, for example) is no failure. ARCHIVE_RETRY is one although
// its number is the smaller: a damaged header comes with it, and with an entry that says nothing.
inline bool ArchiveFailed(int rc) { return rc < ARCHIVE_WARN || rc == ARCHIVE_RETRY; }

}  // namespace hutch
