// What libarchive's return codes mean to us, for the folders that use it.
#pragma once

namespace hutch {

// Its numbers, which are its ABI: ARCHIVE_RETRY and ARCHIVE_WARN of <archive.h>.
inline constexpr int kArchiveRetry = -10, kArchiveWarn = -20;

// A warning (a name that is not ASCII, for example) is no failure. ARCHIVE_RETRY is one although
// its number is the smaller: a damaged header comes with it, and with an entry that says nothing.
inline bool ArchiveFailed(int rc) { return rc < kArchiveWarn || rc == kArchiveRetry; }

}  // namespace hutch
