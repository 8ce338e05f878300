// The image store under <state-dir>: content-addressed, crash-safe, shared by all sandboxes.
//
//   <state-dir>/images/blobs/sha256/<hex>     manifests and configs (exact bytes, digest verified)
//   <state-dir>/images/index.json             references -> manifest digest, written atomically
//   <state-dir>/layers/<diffID hex>/fs        an unpacked layer; owners are raw ids, shown idmapped
//   <state-dir>/layers/.tmp-*                 half-unpacked layers, removed at Open
//
// Directories are 0700. Blocking; the daemon calls it on a worker thread. Thread-safe: one internal
// mutex for the index, which List and Resolve hold for moments only; unpacking runs outside it. Of
// two imports of one layer at once, both unpack and the first to finish is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/image_spec.h"
#include "rootfs/tar_stream.h"

namespace hutch::rootfs {

struct ImageSource;
class LayerInputs;

struct Image {
  std::string id;                       // "sha256:<hex>" of the manifest
  std::vector<std::string> references;  // "python:latest"
  oci::ImageConfig config;
  // "sha256:<hex>", lowest layer first, each once: of a repeated layer the topmost.
  std::vector<std::string> diff_ids;
  uint64_t size_bytes = 0;  // of its unpacked layers on disk
  std::string created;      // RFC 3339 from the config, may be empty
};

struct Progress {
  std::string stage;    // "verify", "unpack", "bootstrap", ...
  std::string subject;  // a digest or package set
  uint64_t done = 0;
  uint64_t total = 0;  // 0: unknown
};
using ProgressFn = std::function<void(const Progress&)>;

class Store {
 public:
  // Makes the directories where missing and sweeps what belongs to no image. kNoSpace, kKernel;
  // kCorrupt when the index itself cannot be read. `default_registry` is the one that pulled images
  // named without a registry come from; empty: none.
  static Result<std::unique_ptr<Store>> Open(const std::string& state_dir,
                                             const std::string& default_registry = {});
  virtual ~Store() = default;

  // Imports from an OCI image layout directory, or an OCI or docker-archive tar file (none, gzip,
  // zstd), and names the result `reference` (empty: the reference inside, else "imported:latest").
  // Trusted path on the host, untrusted content. kNotFound, kCorrupt (names the digest),
  // kInvalidArgument, kUnsupported, kNoSpace, kTooLarge; kExists when the reference inside names
  // another image here; kLimit as Tag. Leaves nothing behind on failure. Where the name was another
  // image's, that one stays, by its id.
  virtual Result<Image> Import(const std::string& path, const std::string& reference,
                               const ProgressFn& progress) = 0;
  // What a pull needs (rootfs/registry/). Where half-downloaded layers lie; empty: nowhere.
  virtual std::string DownloadsDirectory() const { return ""; }
  // Whether the layer is here. Between ImportFetched's first look and its end, what is stays.
  virtual bool HasLayer(const std::string& /*diff_id*/) { return false; }
  // As Import, of an image whose documents were read and verified and whose layers `inputs` (may)
  // still bring. Layers that are here are not asked for (reported as "exists"). Errors as Import,
  // and those of `inputs`.
  virtual Result<Image> ImportFetched(ImageSource source, const std::string& reference,
                                      LayerInputs& inputs, const ProgressFn& progress);
  // By "name", "name:tag", "sha256:<hex>" or a unique prefix of the hex of at least 6; or, when no
  // image has that name, as ParseReference reads it with the default registry. kNotFound.
  virtual Result<Image> Resolve(const std::string& reference) = 0;
  virtual std::vector<Image> List() = 0;
  // What Open dropped because its documents or layers were gone or changed: "<id>: <why>".
  virtual std::vector<std::string> Damaged() { return {}; }
  // Drops the reference; the image and its layers go with the last one. `image_id` is what the
  // caller knows by that reference: kBadState when it is another image's by now. `in_use` holds
  // manifest ids of living sandboxes: kBadState when the image is among them. kNotFound. Returns
  // what was removed.
  struct Removed {
    std::vector<std::string> references;
    std::vector<std::string> layers;
    uint64_t freed_bytes = 0;
  };
  virtual Result<Removed> Remove(const std::string& reference, const std::string& image_id,
                                 const std::vector<std::string>& in_use) = 0;
  // O_PATH | O_DIRECTORY of an unpacked layer's fs/. kNotFound.
  virtual Result<UniqueFd> OpenLayer(const std::string& diff_id) = 0;

  // As Import, of a tar that is open and belongs to nobody else. Borrows fd.
  virtual Result<Image> Load(int fd, const std::string& reference, const ProgressFn& progress);
  // One more name for an image; it is taken from the image that had it, which stays by its id.
  // kNotFound, kInvalidArgument; kLimit above kMaxImageNames, or when the index would be too large.
  virtual Result<Image> Tag(const std::string& reference, const std::string& name);
  // The exact bytes of its configuration. kNotFound.
  virtual Result<std::string> ConfigText(const std::string& image_id);
  // Bytes on disk of each layer that an image has, by diffID.
  virtual std::map<std::string, uint64_t> LayerBytes();
  // While it is held no layer of the image is removed, whatever becomes of the image. Letting go of
  // it removes those that no image has any more: as slow as that.
  virtual std::shared_ptr<const void> Hold(const Image& image);

  // One layer more over an image that is here.
  struct SealRequest {
    std::string parent;     // id
    std::string reference;  // empty: the image has no name
    std::string created_by;
    std::map<std::string, std::string> labels;  // set in the configuration
    // Writes the layer's tar; on a thread of its own, which has ended when Seal does.
    std::function<Status(const ByteSink& sink)> write;
  };
  // An image of the parent's configuration, with the layer unpacked as every other. Leaves nothing
  // behind on failure, nor when the daemon ends meanwhile. Errors as Import, and those of `write`.
  virtual Result<Image> Seal(const SealRequest& request, const ProgressFn& progress);

  struct PruneRequest {
    enum class Which { kUnnamed, kUnused } which = Which::kUnnamed;
    enum class Mode { kRemove, kDryRun } mode = Mode::kRemove;
    std::vector<std::string> in_use = {};  // manifest ids, as for Remove
    std::vector<std::string> only = {};    // ids that may be removed; others are left alone
  };
  struct Pruned {
    std::vector<Image> images;        // removed, or to be
    std::vector<Image> kept;          // would have been, but a sandbox uses them
    std::vector<std::string> layers;  // of no image (any more)
    std::vector<std::string> files;   // of downloads that nobody goes on with: their names
    std::vector<std::string> failed;  // what could not be removed, and why
    uint64_t freed_bytes = 0;
  };
  // Removes images without a name (kUnused: all that no sandbox uses), layers of no image, and
  // parts of downloads that nobody has touched for kOldDownloadSeconds. kNoSpace, kKernel when the
  // index cannot be written: then nothing was removed.
  virtual Result<Pruned> Prune(const PruneRequest& request);
};

// Builds the catalog's image of that name (rootfs/catalog.h: built in, or a file in `catalog_dir`)
// from Debian packages with mmdebstrap, as an OCI layout in `work_dir` (made, and removed by the
// caller), and imports it as "<name>:latest". The same packages give the same manifest digest.
// kNotFound for an unknown name (lists the known), the error of an operator's file that is refused,
// kUnavailable when the host has no apt source of its suite, or mmdebstrap is missing or fails (its
// last lines are in the error).
Result<Image> BuildCatalogImage(Store& store, const std::string& catalog_dir,
                                const std::string& name, const std::string& work_dir,
                                const ProgressFn& progress);

}  // namespace hutch::rootfs
