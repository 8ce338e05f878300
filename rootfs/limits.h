// Bounds on images, with units. docs/limits.md has them with their tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::rootfs {

inline constexpr uint64_t kMaxLayerBytes = 32ull << 30;   // unpacked, logical sizes together
inline constexpr uint64_t kMaxLayerRatio = 500;           // plain to packed, past kRatioFreeBytes
inline constexpr uint64_t kRatioFreeBytes = 64ull << 20;  // a small layer may be all zeros
inline constexpr uint64_t kMaxLayerEntries = 2'000'000;   // of one layer
inline constexpr size_t kMaxEntryPathBytes = 4095;        // of one entry, as it stands in the tar
inline constexpr size_t kMaxEntryDepth = 128;             // directories above an entry, and itself
inline constexpr size_t kMaxEntryNameBytes = 255;         // of one component
inline constexpr size_t kMaxXattrBytes = 65536;           // of one attribute
inline constexpr size_t kMaxXattrsPerEntry = 64;          // kept attributes
inline constexpr uint32_t kMaxOwnerId = 65535;            // above: 65534, as a sandbox would see it
inline constexpr size_t kMaxArchiveFiles = 20'000;        // in the tar file of a whole image
inline constexpr uint64_t kMaxArchiveBytes = 64ull << 30;   // of a tar that is loaded
inline constexpr size_t kMaxDocumentBytes = 8u << 20;       // a manifest, index or configuration
inline constexpr size_t kMaxReportBytes = 32u << 20;        // what hutch-unpack may say
inline constexpr unsigned kUnpackCpuSeconds = 1800;         // of hutch-unpack, for one layer
inline constexpr unsigned kUnpackSeconds = 7200;            // the same on the clock
inline constexpr uint64_t kUnpackMemoryBytes = 2ull << 30;  // address space of hutch-unpack
inline constexpr unsigned kUnpackersAtOnce = 4;             // at once, for one import
inline constexpr size_t kMaxReferenceBytes = 255;           // "name:tag"
inline constexpr size_t kMaxImageNames = 1024;              // of one image
inline constexpr size_t kMaxSavedPieces = 4096;  // pieces of a file with holes, in a saved layer
inline constexpr size_t kMaxSavedNameBytes = 128u << 20;  // names kept of a layer that is saved
inline constexpr size_t kSkippedExamples = 20;  // of what a snapshot leaves out, in its answer
inline constexpr unsigned kOldDownloadSeconds = 3600;       // a part that nobody has written to
inline constexpr unsigned kBootstrapSilenceSeconds = 3600;  // mmdebstrap for one catalog image

// Stopped sandboxes.
inline constexpr size_t kMaxCopyDepth = 1000;  // directories above a file, when it is kept on disk

// Catalog entries; the operator's are read from files.
inline constexpr size_t kMaxCatalogFiles = 256;
inline constexpr size_t kMaxCatalogFileBytes = 65536;
inline constexpr size_t kMaxCatalogNameBytes = 63;
inline constexpr size_t kMaxCatalogDescriptionBytes = 1024;
inline constexpr size_t kMaxCatalogPackages = 1000;
inline constexpr size_t kMaxCatalogComponents = 8;
inline constexpr size_t kMaxCatalogWords = 64;       // entries of env, and words of cmd
inline constexpr size_t kMaxPackageNameBytes = 128;  // of a package, suite or component

// What is looked at to tell which files a command changed.
inline constexpr size_t kMaxTrackedFiles = 20'000;        // entries of one snapshot
inline constexpr size_t kMaxTrackedNameBytes = 2u << 20;  // of all their names together
inline constexpr size_t kMaxTrackedDepth = 128;           // directories below a mount
inline constexpr size_t kMaxTrackedPathBytes = 4095;      // of a directory that is listed

// Volumes.
inline constexpr size_t kMaxVolumesStored = 4096;
inline constexpr uint64_t kMinVolumeBytes = 16ull << 20;  // less has no room for a journal
inline constexpr uint64_t kMaxVolumeBytes = 16ull << 40;  // ext4's own, with blocks of 4 KiB
inline constexpr size_t kVolumeRecordBytes = 256u << 10;  // volume.json
inline constexpr unsigned kVolumeToolSeconds = 3600;      // of mke2fs and resize2fs
inline constexpr uint64_t kVolumeToolMemoryBytes = 4ull << 30;

}  // namespace hutch::rootfs
